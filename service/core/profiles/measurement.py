"""What one layer was measured to cost at one shape, as stated and as it is counted."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from service.core.amounts import Amount
from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.profiles.provenance import Provenance
from service.core.units import to_picoseconds

__all__ = [
    "COMMUNICATION_FIELDS",
    "NO_COMMUNICATION",
    "TIME_FIELDS",
    "Communication",
    "LayerCost",
    "Measurement",
    "Point",
    "Recompute",
    "check_measurement",
    "measured_cost",
]


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

    Times are of work, never of waiting, and never of collectives among the tensor-parallel ranks:
    those are told apart. `tensor_parallel_communication_seconds` is what they add to each pass.
    Pass by pass in its place, `tensor_parallel_<pass>_communication_seconds` is how long they take
    and `tensor_parallel_<pass>_exposed_seconds` what of it the pass waits for (all, where absent);
    the rest is hidden under its work. Bytes are of one rank.
    """

    layer: str
    point: Point
    forward_seconds: float
    backward_seconds: float | None = None
    backward_input_seconds: float | None = None
    backward_weight_seconds: float | None = None
    recompute_seconds: float | None = None
    tensor_parallel_communication_seconds: float | None = None
    tensor_parallel_forward_communication_seconds: float | None = None
    tensor_parallel_forward_exposed_seconds: float | None = None
    tensor_parallel_backward_communication_seconds: float | None = None
    tensor_parallel_backward_exposed_seconds: float | None = None
    tensor_parallel_recompute_communication_seconds: float | None = None
    tensor_parallel_recompute_exposed_seconds: float | None = None
    saved_activation_bytes: int | None = None
    workspace_bytes: int | None = None
    samples: int | None = None
    relative_deviation: float | None = None


_PASSES = ("forward", "backward", "recompute")
_ALL_PASSES = "tensor_parallel_communication_seconds"
# For each pass: how long its collectives take, and what of it is exposed.
_OF_PASS = {
    name: (
        f"tensor_parallel_{name}_communication_seconds",
        f"tensor_parallel_{name}_exposed_seconds",
    )
    for name in _PASSES
}
COMMUNICATION_FIELDS = (_ALL_PASSES, *(field for pair in _OF_PASS.values() for field in pair))
TIME_FIELDS = (
    "forward_seconds",
    "backward_seconds",
    "backward_input_seconds",
    "backward_weight_seconds",
    "recompute_seconds",
    *COMMUNICATION_FIELDS,
)


@dataclass(frozen=True, slots=True)
class Communication:
    """Collectives among the tensor-parallel ranks in each pass, in picoseconds; None is unknown.

    What is exposed is contained in the times of the passes; what is hidden lies under their work
    and is added nowhere.
    """

    forward_exposed: Amount | None = None
    forward_hidden: Amount | None = None
    backward_exposed: Amount | None = None
    backward_hidden: Amount | None = None
    recompute_exposed: Amount | None = None
    recompute_hidden: Amount | None = None


