"""Causes of a difference: taken alone, exact, and summing to it."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.estimates.attribution import Attribution, AttributionMethod, Cause, mixed
from service.core.plans.plan import GivenStage, Placement, Plan
from service.core.plans.training import Optimizer, Training
from service.core.schedules.transfers import TransferMode
from tests.core.estimates.compared_plans import MS, compare, four_stages, teaching_plan
from tests.core.plans.worlds import cluster

KINDS = ("1f1b", "gpipe", "zb_h1")


def attributed(before: Plan, after: Plan) -> Attribution:
    comparison = compare(before, after)
    found = comparison.attribution
    assert found is not None
    assert comparison.before.iteration is not None
    assert comparison.after.iteration is not None
    difference = comparison.after.iteration - comparison.before.iteration
    assert found.difference == difference == sum(found.effects.values())
    return found


def attribution_left_out(before: Plan, after: Plan) -> str:
    """Why there is none."""
    comparison = compare(before, after)
    assert comparison.attribution is None
    moving, said = comparison.not_represented
    assert moving.code == "moving"
    assert said.code == "attribution"
    return said.detail


def in_ms(found: Attribution) -> dict[str, float]:
    return {cause.value: float(effect / MS) for cause, effect in found.effects.items() if effect}


def test_the_moved_block_gains_by_compute_and_not_by_transfer() -> None:
    found = attributed(teaching_plan(moved=False), teaching_plan(moved=True))
    assert found.method is AttributionMethod.ONE_CHANGE
    assert found.cause is Cause.COMPUTE
    assert in_ms(found) == {"compute": -51}
    assert set(found.stages) == {1, 2}
    assert found.edges == {}
    assert found.stages[1] > 0 > found.stages[2]


def test_forwards_alone_worked_by_hand() -> None:
    """Work of all stages once, then M - 1 times the slowest, and each receive once.

    Before: 18 + 18 + 25 + 18 + 15 x 25 + 1 = 455 ms; after: 77 + 15 x 21 + 1 = 393. Stage 1 alone
    makes the first pass 3 longer; stage 2 alone: 74 + 15 x 20 + 1 = 375. Hops of 2 ms in place of
    the one of 1 ms are 5 more, whatever the stages take.
    """
    before, after = (
        four_stages(work, kind="forward_only", hop_ms=hops)
        for work, hops in (
            ((54, 54, 75, 54), {1: 1}),
            ((54, 63, 60, 54), {0: 2, 1: 2, 2: 2}),
        )
    )
    found = attributed(before, after)
    assert in_ms(found) == {"compute": -62, "transfer": 5}
    assert {stage: effect / MS for stage, effect in found.stages.items()} == {1: 3, 2: -80}
    assert {pair: effect / MS for pair, effect in found.edges.items()} == {
        (0, 1): 2,
        (1, 2): 1,
        (2, 3): 2,
    }


def test_moving_it_back_costs_what_moving_it_gained() -> None:
    found = attributed(teaching_plan(moved=True), teaching_plan(moved=False))
    assert in_ms(found) == {"compute": 51}
    assert found.cause is Cause.COMPUTE


def test_a_slower_receive_is_a_transfer() -> None:
    before = four_stages((18, 18, 25, 18), hop_ms={1: 1})
    found = attributed(before, four_stages((18, 18, 25, 18), hop_ms={1: 10}))
    assert found.cause is Cause.TRANSFER
    assert set(found.effects.values()) == {Fraction(0), found.difference}
    assert found.edges == {(1, 2): found.difference}
    assert found.stages == {}


def test_another_order_alone_is_an_order() -> None:
    before = four_stages((18, 18, 25, 18), hop_ms={1: 1})
    found = attributed(before, replace(before, schedule=replace(before.schedule, kind="gpipe")))
    assert found.method is AttributionMethod.ONE_CHANGE
    assert found.cause is Cause.ORDER
    assert in_ms(found) == {"order": 7}


def test_two_bottlenecks_that_go_together_interact() -> None:
    """Two branches are not needed: either alone of two equal slow stages gains next to nothing."""
    before = four_stages((10, 30, 10, 30), microbatches=64)
    found = attributed(before, four_stages((10, 10, 10, 10), microbatches=64))
    assert found.cause is Cause.COMPUTE
    assert found.stages[1] + found.stages[3] > found.difference / 4  # alone they do little
    assert in_ms(found).keys() == {"compute"}


def test_compute_and_transfer_that_hide_one_another_leave_an_interaction() -> None:
    before = four_stages((18, 18, 25, 18))
    after = four_stages((18, 21, 20, 18), hop_ms={0: 40, 1: 40, 2: 40})
    found = attributed(before, after)
    alone = found.effects[Cause.COMPUTE], found.effects[Cause.TRANSFER]
    assert found.effects[Cause.INTERACTION] == found.difference - sum(alone)
    assert found.effects[Cause.INTERACTION] != 0


def test_a_cause_alone_is_the_plan_with_that_one_thing_of_the_other() -> None:
    """What is exchanged inside is what a plan written out with it takes."""
    before = four_stages((18, 18, 25, 18), hop_ms={1: 1})
    after = four_stages((18, 21, 20, 18), hop_ms={0: 5, 1: 3}, kind="gpipe")
    found = attributed(before, after)
    assert before.stages is not None
    assert after.stages is not None

    def hops_of(stages: tuple[GivenStage, ...], others: tuple[GivenStage, ...]) -> Plan:
        mixed = [
            replace(one, transfer_seconds=other.transfer_seconds)
            for one, other in zip(stages, others, strict=True)
        ]
        return replace(before, stages=tuple(mixed))

    def longer(plan: Plan) -> Fraction:
        return attributed(before, plan).difference

    assert found.effects[Cause.COMPUTE] == longer(hops_of(after.stages, before.stages))
    assert found.effects[Cause.TRANSFER] == longer(hops_of(before.stages, after.stages))
    assert found.effects[Cause.ORDER] == longer(replace(before, schedule=after.schedule))
    one_stage = [*before.stages]
    one_stage[2] = replace(after.stages[2], transfer_seconds=before.stages[2].transfer_seconds)
    assert found.stages[2] == longer(replace(before, stages=tuple(one_stage)))


def test_a_recomputation_that_goes_away_is_compute() -> None:
    before = four_stages((18, 18, 25, 18), recompute_ms={2: 5})
    found = attributed(before, four_stages((18, 18, 20, 18)))
    assert found.method is AttributionMethod.ONE_CHANGE
    assert in_ms(found).keys() == {"compute"}
    back = attributed(four_stages((18, 18, 20, 18)), before)
    assert back.effects == {cause: -effect for cause, effect in found.effects.items()}


@pytest.mark.parametrize(
    "after",
    [
        four_stages((18, 18, 25, 18), microbatches=32),
        four_stages((18, 18, 25, 9, 9)),
        four_stages((18, 18, 25, 18), kind="zb_h1"),
    ],
    ids=["microbatches", "stages", "operations"],
)
def test_plans_without_common_operations_are_split_each_by_itself(after: Plan) -> None:
    found = attributed(four_stages((18, 18, 25, 18)), after)
    assert found.method is AttributionMethod.OWN_SPLITS
    assert found.effects[Cause.INTERACTION] == 0
    assert not found.stages
    assert not found.edges


def test_of_a_pipeline_that_is_never_drained_the_pace_is_explained() -> None:
    """16 microbatches at the pace: 25 ms of stage 2, then (21 + 20 + 2 x 1) / 2 of stages 1 and 2.

    Stage 1 runs one forward ahead of stage 2, so two microbatches pass while one goes there and
    back between them.
    """
    before, after = (
        four_stages(work, kind="pipedream", hop_ms={1: 1})
        for work in ((18, 18, 25, 18), (18, 21, 20, 18))
    )
    found = attributed(before, after)
    assert in_ms(found) == {"compute": -16 * 3.5}
    drained = attributed(before, replace(before, schedule=replace(before.schedule, kind="1f1b")))
    assert drained.cause is Cause.ORDER
    assert in_ms(drained).keys() == {"order"}
    longer = four_stages((18, 18, 25, 18), kind="pipedream", microbatches=32)
    assert attribution_left_out(before, longer).endswith("can exchange their operations then")
    assert [said.code for said in compare(before, after).not_represented] == ["moving"]


def test_an_iteration_that_is_unknown_has_no_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that is never drained, whose pace is not searched for."""
    monkeypatch.setattr("service.core.schedules.cadence.MOST_PERIODIC_OPERATIONS", 1)
    plan = four_stages((18, 18, 25, 18), kind="pipedream")
    assert attribution_left_out(plan, plan).endswith("one of the iterations is not known")


