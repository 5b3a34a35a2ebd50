"""Expert loads as CSV with a header, in one of three shapes.

Long: `expert` and `count` in each row. Wide: a row for each layer or source, and a column for each
expert, named by its number (`0`, `expert_0`, `e0`). Tokens: `topk_ids`, the experts of one token
separated by spaces, commas (in quotes), semicolons or bars, and `topk_weights` and `padded` if they
are known. All may have `layer`, `step` and `source`.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from re import compile as compile_expression
from typing import Any

from service.formats.documents.fields import MAX_STAGES
from service.formats.documents.moe import MAX_EXPERTS
from service.formats.documents.routing import MAX_COUNT, MAX_NUMBER, MAX_RECORDS
from service.formats.pasted_text import Findings, lines_of, shown
from service.formats.routing_reading import (
    MAX_COUNTED,
    ReadRecord,
    RoutingReading,
    StatedRouting,
)
from service.formats.routing_tokens import TokenLine, line_of_row, token_records

__all__ = ["looks_like_routing_csv", "read_routing_csv"]

_MAX_WEIGHT = 1e9

_WHOLE = compile_expression(r"[0-9]{1,16}")
_EXPERT = compile_expression(r"(?:expert[_ ]?|e)?([0-9]{1,5})")
_IDS = compile_expression(r"(?:-1|[0-9]{1,5})(?:[\s,;|]+(?:-1|[0-9]{1,5}))*")
_BETWEEN = compile_expression(r"[\s,;|]+")


def _whole(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text) or int(text) > most:
            raise ValueError(f"is a whole number from 0 to {most}")
        return int(text)

    return read


def _ids(text: str) -> list[int]:
    inside = text.strip("[]() ")
    if not _IDS.fullmatch(inside):
        raise ValueError("is a list of experts, separated by spaces; -1 for padding")
    found = list(map(int, _BETWEEN.split(inside)))
    if len(found) > MAX_EXPERTS or max(found) >= MAX_EXPERTS:
        raise ValueError(f"has at most {MAX_EXPERTS} experts, from 0 to {MAX_EXPERTS - 1}")
    return found


def _weights(text: str) -> list[float]:
    try:
        found = [float(part) for part in _BETWEEN.split(text.strip("[]() ")) if part]
    except ValueError:
        found = []
    if not found or not all(abs(weight) <= _MAX_WEIGHT for weight in found):
        raise ValueError("is a list of numbers, separated by spaces")
    return found


def _mark(text: str) -> bool:
    if text.lower() not in ("0", "1", "false", "true"):
        raise ValueError("is 1 (or true) for a token that is padding, and 0 (or false) for others")
    return text.lower() in ("1", "true")


_PLACE_COLUMNS: Mapping[str, Callable[[str], Any]] = {
    "layer": _whole(MAX_NUMBER),
    "step": _whole(MAX_NUMBER),
    "source": _whole(MAX_STAGES - 1),
}
_LONG: Mapping[str, Callable[[str], Any]] = {
    "expert": _whole(MAX_EXPERTS - 1),
    "count": _whole(MAX_COUNT),
}
_TOKENS: Mapping[str, Callable[[str], Any]] = {
    "topk_ids": _ids,
    "topk_weights": _weights,
    "padded": _mark,
}
_count = _LONG["count"]


@dataclass(frozen=True, slots=True)
class _Row:
    """One line: where it belongs, and what its further columns say."""

    line: int
    layer: int
    step: int | None
    source: int | None
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the header says: how its columns are read, by their places."""

    name: str
    columns: Sequence[str]
    readers: Sequence[Callable[[str], Any]]
    experts: int | None = None


def looks_like_routing_csv(content: bytes) -> bool:
    """Whether its header has columns of two sorts of one of the three shapes.

    Which of them is missing can then be told.
    """
    for line in content[:1_048_576].removeprefix(b"\xef\xbb\xbf").splitlines():
        if line.strip():
            text = line.decode(errors="replace")
            names = [name.strip().strip('"').lower() for name in text.split(",")]
            numbered = sum(_EXPERT.fullmatch(name) is not None for name in names)
            known = sum(name in names for name in (*_PLACE_COLUMNS, *_LONG))
            return "topk_ids" in names or known >= 2 or numbered >= 2
    return False


