"""What a resolved plan says of documents, devices and schedules that decide its numbers."""

from dataclasses import replace

import pytest

from service.core.plans.check import check_plan
from service.core.plans.plan import (
    Degrees,
    Dimension,
    GivenStage,
    Partition,
    Placement,
    Plan,
    Schedule,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.profiles.profile import Profile
from service.core.schedules.catalogue import SCHEDULES
from service.core.topology.cluster import Cluster, VertexKind
from tests.core.plans.worlds import chain, chain_profile, cluster, given_plan, profiled_plan

HALVES = GivenStage(1.0, backward_input_seconds=1.0, backward_weight_seconds=1.0)
PRICED = profiled_plan(Partition(layers_per_stage=(1, 1)), degrees=Degrees(2), topology="two@1")


def said_of(
    plan: Plan, profile: Profile | None = None, devices: Cluster | None = None
) -> dict[str, str]:
    model = None if profile is None else chain(2)
    resolved = resolve(plan, cluster=devices, model=model, profile=profile)
    return {said.code: said.detail for said in resolved.assumptions}


def of_product(product: str | None) -> Cluster:
    bare = cluster()
    return replace(
        bare,
        vertices={
            name: replace(vertex, product=product) if vertex.kind is VertexKind.GPU else vertex
            for name, vertex in bare.vertices.items()
        },
    )


def of_device(device: str | None, description: str = "") -> Profile:
    return replace(chain_profile(2), device=device, description=description)


def test_what_a_profile_says_of_itself_is_repeated() -> None:
    invented = of_device("H100", "invented, measured nowhere")
    said = said_of(PRICED, invented, cluster())["profile"]
    assert "chain-gpu@1, of H100" in said
    assert said.endswith("it says of itself: invented, measured nowhere")
    silent = said_of(PRICED, of_device(None), cluster())["profile"]
    assert "a device that it does not name" in silent
    assert silent.endswith("it does not say how it was measured")
    assert "profile" not in said_of(given_plan(HALVES, HALVES))


@pytest.mark.parametrize(
    ("device", "product", "differs"),
    [
        ("H100-SXM5-80GB", "NVIDIA A100 SXM4 80GB", True),
        ("A100-SXM4-40GB", "NVIDIA A100 SXM4 80GB", True),
        ("H100-SXM5-80GB", "NVIDIA H100 SXM5 80GB", False),
        ("h100", "NVIDIA H100 SXM5 80GB", False),
        (None, "NVIDIA H100 SXM5 80GB", False),
        ("H100", None, False),
    ],
)
def test_a_profile_of_another_device_is_told(
    device: str | None, product: str | None, differs: bool
) -> None:
    said = said_of(PRICED, of_device(device), of_product(product))
    assert ("device_differs" in said) is differs
    if differs:
        assert f"is of {device}, the ranks stand on {product}: " in said["device_differs"]


def test_devices_that_nobody_named_are_told() -> None:
    said = said_of(given_plan(HALVES, HALVES, topology="two@1"), devices=cluster())
    assert said["default_devices"].endswith(
        "its 2 ranks stand on the first 2 of the topology's 4, in its order, ranks counted by "
        "tensor, context, data, pipeline (innermost first)"
    )
    ordered = Placement((Dimension.DATA, Dimension.PIPELINE))
    said = said_of(given_plan(HALVES, topology="two@1", placement=ordered), devices=cluster())
    assert "its rank stands on the first 1 of" in said["default_devices"]
    assert "counted by data, pipeline (" in said["default_devices"]
    named = Placement(devices=("host0/gpu*",))
    plan = given_plan(HALVES, HALVES, topology="two@1", placement=named)
    assert "default_devices" not in said_of(plan, devices=cluster())
    assert "default_devices" not in said_of(given_plan(HALVES, HALVES))


def of_family(name: str, stages: int, ranks: int, chunks: int) -> Plan:
    return Plan(Degrees(ranks), Workload(8), Schedule(name, chunks), stages=(HALVES,) * stages)


def test_schedules_of_several_chunks_say_on_how_many_ranks_stages_lie() -> None:
    several = [name for name, family in SCHEDULES.items() if (family.chunks or 1) > 1]
    assert {"v_half", "v_min", "zb_v", "dualpipe_v"} <= set(several)
    for name in several:
        said = said_of(of_family(name, 4, 2, 2))["chunks_on_rank"]
        assert said == f"{name} has 2 chunks a rank: these 4 stages lie on 2 ranks"
    assert "chunks_on_rank" not in said_of(given_plan(HALVES, HALVES))


@pytest.mark.parametrize(
    ("name", "stages", "chunks", "multiple"),
    [("v_half", 5, 2, 2), ("interleaved_1f1b", 7, 3, 3), ("v_half", 6, 2, None)],
)
def test_a_number_of_stages_that_no_ranks_hold_is_a_multiple_short(
    name: str, stages: int, chunks: int, multiple: int | None
) -> None:
    """Two ranks, as would be derived from 5 or 7 stages; 6 are a multiple, of more ranks."""
    plan = of_family(name, stages, 2, chunks)
    by_counts = replace(
        plan, stages=None, model="m", profile="p", partition=Partition((1,) * stages)
    )
    by_cuts = replace(by_counts, partition=Partition(cuts=tuple(range(1, stages))))
    for one in (plan, by_counts, by_cuts):
        details = " ".join(fault.detail for fault in check_plan(one))
        assert f"{2 * chunks} stages" in details
        assert (f"a multiple of {multiple}" in details) is (multiple is not None)
        assert ("a multiple of" in details) is (multiple is not None)


def test_the_longer_warm_up_of_zb_h2_shows_in_the_span() -> None:
    assert "span_gains" in said_of(of_family("zb_h2", 4, 4, 1))
    assert "span_gains" not in said_of(of_family("zb_h2", 1, 1, 1))
    assert "span_gains" not in said_of(of_family("zb_h1", 4, 4, 1))


def test_one_chunk_says_what_its_warm_up_keeps() -> None:
    assert "2 (P - 1 - r) + 1" in said_of(of_family("interleaved_1f1b", 4, 4, 1))["one_chunk"]
    assert "warm-up" not in said_of(of_family("looped_bfs", 4, 4, 1))["one_chunk"]
    assert "one_chunk" not in said_of(of_family("interleaved_1f1b", 4, 2, 2))
