"""Layers of a model that have experts, and what a model and a routing must agree on."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from service.core.errors import FaultCode, InvalidInput, Path, WorkBudgetExceeded
from service.core.models.dimensions import Dimensions, Experts, Mlp
from service.core.models.dtypes import DType
from service.core.models.graph import Layer, Model, Parameter, RecordedSize, Tensor, build_model
from service.core.moe.routing import Routing
from service.core.moe.skews import Skew, SkewKind
from service.core.plans.moe.inputs import MoeInputs
from service.core.plans.moe.work import check_expert_work, expert_units
from service.core.plans.plan import Degrees, ResolvedPlan
from service.core.plans.resolve import resolve
from service.formats.documents.plan import PlanDocument, to_core
from tests.core.plans.moe.expert_worlds import RATES, document, hot, inputs, resolved, seen
from tests.core.plans.worlds import cluster

WITH = Dimensions(
    hidden=64, feed_forward=Experts(count=8, active=2, each=Mlp(width=32, gated=True))
)
DENSE = Dimensions(hidden=64, feed_forward=Mlp(width=32, gated=True))
EVEN = [[64] * 8] * 2


def weight(layer: int) -> Parameter:
    """Small: what layers multiply follows from their dimensions."""
    return Parameter(f"w{layer}", 64, DType.BF16)


def model(*dimensions: Dimensions) -> Model:
    """A chain of layers l0, l1, ..."""
    return build_model(
        [Layer(f"l{i}", "block", (weight(i),), dimensions=of) for i, of in enumerate(dimensions)],
        [
            Tensor(f"t{i}", f"l{i}", (f"l{i + 1}",), recorded=RecordedSize(1000, 1))
            for i in range(len(dimensions) - 1)
        ],
    )


def priced(
    of: Model, routing: Routing | None = None, *, expert: int = 2, **moe: Any
) -> ResolvedPlan:
    """Two stages of two layers at assumed rates; an expert group is on both hosts."""
    stated = moe | ({} if routing is None else {"routing": "seen@1"})
    asked = {
        "costs": {"model": "m@1", "assumed": RATES | {"compute_dtype": "bf16"}},
        "partition": {"layers_per_stage": [2, 2]},
        "workload": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 256},
        "parallelism": {"pipeline": 2, "data": 2, "expert": expert},
        "schedule": {"kind": "1f1b"},
        "topology": "two-hosts@1",
        "placement": {"order": ["pipeline", "data"]},
        "moe": stated,
    }
    plan = to_core(msgspec.convert(asked, PlanDocument))
    return resolve(plan, cluster=cluster(), model=of, routing=routing)


def told(of: Model, routing: Routing | None = None, **moe: Any) -> list[tuple[FaultCode, Path]]:
    with pytest.raises(InvalidInput) as refused:
        priced(of, routing, **moe)
    return [(fault.code, fault.path) for fault in refused.value.faults]


def test_layers_with_experts_are_those_whose_dimensions_have_them() -> None:
    plan = priced(model(DENSE, WITH, WITH, DENSE))
    moe = plan.moe
    assert moe is not None
    assert [(one.layer.name, one.layer.stage, one.layer.place) for one in moe.layers] == [
        ("l1", 0, 1),
        ("l2", 1, 0),
    ]
    assert moe.stages[0].layers == (0,)


def test_assumed_costs_contain_products_and_not_exchanges() -> None:
    """Evenly routed the experts' own time is taken off as it is added; the rest is on top."""
    of = model(DENSE, WITH, DENSE, DENSE)
    plan = priced(of)
    asked = replace(plan.plan, moe=None)
    before = resolve(asked, cluster=cluster(), model=of)
    exchanged = 2 * (4_096_000 + 12_000_000) + 2 * 111_992
    first, second = plan.stages
    assert first.forward_picoseconds == _plus(before.stages[0].forward_picoseconds, exchanged)
    assert second.forward_picoseconds == before.stages[1].forward_picoseconds
    gradients, were = (stage.layer_gradient_picoseconds for stage in (first, before.stages[0]))
    assert gradients is not None
    assert were is not None
    assert gradients == (were[0], _plus(were[1], exchanged))


def _plus(amount: Any, more: int) -> int:
    return int(amount) + more


def test_a_routing_of_as_many_layers_is_read_in_order_and_of_fewer_by_the_nearest() -> None:
    of = model(WITH, WITH, WITH, WITH)
    four = priced(of, seen([EVEN, hot(0), EVEN, hot(1)], top_k=2))
    assert _read(four) == [0, 1, 2, 3]
    two = priced(of, seen([EVEN, hot(0)], top_k=2))
    assert _read(two) == [0, 1, 1, 1]
    assert "routing_layers_nearest" in {one.code for one in two.assumptions}
    listed = priced(of, seen([EVEN, hot(0)], top_k=2), routing_layers=[1, 0, 0, 1])
    assert _read(listed) == [1, 0, 0, 1]


