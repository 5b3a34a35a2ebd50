"""What fills a device's memory, term by term, at the instant when a rank holds most."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, floor

__all__ = [
    "OPTIMIZER_STEP",
    "Blame",
    "ExpertRank",
    "Instant",
    "RankMemory",
    "Relief",
    "Term",
    "TermBytes",
    "TermOrigin",
    "UnknownTerm",
    "Verdict",
    "judge",
]

# The instant after the last operation of a rank, when the optimizer changes its weights.
OPTIMIZER_STEP = "optimizer_step"


class Term(StrEnum):
    """What memory is taken by; those of `OUTSIDE` are not allocated by the framework."""

    WEIGHTS = "weights"
    WEIGHT_VERSIONS = "weight_versions"
    GRADIENTS = "gradients"
    MASTER_WEIGHTS = "master_weights"
    OPTIMIZER_MOMENTS = "optimizer_moments"
    BUFFERS = "buffers"
    ACTIVATIONS = "activations"
    RECOMPUTED_ACTIVATIONS = "recomputed_activations"
    LOGITS = "logits"
    RELAYED_TENSORS = "relayed_tensors"
    GATHERED_WEIGHTS = "gathered_weights"
    GRADIENT_BUCKETS = "gradient_buckets"
    STEP_GRADIENTS = "step_gradients"
    BOUNDARY_BUFFERS = "boundary_buffers"
    DISPATCH_BUFFERS = "dispatch_buffers"
    WORKSPACE = "workspace"
    RESERVE = "reserve"
    COMMUNICATORS = "communicators"
    CONTEXT = "context"

    @property
    def is_allocated(self) -> bool:
        """Whether the framework's allocator holds it, so that the reserve is on top of it."""
        return self not in (Term.RESERVE, Term.COMMUNICATORS, Term.CONTEXT)


class TermOrigin(StrEnum):
    """What a term's bytes rest on; of several the weakest."""

    GIVEN = "given"
    MEASURED = "measured"
    COMPUTED = "computed"  # from what the plan and its documents give
    ASSUMED = "assumed"  # from dimensions of layers
    DEFAULT = "default"  # a number of ours, which the plan can replace


@dataclass(frozen=True, slots=True)
class TermBytes:
    """One term on a rank: at the rank's peak, and the most that it takes itself at any instant."""

    term: Term
    at_peak: int
    maximum: int
    origin: TermOrigin
    rule: str


@dataclass(frozen=True, slots=True)
class UnknownTerm:
    """A term that takes memory of which nobody says how much."""

    term: Term
    reason: str


@dataclass(frozen=True, slots=True)
class Instant:
    """When a rank holds most: from the start of an operation on, or during the optimizer's step.

    `operation` is its id, None at the step; `picoseconds` None where nothing was simulated.
    """

    name: str
    operation: int | None
    picoseconds: int | None


class Relief(StrEnum):
    """What would have to become of the term to blame for the rank to fit."""

    HALVED = "halved"
    REMOVED = "removed"
    NOT_ALONE = "not_alone"


@dataclass(frozen=True, slots=True)
class Blame:
    """The term to look at first where a rank does not fit."""

    term: Term
    relief: Relief


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rank fits. Without a known capacity all but `total` are None.

    `feasible` is None too where what is known fits and something is not known.
    """

    total: int
    usable: int | None
    headroom: int | None
    feasible: bool | None
    blame: Blame | None


@dataclass(frozen=True, slots=True)
class ExpertRank:
    """The rank of an expert group that memory is counted for: which it is, and why.

    `rank` is its number in the plan, `device` None without a topology. It is that one of `group`
    whose coordinate is `expert`, and has memory for `rows` in the layer and microbatch in which it
    receives most, of which all ranks receive `mean_rows` in the mean. `experts` is how many of a
    layer stand on the rank that holds most, which may be another one.
    """

    rank: int
    device: str | None
    group: int
    expert: int
    rows: int
    mean_rows: float
    experts: int


@dataclass(frozen=True, slots=True)
class RankMemory:
    """One pipeline rank: every device of it holds the same.

    Where it has experts, as much as the rank of an expert group that holds most.
    """

    rank: int
    stages: tuple[int, ...]
    peak: Instant
    terms: tuple[TermBytes, ...]
    unknown: tuple[UnknownTerm, ...]
    capacity: int | None
    verdict: Verdict
    experts: ExpertRank | None = None


def judge(
    terms: Sequence[TermBytes],
    *,
    capacity: int | None,
    usable_fraction: float,
    reserve_fraction: float,
    has_unknown: bool,
) -> Verdict:
    """Whether the terms at the peak fit into the usable part of a device.

    The reserve is among them. To blame is the largest term whose halving would do; where there is
    none, the largest whose removal would; else the largest. What is allocated counts with its share
    of the reserve, which is never blamed itself.
    """
    total = sum(term.at_peak for term in terms)
    if capacity is None:
        return Verdict(total, None, None, None, None)
    usable = floor(capacity * usable_fraction)
    headroom = usable - total
    if headroom >= 0:
        return Verdict(total, usable, headroom, None if has_unknown else True, None)

    def freed(term: TermBytes, part: int) -> int:
        share = reserve_fraction if term.term.is_allocated else 0.0
        return ceil(part * (1 + share))

    suspects = sorted(
        (term for term in terms if term.term is not Term.RESERVE),
        key=lambda term: term.at_peak,
        reverse=True,
    )
    for relief, divisor in ((Relief.HALVED, 2), (Relief.REMOVED, 1)):
        for term in suspects:
            if freed(term, term.at_peak // divisor) >= -headroom:
                return Verdict(total, usable, headroom, False, Blame(term.term, relief))
    blame = Blame(suspects[0].term, Relief.NOT_ALONE) if suspects else None
    return Verdict(total, usable, headroom, False, blame)
