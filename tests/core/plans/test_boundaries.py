"""Transfers over boundaries: by hand on two hosts, and against what their paths allow."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.amounts import largest
from service.core.errors import FaultCode
from service.core.plans import boundaries
from service.core.plans.plan import (
    Boundary,
    Degrees,
    Dimension,
    GivenStage,
    Placement,
    Plan,
    ResolvedPlan,
    Schedule,
    TransferOrigin,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.topology.cluster import Cluster
from tests.core.plans.worlds import cluster, given_plan
from tests.core.refusals import refusal_text, refusals

MICROBATCHES = ("workload", "microbatches")

STAGE = GivenStage(1.0, backward_seconds=2.0)


def two_stages(first: GivenStage, where: Cluster, *devices: str) -> ResolvedPlan:
    plan = given_plan(first, STAGE, topology="two@1", placement=Placement(devices=devices))
    return resolve(plan, cluster=where)


def times(boundary: Boundary) -> tuple[int, int, int, int]:
    """Predictions there and back, then bounds; of microbatches that are alike."""
    found = (
        boundary.forward_picoseconds,
        boundary.backward_picoseconds,
        boundary.forward_bound_picoseconds,
        boundary.backward_bound_picoseconds,
    )
    there, back, least_there, least_back = (time for time in found if isinstance(time, int))
    return there, back, least_there, least_back


def test_a_path_gives_time_and_bound_by_hand() -> None:
    """Over six links: latency 6 x 2 us, floor 6 x 1 us; 10 GB/s nominal, 8 GB/s effective."""
    stage = replace(STAGE, boundary_bytes=8_000_000, backward_boundary_bytes=4_000_000)
    (boundary,) = two_stages(stage, cluster(), "host0/gpu0", "host1/gpu0").boundaries
    assert boundary.origin is TransferOrigin.PATH
    # 12 us + 8 MB / 8 GB/s, 12 us + 4 MB / 8 GB/s; 6 us + 8 MB / 10 GB/s, 6 us + 4 MB / 10 GB/s.
    expected = (1_012_000_000, 512_000_000, 806_000_000, 406_000_000)
    for found, hand in zip(times(boundary), expected, strict=True):
        assert abs(found - hand) <= 1
    (pair,) = boundary.pairs
    assert (pair.source_device, pair.target_device) == ("host0/gpu0", "host1/gpu0")
    assert pair.forward_path is not None
    assert pair.forward_path.bottleneck is not None
    assert pair.forward_path.bottleneck.name == "host0/nic0->leaf0"
    assert pair.backward_path is not None
    assert pair.backward_path.bottleneck is not None
    assert pair.backward_path.bottleneck.name == "host1/nic0->leaf0"


def test_moving_a_neighbour_to_another_host_changes_path_and_bound() -> None:
    stage = replace(STAGE, boundary_bytes=8_000_000)
    (near,) = two_stages(stage, cluster(), "host0/gpu0", "host0/gpu1").boundaries
    (far,) = two_stages(stage, cluster(), "host0/gpu0", "host1/gpu0").boundaries
    assert times(near)[2] < times(far)[2]
    assert near.pairs[0].forward_path != far.pairs[0].forward_path


def test_gradients_are_as_large_as_the_tensors_unless_said_otherwise() -> None:
    stage = replace(STAGE, boundary_bytes=1000)
    resolved = two_stages(stage, cluster(), "host0/gpu0", "host1/gpu0")
    assert resolved.boundaries[0].backward_bytes == 1000
    assert "backward_bytes_defaulted" in {said.code for said in resolved.assumptions}


def test_nothing_to_send_takes_no_time() -> None:
    stage = replace(STAGE, boundary_bytes=0)
    (boundary,) = two_stages(stage, cluster(), "host0/gpu0", "host1/gpu0").boundaries
    assert boundary.origin is TransferOrigin.PATH
    assert times(boundary) == (0, 0, 0, 0)


def test_a_schedule_without_backward_sends_nothing_back() -> None:
    plan = given_plan(
        GivenStage(1.0, transfer_seconds=1e-3),
        GivenStage(1.0, boundary_bytes=1000),
        GivenStage(1.0),
        kind="forward_only",
        topology="two@1",
    )
    first, second = resolve(plan, cluster=cluster()).boundaries
    assert times(first) == (10**9, 0, 10**9, 0)
    assert second.backward_bytes == 0
    assert times(second)[1] == 0
    assert times(second)[0] > 0


def test_given_times_stand_and_bound_what_no_path_bounds() -> None:
    plan = given_plan(
        replace(STAGE, transfer_seconds=1e-3, backward_transfer_seconds=2e-3),
        replace(STAGE, transfer_seconds=3e-3),
        STAGE,
    )
    resolved = resolve(plan)
    assert [times(boundary) for boundary in resolved.boundaries] == [
        (10**9, 2 * 10**9, 10**9, 2 * 10**9),
        (3 * 10**9, 3 * 10**9, 3 * 10**9, 3 * 10**9),
    ]
    assert {boundary.origin for boundary in resolved.boundaries} == {TransferOrigin.GIVEN}
    assert resolved.boundaries[0].forward_bytes is None


def test_a_given_time_is_bounded_by_the_path_where_bytes_are_known() -> None:
    stage = replace(STAGE, boundary_bytes=8_000_000, transfer_seconds=2e-3)
    (boundary,) = two_stages(stage, cluster(), "host0/gpu0", "host1/gpu0").boundaries
    assert boundary.origin is TransferOrigin.GIVEN
    assert boundary.forward_picoseconds == 2 * 10**9
    assert abs(times(boundary)[2] - 806_000_000) <= 1
    assert boundary.pairs[0].forward_picoseconds == 2 * 10**9


def test_a_given_time_below_the_physical_bound_is_refused() -> None:
    stage = replace(
        STAGE, boundary_bytes=8_000_000, transfer_seconds=0.8e-3, backward_transfer_seconds=1e-3
    )
    call = lambda: two_stages(stage, cluster(), "host0/gpu0", "host1/gpu0")  # noqa: E731
    assert refusals(call) == [(FaultCode.INCONSISTENT, ("costs", "stages", 0, "transfer_seconds"))]
    assert "host0/nic0->leaf0 is narrowest" in refusal_text(call)


def test_a_bound_that_rests_on_an_assumption_refuses_nothing() -> None:
    stage = replace(STAGE, boundary_bytes=8_000_000, transfer_seconds=0.5e-3)
    resolved = two_stages(stage, cluster(assumed=True), "host0/gpu0", "host1/gpu0")
    assert times(resolved.boundaries[0]) == (500_000_000,) * 4
    codes = {said.code for said in resolved.assumptions}
    assert {"given_below_assumed_bound", "assumed_bandwidth"} <= codes


def test_without_bytes_or_path_a_transfer_counts_zero_and_says_so() -> None:
    bare = resolve(given_plan(STAGE, STAGE))
    sized = resolve(given_plan(replace(STAGE, boundary_bytes=9), STAGE))
    for resolved, why in ((bare, "neither times nor bytes"), (sized, "no topology")):
        assert times(resolved.boundaries[0]) == (0, 0, 0, 0)
        assert resolved.boundaries[0].origin is TransferOrigin.ASSUMED_ZERO
        told = [said.detail for said in resolved.assumptions if said.code == "zero_transfers"]
        assert len(told) == 1
        assert why in told[0]
    assert "boundary_bytes" in {said.code for said in bare.not_represented}
    assert "boundary_bytes" not in {said.code for said in sized.not_represented}


def test_unknown_latencies_and_rates_are_told() -> None:
    where = cluster(latency_seconds=None, effective=None)
    stage = replace(STAGE, boundary_bytes=8_000_000)
    resolved = two_stages(stage, where, "host0/gpu0", "host1/gpu0")
    codes = {said.code for said in resolved.assumptions}
    assert {"latency_unknown", "nominal_bandwidth", "pinned_paths"} <= codes
    assert resolved.boundaries[0].forward_picoseconds == pytest.approx(806_000_000, abs=1)
    known = two_stages(stage, cluster(), "host0/gpu0", "host1/gpu0")
    assert not {"latency_unknown", "nominal_bandwidth"} & {s.code for s in known.assumptions}


def test_unreachable_ranks_are_named() -> None:
    stage = replace(STAGE, boundary_bytes=1)
    call = lambda: two_stages(stage, cluster(joined=False), "host0/gpu0", "host1/gpu0")  # noqa: E731
    assert refusals(call) == [(FaultCode.UNREACHABLE, ("placement",))]
    text = refusal_text(call)
    assert "host0/gpu0 (rank 0)" in text
    assert "host1/gpu0 (rank 1)" in text


def test_every_replica_has_a_pair_and_the_slowest_sets_the_time() -> None:
    """Two replicas: one pipeline stays in its host, the other crosses to the second host."""
    plan = given_plan(
        replace(STAGE, boundary_bytes=8_000_000),
        STAGE,
        degrees=Degrees(2, data=2),
        topology="two@1",
        placement=Placement(
            order=(Dimension.PIPELINE, Dimension.DATA),
            devices=("host0/gpu0", "host0/gpu1", "host1/gpu0", "host2/gpu0"),
        ),
    )
    (boundary,) = resolve(plan, cluster=cluster(hosts=3)).boundaries
    assert [(pair.source_rank, pair.target_rank) for pair in boundary.pairs] == [(0, 1), (2, 3)]
    alone = [largest(pair.forward_picoseconds or 0) for pair in boundary.pairs]
    assert alone[0] < alone[1]
    assert boundary.forward_picoseconds == alone[1]
    bounds = [largest(pair.forward_bound_picoseconds or 0) for pair in boundary.pairs]
    assert bounds[0] < bounds[1]
    assert boundary.forward_bound_picoseconds == bounds[1]


def test_the_search_for_paths_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundaries, "MAX_LINKS_SEARCHED", 3)

    def far() -> ResolvedPlan:
        return two_stages(STAGE, cluster(), "host0/gpu[0,1]")

    assert refusals(far) == [(FaultCode.WORK_BUDGET, ("topology",))]
    assert "place ranks that exchange data nearer to each other" in refusal_text(far)


def test_the_number_of_pairs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundaries, "MAX_RANK_PAIRS", 3)
    plan = given_plan(STAGE, STAGE, degrees=Degrees(2, tensor=4))
    assert refusals(lambda: resolve(plan)) == [(FaultCode.WORK_BUDGET, ("parallelism",))]


@given(
    message=st.integers(0, 2**40),
    more=st.integers(0, 2**40),
    crossing=st.booleans(),
    effective=st.none() | st.floats(1e9, 10e9),
    latency=st.none() | st.floats(1e-6, 1e-3),
)
def test_no_prediction_is_below_its_bound(
    message: int, more: int, crossing: bool, effective: float | None, latency: float | None
) -> None:
    where = cluster(effective=effective, latency_seconds=latency)
    target = "host1/gpu0" if crossing else "host0/gpu1"
    found = [
        two_stages(replace(STAGE, boundary_bytes=size), where, "host0/gpu0", target)
        for size in (message, message + more)
    ]
    less, greater = (times(resolved.boundaries[0]) for resolved in found)
    for forward, backward, forward_bound, backward_bound in (less, greater):
        assert 0 <= forward_bound <= forward
        assert 0 <= backward_bound <= backward
    assert all(a <= b for a, b in zip(less, greater, strict=True))
    for resolved in found:
        (pair,) = resolved.boundaries[0].pairs
        assert largest(pair.forward_bound_picoseconds or 0) <= times(resolved.boundaries[0])[0]


def test_a_path_that_prices_nothing_is_not_said_to() -> None:
    """A given time is no path's; without bytes there is neither a prediction nor a bound."""
    where = cluster(latency_seconds=None, effective=None, assumed=True)
    unknown = {"latency_unknown", "nominal_bandwidth"}
    given = replace(STAGE, boundary_bytes=8_000_000, transfer_seconds=1e-3)
    for stage, told in (
        (replace(STAGE, boundary_bytes=8_000_000), unknown | {"assumed_bandwidth"}),
        (given, {"assumed_bandwidth"}),
        (replace(STAGE, transfer_seconds=1e-3), set()),
        (STAGE, set()),
    ):
        resolved = two_stages(stage, where, "host0/gpu0", "host1/gpu0")
        codes = {said.code for said in resolved.assumptions}
        assert codes & (unknown | {"assumed_bandwidth"}) == told