def read_routing_csv(content: bytes, stated: StatedRouting) -> RoutingReading:
    """Read a table of expert loads.

    Raises `InvalidInput` with every fault, each with its line (counted from 1) as path
    `("line", n)`.
    """
    findings = Findings()
    rows: list[_Row] = []
    shape: _Shape | None = None
    for line, text in lines_of(content, findings):
        if not text.strip():
            continue
        try:
            # Reading a line with quotes takes as long as all else that is done with it.
            given = next(csv.reader([text], strict=True)) if '"' in text else text.split(",")
            cells = [cell.strip() for cell in given]
        except csv.Error as error:
            findings.refuse(line, f"is no row of CSV: {error}"[:200])
            continue
        if shape is None:
            shape = _shape_of(line, cells, findings)
            if shape is None:
                findings.raise_faults()
                break
        elif len(cells) != len(shape.columns):
            detail = f"has {len(cells)} cells where the header has {len(shape.columns)}"
            findings.refuse(line, detail)
        else:
            rows += _row(line, cells, shape, findings)
    if not rows and not findings.faulty:
        findings.refuse(None, "the file has no row of loads")
    findings.raise_faults()
    records, lines = _records(rows, shape, stated, findings)  # type: ignore[arg-type]
    findings.raise_faults()
    return RoutingReading(
        records=records,
        lines_of=lambda asked: [line_of_row(lines[place], inside) for place, inside in asked],
        experts=None if shape is None else shape.experts,
        sparse=shape is not None and shape.name == "long",
        assumptions=tuple(findings.assumptions),
        left_out=findings.left_out(),
    )


def _shape_of(line: int, header: Sequence[str], findings: Findings) -> _Shape | None:
    names = [name.lower() for name in header]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        findings.refuse(line, f"names a column twice: {', '.join(map(shown, twice[:5]))}")
        return None
    if "topk_ids" in names:
        return _named_shape("tokens", line, names, {**_PLACE_COLUMNS, **_TOKENS}, findings)
    if "expert" in names or "count" in names:
        missing = [name for name in _LONG if name not in names]
        if missing:
            findings.refuse(line, f"lacks the column {missing[0]}, separated by commas")
            return None
        return _named_shape("long", line, names, {**_PLACE_COLUMNS, **_LONG}, findings)
    return _wide_shape(line, names, findings)


def _named_shape(
    name: str,
    line: int,
    names: Sequence[str],
    known: Mapping[str, Callable[[str], Any]],
    findings: Findings,
) -> _Shape | None:
    unknown = [column for column in names if column not in known]
    if unknown:
        told = ", ".join(shown(column) for column in unknown[:5])
        detail = f"names columns that are unknown: {told}; known here are: {', '.join(known)}"
        findings.refuse(line, detail)
        return None
    return _Shape(name, names, [known[column] for column in names])


def _wide_shape(line: int, names: Sequence[str], findings: Findings) -> _Shape | None:
    columns, readers, numbers = [], [], []
    for name in names:
        expert = _EXPERT.fullmatch(name)
        if name in _PLACE_COLUMNS:
            columns.append(name)
            readers.append(_PLACE_COLUMNS[name])
        elif expert is not None:
            numbers.append(int(expert[1]))
            columns.append(f"expert {int(expert[1])}")
            readers.append(_count)
        else:
            known = f"{', '.join(_PLACE_COLUMNS)}, and numbers of experts"
            findings.refuse(line, f"names a column {shown(name)}; known here are: {known}")
            return None
    if sorted(numbers) != list(range(len(numbers))):
        detail = f"has columns of {len(numbers)} experts, which are not each of 0 to"
        findings.refuse(line, f"{detail} {len(numbers) - 1} once")
        return None
    return _Shape("wide", columns, readers, len(numbers))


