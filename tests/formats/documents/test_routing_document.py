"""The routing document: every field arrives, and what contradicts itself is told where it is."""

import json
from typing import Any

import msgspec
import pytest

from service.core.errors import FaultCode
from service.core.moe.assignments import RoutingLevel
from service.formats.documents.routing import RoutingDocument, built_routing, to_core
from tests.core.refusals import refusals


def read(**fields: Any) -> RoutingDocument:
    return msgspec.json.decode(json.dumps(fields), type=RoutingDocument)


def test_everything_of_a_layer_arrives() -> None:
    layer = {
        "layer": 3,
        "step": 7,
        "topk_ids": [[0, 1], [1, 2], [-1, -1]],
        "tokens": 1,
        "tokens_by_source": [1, 2],
        "padded": [True, False, False],
        "padded_tokens": 4,
    }
    routing = to_core(read(experts=3, top_k=2, tokens=9, layers=[layer]))
    record = routing.records[3, 0]
    assert routing.step_numbers == (7,)
    assert record.counts.tolist() == [[0, 0, 0], [0, 1, 1]]
    assert record.padded_tokens == 6


def test_counts_are_divided_by_their_replicas() -> None:
    routing = to_core(
        read(experts=2, top_k=1, tokens=2, replicated=3, layers=[{"layer": 0, "counts": [3, 3]}])
    )
    assert routing.records[0, 0].counts.tolist() == [[1, 1]]


def test_loads_have_no_top_k() -> None:
    assert to_core(read(experts=2, layers=[{"layer": 0, "counts": [90, 3]}])).top_k is None


def test_a_skew_stands_alone() -> None:
    skew = {"kind": "burst", "fraction": 0.5, "period": 2, "steps": 4}
    routing = to_core(read(experts=4, top_k=2, skew=skew))
    assert (routing.level, routing.steps) == (RoutingLevel.SKEW, 4)
    both = read(experts=4, top_k=2, skew=skew, tokens=1, layers=[{"layer": 0, "counts": [1]}])
    assert refusals(lambda: to_core(both)) == [
        (FaultCode.EXCLUSIVE_FIELDS, ("layers",)),
        (FaultCode.EXCLUSIVE_FIELDS, ("tokens",)),
    ]
    assert refusals(lambda: to_core(read(experts=4, skew={"kind": "zipf"}))) == [
        (FaultCode.MISSING_FIELD, ("top_k",)),
        (FaultCode.MISSING_FIELD, ("skew", "exponent")),
    ]
    assert refusals(lambda: to_core(read(experts=4))) == [(FaultCode.MISSING_FIELD, ("layers",))]


def test_warnings_come_with_it() -> None:
    dummies = read(experts=2, top_k=1, layers=[{"layer": 0, "topk_ids": [[0]] * 100}])
    assert len(built_routing(dummies).warnings) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"experts": 0, "layers": [{"layer": 0, "counts": [1]}]},
        {"experts": 1, "layers": []},
        {"experts": 1, "layers": [{"layer": -1, "counts": [1]}]},
        {"experts": 1, "layers": [{"layer": 0, "counts": [-1]}]},
        {"experts": 1, "layers": [{"layer": 0, "counts": [1.5]}]},
        {"experts": 1, "layers": [{"layer": 0, "counts": [2**41]}]},
        {"experts": 1, "layers": [{"layer": 0, "topk_ids": [[-2]]}]},
        {"experts": 1, "top_k": None, "layers": [{"layer": 0, "counts": [1]}]},
        {"experts": 1, "layers": [{"layer": 0, "counts": [1], "more": 1}]},
    ],
)
def test_what_no_routing_has_is_refused_by_its_shape(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(**fields)
