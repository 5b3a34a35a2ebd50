"""Operations of an iteration: each replica and length once, and what is computed again beside."""

from dataclasses import replace

import pytest

from service.core.models.dimensions import Attention, Dimensions
from service.core.models.dtypes import DType
from service.core.models.graph import Layer, Model, Parameter, build_model
from service.core.plans.plan import Degrees, Partition, Plan, PlanFlops, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.profiles.measurement import Measurement, Point, Recompute
from service.core.profiles.profile import build_profile

# 4 x 16 weights of attention and 10 of a layer without dimensions, both for every token.
ATTENTION = Dimensions(hidden=4, attention=Attention(heads=2, key_value_heads=2, head_size=2))
PER_TOKEN, PER_PAIR, PLAIN = 2 * 64, 2 * 8, 2 * 10


def model() -> Model:
    plain = Layer("plain", "linear", (Parameter("w", 10, DType.BF16),))
    return build_model([Layer("attention", "block", dimensions=ATTENTION), plain], [])


def plan(workload: Workload, **fields: object) -> Plan:
    made = Plan(
        degrees=Degrees(1, data=3),
        workload=workload,
        schedule=Schedule("1f1b"),
        model="m",
        profile="p",
        partition=Partition(cuts=()),
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def flops(asked: Plan) -> PlanFlops | None:
    lengths = {asked.workload.sequence_length, *(asked.workload.microbatch_sequence_lengths or ())}
    points = [Point(2, length, recompute=policy) for length in lengths for policy in Recompute]
    rows = [
        Measurement(
            "*",
            point,
            1e-3,
            2e-3,
            recompute_seconds=None if point.recompute is Recompute.NONE else 1e-3,
        )
        for point in points
    ]
    return resolve(asked, model=model(), profile=build_profile(None, None, rows)).flops


LONG = Workload(5, microbatch_size=2, sequence_length=8)
SAMPLES = 5 * 2 * 3
FORWARD = SAMPLES * (8 * (PER_TOKEN + PLAIN) + 64 * PER_PAIR)


def test_three_forwards_for_every_sample_of_every_replica() -> None:
    assert flops(plan(LONG)) == PlanFlops(3 * FORWARD, 3 * FORWARD, from_parameters=1)


def test_a_schedule_without_backwards_needs_one() -> None:
    asked = plan(LONG, schedule=Schedule("forward_only"), recompute="full")
    assert flops(asked) == PlanFlops(FORWARD, FORWARD, from_parameters=1)


@pytest.mark.parametrize(
    ("policy", "again"),
    [("full", FORWARD), ("selective", SAMPLES * 64 * PER_PAIR)],
)
def test_what_is_computed_again_is_no_part_of_what_the_model_needs(policy: str, again: int) -> None:
    assert flops(plan(LONG, recompute=policy)) == PlanFlops(3 * FORWARD, 3 * FORWARD + again, 1)


def test_lengths_that_differ_count_each_by_itself() -> None:
    mixed = Workload(3, microbatch_size=2, microbatch_sequence_lengths=(8, 4, 8))
    pairs, tokens = 6 * (64 + 16 + 64), 6 * (8 + 4 + 8)
    found = flops(plan(mixed))
    assert found is not None
    assert found.model == 3 * (tokens * (PER_TOKEN + PLAIN) + pairs * PER_PAIR)


def test_without_a_sequence_length_they_are_unknown() -> None:
    assert flops(plan(Workload(5, microbatch_size=2))) is None