def test_queues_on_links_are_contention_and_the_rest_is_told_without_them() -> None:
    """On two hosts all three boundaries share one NIC each way, on four hosts two of them do."""
    sends = GivenStage(0.001, 0.002, boundary_bytes=16_000_000)
    plan = replace(
        four_stages((3, 3, 3, 3)),
        stages=(sends, sends, sends, GivenStage(0.001, 0.002)),
        topology="cluster@1",
    )
    apart, shared = (
        replace(plan, placement=Placement(devices=devices))
        for devices in (
            tuple(f"host{host}/gpu0" for host in range(4)),
            ("host0/gpu0", "host1/gpu0", "host0/gpu1", "host1/gpu1"),
        )
    )
    comparison = compare(apart, shared, cluster(hosts=4))
    found = comparison.attribution
    assert found is not None
    assert found.cause is Cause.CONTENTION
    assert in_ms(found).keys() == {"contention"}
    assert found.effects[Cause.CONTENTION] == found.difference > 0
    # The first cut has its path still, and waits for it longer.
    assert [(cut.source, cut.target) for cut in comparison.cuts] == [(0, 1), (1, 2), (2, 3)]
    assert comparison.links[0].resource == "host0/nic0->leaf0"
    # The link out of host0 carries two more ways of 16 messages, 2 ms each.
    assert comparison.links[0].longer == 2 * 16 * 2 * MS


