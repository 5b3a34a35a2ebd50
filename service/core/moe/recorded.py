"""One layer of a routing in one step as it was recorded, and everything that is wrong with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode
from service.core.moe.assignments import RoutingLevel
from service.core.moe.routing import RoutingRecord
from service.core.moe.warm_up import WARM_UP_REPEATS, repeated_rows

__all__ = [
    "PADDING",
    "Measure",
    "ReadLayer",
    "Recorded",
    "form_of",
    "level_of",
    "read_layer",
    "warm_up_warning",
]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]

# The expert of a token that is none.
PADDING = -1
# Of one layer that are told of one kind; more of the same say nothing new.
_MOST_ALIKE = 8
# Assignments of a layer: what every reader of JSON keeps exactly.
_MOST_ASSIGNMENTS = 2**53

_FORMS = {
    "topk_ids": RoutingLevel.TOKENS,
    "matrix": RoutingLevel.SOURCES,
    "counts": RoutingLevel.COUNTS,
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Recorded:
    """One layer in one step; exactly one of `topk_ids`, `matrix` and `counts` is there.

    `topk_ids` has the experts of each token; a token that is padding has `PADDING` for all of
    them, or is marked in `padded`, which has an entry for each. `matrix` has how often each source
    (row) asked for each expert, `counts` how often all together did. `tokens_by_source` are those
    of each source: of `topk_ids` those listed, padding included, source by source. `tokens` are
    those of all sources, padding left out; `padded_tokens` those left out when it was recorded.
    """

    layer: int
    step: int = 0
    topk_ids: Sequence[Sequence[int]] | None = None
    matrix: Sequence[Sequence[int]] | None = None
    counts: Sequence[int] | None = None
    tokens: int | None = None
    tokens_by_source: Sequence[int] | None = None
    padded: Sequence[bool] | None = None
    padded_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Measure:
    """What holds for each layer: `tokens` where one does not say it, `replicated` how often each
    assignment was counted. Without `top_k` counts are loads.
    """

    experts: int
    top_k: int | None
    tokens: int | None = None
    replicated: int = 1


@dataclass(slots=True, eq=False)
class ReadLayer:
    """What became of one layer: `record` is None where `faults` has any."""

    record: RoutingRecord | None = None
    faults: list[Fault] = field(default_factory=list)
    repeated: int = 0

    def refuse(self, code: FaultCode, detail: str, *path: str | int) -> None:
        """Note a fault at a place within the layer."""
        self.faults.append(Fault(code, path, detail))


def form_of(layer: Recorded) -> str | None:
    """Which of the three it has; None where it has none or several."""
    given = [form for form in _FORMS if getattr(layer, form) is not None]
    return given[0] if len(given) == 1 else None


def level_of(form: str) -> RoutingLevel:
    """What is known of a layer that is given so."""
    return _FORMS[form]


def read_layer(layer: Recorded, measure: Measure) -> ReadLayer:
    """The record of a layer, or every fault of it, with paths within the layer."""
    found = ReadLayer()
    form = form_of(layer)
    if form is None:
        given = [name for name in _FORMS if getattr(layer, name) is not None]
        if given:
            detail = f"a layer is given by one of {', '.join(_FORMS)}: leave the others out"
            found.refuse(FaultCode.EXCLUSIVE_FIELDS, detail, given[1])
        else:
            detail = f"give one of {', '.join(_FORMS)}"
            found.refuse(FaultCode.MISSING_FIELD, detail)
        return found
    _check_fields(found, layer, form, measure)
    if form == "topk_ids":
        _read_tokens(found, layer, layer.topk_ids or (), measure)
    else:
        rows = layer.matrix if form == "matrix" else [layer.counts or ()]
        _read_counts(found, layer, form, rows or (), measure)
    return found


def _check_fields(found: ReadLayer, layer: Recorded, form: str, measure: Measure) -> None:
    if layer.padded is not None and form != "topk_ids":
        detail = f"marks tokens of topk_ids; of {form} say padded_tokens, how many were left out"
        found.refuse(FaultCode.EXCLUSIVE_FIELDS, detail, "padded")
    if layer.tokens_by_source is not None and form == "counts":
        detail = "counts do not tell sources apart: give a matrix, or leave this out"
        found.refuse(FaultCode.EXCLUSIVE_FIELDS, detail, "tokens_by_source")
    if measure.top_k is None:
        if form == "topk_ids":
            detail = "with lists of experts the routing needs top_k, how many each token has"
            found.refuse(FaultCode.MISSING_FIELD, detail, "topk_ids")
        for name in ("tokens", "tokens_by_source"):
            if getattr(layer, name) is not None:
                detail = "without top_k these are loads, of no number of tokens: state top_k"
                found.refuse(FaultCode.MISSING_FIELD, detail, name)


def _read_tokens(
    found: ReadLayer, layer: Recorded, rows: Sequence[Sequence[int]], measure: Measure
) -> None:
    top_k = measure.top_k
    if top_k is None or not _even(found, rows, top_k, "topk_ids", "experts as top_k says"):
        return
    ids = np.array(rows, dtype=np.int64).reshape(len(rows), top_k)
    padded = _padding(found, layer, ids)
    if padded is None or not _possible(found, ids, padded, measure.experts):
        return
    by_source = np.array(
        [len(ids)] if layer.tokens_by_source is None else layer.tokens_by_source, dtype=np.int64
    )
    if int(by_source.sum()) != len(ids):
        detail = f"sums to {int(by_source.sum())}; topk_ids lists {len(ids)} tokens"
        found.refuse(FaultCode.INCONSISTENT, detail, "tokens_by_source")
        return
    source = np.repeat(np.arange(len(by_source)), by_source)
    chosen, source = ids[~padded], source[~padded]
    times = measure.replicated
    if times > 1:
        if (
            len(by_source) > 1
            or len(chosen) % times
            or (chosen.reshape(times, -1) != chosen[: len(chosen) // times].ravel()).any()
        ):
            detail = f"is no list that stands {times} times in a row: keep one yourself"
            found.refuse(FaultCode.INCONSISTENT, detail, "topk_ids")
            return
        chosen, source = chosen[: len(chosen) // times], source[: len(chosen) // times]
    found.repeated = int(repeated_rows(chosen).sum())
    tokens = measure.tokens if layer.tokens is None else layer.tokens
    if tokens is not None and tokens != len(chosen):
        detail = _counted_often(len(chosen), tokens, "topk_ids lists", "tokens")
        found.refuse(FaultCode.INCONSISTENT, detail, "topk_ids")
    elif not len(chosen):
        found.refuse(FaultCode.OUT_OF_RANGE, "lists no token that is no padding", "topk_ids")
    if found.faults:
        return
    flat = (source[:, np.newaxis] * measure.experts + chosen).ravel()
    counts = np.bincount(flat, minlength=len(by_source) * measure.experts)
    found.record = RoutingRecord(
        counts.reshape(len(by_source), measure.experts).astype(np.int64),
        chosen.astype(np.int32),
        layer.padded_tokens + int(padded.sum()),
    )


def _padding(found: ReadLayer, layer: Recorded, ids: Int64Array) -> BoolArray | None:
    """(tokens,) which are padding, by their ids or by their marks."""
    none = ids == PADDING
    padded: BoolArray = none.all(axis=1)
    if layer.padded is not None:
        if len(layer.padded) != len(ids):
            detail = f"has {len(layer.padded)} entries; topk_ids lists {len(ids)} tokens"
            found.refuse(FaultCode.WRONG_LENGTH, detail, "padded")
            return None
        padded = padded | np.array(layer.padded, dtype=np.bool_)
    partly = np.flatnonzero(none.any(axis=1) & ~padded)
    for token in partly[:_MOST_ALIKE]:
        detail = f"has {PADDING} for some of its experts; a token that is padding has it for all"
        found.refuse(FaultCode.OUT_OF_RANGE, detail, "topk_ids", int(token))
    return None if len(partly) else padded


def _possible(found: ReadLayer, ids: Int64Array, padded: BoolArray, experts: int) -> bool:
    """Whether each token asks for different experts that there are."""
    there = (ids >= 0) & (ids < experts)
    outside = np.argwhere(~there & ~padded[:, np.newaxis])
    for token, choice in outside[:_MOST_ALIKE]:
        detail = (
            f"there are {experts} experts, numbered from 0 to {experts - 1}; got"
            f" {int(ids[token, choice])}"
        )
        found.refuse(FaultCode.OUT_OF_RANGE, detail, "topk_ids", int(token), int(choice))
    ordered = np.sort(ids, axis=1)
    twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1) & ~padded)
    for token in twice[:_MOST_ALIKE]:
        again = ordered[token][1:][ordered[token][1:] == ordered[token][:-1]][0]
        detail = f"asks for expert {int(again)} twice; the experts of a token differ"
        found.refuse(FaultCode.INCONSISTENT, detail, "topk_ids", int(token))
    return not len(outside) and not len(twice)


def _read_counts(
    found: ReadLayer, layer: Recorded, form: str, rows: Sequence[Sequence[int]], measure: Measure
) -> None:
    if form == "counts" and len(rows[0]) != measure.experts:
        detail = f"has {len(rows[0])} counts; the routing has {measure.experts} experts"
        found.refuse(FaultCode.WRONG_LENGTH, detail, form)
        return
    if not _even(found, rows, measure.experts, form, "counts, one for each expert"):
        return
    counts = np.array(rows, dtype=np.int64).reshape(len(rows), measure.experts)
    if not len(counts) or not counts.any():
        found.refuse(FaultCode.OUT_OF_RANGE, "nobody asks for any expert", form)
        return
    if counts.sum(dtype=np.float64) > _MOST_ASSIGNMENTS:
        detail = f"at most {_MOST_ASSIGNMENTS} assignments in all"
        found.refuse(FaultCode.OUT_OF_RANGE, detail, form)
        return
    times = measure.replicated
    uneven = np.argwhere(counts % times)
    for row, expert in uneven[:_MOST_ALIKE]:
        detail = f"{int(counts[row, expert])} is no multiple of {times}, as replicated says"
        found.refuse(FaultCode.INDIVISIBLE, detail, *_place(form, int(row), int(expert)))
    if len(uneven):
        return
    counts = counts // times
    if measure.top_k is not None:
        _check_totals(found, layer, form, counts, measure)
    if not found.faults:
        found.record = RoutingRecord(counts, padded_tokens=layer.padded_tokens)


def _check_totals(
    found: ReadLayer, layer: Recorded, form: str, counts: Int64Array, measure: Measure
) -> None:
    """That rows sum to what their tokens ask for, and no expert has more of a source than that."""
    top_k = measure.top_k or 1
    tokens = measure.tokens if layer.tokens is None else layer.tokens
    by_source = layer.tokens_by_source
    if by_source is not None and len(by_source) != len(counts):
        detail = f"has {len(by_source)} sources; the matrix has {len(counts)} rows"
        found.refuse(FaultCode.WRONG_LENGTH, detail, "tokens_by_source")
        return
    if by_source is not None and tokens is not None and sum(by_source) != tokens:
        detail = f"sums to {sum(by_source)}; there are {tokens} tokens"
        found.refuse(FaultCode.INCONSISTENT, detail, "tokens_by_source")
        return
    if by_source is not None:
        tokens = sum(by_source)
    total = int(counts.sum())
    if tokens is not None and total != top_k * tokens:
        asked = f"{top_k} x {tokens} tokens ask for {top_k * tokens}"
        detail = _counted_often(total, top_k * tokens, "sums to", f"assignments: {asked}")
        found.refuse(FaultCode.INCONSISTENT, detail, form)
        return
    sums = counts.sum(axis=1)
    if by_source is not None:
        wrong = np.flatnonzero(sums != top_k * np.array(by_source, dtype=np.int64))
    else:
        wrong = np.flatnonzero(sums % top_k)
    for row in wrong[:_MOST_ALIKE]:
        should = "a multiple of top_k" if by_source is None else f"{top_k} x {by_source[row]}"
        detail = f"sums to {int(sums[row])}, which is not {should}, its tokens' assignments"
        found.refuse(FaultCode.INCONSISTENT, detail, *_place(form, int(row)))
    above = np.argwhere(counts > (sums // top_k)[:, np.newaxis])
    for row, expert in above[:_MOST_ALIKE]:
        detail = (
            f"{int(counts[row, expert])} assignments to one expert from {int(sums[row] // top_k)}"
            f" tokens, each of which asks for {top_k} different ones"
        )
        found.refuse(FaultCode.OUT_OF_RANGE, detail, *_place(form, int(row), int(expert)))


def _counted_often(got: int, expected: int, has: str, what: str) -> str:
    """What is told where a total is not what it should be; a multiple is a known way of logging."""
    detail = f"{has} {got}, not {expected} {what}"
    if expected and got > expected and got % expected == 0:
        times = got // expected
        return (
            f"{detail}; each was counted {times} times, as by {times} data-parallel replicas:"
            f" state replicated {times}, or count once"
        )
    return detail


def _place(form: str, row: int, *inside: int) -> tuple[str | int, ...]:
    """Where a row, or an entry of it, stands: counts are a single row without a place."""
    return (form, row, *inside) if form == "matrix" else (form, *inside)


def _even(
    found: ReadLayer, rows: Sequence[Sequence[int]], width: int, form: str, what: str
) -> bool:
    """Whether each row has as many entries as it should."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    ragged = np.flatnonzero(lengths != width)
    for row in ragged[:_MOST_ALIKE]:
        detail = f"has {int(lengths[row])} entries; each row has {width} {what}"
        found.refuse(FaultCode.WRONG_LENGTH, detail, form, int(row))
    return not len(ragged)


def warm_up_warning(place: int, read: ReadLayer) -> str | None:
    """What a person should know of a layer in which records repeat, if they do."""
    if not read.repeated or read.record is None or read.record.choices is None:
        return None
    return (
        f"layers/{place}: {read.repeated} of {len(read.record.choices)} tokens repeat the one"
        f" before more than {WARM_UP_REPEATS} times in a row, as dummy tokens of an engine's"
        " warm-up do; if they are that, an import with drop_warm_up leaves them out"
    )
