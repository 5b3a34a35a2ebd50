"""From recorded layers to a routing: what is taken, and every fault of what is not."""

from typing import Any

import numpy as np
import pytest

from service.core.errors import FaultCode, InvalidInput
from service.core.moe.assignments import RoutingLevel
from service.core.moe.recorded import Measure, Recorded
from service.core.moe.recording import (
    MAX_ENTRIES,
    MAX_ROUTING_FAULTS,
    BuiltRouting,
    build_routing,
    routing_of_skew,
)
from service.core.moe.routing_summary import summarise_routing
from service.core.moe.skews import Skew, SkewKind
from tests.core.refusals import refusal_text, refusals

ODD, LONG = FaultCode.INCONSISTENT, FaultCode.WRONG_LENGTH


def built(*layers: dict[str, Any], experts: int = 4, top_k: int | None = 2, **more: Any) -> Any:
    recorded = [Recorded(**{"layer": 0, **layer}) for layer in layers]
    return build_routing(Measure(experts, top_k, **more), recorded)


def faults(*layers: dict[str, Any], **more: Any) -> list[Any]:
    return refusals(lambda: built(*layers, **more))


def text(*layers: dict[str, Any], **more: Any) -> str:
    return refusal_text(lambda: built(*layers, **more))


def test_token_lists_are_counted_without_padding() -> None:
    found: BuiltRouting = built(
        {
            "topk_ids": [[0, 1], [-1, -1], [2, 3], [0, 3], [1, 2]],
            "tokens_by_source": [3, 2],
            "padded": [False, False, False, True, False],
            "padded_tokens": 7,
        },
        tokens=3,
    )
    record = found.routing.records[0, 0]
    assert found.routing.level is RoutingLevel.TOKENS
    assert record.counts.tolist() == [[1, 1, 1, 1], [0, 1, 1, 0]]
    assert record.choices is not None
    assert record.choices.tolist() == [[0, 1], [2, 3], [1, 2]]
    assert record.padded_tokens == 9
    assert not found.warnings


def test_layers_and_steps_are_sorted_and_keep_their_numbers() -> None:
    layers = [
        {"layer": layer, "step": step, "counts": [layer + step, 1]}
        for layer, step in ((9, 1001), (9, 1), (2, 1), (2, 1001))
    ]
    routing = built(*layers, experts=2, top_k=1).routing
    assert routing.layers == (2, 9)
    assert routing.step_numbers == (1, 1001)
    assert routing.records[9, 1].counts.tolist() == [[1010, 1]]
    assert routing.records[2, 0].counts.tolist() == [[3, 1]]


def test_a_token_asks_for_different_experts_that_there_are() -> None:
    ids = [[0, 4], [1, 1], [-1, 2], [2, 3]]
    assert faults({"topk_ids": ids}) == [
        (FaultCode.OUT_OF_RANGE, ("layers", 0, "topk_ids", 2)),
    ]
    ids[2] = [0, 1]
    assert faults({"topk_ids": ids}) == [
        (FaultCode.OUT_OF_RANGE, ("layers", 0, "topk_ids", 0, 1)),
        (ODD, ("layers", 0, "topk_ids", 1)),
    ]
    assert "asks for expert 1 twice" in text({"topk_ids": ids})


def test_ragged_rows_are_named() -> None:
    assert faults({"topk_ids": [[0, 1], [0]]}) == [(LONG, ("layers", 0, "topk_ids", 1))]
    assert faults({"matrix": [[2, 2, 0, 0], [1, 1]]}) == [(LONG, ("layers", 0, "matrix", 1))]
    assert faults({"counts": [1, 1]}) == [(LONG, ("layers", 0, "counts"))]


