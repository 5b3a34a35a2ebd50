"""Costs of layers at shapes that were not measured: looked for, counted, and said of an answer."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.plans.plan import Statement
from service.core.plans.statements import counted
from service.core.profiles.interpolation import Approximation, ErrorSource, UnmeasuredShapes
from service.core.profiles.measurement import LayerCost, Point
from service.core.profiles.profile import Profile
from service.core.profiles.provenance import Provenance

__all__ = ["MAX_APPROXIMATIONS", "LayerLookup"]

# Costs that are worked out for one plan, each from measured points that have to be found.
MAX_APPROXIMATIONS = 20_000

_LISTED = 3


@dataclass(slots=True)
class _Group:
    """Approximations in the same variables whose error is told in the same way."""

    layers: dict[str, None] = field(default_factory=dict)
    points: dict[str, None] = field(default_factory=dict)
    brackets: dict[str, None] = field(default_factory=dict)
    miss: float = 0.0


@dataclass(slots=True, eq=False)
class LayerLookup:
    """Finds costs of layers in a profile, and remembers which of them were not measured."""

    profile: Profile
    unmeasured: UnmeasuredShapes
    found: int = 0
    groups: dict[tuple[Provenance, tuple[str, ...], ErrorSource], _Group] = field(
        default_factory=dict
    )

    def find(self, layer: str, point: Point) -> LayerCost | Fault | None:
        """The cost measured at the point, else one from the points around it as far as asked for.

        Raises `InvalidInput` with `work_budget` where too many are worked out.
        """
        cost = self.profile.find(layer, point)
        if cost is not None or self.unmeasured is UnmeasuredShapes.REFUSE:
            return cost
        self.found += 1
        if self.found > MAX_APPROXIMATIONS:
            detail = (
                f"more than {MAX_APPROXIMATIONS} costs would have to be interpolated: measure "
                "these shapes, or use fewer different sequence lengths"
            )
            raise InvalidInput([Fault(FaultCode.WORK_BUDGET, (), detail)])
        beyond = self.unmeasured is UnmeasuredShapes.EXTRAPOLATE
        near = self.profile.near(layer, point, beyond=beyond)
        if not isinstance(near, Approximation):
            return near
        variables = tuple(bracket.variable for bracket in near.brackets)
        group = self.groups.setdefault((near.cost.provenance, variables, near.source), _Group())
        group.layers[layer] = None
        group.points[str(point)] = None
        group.brackets[" and ".join(map(str, near.brackets))] = None
        group.miss = max(group.miss, near.miss or 0.0)
        return near.cost

    @property
    def why_missing(self) -> str:
        """What to say where there is no cost at all."""
        return {
            UnmeasuredShapes.REFUSE: "; costs.unmeasured_shapes is refuse",
            UnmeasuredShapes.INTERPOLATE: "; none of these lie around it "
            "(costs.unmeasured_shapes: extrapolate goes beyond them)",
            UnmeasuredShapes.EXTRAPOLATE: "; no line leads to it from two of these that differ in "
            "microbatch_size or sequence_length alone, or it leads below zero",
        }[self.unmeasured]

    def statements(self) -> tuple[Statement, ...]:
        """Assumptions: one for each way in which costs were worked out."""
        return tuple(
            _statement(origin, variables, source, group)
            for (origin, variables, source), group in self.groups.items()
        )


def _statement(
    origin: Provenance, variables: tuple[str, ...], source: ErrorSource, group: _Group
) -> Statement:
    of = counted(len(group.layers), "layer", "layers")
    where = "between" if origin is Provenance.INTERPOLATED else "beyond"
    shape = "linear in" if len(variables) == 1 else "bilinear in"
    return Statement(
        f"{origin.value}_costs",
        f"costs of {of} ({_some(group.layers)}) were not measured at {_some(group.points)}: they "
        f"are {shape} {' and '.join(variables)}, {where} the measured {_some(group.brackets)}; "
        f"{_of_miss(origin, source, group.miss)}",
    )


def _of_miss(origin: Provenance, source: ErrorSource, miss: float) -> str:
    if source is ErrorSource.NONE:
        return "no further measured point says how far off they are"
    if source is ErrorSource.ENDS:
        return (
            "no further measured point says how far off they are; where a layer's work only grows "
            f"from one end to the other they are at most {miss:.1%} off"
        )
    if origin is Provenance.EXTRAPOLATED:
        return (
            f"such a line misses the outermost measured point by at most {miss:.1%}, which bounds "
            "nothing further out"
        )
    return f"measured points that are left out in turn are missed by at most {miss:.1%}"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _LISTED
    return "; ".join(listed[:_LISTED]) + (f"; and {more} more" if more > 0 else "")
