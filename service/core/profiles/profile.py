"""Measured costs of layers, looked up at exact points, or between them where that is said."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from re import Pattern

from service.core.errors import Fault, FaultCode, InvalidInput, some_of
from service.core.profiles.interpolation import Approximation, Shapes
from service.core.profiles.measurement import (
    LayerCost,
    Measurement,
    Point,
    Recompute,
    check_measurement,
    measured_cost,
)
from service.core.profiles.patterns import MAX_PATTERNS, is_pattern, name_expression
from service.core.profiles.transfers import RecordedTransfer

__all__ = [
    "LayerCost",
    "Measurement",
    "Point",
    "Profile",
    "Recompute",
    "build_profile",
]


@dataclass(frozen=True, slots=True)
class _LayerPattern:
    text: str
    expression: Pattern[str]
    shapes: Shapes


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Measurements on one kind of device, indexed by layer and point.

    `description` is what its author says of it; answers repeat it.
    """

    device: str | None
    precision: str | None
    measurements: tuple[Measurement, ...]
    _named: Mapping[str, Shapes]
    _patterns: tuple[_LayerPattern, ...]
    description: str = ""
    transfers: tuple[RecordedTransfer, ...] = ()

    def lookup(
        self,
        layer: str,
        microbatch_size: int,
        sequence_length: int | None = None,
        tensor_parallel: int = 1,
        recompute: Recompute = Recompute.NONE,
    ) -> LayerCost:
        """The measured cost of a layer at exactly this point; nothing is scaled or filled in.

        A measurement under the layer's own name goes before one under a pattern. Raises
        `InvalidInput` with `missing_profile_point`, naming the points that exist, and with
        `inconsistent` when two patterns claim the same point.
        """
        point = Point(microbatch_size, sequence_length, tensor_parallel, recompute)
        cost = self.find(layer, point)
        if isinstance(cost, LayerCost):
            return cost
        if isinstance(cost, Fault):
            raise InvalidInput([cost])
        raise InvalidInput([self.missing([layer], point)])

    def find(self, layer: str, point: Point) -> LayerCost | Fault | None:
        """Like `lookup`; None where nothing was measured, a fault where two patterns fit."""
        named = self._named.get(layer)
        if named is not None and point in named.costs:
            return named.costs[point]
        fitting = [
            pattern
            for pattern in self._patterns
            if point in pattern.shapes.costs and pattern.expression.match(layer)
        ]
        if len(fitting) > 1:
            return _two_patterns(layer, point, [pattern.text for pattern in fitting])
        return fitting[0].shapes.costs[point] if fitting else None

    def near(
        self, layer: str, point: Point, *, beyond: bool = False
    ) -> Approximation | Fault | None:
        """The cost at a point that was not measured, from the measured ones around it.

        A layer's own points go before those of a pattern, and points around before those that are
        only near, for which `beyond` asks. None where there are none, a fault where two patterns
        have some.
        """
        named = self._named.get(layer)
        fitting = [pattern for pattern in self._patterns if pattern.expression.match(layer)]
        for outside in (False, True) if beyond else (False,):
            own = None if named is None else named.near(point, beyond=outside)
            if own is not None:
                return own
            found = {
                pattern.text: approximation
                for pattern in fitting
                if (approximation := pattern.shapes.near(point, beyond=outside)) is not None
            }
            if len(found) > 1:
                return _two_patterns(layer, point, list(found))
            if found:
                return next(iter(found.values()))
        return None

    def unfitting(self, layers: Iterable[str]) -> tuple[str, ...]:
        """The patterns that fit none of these layers, in the order of the profile."""
        names = tuple(layers)
        return tuple(
            pattern.text
            for pattern in self._patterns
            if not any(pattern.expression.match(name) for name in names)
        )

    def points(self, layer: str) -> tuple[Point, ...]:
        """The points at which a layer was measured, smallest shapes first."""
        named = self._named.get(layer)
        points = set() if named is None else set(named.costs)
        for pattern in self._patterns:
            if pattern.expression.match(layer):
                points.update(pattern.shapes.costs)
        return tuple(
            sorted(
                points,
                key=lambda point: (
                    point.microbatch_size,
                    point.sequence_length or 0,
                    point.tensor_parallel,
                    point.recompute.value,
                ),
            )
        )

    def missing(self, layers: Sequence[str], point: Point, why: str = "") -> Fault:
        """The fault that says that these layers (at least one) were not measured at `point`.

        `why` nothing else stands in for it follows.
        """
        points = self.points(layers[0])
        known = "; ".join(str(known) for known in points[:4]) or "nothing"
        more = f" and {len(points) - 4} more points" if len(points) > 4 else ""
        detail = f"{_listed(layers)} not measured at {point}; measured: {known}{more}{why}"
        return Fault(FaultCode.MISSING_PROFILE_POINT, (), detail)


def build_profile(
    device: str | None,
    precision: str | None,
    measurements: Sequence[Measurement],
    description: str = "",
) -> Profile:
    """Check measurements and index them.

    Raises `InvalidInput` with every fault; paths point into a document with `measurements` in the
    order given here.
    """
    faults: list[Fault] = []
    costs: dict[str, dict[Point, LayerCost]] = {}
    for index, measurement in enumerate(measurements):
        path = ("measurements", index)
        found = check_measurement(measurement)
        faults += [fault.under(*path) for fault in found]
        by_point = costs.setdefault(measurement.layer, {})
        if measurement.point in by_point:
            detail = f"{measurement.layer!r} has an earlier measurement at {measurement.point}"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, path, detail))
        elif not found:
            by_point[measurement.point] = measured_cost(measurement)
    patterns = {layer: points for layer, points in costs.items() if is_pattern(layer)}
    if len(patterns) > MAX_PATTERNS:
        detail = f"{len(patterns)} different layer patterns; at most {MAX_PATTERNS} are tried"
        faults.append(Fault(FaultCode.WORK_BUDGET, ("measurements",), detail))
    if faults:
        raise InvalidInput(faults)
    return Profile(
        device=device,
        precision=precision,
        measurements=tuple(measurements),
        _named={
            layer: Shapes.of(points) for layer, points in costs.items() if layer not in patterns
        },
        _patterns=tuple(
            _LayerPattern(text, name_expression(text), Shapes.of(points))
            for text, points in patterns.items()
        ),
        description=description,
    )


def _two_patterns(layer: str, point: Point, patterns: Sequence[str]) -> Fault:
    names = " and ".join(repr(pattern) for pattern in patterns)
    detail = f"layer {layer!r} fits the patterns {names} at {point}: one must give way"
    return Fault(FaultCode.INCONSISTENT, (), detail)


def _listed(layers: Sequence[str]) -> str:
    shown = some_of([repr(layer) for layer in layers])
    return f"layer {shown} was" if len(layers) == 1 else f"layers {shown} were"
