"""Two plans side by side: which stages, cuts and lifetimes differ, and the work it takes."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode, WorkBudgetExceeded
from service.core.estimates.comparison import (
    ComparedTerms,
    Comparison,
    check_comparison,
    compare_terms,
    compared_terms,
)
from service.core.estimates.differences import slowest_pair
from service.core.estimates.simulation import simulate_plan
from service.core.estimates.work import work_of
from service.core.memory.terms import Term
from service.core.models.dtypes import DType
from service.core.plans.plan import Degrees, GivenStage, Partition, Placement, Plan
from service.core.plans.resolve import resolve
from service.core.plans.training import Optimizer, Training
from tests.core.estimates.compared_plans import compare, four_stages, teaching_plan
from tests.core.plans.worlds import chain, chain_profile, cluster, profiled_plan


def partitioned(*layers: int, devices: tuple[str, ...] = ()) -> Plan:
    return profiled_plan(
        Partition(layers_per_stage=layers),
        degrees=Degrees(pipeline=len(layers)),
        topology="cluster@1",
        placement=Placement(devices=devices or ("host0/gpu0", "host0/gpu1", "host1/gpu0")),
    )


def compare_priced(before: Plan, after: Plan) -> Comparison:
    """Two plans of one model of six layers."""
    model, profile, world = chain(6), chain_profile(6, saved=500), cluster()

    def terms(plan: Plan) -> ComparedTerms:
        resolved = resolve(plan, model=model, profile=profile, cluster=world)
        return compared_terms(simulate_plan(resolved))

    return compare_terms(terms(before), terms(after))


def counts(found: Comparison) -> tuple[int, int, int]:
    """How many stages, cuts and lifetimes differ."""
    return len(found.stages), len(found.cuts), len(found.lifetimes)


def test_a_plan_is_no_different_from_itself() -> None:
    plan = teaching_plan(moved=False)
    assert counts(compare(plan, plan)) == (0, 0, 0)


def test_a_moved_layer_is_told_with_its_stages_cut_and_lifetimes() -> None:
    found = compare_priced(partitioned(2, 3, 1), partitioned(2, 2, 2))
    assert [(one.stage, one.gained, one.lost) for one in found.stages] == [
        (1, (), ("l4",)),
        (2, ("l4",), ()),
    ]
    (cut,) = found.cuts
    assert (cut.source, cut.target) == (1, 2)
    bytes_of = [
        terms.simulated.resolved.boundaries[place or 0].forward_bytes
        for terms, place in ((found.before, cut.before), (found.after, cut.after))
    ]
    assert bytes_of == [1004, 1003]
    # 1F1B keeps two microbatches on rank 1 and one on rank 2: 500 bytes a layer of each.
    peaks = [
        (one.rank, one.before and one.before.peak_bytes, one.after and one.after.peak_bytes)
        for one in found.lifetimes
    ]
    assert peaks == [(1, 3000, 2000), (2, 500, 1000)]
    assert found.attribution is not None
    assert set(found.attribution.stages) == {1, 2}


def test_other_devices_are_another_path() -> None:
    """Both hosts are alike, so the times of the moved cuts change and no stage does."""
    found = compare_priced(
        partitioned(2, 2, 2),
        partitioned(2, 2, 2, devices=("host0/gpu0", "host1/gpu0", "host1/gpu1")),
    )
    assert counts(found) == (0, 2, 0)
    assert [(cut.source, cut.target) for cut in found.cuts] == [(0, 1), (1, 2)]
    pairs = [
        [slowest_pair(boundary) for boundary in terms.simulated.resolved.boundaries]
        for terms in (found.before, found.after)
    ]
    hops = [
        [len(pair.forward_path.links) for pair in of if pair and pair.forward_path] for of in pairs
    ]
    assert hops == [[2, 6], [6, 2]]


def test_links_are_told_by_how_much_longer_they_are_occupied() -> None:
    """1000 bytes a microbatch and way, 8 microbatches: 100 GB/s inside a host, 8 GB/s between two.

    Only the second boundary (1003 bytes) leaves its host before, only the first (1001) after.
    """
    found = compare_priced(
        partitioned(2, 2, 2),
        partitioned(2, 2, 2, devices=("host0/gpu0", "host1/gpu0", "host1/gpu1")),
    )
    by_name = {one.resource: one for one in found.links}
    up = by_name["host0/nic0->leaf0"]
    assert up.before is not None
    assert up.after is not None
    assert (up.before.busy, up.after.busy) == (8 * 125_375, 8 * 125_125)
    inside = by_name["host0/gpu1->host0/switch"]
    assert inside.before is not None
    assert inside.before.busy == 8 * (10_010 + 10_030)  # back over one boundary, on over the other
    assert inside.after is None
    changes = [abs(one.longer) for one in found.links]
    assert changes == sorted(changes, reverse=True)


def test_memory_is_told_by_rank_and_term() -> None:
    """Two bytes a weight and gradient, twelve of Adam's; another order keeps more activations."""
    stages = [
        GivenStage(0.001, 0.002, activation_bytes=1_000_000, parameter_count=count)
        for count in (1_000_000, 2_000_000)
    ]
    training = Training(Optimizer.ADAM, weight_dtype=DType.BF16)
    before = replace(four_stages((3, 3)), stages=tuple(stages), training=training)
    fewer = replace(stages[1], parameter_count=500_000)
    found = compare(before, replace(before, stages=(stages[0], fewer)))
    (changed,) = found.memory
    assert changed.rank == 1
    sizes = [
        {one.term: one.maximum for one in side.terms}
        for side in (changed.before, changed.after)
        if side is not None
    ]
    weights = [side[Term.WEIGHTS] for side in sizes]
    assert weights == [4_000_000, 1_000_000]
    assert {Term.WEIGHTS, Term.GRADIENTS, Term.MASTER_WEIGHTS, Term.OPTIMIZER_MOMENTS} <= set(
        changed.terms
    )
    assert Term.ACTIVATIONS not in changed.terms

    ordered = compare(before, replace(before, schedule=replace(before.schedule, kind="gpipe")))
    assert [one.rank for one in ordered.memory] == [0, 1]
    for one in ordered.memory:
        assert set(one.terms) == {Term.ACTIVATIONS, Term.RESERVE}
    plain = four_stages((3, 3))
    assert compare(plain, before).memory == ()
    assert compare(plain, before).before.memory is None


