"""Measured costs of layers, looked up at exact points."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from re import Pattern
from re import compile as compile_expression

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.units import to_picoseconds

__all__ = [
    "MAX_PATTERNS",
    "LayerCost",
    "Measurement",
    "Point",
    "Profile",
    "Recompute",
    "build_profile",
]

# Distinct layer patterns of one profile: each is tried on each layer of a model.
MAX_PATTERNS = 64

_WILDCARDS = frozenset("*?")


class Recompute(StrEnum):
    """Which activations a layer drops after its forward and computes again before its backward."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Point:
    """The shape a layer was measured at. Without a sequence length it was not stated."""

    microbatch_size: int
    sequence_length: int | None = None
    tensor_parallel: int = 1
    recompute: Recompute = Recompute.NONE

    def __str__(self) -> str:
        sequence = (
            "no sequence_length"
            if self.sequence_length is None
            else f"sequence_length {self.sequence_length}"
        )
        return (
            f"microbatch_size {self.microbatch_size}, {sequence}, "
            f"tensor_parallel {self.tensor_parallel}, recompute {self.recompute.value}"
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """One microbatch through one layer (or each layer that fits a pattern) on one device.

    Times are of work, never of waiting. `tensor_parallel_communication_seconds` is what the
    collectives among the tensor-parallel ranks add to each pass (forward, backward, recompute);
    it is not contained in the other times. Bytes are of one rank.
    """

    layer: str
    point: Point
    forward_seconds: float
    backward_seconds: float | None = None
    backward_input_seconds: float | None = None
    backward_weight_seconds: float | None = None
    recompute_seconds: float | None = None
    tensor_parallel_communication_seconds: float | None = None
    saved_activation_bytes: int | None = None
    workspace_bytes: int | None = None
    samples: int | None = None
    relative_deviation: float | None = None


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What one microbatch costs on one layer, in picoseconds, communication included.

    `backward_picoseconds` is None where no backward was measured, its halves where they were not
    measured apart; the communication of a backward is in the half of the inputs.
    `recompute_picoseconds` is 0 without recompute, and so are the bytes that it makes beside those
    that are saved, which no measurement alone knows. `communication_known` says whether
    tensor-parallel collectives are counted.
    """

    forward_picoseconds: int
    backward_picoseconds: int | None
    backward_input_picoseconds: int | None
    backward_weight_picoseconds: int | None
    recompute_picoseconds: int
    saved_activation_bytes: int | None
    recomputed_activation_bytes: int | None
    communication_known: bool


@dataclass(frozen=True, slots=True)
class _LayerPattern:
    text: str
    expression: Pattern[str]
    costs: Mapping[Point, LayerCost]


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Measurements on one kind of device, indexed by layer and point.

    `description` is what its author says of it; answers repeat it.
    """

    device: str | None
    precision: str | None
    measurements: tuple[Measurement, ...]
    _named: Mapping[str, Mapping[Point, LayerCost]]
    _patterns: tuple[_LayerPattern, ...]
    description: str = ""

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
        cost = self._named.get(layer, {}).get(point)
        if cost is not None:
            return cost
        fitting = [
            pattern
            for pattern in self._patterns
            if point in pattern.costs and pattern.expression.match(layer)
        ]
        if len(fitting) > 1:
            names = " and ".join(repr(pattern.text) for pattern in fitting)
            detail = f"layer {layer!r} fits the patterns {names} at {point}: one must give way"
            return Fault(FaultCode.INCONSISTENT, (), detail)
        return fitting[0].costs[point] if fitting else None

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
        points = set(self._named.get(layer, {}))
        for pattern in self._patterns:
            if pattern.expression.match(layer):
                points.update(pattern.costs)
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

    def missing(self, layers: Sequence[str], point: Point) -> Fault:
        """The fault that says that these layers (at least one) were not measured at `point`."""
        points = self.points(layers[0])
        known = "; ".join(str(known) for known in points[:4]) or "nothing"
        more = f" and {len(points) - 4} more points" if len(points) > 4 else ""
        detail = f"{_listed(layers)} not measured at {point}; measured: {known}{more}"
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
        found = _check(measurement)
        faults += [fault.under(*path) for fault in found]
        by_point = costs.setdefault(measurement.layer, {})
        if measurement.point in by_point:
            detail = f"{measurement.layer!r} has an earlier measurement at {measurement.point}"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, path, detail))
        elif not found:
            by_point[measurement.point] = _cost(measurement)
    patterns = {layer: points for layer, points in costs.items() if _WILDCARDS & set(layer)}
    if len(patterns) > MAX_PATTERNS:
        detail = f"{len(patterns)} different layer patterns; at most {MAX_PATTERNS} are tried"
        faults.append(Fault(FaultCode.WORK_BUDGET, ("measurements",), detail))
    if faults:
        raise InvalidInput(faults)
    return Profile(
        device=device,
        precision=precision,
        measurements=tuple(measurements),
        _named={layer: points for layer, points in costs.items() if layer not in patterns},
        _patterns=tuple(
            _LayerPattern(text, _expression(text), points) for text, points in patterns.items()
        ),
        description=description,
    )