def test_rows_sum_to_the_choices_of_their_tokens() -> None:
    assert faults({"matrix": [[2, 2, 0, 0], [1, 1, 1, 0]]}) == [(ODD, ("layers", 0, "matrix", 1))]
    matrix = [[2, 2, 0, 0], [1, 1, 1, 1]]
    assert built({"matrix": matrix, "tokens_by_source": [2, 2]}).routing.records
    assert faults({"matrix": matrix, "tokens_by_source": [3, 1]}) == [
        (ODD, ("layers", 0, "matrix", 0)),
        (ODD, ("layers", 0, "matrix", 1)),
    ]
    assert "sums to 4, which is not 2 x 1" in text({"matrix": matrix, "tokens_by_source": [3, 1]})
    assert faults({"matrix": matrix, "tokens_by_source": [4]}) == [
        (LONG, ("layers", 0, "tokens_by_source"))
    ]
    assert faults({"matrix": matrix, "tokens_by_source": [2, 2], "tokens": 5}) == [
        (ODD, ("layers", 0, "tokens_by_source"))
    ]


def test_no_expert_has_more_of_a_source_than_its_tokens() -> None:
    # Both rows are of 2 tokens: 3 assignments to one expert can't be.
    layer = {"matrix": [[3, 1, 0, 0], [2, 2, 0, 0]]}
    assert faults(layer) == [(FaultCode.OUT_OF_RANGE, ("layers", 0, "matrix", 0, 0))]
    assert "3 assignments to one expert from 2 tokens" in text(layer)
    assert faults({"counts": [5, 1, 1, 1]}) == [
        (FaultCode.OUT_OF_RANGE, ("layers", 0, "counts", 0))
    ]


def test_replicated_logging_is_detected_and_divided_where_it_is_stated() -> None:
    layer = {"counts": [8, 4, 4, 0]}
    assert faults(layer, tokens=4) == [(ODD, ("layers", 0, "counts"))]
    assert "counted 2 times, as by 2 data-parallel replicas: state replicated 2" in text(
        layer, tokens=4
    )
    routing = built(layer, tokens=4, replicated=2).routing
    assert routing.records[0, 0].counts.tolist() == [[4, 2, 2, 0]]
    assert faults({"counts": [7, 5, 4, 0]}, tokens=4, replicated=2) == [
        (FaultCode.INDIVISIBLE, ("layers", 0, "counts", 0)),
        (FaultCode.INDIVISIBLE, ("layers", 0, "counts", 1)),
    ]


def test_a_total_that_is_no_multiple_is_no_replica() -> None:
    told = text({"counts": [4, 4, 4, 0]}, tokens=4)
    assert "sums to 12, not 8 assignments: 2 x 4 tokens ask for 8" in told
    assert "replica" not in told


def test_token_lists_that_stand_twice_are_halved_where_it_is_stated() -> None:
    once = [[0, 1], [2, 3], [0, 2]]
    assert "counted 2 times" in text({"topk_ids": once * 2}, tokens=3)
    choices = built({"topk_ids": once * 2}, tokens=3, replicated=2).routing.records[0, 0].choices
    assert choices.tolist() == once
    assert faults({"topk_ids": [*once, *once[:2], [1, 2]]}, tokens=3, replicated=2) == [
        (ODD, ("layers", 0, "topk_ids"))
    ]


def test_dummy_tokens_of_a_warm_up_are_pointed_out() -> None:
    dummies = [[0, 1]] * 65
    found = built({"topk_ids": [[1, 2], *dummies, [0, 3]]})
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith("layers/0: 65 of 67 tokens repeat the one before")
    assert not built({"topk_ids": [[1, 2], *dummies[1:], [0, 3]]}).warnings


def test_loads_need_no_tokens_and_say_nothing_of_them() -> None:
    routing = built({"counts": [90, 132, 40, 61]}, top_k=None).routing
    assert routing.top_k is None
    assert routing.level is RoutingLevel.COUNTS
    assert faults({"counts": [1, 1, 1, 1], "tokens": 2}, top_k=None) == [
        (FaultCode.MISSING_FIELD, ("layers", 0, "tokens"))
    ]
    assert faults({"topk_ids": [[0, 1]]}, top_k=None) == [
        (FaultCode.MISSING_FIELD, ("layers", 0, "topk_ids"))
    ]


