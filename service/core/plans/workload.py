"""The batch sizes of a plan: the one held fixed, and the one that follows."""

from dataclasses import dataclass

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.plans.plan import Plan

__all__ = ["Batch", "resolve_batch"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples in a microbatch and in an iteration; all None when the plan states neither.

    `rank_sequence_length` is what one context rank holds of each sequence, in tokens.
    """

    microbatch_size: int | None
    global_batch_size: int | None
    held_fixed: str | None
    rank_sequence_length: int | None


def resolve_batch(plan: Plan) -> Batch:
    """global_batch_size = microbatch_size x microbatches x data.

    Raises `InvalidInput` with every fault: both sizes given, none where a profile prices the plan,
    and degrees that do not divide what they split.
    """
    work, degrees = plan.workload, plan.degrees
    faults = []
    microbatch_size, global_batch_size = work.microbatch_size, work.global_batch_size
    held_fixed = None
    if microbatch_size is not None and global_batch_size is not None:
        detail = "give microbatch_size or global_batch_size; the other one follows"
        faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, ("workload",), detail))
    elif microbatch_size is not None:
        held_fixed = "microbatch_size"
        global_batch_size = microbatch_size * work.microbatches * degrees.data
    elif global_batch_size is not None:
        held_fixed = "global_batch_size"
        microbatch_size, rest = divmod(global_batch_size, work.microbatches * degrees.data)
        if rest:
            detail = (
                f"global_batch_size {global_batch_size} must be a multiple of microbatches "
                f"{work.microbatches} x data {degrees.data}"
            )
            path = ("workload", "global_batch_size")
            faults.append(Fault(FaultCode.INDIVISIBLE, path, detail))
    elif plan.profile is not None:
        detail = "a profile is asked for one shape: give microbatch_size or global_batch_size"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("workload", "microbatch_size"), detail))

    length, rest = work.sequence_length, 0
    if length is not None:
        length, rest = divmod(length, degrees.context)
        if rest:
            detail = (
                f"sequence_length {work.sequence_length} must be a multiple of context "
                f"{degrees.context}"
            )
            faults.append(Fault(FaultCode.INDIVISIBLE, ("parallelism", "context"), detail))
        elif degrees.sequence_parallel and length % degrees.tensor:
            detail = (
                f"sequence_length / context = {length} must be a multiple of tensor "
                f"{degrees.tensor} under sequence_parallel"
            )
            faults.append(Fault(FaultCode.INDIVISIBLE, ("parallelism", "tensor"), detail))
    elif degrees.context > 1 and plan.profile is not None:
        detail = "context splits sequences: say how long they are"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("workload", "sequence_length"), detail))
    if faults:
        raise InvalidInput(faults)
    return Batch(microbatch_size, global_batch_size, held_fixed, length)