def _expression(pattern: str) -> Pattern[str]:
    """`*` is any run of characters, `?` any one; a bracket stands for itself."""
    return compile_expression(translate(pattern.replace("[", "[[]")))


def _check(measurement: Measurement) -> list[Fault]:
    faults: list[Fault] = []
    for field, seconds in _times(measurement):
        try:
            to_picoseconds(seconds, (field,))
        except InvalidInput as invalid:
            faults += invalid.faults
    split = (measurement.backward_input_seconds, measurement.backward_weight_seconds)
    if measurement.backward_seconds is not None and split != (None, None):
        detail = (
            "give either backward_seconds, or backward_input_seconds and backward_weight_seconds"
        )
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("backward_seconds",), detail))
    elif (split[0] is None) != (split[1] is None):
        field = "backward_weight_seconds" if split[1] is None else "backward_input_seconds"
        detail = "backward_input_seconds and backward_weight_seconds come together"
        faults.append(Fault(FaultCode.MISSING_FIELD, (field,), detail))
    recomputes = measurement.point.recompute is not Recompute.NONE
    if recomputes and measurement.recompute_seconds is None:
        detail = f"a measurement under recompute {measurement.point.recompute.value} gives this too"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("recompute_seconds",), detail))
    if not recomputes and measurement.recompute_seconds is not None:
        detail = "belongs to measurements whose recompute is selective or full"
        faults.append(Fault(FaultCode.INCONSISTENT, ("recompute_seconds",), detail))
    if measurement.point.tensor_parallel == 1 and measurement.tensor_parallel_communication_seconds:
        path: Path = ("tensor_parallel_communication_seconds",)
        detail = "a single tensor-parallel rank has no one to talk to: 0, or tensor_parallel > 1"
        faults.append(Fault(FaultCode.INCONSISTENT, path, detail))
    return faults


def _times(measurement: Measurement) -> Iterable[tuple[str, float]]:
    for field in (
        "forward_seconds",
        "backward_seconds",
        "backward_input_seconds",
        "backward_weight_seconds",
        "recompute_seconds",
        "tensor_parallel_communication_seconds",
    ):
        seconds = getattr(measurement, field)
        if seconds is not None:
            yield field, seconds


def _cost(measurement: Measurement) -> LayerCost:
    times = {field: to_picoseconds(seconds) for field, seconds in _times(measurement)}
    communication = times.get("tensor_parallel_communication_seconds", 0)
    backward = times.get("backward_seconds")
    of_inputs = times.get("backward_input_seconds")
    of_weights = times.get("backward_weight_seconds")
    if of_inputs is not None and of_weights is not None:
        backward = of_inputs + of_weights
    recompute = times.get("recompute_seconds", 0)
    return LayerCost(
        forward_picoseconds=times["forward_seconds"] + communication,
        backward_picoseconds=None if backward is None else backward + communication,
        backward_input_picoseconds=None if of_inputs is None else of_inputs + communication,
        backward_weight_picoseconds=of_weights,
        recompute_picoseconds=recompute + communication if recompute else 0,
        saved_activation_bytes=measurement.saved_activation_bytes,
        recomputed_activation_bytes=None if recompute else 0,
        communication_known=measurement.point.tensor_parallel == 1
        or measurement.tensor_parallel_communication_seconds is not None,
    )


def _listed(layers: Sequence[str], limit: int = 3) -> str:
    shown = ", ".join(repr(layer) for layer in layers[:limit])
    if len(layers) == 1:
        return f"layer {shown} was"
    more = f" and {len(layers) - limit} more" if len(layers) > limit else ""
    return f"layers {shown}{more} were"
