"""Which weights a rank holds, each once, and with how many others it shares a copy."""

from dataclasses import replace
from itertools import pairwise

import pytest

from service.core.models.dimensions import Split
from service.core.models.dtypes import DType
from service.core.models.graph import Buffer, Layer, Model, Parameter, Tensor, build_model
from service.core.plans.held_weights import given_weights, model_weights, weights_of_stages
from service.core.plans.plan import Degrees, GivenStage, Partition, Schedule, TiedParameters
from service.core.plans.rank_weights import HeldWeights, RankWeights
from service.core.plans.resolve import resolve
from service.core.plans.schedule import stage_ranks
from service.core.profiles.profile import Measurement, Point, build_profile
from tests.core.plans.worlds import given_plan, profiled_plan

STAGE = GivenStage(1.0, backward_seconds=2.0)
BF16, FP32 = DType.BF16, DType.FP32


def chain(*layers: Layer) -> Model:
    return build_model(
        layers,
        [
            Tensor(f"t{i}", one.name, (other.name,), shape=(1,), dtype=BF16)
            for i, (one, other) in enumerate(pairwise(layers))
        ],
    )


def of_model(model: Model, degrees: Degrees, *stages: int) -> tuple[RankWeights, ...]:
    plan = given_plan(*[STAGE] * degrees.pipeline, degrees=degrees)
    homes = stage_ranks(plan)
    assert homes is not None
    return model_weights(plan, model, stages, homes)


def test_each_kind_of_weight_is_spread_over_its_own_ranks() -> None:
    block = Layer(
        "block",
        "moe_block",
        (
            Parameter("norm", 9, BF16, split=Split.NONE),
            Parameter("attention", 101, BF16, split=Split.TENSOR),
            Parameter("experts", 803, BF16, split=Split.EXPERT),
            Parameter("bias", 3, FP32),
        ),
        (Buffer("steps", 2, DType.INT64),),
    )
    degrees = Degrees(1, tensor=2, data=8, expert=4, expert_tensor=2)
    (found,) = of_model(chain(block), degrees, 0)
    assert found.held == (
        HeldWeights(9, BF16, 1, 8),
        HeldWeights(51, BF16, 2, 8),
        HeldWeights(101, BF16, 8, 2),
        HeldWeights(2, FP32, 2, 8),
    )
    assert (found.elements, found.buffer_bytes, found.assumed_split) == (163, 16, 3)
    assert found.largest_layer == found.held


def test_a_tied_weight_is_held_once_by_a_rank_and_again_by_another() -> None:
    tied = Parameter("embedding", 50, BF16, tied_group="embedding")
    model = chain(
        Layer("embedding", "embedding", (tied,)),
        Layer("block", "block", (Parameter("w", 20, BF16),)),
        Layer("head", "head", (replace(tied, name="head"),)),
    )
    (whole,) = of_model(model, Degrees(1), 0, 0, 0)
    assert whole.held == (HeldWeights(70, BF16, 1, 1),)
    assert whole.largest_layer == (HeldWeights(50, BF16, 1, 1),)
    first, last = of_model(model, Degrees(2), 0, 0, 1)
    assert (first.elements, last.elements) == (70, 50)


def test_two_directions_hold_the_stages_of_both() -> None:
    plan = replace(
        given_plan(*[replace(STAGE, parameter_count=n) for n in (1, 10, 100, 1000)]),
        schedule=Schedule("chimera"),
    )
    homes = stage_ranks(plan)
    assert homes is not None
    found = given_weights(plan, plan.stages or (), homes)
    assert [one.elements for one in found if one is not None] == [1001, 110, 110, 1001]


def test_stages_that_state_their_parameters() -> None:
    stages = (
        replace(STAGE, parameter_count=1001, expert_parameter_count=900),
        replace(STAGE, parameter_count=7),
    )
    degrees = Degrees(2, tensor=2, data=4, expert=4)
    plan = given_plan(*stages, degrees=degrees)
    homes = stage_ranks(plan)
    assert homes is not None
    first, second = given_weights(plan, stages, homes)
    assert first == RankWeights(
        held=(HeldWeights(51, None, 2, 4), HeldWeights(225, None, 4, 2)),
        largest_layer=None,
        buffer_bytes=None,
        assumed_split=101,
    )
    assert second is not None
    assert second.held == (HeldWeights(4, None, 2, 4),)
    assert given_weights(plan, (stages[0], STAGE), homes)[1] is None


@pytest.mark.parametrize("tensor", [1, 2, 3])
def test_what_is_assumed_is_counted_only_where_it_matters(tensor: int) -> None:
    model = chain(Layer("l", "linear", (Parameter("w", 6, BF16),)))
    (found,) = of_model(model, Degrees(1, tensor=tensor), 0)
    assert found.assumed_split == (0 if tensor == 1 else 6)


@pytest.mark.parametrize(
    ("kind", "chunks", "expected"),
    [
        ("1f1b", 1, [[(0, 50)], [(0, 20)], [(0, 20)], [(0, 50)]]),
        ("interleaved_1f1b", 2, [[(0, 50)], [(0, 20)], [(0, 20)], [(0, 50)]]),
        ("zb_v", 2, [[(0, 50)], [(0, 20)], [(0, 20)], []]),
        ("chimera", 1, [[(0, 50)], [(0, 20)], [(0, 20)], []]),
    ],
)
def test_stages_hold_in_sum_what_their_ranks_do(
    kind: str, chunks: int, expected: list[list[tuple[int, int]]]
) -> None:
    """The first and the last stage have one weight, which ranks that run both hold once.

    Interleaved, stages 0 and 3 are on ranks 0 and 1; in a V both are on rank 0, and in two
    directions both are on ranks 0 and 3.
    """
    tied = Parameter("embedding", 50, BF16, tied_group="embedding")
    model = chain(
        Layer("l0", "embedding", (tied,)),
        Layer("l1", "block", (Parameter("w", 20, BF16),)),
        Layer("l2", "block", (Parameter("w2", 20, BF16),)),
        Layer("l3", "head", (replace(tied, name="head"),)),
    )
    partition = Partition((1, 1, 1, 1), tied_parameters=TiedParameters.DUPLICATE)
    plan = profiled_plan(partition, degrees=Degrees(4 // chunks))
    plan = replace(plan, schedule=Schedule(kind, chunks_per_rank=chunks))
    times = [
        Measurement(f"l{i}", Point(2), 1.0, backward_input_seconds=1.0, backward_weight_seconds=1.0)
        for i in range(4)
    ]
    resolved = resolve(plan, model=model, profile=build_profile("gpu", None, times))
    found = weights_of_stages(resolved)
    told = [[(one.layer, one.held.elements) for one in placed or ()] for placed in found]
    assert told == expected
    for rank, weights in enumerate(resolved.rank_weights):
        here = [stage.stage for stage in resolved.stages if rank in stage.ranks]
        assert weights is not None
        assert weights.elements == sum(size for stage in here for _, size in told[stage])