def test_a_transfer_beyond_what_is_counted_is_refused_once() -> None:
    stage = replace(STAGE, boundary_bytes=9 * 10**14)  # over 8 GB/s
    plan = given_plan(stage, STAGE, topology="two@1", workload=Workload(1))
    apart = replace(plan, placement=Placement(devices=("host0/gpu0", "host1/gpu0")))
    call = lambda: resolve(apart, cluster=cluster())  # noqa: E731
    assert refusals(call) == [(FaultCode.OUT_OF_RANGE, ("topology",))]
    assert "on their path" in refusal_text(call)


def test_bytes_of_an_iteration_that_json_would_not_carry_are_refused() -> None:
    """Four microbatches there and back, on two replicas."""

    def plan(size: int) -> Plan:
        stage = replace(STAGE, boundary_bytes=size)
        return given_plan(stage, STAGE, degrees=Degrees(2, data=2), workload=Workload(4))

    most = (2**53 - 1) // 16
    assert resolve(plan(most)).boundaries[0].forward_bytes == most
    assert refusals(lambda: resolve(plan(most + 1))) == [(FaultCode.OUT_OF_RANGE, MICROBATCHES)]


def test_forwards_alone_need_no_path_back() -> None:
    """Two hosts joined one way."""
    both = cluster()
    one_way = Cluster(
        both.vertices,
        {ends: link for ends, link in both.links.items() if ends != ("leaf0", "host0/nic0")},
    )
    stage = replace(STAGE, boundary_bytes=8_000_000)
    placed = Placement(devices=("host0/gpu0", "host1/gpu0"))
    plan = given_plan(stage, STAGE, topology="two@1", placement=placed)
    text = refusal_text(lambda: resolve(plan, cluster=one_way))
    assert "(rank 1) both ways" in text
    forwards = replace(plan, schedule=Schedule("forward_only"))
    (boundary,) = resolve(forwards, cluster=one_way).boundaries
    assert boundary.pairs[0].forward_path is not None
    assert boundary.pairs[0].backward_path is None
    assert times(boundary)[0] > 0
