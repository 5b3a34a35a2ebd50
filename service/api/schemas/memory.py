"""Wire types of memory: every rank at its fullest instant, term by term, and what could be done."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.api.schemas.answers import answer_type
from service.api.schemas.ranges import known_seconds
from service.api.schemas.requests import PlanRequest
from service.app.memory_options import PricedOption
from service.core.estimates.memory import PlanMemory
from service.core.estimates.memory_options import OptionKind
from service.core.memory.terms import (
    ExpertRank,
    RankMemory,
    Relief,
    Term,
    TermBytes,
    TermOrigin,
)
from service.core.units import to_seconds
from service.formats.documents.fields import or_unset

__all__ = [
    "MemoryAnswer",
    "MemoryBlame",
    "MemoryExperts",
    "MemoryInstant",
    "MemoryOptionOut",
    "MemoryRank",
    "MemoryRankVerdict",
    "MemoryRequest",
    "MemorySummary",
    "MemoryTerm",
    "MemoryTerms",
    "memory_summary",
    "memory_terms",
    "rank_verdict",
]

Unset = msgspec.UnsetType
Bytes = Annotated[int, Meta(ge=0, extra_json_schema={"x-unit": "bytes"})]
Headroom = Annotated[
    int,
    Meta(
        description="Usable bytes less total_bytes; below 0 where it does not fit. Counts what is "
        "known. Absent where no capacity is.",
        extra_json_schema={"x-unit": "bytes"},
    ),
]
Feasible = Annotated[
    bool,
    Meta(
        description="false where what is known exceeds the usable part already, true where nothing "
        "is unknown and it fits. Absent where it can't be told."
    ),
]


class MemoryRequest(PlanRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan to fit into memory."""

    options: Annotated[
        bool, Meta(description="Whether to price options where the plan does not fit.")
    ] = True