def _read(plan: ResolvedPlan) -> list[int | None]:
    assert plan.moe is not None
    return [one.layer.routing_layer for one in plan.moe.layers]


def test_a_model_without_experts_has_nothing_to_route() -> None:
    assert told(model(DENSE, DENSE, DENSE, DENSE)) == [(FaultCode.INCONSISTENT, ("moe",))]


@pytest.mark.parametrize(
    ("routing", "moe", "expected"),
    [
        (
            seen([[[64] * 6] * 2], top_k=2),
            {},
            [(FaultCode.INCONSISTENT, ("moe", "routing"))],
        ),
        (
            seen([[[64] * 8] * 2], top_k=4),
            {},
            [(FaultCode.INCONSISTENT, ("moe", "routing"))],
        ),
        (
            seen([EVEN], top_k=2),
            {"routing_layers": [0, 7, 0, 0]},
            [(FaultCode.UNKNOWN_NAME, ("moe", "routing_layers", 1))],
        ),
        (
            seen([EVEN], top_k=2),
            {"routing_layers": [0]},
            [(FaultCode.WRONG_LENGTH, ("moe", "routing_layers"))],
        ),
        (
            None,
            {"placement": [[0, 1, 2, 3], [4, 5, 6, 9]]},
            [
                (FaultCode.UNKNOWN_REFERENCE, ("moe", "placement", 1, 3)),
                (FaultCode.INCONSISTENT, ("moe", "placement")),
            ],
        ),
        (
            None,
            {"skew": {"kind": "hot_expert", "fraction": 0.5, "expert": 8}},
            [(FaultCode.OUT_OF_RANGE, ("moe", "skew", "expert"))],
        ),
    ],
)
def test_what_does_not_fit_the_model_is_told_where_it_stands(
    routing: Routing | None, moe: dict[str, Any], expected: list[tuple[FaultCode, Path]]
) -> None:
    assert told(model(WITH, WITH, WITH, WITH), routing, **moe) == expected


def test_hosts_that_nothing_joins_share_no_expert_group() -> None:
    with pytest.raises(InvalidInput) as refused:
        resolved(document([1]), on=cluster(gpus=1, joined=False))
    assert [(one.code, one.path) for one in refused.value.faults] == [
        (FaultCode.UNREACHABLE, ("placement",))
    ]


def test_runs_that_are_alike_are_work_once() -> None:
    degrees = Degrees(pipeline=1, data=4, expert=2)
    # Two groups: four matrices of 2 x 2 pairs, and 2 x 4 of sources and experts.
    assert expert_units(inputs(degrees)) == 2 * (4 * 4 + 2 * 4)
    assert expert_units(inputs(degrees, layers=3)) == expert_units(inputs(degrees))
    seen_twice = seen([[[2, 2, 2, 2]] * 2, [[8, 0, 0, 0]] * 2])
    assert _units(degrees, seen_twice) == 2 * expert_units(inputs(degrees))


def _units(degrees: Degrees, routing: Routing) -> int:
    return expert_units(inputs(degrees, routing=routing, layers=2))


def test_too_much_work_is_refused_before_any_is_done() -> None:
    asked: MoeInputs = inputs(Degrees(pipeline=1, data=4, expert=2))
    check_expert_work([asked], most=48)
    with pytest.raises(WorkBudgetExceeded) as refused:
        check_expert_work([asked], most=47)
    assert [one.path for one in refused.value.faults] == [("moe",)]


def test_many_layers_and_steps_are_refused_before_any_is_priced() -> None:
    degrees = Degrees(pipeline=1, data=4, expert=2)
    asked = inputs(degrees, layers=2)
    rotating = replace(asked.settings, skew=Skew(SkewKind.ROTATING, fraction=0.5, steps=4096))
    in_turn = replace(
        asked, settings=rotating, tokens=asked.tokens * 1001, steps=tuple(range(1001))
    )
    for many, told_of in (
        (in_turn, "1001 different runs"),
        (replace(asked, tokens=asked.tokens * 15_001), "30002 runs"),
        (replace(asked, layers=asked.layers * 2_501), "5002 layers"),
    ):
        with pytest.raises(WorkBudgetExceeded) as refused:
            check_expert_work([many])
        assert refused.value.faults[0].detail.startswith(told_of)