# That of a single tensor-parallel rank.
NO_COMMUNICATION = Communication(0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What one microbatch costs on one layer, in picoseconds, exposed communication included.

    `backward_picoseconds` is None where no backward was measured, its halves where they were not
    measured apart; the communication of a backward is in the half of the inputs.
    `recompute_picoseconds` is 0 without recompute, and so are the bytes that it makes beside those
    that are saved, which no measurement alone knows. `relative_deviation` is of a run over the mean
    of runs, `samples` how many runs there were. `relative_error` is by how much of it the work may
    be off at most where it was not measured at this shape, None where nobody knows.
    """

    forward_picoseconds: int
    backward_picoseconds: int | None
    backward_input_picoseconds: int | None
    backward_weight_picoseconds: int | None
    recompute_picoseconds: int
    communication: Communication
    saved_activation_bytes: int | None
    recomputed_activation_bytes: int | None
    workspace_bytes: int | None = None
    samples: int | None = None
    relative_deviation: float | None = None
    provenance: Provenance = Provenance.MEASURED
    relative_error: float | None = 0.0

    @property
    def communication_known(self) -> bool:
        """Whether tensor-parallel collectives are counted in every pass that was measured."""
        counted = [self.communication.forward_exposed]
        if self.backward_picoseconds is not None:
            counted.append(self.communication.backward_exposed)
        if self.recompute_picoseconds:
            counted.append(self.communication.recompute_exposed)
        return None not in counted

    @property
    def work_picoseconds(self) -> int:
        """All passes together, as far as they were measured."""
        return (
            self.forward_picoseconds + (self.backward_picoseconds or 0) + self.recompute_picoseconds
        )


def check_measurement(measurement: Measurement) -> list[Fault]:
    """Everything that is wrong with one measurement; paths point into it."""
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
    return faults + _check_communication(measurement)


def _check_communication(measurement: Measurement) -> list[Fault]:
    faults: list[Fault] = []
    of_each: list[str] = []
    runs = {
        "forward": True,
        "backward": measurement.backward_seconds is not None
        or measurement.backward_input_seconds is not None,
        "recompute": measurement.recompute_seconds is not None,
    }
    for name, fields in _OF_PASS.items():
        whole, exposed = (getattr(measurement, field) for field in fields)
        of_each += [field for field in fields if getattr(measurement, field) is not None]
        if whole is not None and not runs[name]:
            detail = f"the measurement has no {name}: give its seconds too, or leave this out"
            faults.append(Fault(FaultCode.INCONSISTENT, (fields[0],), detail))
        if exposed is None:
            continue
        if whole is None:
            detail = f"is a part of {fields[0]}: give that too"
            faults.append(Fault(FaultCode.MISSING_FIELD, (fields[0],), detail))
        elif exposed > whole:
            detail = f"{exposed!r} s of {whole!r} s can't be exposed: at most all of {fields[0]}"
            faults.append(Fault(FaultCode.INCONSISTENT, (fields[1],), detail))
    if measurement.tensor_parallel_communication_seconds is not None and of_each:
        detail = f"is of every pass; got {of_each[0]} too: give one or the other"
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, (_ALL_PASSES,), detail))
    if measurement.point.tensor_parallel == 1:
        detail = "a single tensor-parallel rank has no one to talk to: 0, or tensor_parallel > 1"
        faults += [
            Fault(FaultCode.INCONSISTENT, (field,), detail)
            for field in COMMUNICATION_FIELDS
            if getattr(measurement, field)
        ]
    return faults


def measured_cost(measurement: Measurement) -> LayerCost:
    """The cost of a checked measurement, each pass with what of its collectives is exposed."""
    times = {field: to_picoseconds(seconds) for field, seconds in _times(measurement)}
    communication = _communication(measurement, times)
    backward = times.get("backward_seconds")
    of_inputs = times.get("backward_input_seconds")
    of_weights = times.get("backward_weight_seconds")
    if of_inputs is not None and of_weights is not None:
        backward = of_inputs + of_weights
    recompute = times.get("recompute_seconds", 0)
    in_backward = _number(communication.backward_exposed)
    return LayerCost(
        forward_picoseconds=times["forward_seconds"] + _number(communication.forward_exposed),
        backward_picoseconds=None if backward is None else backward + in_backward,
        backward_input_picoseconds=None if of_inputs is None else of_inputs + in_backward,
        backward_weight_picoseconds=of_weights,
        recompute_picoseconds=recompute + _number(communication.recompute_exposed),
        communication=communication,
        saved_activation_bytes=measurement.saved_activation_bytes,
        recomputed_activation_bytes=None if recompute else 0,
        workspace_bytes=measurement.workspace_bytes,
        samples=measurement.samples,
        relative_deviation=measurement.relative_deviation,
    )


def _communication(measurement: Measurement, times: dict[str, int]) -> Communication:
    """In each pass that runs; a recomputation of no time makes nothing, so it talks to nobody."""
    recomputes = bool(times.get("recompute_seconds"))
    if measurement.point.tensor_parallel == 1:
        return NO_COMMUNICATION
    if _ALL_PASSES in times:
        each = times[_ALL_PASSES]
        again = each if recomputes else 0
        return Communication(forward_exposed=each, backward_exposed=each, recompute_exposed=again)
    parts: dict[str, int] = {}
    for name, (whole, exposed) in _OF_PASS.items():
        if name == "recompute" and not recomputes:
            parts |= {"recompute_exposed": 0, "recompute_hidden": 0}
        elif whole in times:
            shown = times.get(exposed, times[whole])
            parts |= {f"{name}_exposed": shown, f"{name}_hidden": times[whole] - shown}
    return Communication(**parts)


def _number(picoseconds: Amount | None) -> int:
    return picoseconds if isinstance(picoseconds, int) else 0


def _times(measurement: Measurement) -> Iterable[tuple[str, float]]:
    for field in TIME_FIELDS:
        seconds = getattr(measurement, field)
        if seconds is not None:
            yield field, seconds