class MemoryInstant(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """When a rank holds most."""

    name: Annotated[
        str,
        Meta(
            description="The operation from whose start on it does (stage, kind, microbatch, as in "
            "an order), or optimizer_step after the last.",
            examples=["0F3"],
        ),
    ]
    at_seconds: Annotated[float, Meta(ge=0, description="Prediction.")]


class MemoryTerm(msgspec.Struct, kw_only=True, frozen=True):
    """What one thing takes on each device of a rank."""

    term: Annotated[Term, Meta(extra_json_schema={"x-extensible-enum": True})]
    at_peak_bytes: Annotated[Bytes, Meta(description="At the rank's peak; these sum to total.")]
    maximum_bytes: Annotated[Bytes, Meta(description="The most it takes itself, at any instant.")]
    origin: Annotated[
        TermOrigin,
        Meta(
            description="given, measured, computed (from what is given), assumed (from dimensions "
            "of layers) or default (a number of ours that the plan can replace).",
            extra_json_schema={"x-extensible-enum": True},
        ),
    ]
    rule: Annotated[str, Meta(description="What is counted.")]


class MemoryBlame(msgspec.Struct, kw_only=True, frozen=True):
    """Where to look first: the largest term whose halving would make the rank fit.

    Where there is none, the largest whose removal would, and else the largest. What the framework
    allocates counts with its share of the reserve.
    """

    term: Annotated[Term, Meta(extra_json_schema={"x-extensible-enum": True})]
    relief: Annotated[
        Relief,
        Meta(
            description="What would have to become of it: halved, removed, or not_alone where even "
            "that would not do."
        ),
    ]


class MemoryRankVerdict(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One pipeline rank; every device of it (tensor, context, data) holds as much."""

    rank: Annotated[int, Meta(ge=0, description="Pipeline rank.")]
    stages: Annotated[list[int], Meta(description="The stages on it, in any direction.")]
    feasible: Feasible | Unset = msgspec.UNSET
    headroom_bytes: Headroom | Unset = msgspec.UNSET
    total_bytes: Annotated[Bytes, Meta(description="All that is known, at the peak.")]
    capacity_bytes: Annotated[
        Bytes | Unset, Meta(description="Of its smallest device. Absent where none is known.")
    ] = msgspec.UNSET
    usable_bytes: Annotated[
        Bytes | Unset, Meta(description="What of it may be filled (memory.usable_fraction).")
    ] = msgspec.UNSET
    peak: MemoryInstant
    blame: Annotated[MemoryBlame | Unset, Meta(description="Absent where it fits.")] = msgspec.UNSET
    unknown_terms: Annotated[
        list[Annotated[Term, Meta(extra_json_schema={"x-extensible-enum": True})]],
        Meta(description="What takes memory of which nobody says how much; unknown is not zero."),
    ]


class MemoryExperts(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Of the ranks that share the experts of a pipeline rank, the one whose memory is counted."""

    rank: Annotated[int, Meta(ge=0, description="The rank of the plan that keeps most.")]
    device: Annotated[str | Unset, Meta(description="Absent without a topology.")] = msgspec.UNSET
    group: Annotated[int, Meta(ge=0, description="Which of the expert groups it is in.")]
    expert_rank: Annotated[int, Meta(ge=0, description="Its coordinate in the expert degree.")]
    rows: Annotated[
        int,
        Meta(
            ge=0,
            description="Tokens, one for each of their experts on it, that memory is held for in "
            "the layer and microbatch that bring most (moe.rows_percentile).",
        ),
    ]
    mean_rows: Annotated[float, Meta(ge=0, description="What a rank receives there in the mean.")]
    experts: Annotated[
        int,
        Meta(
            ge=0,
            description="Experts of a layer, replicas among them, on the rank that holds most: its "
            "weights are counted, whichever rank receives most.",
        ),
    ]


class MemoryRank(MemoryRankVerdict, kw_only=True, frozen=True, omit_defaults=True):
    """A pipeline rank with every term."""

    terms: list[MemoryTerm]
    experts: Annotated[
        MemoryExperts | Unset,
        Meta(description="Present where the rank has experts whose routing the plan states (moe)."),
    ] = msgspec.UNSET


class MemorySummary(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Every rank at the instant when it holds most. /v1/memory has each term, and options."""

    feasible: Feasible | Unset = msgspec.UNSET
    least_headroom_bytes: Headroom | Unset = msgspec.UNSET
    ranks: list[MemoryRankVerdict]


class MemoryOptionOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A change of the plan, and what it would cost."""

    option: Annotated[OptionKind, Meta(extra_json_schema={"x-extensible-enum": True})]
    detail: str
    patch: Annotated[
        dict[str, Any] | Unset,
        Meta(description="Merge patch of the plan. Absent where there is none."),
    ] = msgspec.UNSET
    feasible: Feasible | Unset = msgspec.UNSET
    headroom_bytes: Headroom | Unset = msgspec.UNSET
    iteration_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | Unset, Meta(description="Prediction, as in an estimate.")
    ] = msgspec.UNSET
    not_priced: Annotated[
        str | Unset, Meta(description="Why there is no price. Absent where there is one.")
    ] = msgspec.UNSET


class MemoryTerms(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Whether a plan fits: every rank at its fullest instant, which follows from the order alone.

    And what could be changed where it does not.
    """

    feasible: Feasible | Unset = msgspec.UNSET
    least_headroom_bytes: Headroom | Unset = msgspec.UNSET
    ranks: list[MemoryRank]
    iteration_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | Unset,
        Meta(description="Prediction, as in an estimate; to hold options against."),
    ] = msgspec.UNSET
    options: Annotated[
        list[MemoryOptionOut] | Unset,
        Meta(description="Absent where every rank fits and where none were asked for."),
    ] = msgspec.UNSET


MemoryAnswer = answer_type("MemoryAnswer", MemoryTerms)


def memory_terms(
    memory: PlanMemory, iteration: Fraction | None, options: Sequence[PricedOption]
) -> MemoryTerms:
    """The wire form of a plan's memory and of its options."""
    return MemoryTerms(
        **_plan(memory),
        ranks=[
            MemoryRank(
                **_verdict(rank),
                terms=[_term(term) for term in rank.terms],
                experts=_experts(rank.experts),
            )
            for rank in memory.ranks
        ],
        iteration_seconds=known_seconds(iteration),
        options=[_option(option) for option in options] if options else msgspec.UNSET,
    )


def memory_summary(memory: PlanMemory) -> MemorySummary:
    """The wire form of a plan's memory without its terms."""
    return MemorySummary(**_plan(memory), ranks=[rank_verdict(rank) for rank in memory.ranks])


def rank_verdict(rank: RankMemory) -> MemoryRankVerdict:
    """The wire form of one rank without its terms."""
    return MemoryRankVerdict(**_verdict(rank))


def _plan(memory: PlanMemory) -> dict[str, Any]:
    return {
        "feasible": or_unset(memory.feasible),
        "least_headroom_bytes": or_unset(memory.least_headroom),
    }


def _verdict(rank: RankMemory) -> dict[str, Any]:
    verdict = rank.verdict
    known: dict[str, Any] = {
        "rank": rank.rank,
        "stages": list(rank.stages),
        "total_bytes": verdict.total,
        "peak": MemoryInstant(
            name=rank.peak.name, at_seconds=to_seconds(rank.peak.picoseconds or 0)
        ),
        "unknown_terms": list(dict.fromkeys(one.term for one in rank.unknown)),
        "feasible": verdict.feasible,
        "headroom_bytes": verdict.headroom,
        "capacity_bytes": rank.capacity,
        "usable_bytes": verdict.usable,
    }
    if verdict.blame is not None:
        known["blame"] = MemoryBlame(term=verdict.blame.term, relief=verdict.blame.relief)
    return {name: value for name, value in known.items() if value is not None}


def _experts(worst: ExpertRank | None) -> MemoryExperts | Unset:
    if worst is None:
        return msgspec.UNSET
    return MemoryExperts(
        rank=worst.rank,
        device=or_unset(worst.device),
        group=worst.group,
        expert_rank=worst.expert,
        rows=worst.rows,
        mean_rows=worst.mean_rows,
        experts=worst.experts,
    )


def _term(term: TermBytes) -> MemoryTerm:
    return MemoryTerm(
        term=term.term,
        at_peak_bytes=term.at_peak,
        maximum_bytes=term.maximum,
        origin=term.origin,
        rule=term.rule,
    )


def _option(priced: PricedOption) -> MemoryOptionOut:
    option, memory = priced.option, priced.memory
    return MemoryOptionOut(
        option=option.kind,
        detail=option.detail,
        patch=dict(option.patch) or msgspec.UNSET,
        feasible=msgspec.UNSET if memory is None else or_unset(memory.feasible),
        headroom_bytes=msgspec.UNSET if memory is None else or_unset(memory.least_headroom),
        iteration_seconds=known_seconds(priced.iteration),
        not_priced=or_unset(priced.why_not),
    )