def test_layers_are_given_in_one_way_each_once_in_each_step() -> None:
    first, second = {"counts": [1, 1, 1, 1]}, {"matrix": [[1, 1, 1, 1]]}
    assert faults(first, first) == [(FaultCode.DUPLICATE_NAME, ("layers", 1))]
    assert faults(first, {**second, "layer": 1}) == [(ODD, ("layers", 1, "matrix"))]
    assert faults(first, {**first, "layer": 1}, {**first, "step": 5}) == [(ODD, ("layers", 1))]
    two = {"matrix": [[1, 1, 1, 1], [2, 2, 0, 0]], "layer": 1}
    assert faults(second, two) == [(ODD, ("layers", 1))]


def test_one_of_the_three_is_given() -> None:
    assert faults({}) == [(FaultCode.MISSING_FIELD, ("layers", 0))]
    both = {"counts": [1, 1, 1, 1], "matrix": [[1, 1, 1, 1]]}
    assert faults(both) == [(FaultCode.EXCLUSIVE_FIELDS, ("layers", 0, "counts"))]


def test_nothing_that_no_token_asked_for_is_a_routing() -> None:
    assert faults({"counts": [0, 0, 0, 0]}) == [(FaultCode.OUT_OF_RANGE, ("layers", 0, "counts"))]
    assert faults({"topk_ids": [[-1, -1]]}) == [(FaultCode.OUT_OF_RANGE, ("layers", 0, "topk_ids"))]
    assert faults({"topk_ids": []}) == [(FaultCode.OUT_OF_RANGE, ("layers", 0, "topk_ids"))]


def test_more_choices_than_experts_are_refused() -> None:
    assert faults({"counts": [1, 1, 1, 1]}, top_k=5)[0] == (FaultCode.OUT_OF_RANGE, ("top_k",))


def test_faults_are_told_up_to_a_number() -> None:
    layers = [{"layer": layer, "counts": [1, 1, 1]} for layer in range(MAX_ROUTING_FAULTS + 50)]
    told = faults(*layers)
    assert len(told) == MAX_ROUTING_FAULTS + 1
    assert "more faults follow" in text(*layers)


def test_few_tokens_of_many_sources_and_experts_are_refused_before_they_are_counted() -> None:
    layer = {"topk_ids": [[0]], "tokens_by_source": [1] + [0] * 4095}
    experts = MAX_ENTRIES // 4096 + 1
    assert faults(layer, experts=experts, top_k=1) == [(FaultCode.OUT_OF_RANGE, ("layers",))]


def test_a_skew_is_a_routing_of_as_many_steps_as_it_has() -> None:
    skew = Skew(SkewKind.ROTATING, fraction=1.0, steps=3)
    routing = routing_of_skew(skew, 4, 2)
    assert (routing.level, routing.steps, routing.layers) == (RoutingLevel.SKEW, 3, ())
    with pytest.raises(InvalidInput) as refused:
        routing_of_skew(Skew(SkewKind.ZIPF), 4, None)
    assert [fault.path for fault in refused.value.faults] == [("top_k",), ("skew", "exponent")]


def test_the_summary_spans_layers_and_steps() -> None:
    routing = built(
        {"matrix": [[2, 1, 1, 0], [2, 2, 0, 0]], "padded_tokens": 1},
        {"matrix": [[1, 1, 1, 1], [1, 1, 1, 1]], "layer": 1, "padded_tokens": 2},
    ).routing
    summary = summarise_routing(routing)
    assert summary.expert_max_over_mean == (1.0, 2.0)
    assert summary.tokens == (4, 4)
    assert summary.sources == 2
    assert summary.padded_tokens == 3
    assert np.isclose(summary.expert_max_over_mean[1], 4 / 2)
