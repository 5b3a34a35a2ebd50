"""What a plan says of training: the types it means, and what can be wrong with it."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode, Path
from service.core.models.dtypes import DType
from service.core.plans.check import check_plan
from service.core.plans.gradient_reduction import (
    GradientReduction,
    ReductionAlgorithm,
    ReductionOverlap,
)
from service.core.plans.plan import Degrees, GivenStage, Plan
from service.core.plans.resolve import resolve
from service.core.plans.training import MasterCopy, Optimizer, OptimizerSharding, Training
from tests.core.plans.worlds import given_plan

STAGE = GivenStage(1.0, backward_seconds=2.0)
ADAM = Training(Optimizer.ADAM)


def told(plan: Plan) -> list[tuple[FaultCode, Path]]:
    return [(fault.code, fault.path) for fault in check_plan(plan)]


def state(training: Training, own: DType) -> tuple[DType, DType, DType | None, tuple[DType, ...]]:
    return (
        training.weights(own),
        training.gradients(own),
        training.master(own),
        training.moments(own),
    )


def test_mixed_precision_keeps_a_master_copy_and_moments_in_full() -> None:
    # The 16 bytes a parameter of ZeRO: 2 + 2 + 4 + 4 + 4.
    found = state(ADAM, DType.BF16)
    assert found == (DType.BF16, DType.BF16, DType.FP32, (DType.FP32, DType.FP32))
    # The 18 of Megatron: its gradients are fp32.
    megatron = replace(ADAM, gradient_dtype=DType.FP32)
    assert megatron.gradients(DType.BF16) is DType.FP32


def test_weights_in_full_precision_need_no_copy() -> None:
    found = state(Training(Optimizer.MOMENTUM), DType.FP32)
    assert found == (DType.FP32, DType.FP32, None, (DType.FP32,))


def test_without_a_master_copy_moments_are_of_the_type_of_the_weights() -> None:
    plain = replace(ADAM, master_dtype=MasterCopy.NONE)
    assert state(plain, DType.BF16) == (DType.BF16,) * 2 + (None, (DType.BF16,) * 2)


def test_what_is_said_goes_before_every_default() -> None:
    training = Training(
        Optimizer.ADAMW,
        weight_dtype=DType.FP8,
        gradient_dtype=DType.BF16,
        master_dtype=MasterCopy.BF16,
        moment_dtypes=(DType.UINT8, DType.FP16),
    )
    found = state(training, DType.FP32)
    assert found == (DType.FP8, DType.BF16, DType.BF16, (DType.UINT8, DType.FP16))
    one = Training(Optimizer.ADAM, optimizer_state_dtype=DType.BF16)
    assert one.moments(DType.BF16) == (DType.BF16, DType.BF16)


def test_each_level_of_sharding_takes_in_those_before() -> None:
    levels = list(OptimizerSharding)
    split = [
        (level.splits_optimizer, level.splits_gradients, level.splits_weights) for level in levels
    ]
    assert [sum(parts) for parts in split] == [0, 1, 2, 3]


def test_ranks_that_hold_the_same_weights() -> None:
    # Mixtral on 64 ranks: 16 of a stage, so each expert of 8 has two replicas.
    degrees = Degrees(pipeline=4, data=16, expert=8)
    assert (degrees.weight_replicas, degrees.expert_replicas) == (16, 2)
    degrees = Degrees(pipeline=1, tensor=4, context=2, data=2, expert=4, expert_tensor=2)
    assert (degrees.weight_replicas, degrees.expert_replicas) == (4, 2)


@pytest.mark.parametrize(
    ("degrees", "field"),
    [
        (Degrees(pipeline=1, data=2, expert=4), "expert"),
        (Degrees(pipeline=1, data=4, expert=3, expert_tensor=2), "expert"),
        (Degrees(pipeline=1, data=4, expert=4, expert_tensor=2), "expert_tensor"),
        (Degrees(pipeline=8, expert=2), "expert"),
    ],
)
def test_experts_lie_inside_the_ranks_of_a_stage(degrees: Degrees, field: str) -> None:
    plan = given_plan(*[STAGE] * degrees.pipeline, degrees=degrees)
    assert told(plan) == [(FaultCode.INDIVISIBLE, ("parallelism", field))]


@pytest.mark.parametrize(
    ("training", "fault"),
    [
        (
            replace(ADAM, weight_dtype=DType.INT8),
            (FaultCode.INCONSISTENT, ("training", "weight_dtype")),
        ),
        (
            replace(ADAM, gradient_dtype=DType.BOOL),
            (FaultCode.INCONSISTENT, ("training", "gradient_dtype")),
        ),
        (
            replace(ADAM, optimizer_state_dtype=DType.INT64),
            (FaultCode.INCONSISTENT, ("training", "optimizer_state_dtype")),
        ),
        (
            replace(ADAM, moment_dtypes=(DType.FP32,)),
            (FaultCode.WRONG_LENGTH, ("training", "optimizer_state_dtypes")),
        ),
        (
            replace(ADAM, moment_dtypes=(DType.FP32, DType.INT64)),
            (FaultCode.INCONSISTENT, ("training", "optimizer_state_dtypes", 1)),
        ),
        (
            replace(ADAM, optimizer_state_dtype=DType.FP32, moment_dtypes=(DType.FP32,) * 2),
            (FaultCode.EXCLUSIVE_FIELDS, ("training", "optimizer_state_dtypes")),
        ),
        (
            Training(Optimizer.SGD, optimizer_state_dtype=DType.FP32),
            (FaultCode.INCONSISTENT, ("training", "optimizer_state_dtype")),
        ),
    ],
)
def test_types_that_cannot_be_meant(training: Training, fault: tuple[FaultCode, Path]) -> None:
    assert told(replace(given_plan(STAGE), training=training)) == [fault]


SHARDED = replace(ADAM, optimizer_sharding=OptimizerSharding.OPTIMIZER)


@pytest.mark.parametrize(
    ("reduction", "training", "code", "field"),
    [
        (
            GradientReduction(ReductionAlgorithm.SHARDED),
            ADAM,
            FaultCode.INCONSISTENT,
            ("algorithm",),
        ),
        (
            GradientReduction(ReductionAlgorithm.RING),
            SHARDED,
            FaultCode.INCONSISTENT,
            ("algorithm",),
        ),
        (
            GradientReduction(ReductionAlgorithm.RING, seconds=1.0),
            ADAM,
            FaultCode.EXCLUSIVE_FIELDS,
            ("algorithm",),
        ),
        (
            GradientReduction(overlap=ReductionOverlap.BUCKETS),
            ADAM,
            FaultCode.MISSING_FIELD,
            ("bucket_bytes",),
        ),
        (GradientReduction(bucket_bytes=5), ADAM, FaultCode.INCONSISTENT, ("bucket_bytes",)),
        (
            GradientReduction(overlap=ReductionOverlap.BUCKETS, seconds=1.0),
            ADAM,
            FaultCode.EXCLUSIVE_FIELDS,
            ("overlap",),
        ),
        (GradientReduction(seconds=(1.0, 2.0)), ADAM, FaultCode.WRONG_LENGTH, ("seconds",)),
        (
            GradientReduction(seconds=(1e-13,)),
            ADAM,
            FaultCode.TOO_SMALL_TO_REPRESENT,
            ("seconds", 0),
        ),
    ],
)
def test_reductions_that_cannot_be_meant(
    reduction: GradientReduction, training: Training, code: FaultCode, field: Path
) -> None:
    plan = replace(given_plan(STAGE), training=replace(training, gradient_reduction=reduction))
    assert told(plan) == [(code, ("training", "gradient_reduction", *field))]


def test_a_step_has_one_time_or_one_for_each_pipeline_rank() -> None:
    plan = given_plan(STAGE, STAGE)
    for given, faults in (
        (1.0, []),
        ((1.0, 2.0), []),
        ((1.0,), [(FaultCode.WRONG_LENGTH, ("training", "optimizer_step_seconds"))]),
    ):
        training = replace(ADAM, optimizer_step_seconds=given)
        assert told(replace(plan, training=training)) == faults


def test_parameters_of_a_stage() -> None:
    experts_alone = given_plan(replace(STAGE, expert_parameter_count=5))
    assert told(experts_alone) == [
        (FaultCode.MISSING_FIELD, ("costs", "stages", 0, "parameter_count"))
    ]
    too_many = given_plan(STAGE, replace(STAGE, parameter_count=4, expert_parameter_count=5))
    assert told(too_many) == [
        (FaultCode.INCONSISTENT, ("costs", "stages", 1, "expert_parameter_count"))
    ]
    counted = given_plan(replace(STAGE, parameter_count=5, expert_parameter_count=5))
    assert told(counted) == []
    assert told(replace(counted, training=ADAM)) == [
        (FaultCode.MISSING_FIELD, ("training", "weight_dtype"))
    ]
    assert told(replace(counted, training=replace(ADAM, weight_dtype=DType.BF16))) == []


def test_what_no_number_depends_on_is_said() -> None:
    plan = given_plan(
        replace(STAGE, parameter_count=8), degrees=Degrees(pipeline=1, data=4, expert=2)
    )
    plan = replace(plan, training=replace(ADAM, weight_dtype=DType.BF16))
    codes = {said.code for said in resolve(plan).not_represented}
    assert codes >= {"training", "parameter_counts", "expert_communication"}
