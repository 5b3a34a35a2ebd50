"""Copies of tied weights: who holds one, and what adding up their gradients takes."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode
from service.core.models.dimensions import Split
from service.core.models.dtypes import DType
from service.core.models.graph import Layer, Model, Parameter, RecordedSize, Tensor, build_model
from service.core.plans.plan import (
    Degrees,
    Partition,
    Placement,
    Plan,
    ResolvedPlan,
    Schedule,
    TiedParameters,
)
from service.core.plans.resolve import resolve
from service.core.plans.training import Optimizer, Training
from service.core.profiles.profile import Measurement, Point, build_profile
from service.core.topology.cluster import Cluster
from service.core.units import to_seconds
from tests.core.plans.worlds import cluster, profiled_plan
from tests.core.refusals import refusal_text, refusals

EVEN = (1, 1, 1, 1)
PROFILE = build_profile(
    "gpu",
    None,
    [
        Measurement(
            f"l{i}",
            Point(2, tensor_parallel=tensor),
            1e-3,
            backward_input_seconds=1e-3,
            backward_weight_seconds=1e-3,
        )
        for i in range(4)
        for tensor in (1, 2)
    ],
)


def model_with(*groups: str | None, count: int = 1_000_000, dtype: DType = DType.FP32) -> Model:
    """A chain l0, l1, ... whose i-th layer has a weight of the i-th tied group."""
    return build_model(
        [
            Layer(f"l{i}", "linear", (Parameter(f"w{i}", count, dtype, group),))
            for i, group in enumerate(groups)
        ],
        [
            Tensor(f"t{i}", f"l{i}", (f"l{j}",), recorded=RecordedSize(1000, 2))
            for i, j in pairwise(range(len(groups)))
        ],
    )


ENDS = model_with("words", None, None, "words")


def copying(
    partition: Partition | None = None, *, degrees: Degrees | None = None, kind: str = "1f1b"
) -> Plan:
    partition = partition or Partition(layers_per_stage=EVEN)
    return profiled_plan(
        replace(partition, tied_parameters=TiedParameters.DUPLICATE),
        degrees=degrees or Degrees(pipeline=4),
        kind=kind,
        topology="cluster@1",
    )


def resolved(plan: Plan, model: Model = ENDS, on: Cluster | None = None) -> ResolvedPlan:
    place = None if plan.topology is None else on or cluster(hosts=4, gpus=1)
    return resolve(plan, cluster=place, model=model, profile=PROFILE)


def codes(plan: ResolvedPlan) -> set[str]:
    return {said.code for said in (*plan.assumptions, *plan.not_represented)}


def test_a_split_weight_is_refused_unless_copies_are_asked_for() -> None:
    plan = copying()
    refusing = replace(plan, partition=Partition(layers_per_stage=EVEN))
    assert refusals(lambda: resolved(refusing)) == [(FaultCode.INCONSISTENT, ("partition",))]
    text = refusal_text(lambda: resolved(refusing))
    assert "'l0' on stage 0" in text
    assert "'l3' on stage 3" in text
    assert "`duplicate`" in text
    assert resolved(plan).tied_copies


def test_two_copies_over_one_link_by_hand() -> None:
    """4 MB each way, over a path of 10 GB/s nominal and 8 effective, six links of 1 us floor and
    2 us latency: at least 400 us + 6 us; a ring of two takes two steps of 12 us and 500 us.
    """
    plan = resolved(copying())
    (copies,) = plan.tied_copies
    assert (copies.weights, copies.stages, copies.pipeline_ranks) == (("words",), (0, 3), (0, 3))
    assert (copies.parameter_count, copies.rank_parameter_count) == (1_000_000, 1_000_000)
    assert (copies.rank_parameter_bytes, copies.rank_gradient_bytes) == (4_000_000, 4_000_000)
    (group,) = copies.groups
    assert (group.ranks, group.devices) == ((0, 3), ("host0/gpu0", "host3/gpu0"))
    assert [(path.source, path.target) for path in group.paths] == [
        ("host0/gpu0", "host3/gpu0"),
        ("host3/gpu0", "host0/gpu0"),
    ]
    assert copies.bound_picoseconds == group.bound_picoseconds == 406_000_000
    assert copies.picoseconds == group.picoseconds == 524_000_000
    assert plan.weights is not None
    assert [stage.parameter_count for stage in plan.weights] == [1_000_000] * 4
    assert [stage.copied_parameter_count for stage in plan.weights] == [0, 0, 0, 1_000_000]
    assert {"tied_copies", "tied_copies_exchange"} <= codes(plan)


def test_groups_that_share_a_link_bound_each_other() -> None:
    """Tensor ranks hold half each, 2 MB, and share the one NIC of their host: 4 MB over it."""
    degrees = Degrees(pipeline=4, tensor=2)
    (copies,) = resolved(copying(degrees=degrees), on=cluster(hosts=4, gpus=2)).tied_copies
    assert (copies.rank_parameter_count, copies.rank_gradient_bytes) == (500_000, 2_000_000)
    assert [group.ranks for group in copies.groups] == [(0, 6), (1, 7)]
    assert [group.bound_picoseconds for group in copies.groups] == [206_000_000] * 2
    assert [group.picoseconds for group in copies.groups] == [524_000_000] * 2
    assert copies.bound_picoseconds == 400_000_000  # no latency: it may run beside the other's
    assert copies.picoseconds == 524_000_000


def test_an_odd_share_is_that_of_the_largest() -> None:
    model = model_with("words", None, None, "words", count=5, dtype=DType.BF16)
    degrees = Degrees(pipeline=4, tensor=2)
    (copies,) = resolved(copying(degrees=degrees), model, cluster(hosts=4)).tied_copies
    assert (copies.parameter_count, copies.rank_parameter_count) == (5, 3)
    assert copies.rank_parameter_bytes == 6


def test_a_weight_that_no_ranks_share_is_whole_on_each() -> None:
    whole = Parameter("norm", 1_000_000, DType.FP32, "words", Split.NONE)
    layers = [Layer(f"l{i}", "norm", (whole,) if i in (0, 3) else ()) for i in range(4)]
    model = build_model(layers, ENDS.tensors)
    degrees = Degrees(pipeline=4, tensor=2)
    (copies,) = resolved(copying(degrees=degrees), model, cluster(hosts=4)).tied_copies
    assert copies.rank_parameter_count == 1_000_000


def test_gradients_have_the_type_that_the_training_gives_them() -> None:
    model = model_with("words", None, None, "words", dtype=DType.BF16)
    training = Training(Optimizer.ADAM, gradient_dtype=DType.FP32)
    (copies,) = resolved(replace(copying(), training=training), model).tied_copies
    assert (copies.rank_parameter_bytes, copies.rank_gradient_bytes) == (2_000_000, 4_000_000)
    assert copies.bound_picoseconds == 406_000_000


def test_a_ring_of_three_by_hand() -> None:
    """Each rank sends 4/3 of 3 MB to the next, in four steps: 4 MB at 8 GB/s and 4 x 12 us. At
    least its 3 MB must leave a rank, over the 10 GB/s of its one NIC, and one path's floor.
    """
    model = model_with("words", "words", None, "words", count=750_000)
    (copies,) = resolved(copying(), model).tied_copies
    assert copies.pipeline_ranks == (0, 1, 3)
    (group,) = copies.groups
    assert [(path.source, path.target) for path in group.paths] == [
        ("host0/gpu0", "host1/gpu0"),
        ("host1/gpu0", "host3/gpu0"),
        ("host3/gpu0", "host0/gpu0"),
    ]
    assert copies.picoseconds == 500_000_000 + 48_000_000
    assert copies.bound_picoseconds == 300_000_000 + 6_000_000


def test_weights_of_the_same_stages_go_together_and_others_apart() -> None:
    model = model_with("a", "b", "b", "a")
    plan = copying(Partition(layers_per_stage=(1, 3)), degrees=Degrees(pipeline=2))
    assert [each.weights for each in resolved(plan, model).tied_copies] == [("a",)]
    assert [each.weights for each in resolved(copying(), model).tied_copies] == [("a",), ("b",)]
    both = copying(Partition(stages=(("l0", "l1"), ("l2", "l3"))), degrees=Degrees(pipeline=2))
    (together,) = resolved(both, model).tied_copies
    assert together.weights == ("a", "b")
    assert together.parameter_count == 2_000_000


def test_a_module_used_twice_is_copied_as_well() -> None:
    weight = Parameter("shared", 1_000_000, DType.FP32)
    layers = [Layer(f"l{i}", "linear", (weight,) if i in (1, 2) else ()) for i in range(4)]
    model = build_model(layers, ENDS.tensors)
    (copies,) = resolved(copying(), model).tied_copies
    assert (copies.weights, copies.stages) == (("shared",), (1, 2))


def test_stages_of_one_rank_share_a_copy() -> None:
    """In a V the first and the last stage stand on the first rank."""
    plan = replace(copying(degrees=Degrees(pipeline=2)), schedule=Schedule("v_half", 2))
    found = resolved(plan)
    (copies,) = found.tied_copies
    assert (copies.stages, copies.pipeline_ranks, copies.groups) == ((0, 3), (0,), ())
    assert copies.picoseconds == copies.bound_picoseconds == 0
    assert "tied_copies_exchange" not in codes(found)


def test_without_a_backward_nothing_is_exchanged() -> None:
    plan = resolved(copying(kind="forward_only"))
    (copies,) = plan.tied_copies
    assert (copies.rank_parameter_bytes, copies.rank_gradient_bytes) == (4_000_000, 0)
    assert copies.picoseconds is None
    assert "tied_copies_exchange" not in codes(plan)


def test_without_a_topology_the_time_is_unknown() -> None:
    plan = resolved(replace(copying(), topology=None))
    (copies,) = plan.tied_copies
    assert (copies.rank_gradient_bytes, copies.picoseconds) == (4_000_000, None)
    (said,) = [each for each in plan.not_represented if each.code == "tied_copies_exchange"]
    assert "not known" in said.detail


def test_copies_that_no_path_joins_are_refused() -> None:
    apart = cluster(hosts=4, gpus=1, joined=False)
    assert (FaultCode.UNREACHABLE, ("placement",)) in refusals(
        lambda: resolved(copying(), on=apart)
    )
    text = refusal_text(lambda: resolved(copying(), on=apart))
    assert "from host0/gpu0 to host3/gpu0, which hold copies" in text


def test_pairs_of_ranks_are_bounded() -> None:
    """Two copies on each of 8,200 data-parallel replicas, before any of them is placed."""
    degrees = Degrees(pipeline=2, data=8_200)
    plan = replace(
        copying(Partition(layers_per_stage=(2, 2)), degrees=degrees),
        topology=None,
    )
    assert (FaultCode.WORK_BUDGET, ("partition",)) in refusals(lambda: resolved(plan))
    assert "8200 rank pairs among the copies" in refusal_text(lambda: resolved(plan))


@given(
    groups=st.lists(st.sampled_from(["a", "b", None]), min_size=4, max_size=4),
    order=st.permutations([f"host{i}/gpu{j}" for i in range(4) for j in range(2)]),
    tensor=st.sampled_from([1, 2]),
)
def test_no_prediction_lies_below_its_bound(
    groups: list[str | None], order: list[str], tensor: int
) -> None:
    plan = replace(
        copying(degrees=Degrees(pipeline=4, tensor=tensor)),
        placement=Placement(devices=tuple(order)),
    )
    for copies in resolved(plan, model_with(*groups), cluster(hosts=4)).tied_copies:
        assert copies.bound_picoseconds is not None
        assert copies.picoseconds is not None
        assert copies.bound_picoseconds <= copies.picoseconds
        least = to_seconds(copies.bound_picoseconds)
        # One GPU's own link is the widest there is.
        assert least >= copies.rank_gradient_bytes / 100e9
        for group in copies.groups:
            assert group.bound_picoseconds is not None
            assert group.picoseconds is not None
            assert group.bound_picoseconds <= group.picoseconds <= copies.picoseconds