def _row(line: int, cells: Sequence[str], shape: _Shape, findings: Findings) -> Iterator[_Row]:
    values: dict[str, Any] = {}
    for name, read, cell in zip(shape.columns, shape.readers, cells, strict=True):
        if not cell and name in ("topk_weights", "padded"):
            continue
        try:
            values[name] = read(cell)
        except ValueError as error:
            findings.refuse(line, f"gives {name} {shown(cell)}: it {error}")
            return
    yield _Row(
        line,
        values.pop("layer", 0),
        values.pop("step", None),
        values.pop("source", None),
        values,
    )


def _records(
    rows: Sequence[_Row], shape: _Shape, stated: StatedRouting, findings: Findings
) -> tuple[list[ReadRecord], list[list[int]]]:
    """The records, and for each the lines of its rows."""
    if "layer" not in shape.columns:
        findings.assume("the file names no layer: all of it is taken to be layer 0")
    by_place: dict[tuple[int, int | None], list[_Row]] = {}
    for row in rows:
        by_place.setdefault((row.layer, row.step), []).append(row)
    if len(by_place) > MAX_RECORDS:
        detail = f"the file has {len(by_place)} layers and steps; at most {MAX_RECORDS} are read"
        findings.refuse(None, detail)
        return [], []
    if shape.name == "tokens":
        return token_records([TokenLine(*_places(row), **row.values) for row in rows])
    return _count_records(by_place, shape, stated, findings)


def _places(row: _Row) -> tuple[int, int, int | None, int | None]:
    return row.line, row.layer, row.step, row.source


def _count_records(
    by_place: Mapping[tuple[int, int | None], list[_Row]],
    shape: _Shape,
    stated: StatedRouting,
    findings: Findings,
) -> tuple[list[ReadRecord], list[list[int]]]:
    rows = [row for of_place in by_place.values() for row in of_place]
    sourced = "source" in shape.columns
    sources = 1 + max(row.source or 0 for row in rows)
    experts = shape.experts or stated.experts or 0
    if shape.name == "long":
        asked = 1 + max(row.values["expert"] for row in rows)
        if not experts:
            experts = asked
            findings.assume(
                f"the file asks for experts up to {asked - 1}: of others, which nobody asked for,"
                " it does not know"
            )
        elif asked > experts:
            detail = f"asks for an expert beyond the {experts} that are stated"
            findings.refuse(next(r.line for r in rows if r.values["expert"] >= experts), detail)
            return [], []
        findings.assume(
            "a layer, source and expert without a row was not asked for: its count is 0"
        )
    if len(by_place) * sources * experts > MAX_COUNTED:
        detail = (
            f"{len(by_place)} layers and steps x {sources} sources x {experts} experts make"
            f" {len(by_place) * sources * experts} counts; at most {MAX_COUNTED} are read"
        )
        findings.refuse(None, detail)
        return [], []
    records, lines = [], []
    for (layer, step), of_place in by_place.items():
        table: list[list[int] | None] = [None] * sources
        seen: dict[tuple[int, int], int] = {}
        first = [of_place[0].line] * sources
        for row in of_place:
            source = row.source or 0
            expert = row.values.get("expert", 0)
            before = seen.setdefault((source, expert), row.line)
            if before != row.line:
                findings.refuse(row.line, f"says again what line {before} says")
                continue
            if shape.name == "wide":
                table[source] = [row.values[f"expert {number}"] for number in range(experts)]
                first[source] = row.line
                continue
            counts = table[source]
            if counts is None:
                counts = table[source] = [0] * experts
                first[source] = row.line
            counts[expert] = row.values["count"]
        missing = [source for source in range(sources) if table[source] is None]
        if missing and shape.name == "wide":
            findings.refuse(
                first[0], f"is of a layer and step without a row of source {missing[0]}"
            )
        records.append(
            ReadRecord(
                layer=layer,
                step=step,
                form="matrix" if sourced else "counts",
                rows=[counts or [0] * experts for counts in table],
            )
        )
        lines.append(first)
    return records, lines