def test_stages_that_only_one_plan_has_stand_alone() -> None:
    before, after = four_stages((10, 10)), four_stages((10, 10, 10))
    found = compare(before, after)
    assert [(one.stage, one.before is None, one.after is None) for one in found.stages] == [
        (2, True, False)
    ]
    assert [(cut.source, cut.before, cut.after) for cut in found.cuts] == [(1, None, 1)]
    assert found.lifetimes[-1].before is None
    back = compare(after, before)
    assert back.stages[0].after is None
    assert back.lifetimes[-1].after is None


def test_another_order_of_the_same_operations_keeps_more() -> None:
    before = four_stages((10, 10, 10, 10))
    found = compare(before, replace(before, schedule=replace(before.schedule, kind="gpipe")))
    peaks = [
        (one.before.peak_activations, one.after.peak_activations)
        for one in found.lifetimes
        if one.before and one.after
    ]
    assert peaks == [(4, 16), (3, 16), (2, 16), (1, 16)]
    assert counts(found) == (0, 0, 4)


def test_another_number_of_microbatches_changes_no_stage() -> None:
    found = compare(four_stages((10, 10)), four_stages((10, 10), microbatches=32))
    assert counts(found) == (0, 0, 0)


def test_the_work_is_known_before_and_bounded() -> None:
    plan = four_stages((10, 10, 10, 10))
    alone = work_of(plan).total
    two, three = (check_comparison([[plan] * count]) for count in (2, 3))
    assert check_comparison([[plan] * 2, [plan] * 2]) == 2 * two
    assert 2 * alone < two < three
    assert three - two == two - alone
    paced = replace(plan, schedule=replace(plan.schedule, kind="pipedream"))
    assert check_comparison([[plan, paced]]) > two
    tried = replace(
        plan,
        schedule=replace(plan.schedule, kind="zb_auto"),
        stages=tuple(
            GivenStage(0.003, backward_input_seconds=0.003, backward_weight_seconds=0.003)
            for _ in range(4)
        ),
    )
    assert check_comparison([[plan, tried]]) > two
    with pytest.raises(WorkBudgetExceeded) as refused:
        check_comparison([[plan, plan]], budget=two - 1)
    (fault,) = refused.value.faults
    assert (fault.code, fault.path) == (FaultCode.WORK_BUDGET, ("plans",))
    assert str(two) in fault.detail
