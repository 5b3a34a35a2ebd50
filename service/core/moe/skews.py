"""Named distributions of tokens over experts, for what nobody has measured."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, Path
from service.core.moe.assignments import Assignments, RoutingLevel
from service.core.moe.rounding import apportion

__all__ = ["Skew", "SkewKind", "check_skew", "skewed", "uniform"]

FloatArray = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]


class SkewKind(StrEnum):
    """The shapes of load that people test with."""

    UNIFORM = "uniform"
    ZIPF = "zipf"  # the expert of rank i (from 1) is asked for as i ** -exponent
    POWER_LAW = "power_law"  # loads drawn from a density x ** -exponent on [least, most]
    HOT_EXPERT = "hot_expert"  # one expert has `fraction` of what it could have
    HOT_RANK = "hot_rank"  # and so have all experts of one rank
    EMPTY_RANK = "empty_rank"  # nobody asks for the experts of one rank
    ROTATING = "rotating"  # a hot expert that is another one in each step
    BURST = "burst"  # uniform, but for every `period`-th step, which has a hot expert


# What each kind has to be told, and what it may be told beside.
_NEEDED: dict[SkewKind, tuple[str, ...]] = {
    SkewKind.UNIFORM: (),
    SkewKind.ZIPF: ("exponent",),
    SkewKind.POWER_LAW: ("exponent", "least", "most", "seed"),
    SkewKind.HOT_EXPERT: ("fraction",),
    SkewKind.HOT_RANK: ("fraction",),
    SkewKind.EMPTY_RANK: (),
    SkewKind.ROTATING: ("fraction",),
    SkewKind.BURST: ("fraction", "period"),
}
_ALLOWED: dict[SkewKind, tuple[str, ...]] = {
    SkewKind.ZIPF: ("seed",),
    SkewKind.HOT_EXPERT: ("expert",),
    SkewKind.HOT_RANK: ("rank",),
    SkewKind.EMPTY_RANK: ("rank",),
    SkewKind.ROTATING: ("expert",),
    SkewKind.BURST: ("expert",),
}
_NUMBERS = ("exponent", "fraction", "expert", "rank", "least", "most", "period", "seed")
_STEPPED = (SkewKind.ROTATING, SkewKind.BURST)


@dataclass(frozen=True, slots=True)
class Skew:
    """A shape and its numbers; those that a kind does not have are None.

    `expert` and `rank` say where it is hot or empty (0 where they are None), `seed` numbers a
    drawing: of the loads of a power law, and of which expert has which rank under Zipf, where
    without it expert 0 is asked for most. `steps` are those after which it begins again.
    """

    kind: SkewKind
    exponent: float | None = None
    fraction: float | None = None
    expert: int | None = None
    rank: int | None = None
    least: float | None = None
    most: float | None = None
    period: int | None = None
    seed: int | None = None
    steps: int = 1


def check_skew(
    skew: Skew,
    *,
    experts: int | None = None,
    top_k: int | None = None,
    ranks: int | None = None,
    path: Path = (),
) -> list[Fault]:
    """Every fault of a skew, against as much as is known of where it is used; at `path`."""
    needed, allowed = _NEEDED[skew.kind], _ALLOWED.get(skew.kind, ())
    faults = []
    for name in _NUMBERS:
        given = getattr(skew, name) is not None
        if name in needed and not given:
            detail = f"{skew.kind} needs it"
            faults.append(Fault(FaultCode.MISSING_FIELD, (*path, name), detail))
        elif given and name not in needed and name not in allowed:
            has = " and ".join((*needed, *allowed)) or "no number"
            detail = f"{skew.kind} has {has}, and no {name}"
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, (*path, name), detail))
    if skew.least is not None and skew.most is not None and skew.least > skew.most:
        detail = f"most is {skew.most}, and must not be below least, which is {skew.least}"
        faults.append(Fault(FaultCode.INCONSISTENT, (*path, "most"), detail))
    if skew.kind not in _STEPPED and skew.steps != 1:
        detail = f"{skew.kind} is the same in each step: leave steps out"
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, (*path, "steps"), detail))
    if skew.kind is SkewKind.BURST and skew.period is not None and skew.steps < skew.period:
        detail = f"there is no burst in fewer than {skew.period} steps, the period"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, (*path, "steps"), detail))
    for name, number, many in (("expert", skew.expert, experts), ("rank", skew.rank, ranks)):
        if number is not None and many is not None and number >= many:
            detail = f"there are {many}, numbered from 0: at most {many - 1}"
            faults.append(Fault(FaultCode.OUT_OF_RANGE, (*path, name), detail))
    if skew.kind is SkewKind.EMPTY_RANK and None not in (experts, top_k, ranks) and not faults:
        held = _of_rank(skew.rank or 0, ranks or 1, experts or 0)
        others = (experts or 0) - len(held)
        if others < (top_k or 0):
            detail = f"other ranks hold {others} experts, and a token asks for {top_k}"
            faults.append(Fault(FaultCode.OUT_OF_RANGE, (*path, "kind"), detail))
    return faults


def skewed(
    skew: Skew, tokens: Int64Array, top_k: int, experts: int, *, ranks: int, step: int
) -> Assignments:
    """What sources with (R,) `tokens` ask of the experts in a step, every source alike.

    `ranks` are those among which the experts stand in order, for kinds with a hot or empty one.
    What an expert cannot take, as a token asks for it once at most, the others get.
    """
    shares = _shares(_weights(skew, top_k, experts, ranks, step), top_k)
    tokens = np.asarray(tokens, dtype=np.int64)
    return Assignments(apportion(shares, tokens, top_k), tokens, top_k, RoutingLevel.SKEW)


def uniform(tokens: Int64Array, top_k: int, experts: int) -> Assignments:
    """What sources with (R,) `tokens` that choose evenly ask of each expert."""
    return skewed(Skew(SkewKind.UNIFORM), tokens, top_k, experts, ranks=1, step=0)


def _weights(skew: Skew, top_k: int, experts: int, ranks: int, step: int) -> FloatArray:
    """(experts,) in which proportion they are asked for; those of a hot kind are shares already."""
    match skew.kind:
        case SkewKind.ZIPF:
            weights = np.arange(1, experts + 1, dtype=np.float64) ** -(skew.exponent or 0.0)
            if skew.seed is None:
                return weights
            return np.random.default_rng(skew.seed).permutation(weights)
        case SkewKind.POWER_LAW:
            drawn = np.random.default_rng(skew.seed or 0).random(experts)
            return _bounded_power_law(
                drawn, skew.exponent or 0.0, skew.least or 1.0, skew.most or 1.0
            )
        case SkewKind.HOT_RANK | SkewKind.EMPTY_RANK:
            held = _of_rank(skew.rank or 0, ranks, experts)
            fraction = (skew.fraction or 0.0) if skew.kind is SkewKind.HOT_RANK else 0.0
            return _hot(held, fraction, top_k, experts)
        case SkewKind.HOT_EXPERT:
            hot = True
        case SkewKind.ROTATING:
            hot = True
        case SkewKind.BURST:
            period = skew.period or 1
            hot = step % skew.steps % period == period - 1
        case SkewKind.UNIFORM:
            hot = False
    if not hot:
        return np.ones(experts)
    turned = step % skew.steps if skew.kind is SkewKind.ROTATING else 0
    expert = ((skew.expert or 0) + turned) % experts
    return _hot(range(expert, expert + 1), skew.fraction or 0.0, top_k, experts)


def _of_rank(rank: int, ranks: int, experts: int) -> range:
    """The experts of one rank where they stand in order, the first ranks having one more."""
    each, more = divmod(experts, ranks)
    first = rank * each + min(rank, more)
    return range(first, first + each + (rank < more))


def _hot(held: range, fraction: float, top_k: int, experts: int) -> FloatArray:
    """Shares under which `held` experts have together `fraction` of what they could have."""
    others = experts - len(held)
    theirs = min(top_k, len(held)) * fraction
    if others:
        # The others can't take more than one of each token's choices each.
        theirs = max(theirs, float(top_k - others))
    shares = np.full(experts, (top_k - theirs) / others if others else 0.0)
    if len(held):
        shares[held.start : held.stop] = theirs / len(held) if others else top_k / experts
    return shares


def _bounded_power_law(drawn: FloatArray, exponent: float, least: float, most: float) -> FloatArray:
    """The inverse of the distribution of density x ** -exponent on [least, most], at `drawn`.

    In units of `least`, as only proportions matter.
    """
    power = 1.0 - exponent
    spread = math.log(most / least)
    if abs(power * spread) < 1e-9:
        even: FloatArray = np.exp(drawn * spread)
        return even
    loads: FloatArray = np.exp(np.log1p(drawn * math.expm1(power * spread)) / power)
    return loads


def _shares(weights: FloatArray, top_k: int) -> FloatArray:
    """(experts,) shares that sum to `top_k`, none above 1, in proportion to weights below that.

    Experts of weight 0 get something only where all others are full.
    """
    shares = np.zeros(len(weights))
    full = np.zeros(len(weights), dtype=np.bool_)
    while True:
        left = top_k - int(full.sum())
        free = weights[~full]
        if not free.any():
            # What nobody else can take the rest shares.
            shares[~full] = left / max(1, len(free))
            return shares
        scaled = free * (left / free.sum())
        shares[~full] = scaled
        if scaled.max(initial=0.0) <= 1.0 + 1e-12:
            return np.minimum(shares, 1.0)
        full |= shares > 1.0
        shares[full] = 1.0
