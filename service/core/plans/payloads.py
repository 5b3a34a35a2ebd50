"""What stages exchange for one microbatch: as a plan states it, or from the cuts of a model."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.amounts import Amount, SizeClasses, largest
from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.cuts import Cut
from service.core.plans.given import read_bytes
from service.core.plans.plan import CrossingTensor, GivenSeconds, GivenStage

__all__ = ["MAX_BYTES", "Payload", "cut_payloads", "given_payloads"]

# Integers that JSON carries exactly.
MAX_BYTES = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Payload:
    """What stage `source` and stage `target` exchange for one microbatch, by rank pair.

    `returns` says whether a gradient goes back at all.
    """

    source: int
    target: int
    tensors: tuple[CrossingTensor, ...] | None
    forward_bytes: Amount | None
    backward_bytes: Amount | None
    returns: bool
    forward_seconds: GivenSeconds | None = None  # stated by the plan
    backward_seconds: GivenSeconds | None = None
    path: Path = ()  # where the plan states it
    backward_field: str = "backward_transfer_seconds"  # which of its fields says the way back


def given_payloads(
    stages: Sequence[GivenStage], sizes: SizeClasses, *, backward: bool
) -> list[Payload]:
    """Boundaries between neighbouring stages, as the plan states them.

    Backward bytes and times default to the forward ones; without a backward they are 0. Lists by
    microbatch have an entry for each.
    """
    payloads = []
    for number, stage in enumerate(stages[:-1]):
        back_bytes, back_seconds = stage.backward_boundary_bytes, stage.backward_transfer_seconds
        if back_bytes is None:
            back_bytes = stage.boundary_bytes
        back_field = "backward_transfer_seconds"
        if back_seconds is None:
            back_seconds, back_field = stage.transfer_seconds, "transfer_seconds"
        if not backward:
            back_bytes = 0
            back_seconds = None if back_seconds is None else 0.0
        payloads.append(
            Payload(
                source=number,
                target=number + 1,
                tensors=None,
                forward_bytes=read_bytes(stage.boundary_bytes, sizes),
                backward_bytes=read_bytes(back_bytes, sizes),
                returns=backward,
                forward_seconds=stage.transfer_seconds,
                backward_seconds=back_seconds,
                path=("costs", "stages", number),
                backward_field=back_field,
            )
        )
    return payloads


def cut_payloads(cuts: Sequence[Cut]) -> list[Payload]:
    """Boundaries of a partitioned model. Raises `InvalidInput` for bytes beyond 2**53 - 1."""
    faults = []
    payloads = []
    for cut in cuts:
        there, back = cut.forward_bytes, cut.backward_bytes
        payload = Payload(cut.source, cut.target, cut.tensors, there, back, returns=back != 0)
        if max(largest(there), largest(back)) > MAX_BYTES:
            detail = (
                f"stage {cut.source} would send stage {cut.target} more than {MAX_BYTES} bytes "
                "for one microbatch"
            )
            faults.append(Fault(FaultCode.OUT_OF_RANGE, ("partition",), detail))
        payloads.append(payload)
    if faults:
        raise InvalidInput(faults)
    return payloads