def test_what_follows_the_schedule_is_the_update() -> None:
    """A step of 4 ms in place of 10 takes 6 from every rank, whatever else changes."""
    before, after = (
        replace(
            four_stages(work),
            training=Training(Optimizer.ADAM, optimizer_step_seconds=seconds),
        )
        for work, seconds in (((18, 18, 25, 18), 0.010), ((18, 21, 20, 18), 0.004))
    )
    found = attributed(before, after)
    assert in_ms(found) == {"compute": -59, "update": -6}
    assert found.cause is Cause.COMPUTE
    same_schedule = attributed(before, replace(before, training=after.training))
    assert same_schedule.cause is Cause.UPDATE
    comparison = compare(before, replace(before, training=after.training))
    assert comparison.before.update == 10 * MS
    assert [one.rank for one in comparison.updates] == [0, 1, 2, 3]
    unknown = attributed(before, replace(before, training=None))
    assert in_ms(unknown) == {"update": -10}
    plain = four_stages((18, 18, 25, 18))
    assert Cause.UPDATE not in attributed(plain, plain).effects


def test_a_mean_of_attributions_sums_to_the_mean_difference() -> None:
    one = attributed(teaching_plan(moved=False), teaching_plan(moved=True))
    other = attributed(
        four_stages((18, 18, 25, 18), hop_ms={1: 1}), four_stages((18, 18, 25, 18), hop_ms={1: 10})
    )
    mean = mixed((Fraction(1, 4), Fraction(3, 4)), (one, other))
    assert mean is not None
    assert mean.difference == sum(mean.effects.values())
    assert mean.difference == Fraction(1, 4) * one.difference + Fraction(3, 4) * other.difference
    assert mixed((Fraction(1, 2), Fraction(1, 2)), (one, None)) is None
    split = attributed(teaching_plan(moved=True), four_stages((18, 18), microbatches=16))
    assert mixed((Fraction(1, 2), Fraction(1, 2)), (one, split)) is None


def test_equal_plans_have_no_cause() -> None:
    plan = teaching_plan(moved=True)
    found = attributed(plan, plan)
    assert found.cause is None
    assert set(found.effects.values()) == {0}


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(3, 60), min_size=3, max_size=3),
            st.sampled_from(KINDS),
            st.lists(st.integers(0, 20), min_size=2, max_size=2),
            st.sampled_from((0, 0, 3)),
            st.sampled_from((TransferMode.LATENCY, TransferMode.BLOCKING)),
        ),
        min_size=2,
        max_size=2,
    )
)
@settings(max_examples=60, deadline=None)
def test_effects_always_sum_to_the_difference(
    drawn: list[tuple[list[int], str, list[int], int, TransferMode]],
) -> None:
    plans = [
        four_stages(
            work,
            kind=kind,
            microbatches=6,
            recompute_ms={1: again},
            hop_ms=dict(enumerate(hops)),
            mode=mode,
        )
        for work, kind, hops, again, mode in drawn
        if again <= min(work)
    ]
    before, after = plans
    found = attributed(before, after)
    if found.difference:
        assert found.cause is not None
        assert found.effects[found.cause] * found.difference > 0
