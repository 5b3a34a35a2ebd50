"""Loads of devices by a published rule: by hand, straight and relayed, and what it can't say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode
from service.core.plans.loads import DeviceLoad, LoadRule, carried, straight
from service.core.plans.plan import (
    Degrees,
    Partition,
    Plan,
    ResolvedPlan,
    Schedule,
    SkipRouting,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.profiles.profile import Measurement, Point, Profile, build_profile
from service.core.profiles.transfers import RecordedTransfer
from tests.core.plans.worlds import chain, chain_profile, profiled_plan
from tests.core.refusals import refusal_text, refusals

MILLI = 10**9


def passing(name: str, targets: tuple[str, ...], millis: int, **more: bool) -> RecordedTransfer:
    backward = more.get("backward", False)
    return RecordedTransfer(f"{name}.out", name, targets, backward, 2, millis * MILLI)


# l0 hands on to l1 and to l3, l1 to l2, l2 to l3, and l3 a gradient back to l0 and l2.
PROFILE = replace(
    chain_profile(4),
    transfers=(
        passing("l0", ("l1", "l3"), 100),
        passing("l1", ("l2",), 10),
        passing("l2", ("l3",), 1),
        passing("l3", ("l0", "l2"), 1000, backward=True),
    ),
)

HALVED = build_profile(
    "gpu",
    None,
    [
        Measurement(f"l{i}", Point(2, tensor_parallel=2), 1e-3, backward_seconds=1e-3)
        for i in range(4)
    ],
)


def ruled(routing: SkipRouting = SkipRouting.DIRECT, kind: str = "1f1b", chunks: int = 1) -> Plan:
    partition = Partition(
        layers_per_stage=(1, 1, 1, 1),
        skip_routing=routing,
        load_rule=LoadRule.DNN_PARTITIONING,
    )
    plan = profiled_plan(partition, degrees=Degrees(pipeline=4 // chunks))
    return replace(plan, schedule=Schedule(kind, chunks_per_rank=chunks))


def loads(plan: Plan, profile: Profile = PROFILE) -> tuple[DeviceLoad, ...]:
    found = price(plan, profile).loads
    assert found is not None
    return found


def price(plan: Plan, profile: Profile = PROFILE) -> ResolvedPlan:
    return resolve(plan, model=chain(4), profile=profile)


def in_millis(found: tuple[DeviceLoad, ...]) -> list[tuple[int, int, int]]:
    return [
        (
            load.compute_picoseconds // MILLI,
            load.sending_picoseconds // MILLI,
            load.receiving_picoseconds // MILLI,
        )
        for load in found
    ]


def test_a_tensor_leaves_once_and_enters_each_device_once() -> None:
    """Stage i computes 3 (i + 1) ms."""
    found = loads(ruled())
    assert in_millis(found) == [(3, 100, 1000), (6, 10, 100), (9, 1, 1010), (12, 1000, 101)]
    assert [load.picoseconds // MILLI for load in found] == [1103, 116, 1020, 1113]


def test_relayed_it_enters_and_leaves_every_stage_between() -> None:
    found = loads(ruled(SkipRouting.RELAY))
    assert in_millis(found) == [
        (3, 100, 1000),
        (6, 100 + 10 + 1000, 100 + 1000),
        (9, 100 + 1 + 1000, 100 + 10 + 1000),
        (12, 1000, 101),
    ]


def test_stages_of_one_device_hand_nothing_to_each_other() -> None:
    """Two ranks hold stages 0 and 2, and 1 and 3: l3's gradient leaves rank 1 once, for both."""
    found = loads(ruled(kind="interleaved_1f1b", chunks=2))
    assert in_millis(found) == [(12, 101, 1010), (18, 1010, 101)]


def test_without_a_backward_gradients_are_not_charged() -> None:
    assert in_millis(loads(ruled(kind="forward_only")))[3] == (4, 0, 101)


def test_without_a_rule_no_load_is_counted() -> None:
    plan = replace(ruled(), partition=Partition(layers_per_stage=(1, 1, 1, 1)))
    assert price(plan).loads is None
    assert "load_rule" not in {said.code for said in price(plan).assumptions}
    assert "load_rule" in {said.code for said in price(ruled()).assumptions}


def test_the_simulation_takes_no_notice_of_it() -> None:
    with_rule, without = (
        price(ruled()),
        price(replace(ruled(), partition=Partition(cuts=(1, 2, 3)))),
    )
    assert with_rule.stages == without.stages
    assert {boundary.forward_picoseconds for boundary in with_rule.boundaries} == {0}


@pytest.mark.parametrize(
    ("plan", "profile", "words"),
    [
        (ruled(), chain_profile(4), "it has none at all"),
        (
            ruled(),
            replace(PROFILE, transfers=(replace(PROFILE.transfers[0], microbatch_size=7),)),
            "none at microbatch_size 2: it has them at 7",
        ),
        (
            ruled(),
            replace(PROFILE, transfers=(passing("l9", ("l1",), 1),)),
            "layers that the model does not have: l9",
        ),
        (ruled(kind="chimera"), PROFILE, "use a one-way schedule"),
        (
            replace(ruled(), degrees=Degrees(pipeline=4, tensor=2)),
            replace(HALVED, transfers=PROFILE.transfers),
            "use tensor 1 and context 1",
        ),
    ],
)
def test_what_the_rule_can_not_say_is_refused(plan: Plan, profile: Profile, words: str) -> None:
    assert words in refusal_text(lambda: price(plan, profile))


def test_faults_point_to_the_rule() -> None:
    plan = replace(ruled(), workload=Workload(microbatches=8, microbatch_size=1))
    assert (FaultCode.MISSING_PROFILE_POINT, ("partition", "load_rule")) not in refusals(
        lambda: price(plan)
    )  # costs are missing already, and without them there is no load
    found = refusals(lambda: price(ruled(), chain_profile(4)))
    assert found == [(FaultCode.MISSING_PROFILE_POINT, ("partition", "load_rule"))]


@given(
    ranks=st.lists(st.integers(0, 3), min_size=2, max_size=7),
    data=st.data(),
)
def test_carrying_never_takes_less_than_going_straight(
    ranks: list[int], data: st.DataObject
) -> None:
    stages = st.integers(0, len(ranks) - 1)
    source = data.draw(stages)
    targets = data.draw(st.lists(stages, min_size=1, max_size=4))
    senders, receivers = straight(ranks, source, targets)
    relays, takers = carried(ranks, source, targets)
    assert len(relays) == len(takers)
    assert set(receivers) <= set(takers)
    assert set(senders) <= set(relays)
    assert bool(senders) == bool(receivers)
