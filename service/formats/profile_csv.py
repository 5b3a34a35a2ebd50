"""Measurements of layers as CSV with a header: each row is one measurement of a profile.

Columns are named as the fields of a measurement, in any order; `layer`, `microbatch_size` and
`forward_seconds` have to be there. `device` and `precision` may be columns too: a profile is of one
of each, so where a file holds several the caller says which. An empty cell is unknown.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from re import compile as compile_expression
from typing import Any

import msgspec
from msgspec import UNSET

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.profiles.measurement import COMMUNICATION_FIELDS, Recompute
from service.formats.documents.fields import MAX_INTEGER, MAX_LAYERS, or_unset
from service.formats.documents.profile import MeasurementDocument, ProfileDocument, to_core
from service.formats.pasted_text import Findings, lines_of, shown
from service.formats.profile_reading import ProfileReading, Stated

__all__ = ["COLUMNS", "REQUIRED_COLUMNS", "looks_like_profile_csv", "read_profile_csv"]

REQUIRED_COLUMNS = ("layer", "microbatch_size", "forward_seconds")
_ORIGIN_COLUMNS = ("device", "precision")
_MAX_SECONDS = 1e5
_MAX_RATIO = 1e6

_LAYER = compile_expression(r"[A-Za-z0-9_*?][A-Za-z0-9_./:*?-]{0,126}")
_WHOLE = compile_expression(r"[0-9]{1,16}")
_DECIMAL = compile_expression(r"[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?")


def _layer(text: str) -> str:
    if not _LAYER.fullmatch(text):
        raise ValueError("is a name of letters, digits and _ . / : -, or a pattern with * and ?")
    return text


def _origin(text: str) -> str:
    if len(text) > 127:
        raise ValueError("has at most 127 characters")
    return text


def _recompute(text: str) -> Recompute:
    try:
        return Recompute(text)
    except ValueError:
        known = ", ".join(Recompute)
        raise ValueError(f"is one of {known}") from None


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= MAX_INTEGER:
            raise ValueError(f"is a whole number from {least} to {MAX_INTEGER}")
        return int(text)

    return read


def _decimal(most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text) if _DECIMAL.fullmatch(text) else -1.0
        if not isfinite(value) or not 0 <= value <= most:
            raise ValueError(f"is a number from 0 to {most:g}, with a point and no thousands")
        return value

    return read


_seconds, _bytes = _decimal(_MAX_SECONDS), _whole(0)
COLUMNS: Mapping[str, Callable[[str], Any]] = {
    "layer": _layer,
    "device": _origin,
    "precision": _origin,
    "microbatch_size": _whole(1),
    "sequence_length": _whole(1),
    "tensor_parallel": _whole(1),
    "recompute": _recompute,
    "forward_seconds": _seconds,
    "backward_seconds": _seconds,
    "backward_input_seconds": _seconds,
    "backward_weight_seconds": _seconds,
    "recompute_seconds": _seconds,
    **dict.fromkeys(COMMUNICATION_FIELDS, _seconds),
    "saved_activation_bytes": _bytes,
    "workspace_bytes": _bytes,
    "samples": _whole(1),
    "relative_deviation": _decimal(_MAX_RATIO),
}


@dataclass(frozen=True, slots=True)
class _Row:
    """One line: what was measured, and on what."""

    line: int
    values: dict[str, Any]

    def measurement(self) -> MeasurementDocument:
        """As the document has it, without the columns that are of the profile."""
        own = {name: value for name, value in self.values.items() if name not in _ORIGIN_COLUMNS}
        return MeasurementDocument(**own)


def looks_like_profile_csv(content: bytes) -> bool:
    """Whether the first line that is not blank names two columns of a profile that it needs.

    Which of them is missing can then be told.
    """
    for line in content[:65_536].removeprefix(b"\xef\xbb\xbf").splitlines():
        if line.strip():
            names = {name.strip().strip(b'"') for name in line.split(b",")}
            return sum(name.encode() in names for name in REQUIRED_COLUMNS) >= 2
    return False


def read_profile_csv(content: bytes, stated: Stated) -> ProfileReading:
    """Read a table of measurements.

    `device` and `precision` of `stated` choose among those that rows name, or say what no row does.
    Raises `InvalidInput` with every fault, each with its line (counted from 1) as path
    `("line", n)`.
    """
    findings = Findings()
    rows = list(_rows(content, findings))
    faults = [] if findings.faulty else list(_origin_faults(rows, stated))
    if findings.faulty or faults:
        _refuse(faults, findings)
    kept = [row for row in rows if _is_of(row, stated)]
    for row in rows:
        if not _is_of(row, stated):
            of = " in ".join(row.values[name] for name in _ORIGIN_COLUMNS if name in row.values)
            findings.leave_out(row.line, f"measured on {of}, not on what the import asks for")
    origin = {name: _origin_of(name, kept, stated) for name in _ORIGIN_COLUMNS}
    document = ProfileDocument(
        measurements=[row.measurement() for row in kept],
        device=or_unset(origin["device"]),
        precision=or_unset(origin["precision"]),
    )
    _check(document, kept, findings)
    for name in _ORIGIN_COLUMNS:
        if origin[name] is None:
            findings.assumptions.append(f"the file does not say the {name}: it stays unknown")
    if not any(row.values.get("sequence_length") for row in kept):
        findings.assumptions.append("rows without sequence_length price plans without one")
    return ProfileReading(
        profile=document,
        model=None,
        facts=_facts(document),
        assumptions=tuple(findings.assumptions),
        left_out=findings.left_out(),
    )


def _facts(document: ProfileDocument) -> dict[str, Any]:
    rows = document.measurements
    return {
        "measurements": len(rows),
        "layers": len({row.layer for row in rows}),
        "with_backward": sum(
            row.backward_seconds is not UNSET or row.backward_input_seconds is not UNSET
            for row in rows
        ),
        "microbatch_sizes": sorted({row.microbatch_size for row in rows})[:100],
        "sequence_lengths": sorted(
            {row.sequence_length for row in rows if row.sequence_length is not UNSET}
        )[:100],
        "tensor_parallel": sorted(
            {1 if row.tensor_parallel is UNSET else row.tensor_parallel for row in rows}
        )[:100],
    }


def _rows(content: bytes, findings: Findings) -> Iterator[_Row]:
    header: list[str] = []
    count = 0
    for line, text in lines_of(content, findings):
        if not text.strip():
            continue
        try:
            cells = [cell.strip() for cell in next(csv.reader([text], strict=True))]
        except csv.Error as error:
            findings.refuse(line, f"is no row of CSV: {error}"[:200])
            continue
        if not header:
            header = cells
            if not _header_fits(line, header, findings):
                return
            continue
        count += 1
        if count > MAX_LAYERS:
            findings.refuse(line, f"is a row beyond the {MAX_LAYERS} that a profile may have")
            return
        if len(cells) != len(header):
            findings.refuse(line, f"has {len(cells)} cells where the header has {len(header)}")
            continue
        yield from _row(line, header, cells, findings)
    if not count and not findings.faulty:
        findings.refuse(None, "the file has no row of measurements")


def _header_fits(line: int, header: list[str], findings: Findings) -> bool:
    unknown = [name for name in header if name not in COLUMNS]
    twice = sorted({name for name in header if header.count(name) > 1})
    missing = [name for name in REQUIRED_COLUMNS if name not in header]
    if unknown:
        known = ", ".join(COLUMNS)
        names = ", ".join(shown(name) for name in unknown[:5])
        findings.refuse(line, f"names columns that are unknown: {names}; known are: {known}")
    if twice:
        findings.refuse(line, f"names a column twice: {', '.join(map(shown, twice[:5]))}")
    if missing:
        findings.refuse(line, f"lacks the columns {', '.join(missing)}, separated by commas")
    return not (unknown or twice or missing)


def _row(line: int, header: list[str], cells: list[str], findings: Findings) -> Iterator[_Row]:
    values: dict[str, Any] = {}
    sound = True
    for name, cell in zip(header, cells, strict=True):
        if not cell:
            if name in REQUIRED_COLUMNS:
                findings.refuse(line, f"has an empty {name}, which each row needs")
                sound = False
            continue
        try:
            values[name] = COLUMNS[name](cell)
        except ValueError as error:
            findings.refuse(line, f"gives {name} {shown(cell)}: it {error}")
            sound = False
    if sound:
        yield _Row(line, values)


def _origin_faults(rows: list[_Row], stated: Stated) -> Iterator[Fault]:
    for name in _ORIGIN_COLUMNS:
        named = {row.values.get(name) for row in rows}
        asked = getattr(stated, name)
        texts = sorted(value for value in named if value is not None)
        told = ", ".join(shown(value) for value in texts[:10])
        if asked is None and len(named) > 1:
            others = " and rows without one" if None in named else ""
            detail = f"a profile is of one {name}; the file has {told}{others}: say which"
            yield Fault(FaultCode.INCONSISTENT, (name,), detail)
        elif asked is not None and texts and asked not in named:
            detail = f"the file has no row of this {name}, but of {told}"
            yield Fault(FaultCode.UNKNOWN_NAME, (name,), detail)
    if not any(_is_of(row, stated) for row in rows):
        yield Fault(FaultCode.INCONSISTENT, (), "no row is of this device in this precision")


def _is_of(row: _Row, stated: Stated) -> bool:
    """A row that says nothing of its device belongs to the one stated only if none says it."""
    return all(
        getattr(stated, name) is None or row.values.get(name) in (None, getattr(stated, name))
        for name in _ORIGIN_COLUMNS
    )


def _origin_of(name: str, rows: list[_Row], stated: Stated) -> str | None:
    said = getattr(stated, name) or next(
        (row.values[name] for row in rows if name in row.values), None
    )
    return None if said is None else str(said)


def _check(document: ProfileDocument, rows: list[_Row], findings: Findings) -> None:
    """What the profile itself refuses, at the lines of the rows."""
    try:
        to_core(msgspec.convert(msgspec.to_builtins(document), ProfileDocument))
    except InvalidInput as invalid:
        for fault in invalid.faults:
            if len(fault.path) > 1 and isinstance(fault.path[1], int):
                field = "".join(f" {part}:" for part in fault.path[2:])
                findings.refuse(rows[fault.path[1]].line, f"is refused:{field} {fault.detail}")
            else:
                findings.refuse(None, fault.detail, fault.code)
        findings.raise_faults()


def _refuse(faults: list[Fault], findings: Findings) -> None:
    try:
        findings.raise_faults()
    except InvalidInput as invalid:
        raise InvalidInput([*faults, *invalid.faults]) from None
    raise InvalidInput(faults)
