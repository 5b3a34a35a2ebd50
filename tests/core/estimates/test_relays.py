"""What a stage passes on for others is alive there, and only where tensors are relayed."""

from service.core.estimates.activations import activation_deltas
from service.core.estimates.estimate import plan_live_activations
from service.core.estimates.memory import plan_memory
from service.core.estimates.simulation import plan_program
from service.core.memory.live import LiveActivations
from service.core.memory.terms import Term
from service.core.models.dtypes import DType
from service.core.models.graph import Layer, RecordedSize, Tensor, build_model
from service.core.plans.plan import Degrees, Partition, ResolvedPlan, SkipRouting
from service.core.plans.relays import Relayed, relayed_bytes
from service.core.plans.resolve import resolve
from tests.core.plans.worlds import chain_profile, profiled_plan

# l0 -> l1 -> l2 -> l3, and a residual of 500 bytes from l0 to l2 and to l3; its gradient has twice
# as many.
MODEL = build_model(
    [Layer(f"l{i}", "linear") for i in range(4)],
    [
        Tensor(
            "skip",
            "l0",
            ("l2", "l3"),
            recorded=RecordedSize(500, 2),
            dtype=DType.BF16,
            gradient_dtype=DType.FP32,
        ),
        *(
            Tensor(f"t{i}", f"l{i}", (f"l{i + 1}",), recorded=RecordedSize(1000, 2))
            for i in range(3)
        ),
    ],
)


def routed(
    routing: SkipRouting, kind: str = "1f1b", cuts: tuple[int, ...] = (1, 2)
) -> ResolvedPlan:
    plan = profiled_plan(
        Partition(cuts=cuts, skip_routing=routing), degrees=Degrees(len(cuts) + 1), kind=kind
    )
    return resolve(plan, model=MODEL, profile=chain_profile(4, saved=100))


def live(resolved: ResolvedPlan) -> tuple[LiveActivations, ...]:
    return plan_live_activations(resolved, plan_program(resolved))


def test_plans_that_differ_in_routing_alone_have_different_peaks() -> None:
    """Of three stages, l2 and l3 on the last, the middle one keeps two microbatches of 100 bytes;
    relayed, it has 1000 bytes of gradient in a backward beside them.
    """
    relayed, direct = routed(SkipRouting.RELAY), routed(SkipRouting.DIRECT)
    assert relayed_bytes(relayed.boundaries) == (Relayed(1, ("skip",), 500, 1000),)
    assert relayed_bytes(direct.boundaries) == ()
    assert [one.peak_bytes for one in live(direct)] == [300, 200, 200]
    assert [one.peak_bytes for one in live(relayed)] == [300, 1200, 200]
    assert [one.peak_activations for one in live(relayed)] == [3, 2, 1]
    assert "relayed_tensors" in {said.code for said in relayed.assumptions}
    assert "relayed_tensors" not in {said.code for said in direct.assumptions}
    assert "waiting_tensors" in {said.code for said in direct.not_represented}
    assert "waiting_tensors" not in {said.code for said in relayed.not_represented}


def test_a_consumer_keeps_the_tensor_among_its_own_activations() -> None:
    """With a stage each, l2 takes the residual and sends it on: only l1 passes it on unseen."""
    relayed = routed(SkipRouting.RELAY, cuts=(1, 2, 3))
    assert [one.stage for one in relayed_bytes(relayed.boundaries)] == [1]
    assert [one.peak_bytes for one in live(relayed)] == [400, 1300, 200, 100]


def test_forwards_alone_pass_nothing_back() -> None:
    relayed = routed(SkipRouting.RELAY, kind="forward_only")
    assert relayed_bytes(relayed.boundaries) == (Relayed(1, ("skip",), 500, 0),)
    assert [one.peak_bytes for one in live(relayed)] == [100, 600, 200]


def test_memory_tells_apart_what_is_carried_for_others() -> None:
    resolved = routed(SkipRouting.RELAY)
    ranks = plan_memory(resolved, plan_program(resolved)).ranks
    carried = [
        {term.term: term.at_peak for term in rank.terms}.get(Term.RELAYED_TENSORS) for rank in ranks
    ]
    assert carried == [None, 1000, None]
    assert [term.at_peak for term in ranks[1].terms if term.term is Term.ACTIVATIONS] == [200]


def test_without_bytes_of_activations_there_is_no_peak_in_bytes() -> None:
    plan = profiled_plan(Partition(cuts=(1, 2)), degrees=Degrees(3))
    resolved = resolve(plan, model=MODEL, profile=chain_profile(4))
    assert activation_deltas(resolved) is None
    assert relayed_bytes(resolved.boundaries)
