"""Routings: which experts tokens asked for, by layer and step, and what that says of other ranks.

A routing was recorded with its own sources and numbers of tokens. `assignments` brings it to the
ranks of a plan: exactly where it can, and with a note of what it took for granted where not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput, Statement
from service.core.moe.assignments import Assignments, RoutingLevel
from service.core.moe.rounding import apportion
from service.core.moe.skews import Skew, skewed

__all__ = ["Routed", "Routing", "RoutingRecord", "assignments", "expert_loads"]

FloatArray = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

# Tokens for which the loads of a skew are counted, for each expert.
_SKEW_TOKENS_PER_EXPERT = 1024


@dataclass(frozen=True, slots=True, eq=False)
class RoutingRecord:
    """One layer in one step, from S sources; padding is left out of all but `padded_tokens`.

    `counts` (S, E) are assignments, or loads in some unit where the routing has no `top_k`.
    `choices` (tokens of all sources, top_k) has the experts of each token, source by source; None
    where the level is not tokens. A record that names no sources has S = 1.
    """

    counts: Int64Array
    choices: Int32Array | None = None
    padded_tokens: int = 0

    @property
    def sources(self) -> int:
        """How many sources it tells apart."""
        return len(self.counts)

    def tokens(self, top_k: int) -> Int64Array:
        """(S,) those of each source, padding left out."""
        summed: Int64Array = self.counts.sum(axis=1)
        return summed // top_k


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """What is known of how tokens choose among `experts`, each `top_k` different ones.

    `records` has one for each of `layers` and each step from 0, which was number
    `step_numbers[step]` where it was recorded. A routing that is a `skew` has neither records nor
    layers: it is the same in each. `top_k` is None where loads were recorded in a unit that is no
    number of tokens; such a routing can be balanced, and carries no traffic.
    """

    experts: int
    top_k: int | None
    level: RoutingLevel
    layers: tuple[int, ...] = ()
    step_numbers: tuple[int, ...] = (0,)
    records: Mapping[tuple[int, int], RoutingRecord] = field(default_factory=dict)
    skew: Skew | None = None

    @property
    def steps(self) -> int:
        """How many there are; microbatch m is as step m modulo so many."""
        return len(self.step_numbers)

    def nearest(self, layer: int) -> int:
        """The layer of its own that is nearest to a layer, of two the lower; a skew has each."""
        if self.skew is not None:
            return layer
        return min(self.layers, key=lambda own: (abs(own - layer), own))


@dataclass(frozen=True, slots=True, eq=False)
class Routed:
    """Assignments, and what was taken for granted to get them from the routing."""

    assignments: Assignments
    notes: tuple[Statement, ...] = ()


def assignments(
    routing: Routing, layer: int, step: int, tokens: Int64Array, *, ranks: int | None = None
) -> Routed:
    """What sources with (R,) `tokens` ask of the experts of one of the routing's layers.

    Steps beyond the last begin again. Rows are those of the routing's own sources where these are
    R, or fold or repeat in order to R; else all sources ask as all of the routing's do together.
    Where numbers of tokens differ, lists of tokens are repeated or cut, and counts scaled. `ranks`
    are those among which the experts stand in order (R where it is None), for skews with a hot one.

    Raises InvalidInput where the routing has no such layer, or no tokens.
    """
    tokens = np.asarray(tokens, dtype=np.int64)
    if routing.top_k is None:
        detail = (
            "the routing has loads in a unit that is no number of tokens (top_k is absent), which"
            " can be balanced and carries no traffic: give top_k and counts of assignments"
        )
        raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, (), detail)])
    if routing.skew is not None:
        many = len(tokens) if ranks is None else ranks
        return Routed(
            skewed(routing.skew, tokens, routing.top_k, routing.experts, ranks=many, step=step)
        )
    record = _record(routing, layer, step)
    if not record.counts.any() and tokens.any():
        detail = f"layer {layer} of the routing has no tokens: nobody says what those here ask for"
        raise InvalidInput([Fault(FaultCode.INCONSISTENT, (), detail)])
    if record.choices is not None:
        return _from_tokens(routing.top_k, record, record.choices, tokens)
    return _from_counts(routing, routing.top_k, record, tokens)


def expert_loads(routing: Routing, layer: int, step: int, *, ranks: int = 1) -> Int64Array:
    """(E,) how often each expert was asked for in all, in the routing's unit; a skew by its shares.

    Raises InvalidInput where the routing has no such layer.
    """
    if routing.skew is not None:
        tokens = np.array([_SKEW_TOKENS_PER_EXPERT * routing.experts], dtype=np.int64)
        asked = assignments(routing, layer, step, tokens, ranks=ranks).assignments
        return np.asarray(asked.counts[0], dtype=np.int64)
    summed: Int64Array = _record(routing, layer, step).counts.sum(axis=0)
    return summed


def _record(routing: Routing, layer: int, step: int) -> RoutingRecord:
    if layer not in routing.layers:
        own = ", ".join(map(str, routing.layers))
        detail = f"the routing has no layer {layer}; its layers are {own}"
        raise InvalidInput([Fault(FaultCode.UNKNOWN_NAME, (), detail)])
    return routing.records[layer, step % routing.steps]


def _from_counts(routing: Routing, top_k: int, record: RoutingRecord, tokens: Int64Array) -> Routed:
    own, sources = record.sources, len(tokens)
    level = routing.level
    if level is RoutingLevel.COUNTS:
        notes = [_ALIKE] if sources > 1 else []
    else:
        notes = _fold_notes(own, sources, "each rank is taken to ask as all sources together")
        if own % sources and sources % own:
            level = RoutingLevel.COUNTS
    lots = _lots(own, sources)
    counts = record.counts.reshape(lots, -1, routing.experts).sum(axis=1)
    theirs = record.tokens(top_k).reshape(lots, -1).sum(axis=1)
    if ((theirs == 0) & (tokens.reshape(lots, -1).sum(axis=1) > 0)).any():
        notes.append(_EMPTY)
        counts = np.where(theirs[:, np.newaxis] > 0, counts, counts.sum(axis=0))
        theirs = np.where(theirs > 0, theirs, theirs.sum())
    if lots == sources and np.array_equal(theirs, tokens):
        return Routed(Assignments(counts, tokens, top_k, level), tuple(notes))
    if int(record.tokens(top_k).sum()) != int(tokens.sum()):
        notes.append(_SCALED)
    shares = counts / np.maximum(theirs, 1)[:, np.newaxis]
    rows = shares[0] if lots == 1 else np.repeat(shares, sources // lots, axis=0)
    return Routed(Assignments(apportion(rows, tokens, top_k), tokens, top_k, level), tuple(notes))


def _from_tokens(
    top_k: int, record: RoutingRecord, choices: Int32Array, tokens: Int64Array
) -> Routed:
    own, sources = record.sources, len(tokens)
    if own == 1:
        notes = [_IN_BLOCKS] if sources > 1 else []
    else:
        notes = _fold_notes(own, sources, "tokens of all are given to the ranks in order")
    lots = _lots(own, sources)
    lengths = record.tokens(top_k).reshape(lots, -1).sum(axis=1)
    wanted = tokens.reshape(lots, -1).sum(axis=1)
    if ((lengths == 0) & (wanted > 0)).any():
        notes.append(_EMPTY)
        lengths, wanted = lengths.sum(keepdims=True), wanted.sum(keepdims=True)
    if (wanted > lengths).any():
        notes.append(_REPEATED)
    if (wanted < lengths).any():
        notes.append(_CUT)
    same = np.array_equal(wanted, lengths)
    chosen = choices if same else choices[_over_and_over(lengths, wanted)]
    counts = _counted(chosen, tokens, record.counts.shape[1])
    asked = Assignments(counts, tokens, top_k, RoutingLevel.TOKENS, chosen)
    return Routed(asked, tuple(notes))


_ALIKE = Statement(
    "routing_sources_alike",
    "the routing has counts by expert alone: each rank is taken to ask for the experts in the same"
    " proportion",
)
_CUT = Statement(
    "routing_tokens_cut",
    "ranks bring fewer tokens than the routing has for them: the last of its list are left out",
)
_EMPTY = Statement(
    "routing_source_empty",
    "a source of the routing brought no tokens where the plan's rank does: it is taken to ask as"
    " all of them together",
)
_IN_BLOCKS = Statement(
    "routing_tokens_in_blocks",
    "the routing's tokens name no source: they are given to the ranks in order, in consecutive"
    " blocks",
)
_REPEATED = Statement(
    "routing_tokens_repeated",
    "ranks bring more tokens than the routing has for them: its list is repeated",
)
_SCALED = Statement(
    "routing_counts_scaled",
    "the ranks bring another number of tokens than the routing was recorded with: its counts are"
    " scaled",
)


def _lots(own: int, sources: int) -> int:
    """Into how many lots, in order, both the routing's sources and the ranks divide evenly."""
    if own % sources == 0:
        return sources
    return own if sources % own == 0 else 1


