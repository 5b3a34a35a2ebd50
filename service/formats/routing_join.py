"""One routing of what several files say: of other layers, other steps, or both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import UNSET, UnsetType

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.moe.recorded import PADDING
from service.core.moe.warm_up import WARM_UP_REPEATS, equal_weights, repeated_rows
from service.formats.documents.fields import or_unset
from service.formats.documents.moe import MAX_EXPERTS
from service.formats.documents.routing import (
    RoutingDocument,
    RoutingLayerDocument,
    built_routing,
)
from service.formats.routing_reading import (
    MAX_COUNTED,
    ReadRecord,
    RoutingReading,
    StatedRouting,
)

__all__ = ["JoinedRouting", "join_routings"]


@dataclass(frozen=True, slots=True)
class JoinedRouting:
    """The document, and what was taken for granted to make it."""

    document: RoutingDocument
    assumptions: tuple[str, ...]


def join_routings(readings: Sequence[RoutingReading], stated: StatedRouting) -> JoinedRouting:
    """The routing of all files, in their order.

    Raises `InvalidInput` with every fault: of a file at `("files", place, "line", n)`, of what has
    to be stated at its field.
    """
    faults: list[Fault] = []
    assumptions: list[str] = []
    experts = _experts(readings, stated, faults)
    top_k = _top_k(readings, stated, faults)
    tokens = _agreed(readings, "tokens", None, faults)
    replicated = _agreed(readings, "replicated", stated.replicated, faults)
    if faults:
        raise InvalidInput(faults)
    steps = _steps(readings, assumptions)
    sources = _sources(readings, experts or 1)
    layers: list[RoutingLayerDocument] = []
    places: list[tuple[int, int]] = []
    for file, reading in enumerate(readings):
        for place, given in enumerate(reading.records):
            record = _without_warm_up(given, stated, assumptions)
            if record is not given:
                tokens = None  # they were those of the list with the dummies
            if reading.sparse:
                record = _filled(record, experts or 0, sources)
            own = steps[file]
            layers.append(_layer(record, (record.step or 0) if own is None else own))
            places.append((file, place))
    document = RoutingDocument(
        experts=experts or 1,
        top_k=or_unset(top_k),
        tokens=or_unset(tokens),
        replicated=or_unset(None if replicated == 1 else replicated),
        layers=tuple(layers),
        model=_name(readings, "model"),
        dataset=_name(readings, "dataset"),
    )
    _check(document, readings, places)
    return JoinedRouting(document, tuple(dict.fromkeys(assumptions)))


def _agreed(
    readings: Sequence[RoutingReading], field: str, stated: int | None, faults: list[Fault]
) -> int | None:
    """What is stated or files say, which has to be one number."""
    found = stated
    for place, reading in enumerate(readings):
        said = getattr(reading, field)
        if found is None:
            found = said
        elif said is not None and said != found:
            where = "is stated" if found == stated else "files before it say"
            detail = f"the file has {field} {said}, where {found} {where}"
            faults.append(Fault(FaultCode.INCONSISTENT, ("files", place), detail))
    return found


def _experts(
    readings: Sequence[RoutingReading], stated: StatedRouting, faults: list[Fault]
) -> int | None:
    found = _agreed(readings, "experts", stated.experts, faults)
    if found is not None:
        return found
    counted = [
        len(record.rows[0])
        for reading in readings
        for record in reading.records
        if record.form != "topk_ids" and record.rows
    ]
    if counted and max(counted) <= MAX_EXPERTS:
        return max(counted)
    detail = "lists of experts do not say how many there are: state it"
    faults.append(Fault(FaultCode.MISSING_FIELD, ("experts",), detail))
    return None


def _top_k(
    readings: Sequence[RoutingReading], stated: StatedRouting, faults: list[Fault]
) -> int | None:
    found = _agreed(readings, "top_k", stated.top_k, faults)
    loads = stated.loads or any(reading.loads for reading in readings)
    if found is not None and stated.loads:
        detail = "counts are loads of no number of tokens, or of tokens with top_k experts each"
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("loads",), f"{detail}: not both"))
    if found is not None and stated.top_k is None and loads and not stated.loads:
        detail = f"some files have loads of no number of tokens, others a top_k of {found}"
        faults.append(Fault(FaultCode.INCONSISTENT, ("files",), detail))
    if found is not None or loads:
        return found
    widths = [
        len(record.rows[0])
        for reading in readings
        for record in reading.records
        if record.form == "topk_ids" and record.rows
    ]
    if widths:
        return widths[0]
    detail = (
        "the files do not say how many experts a token asks for: state it, or loads where counts"
        " are in a unit that is no number of tokens"
    )
    faults.append(Fault(FaultCode.MISSING_FIELD, ("top_k",), detail))
    return None


def _steps(readings: Sequence[RoutingReading], assumptions: list[str]) -> list[int | None]:
    """Of each file the step that all of it is; None where its records say that, or nothing does."""
    places = [
        {(record.layer, record.step or 0) for record in reading.records} for reading in readings
    ]
    together = [place for of_file in places for place in of_file]
    single = all(len({step for _, step in of_file}) == 1 for of_file in places)
    if len(set(together)) == len(together) or not single:
        return [None] * len(readings)
    assumptions.append(
        "several files are of the same layers in the same step, as far as they say: each is taken"
        " to be a step of its own, in their order"
    )
    return list(range(len(readings)))


def _name(readings: Sequence[RoutingReading], field: str) -> str | UnsetType:
    names = {getattr(reading, field) for reading in readings} - {None}
    return names.pop() if len(names) == 1 else UNSET


def _without_warm_up(
    record: ReadRecord, stated: StatedRouting, assumptions: list[str]
) -> ReadRecord:
    """The record without dummy tokens where that is asked for; else they are told."""
    widths = {len(row) for row in record.rows}
    if record.form != "topk_ids" or len(widths) != 1:
        return record
    ids = np.array(record.rows, dtype=np.int64)
    padded = (ids == PADDING).all(axis=1)
    if record.padded is not None and len(record.padded) == len(ids):
        padded |= np.array(record.padded, dtype=np.bool_)
    dummies = np.zeros(len(ids), dtype=np.bool_)
    dummies[~padded] = repeated_rows(ids[~padded])
    if record.weights is not None and {len(row) for row in record.weights} == widths:
        dummies |= equal_weights(np.array(record.weights, dtype=np.float64)) & ~padded
    if not dummies.any():
        return record
    of = f"layer {record.layer}" + ("" if record.step is None else f" in step {record.step}")
    many = (
        f"{int(dummies.sum())} of {len(ids)} tokens of {of} look like dummies of an engine's"
        f" warm-up (the same experts more than {WARM_UP_REPEATS} times in a row, or equal weights"
        " for all)"
    )
    if not stated.drop_warm_up:
        assumptions.append(f"{many}: they are kept; drop_warm_up leaves them out")
        return record
    assumptions.append(f"{many}: they are left out")
    kept = np.flatnonzero(~dummies).tolist()
    by_source = record.tokens_by_source
    if by_source is not None and sum(by_source) == len(ids):
        source = np.repeat(np.arange(len(by_source)), by_source)
        by_source = [int(n) for n in np.bincount(source[kept], minlength=len(by_source))]
    marks = record.padded
    return replace(
        record,
        rows=[record.rows[token] for token in kept],
        padded=None if marks is None else [marks[token] for token in kept],
        tokens=None,
        tokens_by_source=by_source,
        weights=None,
    )


def _sources(readings: Sequence[RoutingReading], experts: int) -> int:
    """How many the widest matrix has. Raises `InvalidInput` where filling all is too much."""
    matrices = [
        len(record.rows)
        for reading in readings
        for record in reading.records
        if record.form == "matrix"
    ]
    sources = max(matrices, default=1)
    sparse = sum(len(reading.records) for reading in readings if reading.sparse)
    if sparse * sources * experts > MAX_COUNTED:
        detail = (
            f"{sparse} layers and steps x {sources} sources x {experts} experts make"
            f" {sparse * sources * experts} counts; at most {MAX_COUNTED} are read"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("files",), detail)])
    return sources


def _filled(record: ReadRecord, experts: int, sources: int) -> ReadRecord:
    """The record with a count for each expert, and a row for each source where it has any."""
    rows = [[*row, *[0] * (experts - len(row))] for row in record.rows]
    if record.form == "matrix":
        rows += [[0] * experts for _ in range(sources - len(rows))]
    return replace(record, rows=rows)


def _layer(record: ReadRecord, step: int) -> RoutingLayerDocument:
    rows = tuple(tuple(row) for row in record.rows)
    by_source = record.tokens_by_source
    marked = record.padded is not None and any(record.padded)
    return RoutingLayerDocument(
        layer=record.layer,
        step=step or UNSET,
        topk_ids=rows if record.form == "topk_ids" else UNSET,
        matrix=rows if record.form == "matrix" else UNSET,
        counts=rows[0] if record.form == "counts" else UNSET,
        tokens=or_unset(record.tokens),
        tokens_by_source=UNSET if by_source is None else tuple(by_source),
        padded=tuple(record.padded or ()) if marked else UNSET,
        padded_tokens=record.padded_tokens or UNSET,
    )


def _check(
    document: RoutingDocument,
    readings: Sequence[RoutingReading],
    places: Sequence[tuple[int, int]],
) -> None:
    """What the routing itself refuses, at the lines of the files."""
    try:
        built_routing(document)
    except InvalidInput as invalid:
        raise InvalidInput(_at_lines(invalid.faults, readings, places)) from invalid


def _at_lines(
    faults: Sequence[Fault],
    readings: Sequence[RoutingReading],
    places: Sequence[tuple[int, int]],
) -> Iterator[Fault]:
    asked: dict[int, list[tuple[Fault, int]]] = {}
    for fault in faults:
        number = fault.path[1] if len(fault.path) > 1 and fault.path[0] == "layers" else None
        if isinstance(number, int):
            file, place = places[number]
            asked.setdefault(file, []).append((fault, place))
        else:
            yield replace(fault, path=("files",))
    for file, of_file in sorted(asked.items()):
        lines = readings[file].lines_of([(place, fault.path[2:]) for fault, place in of_file])
        for (fault, _), line in zip(of_file, lines, strict=True):
            where = "/".join(str(part) for part in fault.path[2:]) or "the layer"
            detail = f"line {line} is refused ({where}): {fault.detail}"
            yield Fault(fault.code, ("files", file, "line", line), detail)
