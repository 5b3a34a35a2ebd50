"""Files of expert loads, as JSON and CSV, alone and joined."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from service.core.errors import FaultCode, InvalidInput
from service.core.errors import Path as Place
from service.core.moe.assignments import RoutingLevel
from service.core.moe.routing import Routing
from service.formats.documents.canonical import canonical_bytes
from service.formats.documents.routing import RoutingDocument
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import damaged
from tests.formats.routing_files import FIXTURES, join, joined, read_one, routing_of

OPTIONS: dict[str, dict[str, Any]] = {
    "by-source.json": {"top_k": 2},
    "tokens.json": {},
    "loads.json": {},
    "long.csv": {"top_k": 1},
    "wide.csv": {"top_k": 1},
    "tokens.csv": {"experts": 4},
    "tokens.jsonl": {},
}


def table(routing: Routing) -> dict[tuple[int, int], list[list[int]]]:
    return {place: record.counts.tolist() for place, record in routing.records.items()}


def places(call: Callable[[], object]) -> list[Place]:
    return [path for _, path in refusals(call)]


def test_a_matrix_by_source_has_its_iteration_as_its_step() -> None:
    made = join("by-source.json", top_k=2)
    routing = routing_of(made)
    assert routing.level is RoutingLevel.SOURCES
    assert routing.step_numbers == (40,)
    assert table(routing) == {
        (3, 0): [[4, 2, 1, 1], [2, 2, 2, 2]],
        (5, 0): [[0, 4, 4, 0], [1, 3, 3, 1]],
    }
    assert made.document.model == "an invented model"
    [left_out] = read_one((FIXTURES / "by-source.json").read_bytes()).left_out
    assert (left_out.line, left_out.detail[:5]) == (2, "unit:")


def test_a_file_of_one_layer_lists_its_tokens() -> None:
    made = join("tokens.json")
    assert made.document.top_k == 2
    record = routing_of(made).records[2, 0]
    assert record.choices is not None
    assert record.choices.tolist() == [[0, 1], [2, 3], [3, 0]]
    assert record.padded_tokens == 1


def test_loads_of_no_number_of_tokens_say_so_themselves() -> None:
    routing = routing_of(join("loads.json"))
    assert routing.top_k is None
    assert table(routing) == {(0, 0): [[90, 132, 40]]}


def test_a_long_table_is_a_matrix_where_it_names_sources() -> None:
    made = join("long.csv", top_k=1)
    routing = routing_of(made)
    assert routing.step_numbers == (10, 20)
    assert table(routing) == {(0, 0): [[3, 0, 1], [0, 4, 0]], (0, 1): [[2, 2, 0], [0, 0, 4]]}
    taken = read_one((FIXTURES / "long.csv").read_bytes()).assumptions
    assert "asks for experts up to 2" in taken[0]
    assert "its count is 0" in taken[1]
    assert routing_of(join("long.csv", top_k=1, experts=5)).experts == 5


def test_a_long_table_without_sources_has_counts() -> None:
    routing = routing_of(joined("expert,count\n1,5\n0,3\n", top_k=1))
    assert routing.level is RoutingLevel.COUNTS
    assert table(routing) == {(0, 0): [[3, 5]]}


def test_a_wide_table_has_its_rows_in_the_order_of_their_sources() -> None:
    assert table(routing_of(join("wide.csv", top_k=1))) == {
        (0, 0): [[3, 0, 1], [0, 4, 0]],
        (1, 0): [[1, 1, 2], [2, 2, 0]],
    }
    assert table(routing_of(joined("2,0,1\n7,3,5\n", top_k=1))) == {(0, 0): [[3, 5, 7]]}


def test_tokens_of_a_table_are_sorted_by_source_and_padding_is_left_out() -> None:
    routing = routing_of(join("tokens.csv", experts=4))
    record = routing.records[0, 0]
    assert record.choices is not None
    assert record.choices.tolist() == [[0, 1], [2, 3], [0, 3]]
    assert record.counts.tolist() == [[1, 1, 0, 0], [1, 0, 1, 2]]
    assert record.padded_tokens == 1


def test_a_log_of_an_engine_has_a_line_for_each_token() -> None:
    made = join("tokens.jsonl")
    routing = routing_of(made)
    assert (routing.experts, routing.top_k, made.document.model) == (4, 2, "an invented model")
    assert [
        record.choices.tolist() for record in routing.records.values() if record.choices is not None
    ] == [
        [[0, 1], [0, 1], [2, 3]],
        [[1, 3], [0, 2], [3, 0]],
    ]
    told = [item.detail for item in read_one((FIXTURES / "tokens.jsonl").read_bytes()).left_out]
    assert [detail.split(",")[0] for detail in told] == ["type", "req_id"]
    # The first lines have equal weights for all, as an engine's dummies do.
    assert made.assumptions[0].startswith("2 of 3 tokens of layer 0 look like dummies")
    left = routing_of(join("tokens.jsonl", drop_warm_up=True))
    assert left.records[0, 0].counts.tolist() == [[0, 0, 1, 1]]


def test_several_files_are_steps_or_layers() -> None:
    first = '{"num_experts": 2, "top_k": 1, "layer": 0, "counts": [3, 1]}'
    other = '{"num_experts": 2, "top_k": 1, "layer": 4, "counts": [2, 2]}'
    assert table(routing_of(joined(first, other))) == {(0, 0): [[3, 1]], (4, 0): [[2, 2]]}
    again = joined(first, first.replace("[3, 1]", "[0, 4]"))
    assert table(routing_of(again)) == {(0, 0): [[3, 1]], (0, 1): [[0, 4]]}
    assert "each is taken to be a step of its own" in again.assumptions[0]
    named = joined(first, first.replace("{", '{"iteration": 1001, ', 1))
    assert routing_of(named).step_numbers == (0, 1001)
    assert not named.assumptions


def test_files_that_disagree_are_named() -> None:
    first = '{"num_experts": 2, "top_k": 1, "layer": 0, "counts": [3, 1]}'
    wider = '{"num_experts": 3, "top_k": 1, "layer": 1, "counts": [3, 1, 0]}'
    assert refusals(lambda: joined(first, wider)) == [(FaultCode.INCONSISTENT, ("files", 1))]
    assert places(lambda: joined(first, "no file", "[1]")) == [("files", 1), ("files", 2)]


def test_what_no_file_says_is_asked_for_by_name() -> None:
    counts = "expert,count\n0,3\n1,5\n"
    assert refusals(lambda: joined(counts)) == [(FaultCode.MISSING_FIELD, ("top_k",))]
    assert refusals(lambda: joined("topk_ids\n0 1\n")) == [(FaultCode.MISSING_FIELD, ("experts",))]
    assert routing_of(joined(counts, loads=True)).top_k is None
    assert refusals(lambda: joined(counts, loads=True, top_k=1)) == [
        (FaultCode.EXCLUSIVE_FIELDS, ("loads",))
    ]


def test_what_tokens_cannot_ask_for_is_told_with_its_line() -> None:
    content = (FIXTURES / "by-source.json").read_text()
    broken = content.replace("[1, 3, 3, 1]", "[0, 5, 3, 0]")
    assert places(lambda: joined(broken, top_k=2)) == [("files", 0, "line", 9)]
    assert "line 9 is refused (matrix/1/1): 5 assignments" in refusal_text(
        lambda: joined(broken, top_k=2)
    )
    wide = (FIXTURES / "wide.csv").read_text().replace("1,1,2,2,0", "1,1,2,2,1")
    tokens = joined(wide, top_k=1)
    assert routing_of(tokens).records[1, 0].counts.sum() == 9
    assert places(lambda: joined(wide, top_k=2))[-1] == ("files", 0, "line", 4)


def test_replicated_logging_is_told_with_its_line_and_divided_where_it_is_stated() -> None:
    content = (
        '{"num_experts": 2, "top_k": 1,\n "tokens": 4, "layers": [\n'
        '{"layer": 0,\n"counts": [6, 2]}]}'
    )
    assert places(lambda: joined(content)) == [("files", 0, "line", 4)]
    assert "counted 2 times" in refusal_text(lambda: joined(content))
    assert table(routing_of(joined(content, replicated=2))) == {(0, 0): [[3, 1]]}


def test_dummy_tokens_of_a_warm_up_are_told_and_left_out_where_that_is_asked() -> None:
    rows = [(0, "1 2", "0.5 0.5"), *[(0, "0 1", "0.6 0.4")] * 65, (1, "2 3", "0.9 0.1")]
    content = "source,topk_ids,topk_weights\n" + "".join(
        f"{source},{ids},{weights}\n" for source, ids, weights in rows
    )
    kept = joined(content, experts=4)
    assert kept.assumptions[0].startswith("66 of 67 tokens of layer 0 look like dummies")
    assert "they are kept" in kept.assumptions[0]
    left = joined(content, experts=4, drop_warm_up=True)
    record = routing_of(left).records[0, 0]
    assert record.counts.tolist() == [[0, 0, 0, 0], [0, 0, 1, 1]]
    assert "they are left out" in left.assumptions[0]


@pytest.mark.parametrize(
    ("content", "line", "detail"),
    [
        ("expert,count\n0,3\n0,3\n", 3, "says again what line 2 says"),
        ("expert,count\n0,-3\n", 2, "gives count '-3'"),
        ("expert,count\n0\n", 2, "has 1 cells where the header has 2"),
        ("expert,count,colour\n0,1,2\n", 1, "unknown: 'colour'"),
        ("expert,source\n0,1\n", 1, "lacks the column count"),
        ("layer,0,2\n0,1,1\n", 1, "not each of 0 to 1 once"),
        ("layer,source,0,1\n0,1,1,1\n", 2, "without a row of source 0"),
        ("topk_ids,expert\n0 1,1\n", 1, "unknown: 'expert'"),
        ("topk_ids\nx y\n", 2, "is a list of experts"),
        ("topk_ids,padded\n0 1,maybe\n", 2, "gives padded 'maybe'"),
        ("topk_ids,topk_weights\n0 1,a b\n", 2, "is a list of numbers"),
        ('{"layer": 0}\n{"topk_ids": [0]}\n{"topk_ids": "x"}', 3, "is no record of a token"),
        ('{"top_k": 1}\n{"top_k": 2}\n{"topk_ids": [0]}', 2, "a line before gives 1"),
        ('{"counts": 3}', 1, "is a list of 1 to"),
        ('{"counts": [1.5]}', 1, "is a whole number from 0"),
        ('{"matrix": [[1],\n 2]}', 2, "is a list of 1 to"),
        ('{"layers": [{"layer": 0,\n "counts": [1], "matrix": [[1]]}]}', 1, "of which a layer has"),
        ('{"layers": [{"counts": [1]}]}', 1, "has no 'layer'"),
        ('{"layers": {"counts": [1]}}', 1, "is a list of layers"),
        ('{"num_experts": 1, "topk_ids": [[0]],\n "padded": [2]}', 2, "true for each token"),
        ('{"topk_ids": [[0, 1]], "topk_weights": [[1]]}', 1, "a number for each entry"),
        ('{"assignments_per_source_rank": 3, "top_k": 2, "counts": [1]}', 1, "no multiple of"),
    ],
)
def test_each_fault_of_a_file_has_its_line(content: str, line: int, detail: str) -> None:
    told = refusals(lambda: joined(content, top_k=1, experts=2))
    assert ("files", 0, "line", line) in [path for _, path in told]
    assert detail in refusal_text(lambda: joined(content, top_k=1, experts=2))


def test_a_table_that_would_make_too_many_counts_is_refused_at_once() -> None:
    content = "layer,source,expert,count\n0,4095,65535,1\n"
    assert "at most 4194304 are read" in refusal_text(lambda: joined(content, top_k=1))
    wide, long = "source,expert,count\n4095,999,1\n", "layer,source,expert,count\n1,0,0,1\n"
    assert refusals(lambda: joined(wide, long, top_k=1)) == [(FaultCode.OUT_OF_RANGE, ("files",))]


@pytest.mark.parametrize("path", sorted(FIXTURES.iterdir()), ids=lambda path: path.name)
def test_whatever_is_read_of_damaged_files_is_a_document(path: Path) -> None:
    assert path.name in OPTIONS
    read = 0
    content = path.read_bytes()
    odd = (b"null", b"-1", b"1e308", b'"\\ud800"', b"[]", b"{}", b"true", b"0.5", b"99999999999")
    random = Random(3)
    versions = [content, *damaged(content, seed=8, times=60)]
    for _ in range(60):
        digits = [at for at, byte in enumerate(content) if chr(byte).isdigit()]
        at = random.choice(digits)
        versions.append(content[:at] + random.choice(odd) + content[at + 1 :])
    for version in versions:
        try:
            made = joined(version, **OPTIONS[path.name])
        except InvalidInput as refused:
            msgspec.json.encode([fault.detail for fault in refused.faults])
            continue
        read += 1
        plain = canonical_bytes(made.document)
        assert msgspec.json.decode(plain, type=RoutingDocument) == made.document
    assert read


def test_a_long_table_leaves_out_what_another_file_has() -> None:
    first = "source,step,expert,count\n0,1,0,3\n1,1,2,4\n"
    second = "source,step,expert,count\n0,2,1,2\n"
    assert table(routing_of(joined(first, second, top_k=1))) == {
        (0, 0): [[3, 0, 0], [0, 0, 4]],
        (0, 1): [[0, 2, 0], [0, 0, 0]],
    }


def test_the_examples_of_the_page_on_formats_are_read() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "routing-formats.md").read_text()
    fenced = page.split("```")[1::2]
    examples = [text.removeprefix("json").lstrip("\n") for text in fenced]
    assert len(examples) == 3
    for example in examples:
        assert joined(example, top_k=2).document.top_k == 2