def _fold_notes(own: int, sources: int, otherwise: str) -> list[Statement]:
    if own == sources:
        return []
    its = "one source" if own == 1 else f"{own} sources"
    has = f"the routing has {its}, and {sources} ranks of the plan bring tokens: "
    if own % sources == 0:
        detail = f"{has}each rank stands for {own // sources} sources, in order"
        return [Statement("routing_sources_folded", detail)]
    if sources % own == 0:
        detail = f"{has}{sources // own} ranks stand for each source, in order"
        return [Statement("routing_sources_repeated", detail)]
    detail = f"{has}neither number divides the other, so {otherwise}"
    return [Statement("routing_sources_merged", detail)]


def _over_and_over(lengths: Int64Array, wanted: Int64Array) -> Int64Array:
    """Which tokens of lists that follow one another to take: `wanted` of each, over and over."""
    starts = np.cumsum(lengths) - lengths
    before = np.cumsum(wanted) - wanted
    place = np.arange(int(wanted.sum()), dtype=np.int64) - np.repeat(before, wanted)
    taken: Int64Array = np.repeat(starts, wanted) + place % np.repeat(
        np.maximum(lengths, 1), wanted
    )
    return taken


def _counted(choices: Int32Array, tokens: Int64Array, experts: int) -> Int64Array:
    """(R, experts) how often each expert stands in the tokens of each source."""
    ends = np.cumsum(tokens)
    return np.stack(
        [
            np.bincount(choices[end - many : end].ravel(), minlength=experts)
            for end, many in zip(ends, tokens, strict=True)
        ]
    ).astype(np.int64)
