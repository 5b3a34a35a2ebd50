"""The batch of a plan: which sizes are held fixed, which follow, which microbatches are alike."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

from service.core.amounts import Amount, SizeClasses, at_class, combine
from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.sizes import BatchShape
from service.core.moe.skews import SkewKind
from service.core.plans.plan import ActivationChange, Degrees, GivenStage, Plan

__all__ = [
    "Batch",
    "batch_shapes",
    "given_lists",
    "is_routed",
    "lengths_differ",
    "prices_layers",
    "resolve_batch",
    "size_classes",
]

# Looked at for every stage of every plan, so what belongs to the type is found once.
_NAMES = {of: tuple(each.name for each in fields(of)) for of in (GivenStage, ActivationChange)}
_NAMED = {of: (names, attrgetter(*names)) for of, names in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples in a microbatch and in an iteration; all None when the plan states neither.

    `sequence_length` is in tokens, `rank_sequence_length` what one context rank holds of each.
    """

    microbatch_size: int | None
    global_batch_size: int | None
    held_fixed: str | None
    sequence_length: Amount | None
    rank_sequence_length: Amount | None


def size_classes(plan: Plan, steps: int = 1) -> SizeClasses:
    """Which microbatches are alike in all that the plan lists by microbatch.

    And in their step, where tokens are routed in several: microbatch m has step m modulo `steps`.
    Lists of another length than the plan has microbatches are a fault, told elsewhere; here they
    count for nothing.
    """
    count = plan.workload.microbatches
    columns = [of for _, of in given_lists(plan) if len(of) == count]
    if steps > 1:
        columns.append([number % steps for number in range(count)])
    return SizeClasses.of(count, columns)


def given_lists(plan: Plan) -> Iterator[tuple[Path, Sequence[float]]]:
    """Everything that the plan lists by microbatch, and where."""
    lengths = plan.workload.microbatch_sequence_lengths
    if lengths is not None:
        yield ("workload", "microbatch_sequence_lengths"), lengths
    for number, stage in enumerate(plan.stages or ()):
        for name, value in _fields(stage):
            if isinstance(value, tuple):
                yield ("costs", "stages", number, name), value
            elif isinstance(value, ActivationChange):
                for part, change in _fields(value):
                    if isinstance(change, tuple):
                        yield ("costs", "stages", number, name, part), change


def prices_layers(plan: Plan) -> bool:
    """Whether layers of a model are priced at the plan's shape, by a profile or by assumption."""
    return plan.profile is not None or plan.assumed is not None


def is_routed(plan: Plan) -> bool:
    """Whether the plan says which experts tokens choose, so that microbatches may differ in it."""
    skew = None if plan.moe is None else plan.moe.skew
    named = plan.moe is not None and plan.moe.routing is not None
    return named or (skew is not None and skew.kind is not SkewKind.UNIFORM)


def lengths_differ(plan: Plan) -> bool:
    """Whether the plan says that microbatches have different sequence lengths."""
    return len(set(plan.workload.microbatch_sequence_lengths or ())) > 1


def _fields(of: GivenStage | ActivationChange) -> Iterator[tuple[str, object]]:
    names, values = _NAMED[type(of)]
    return zip(names, values(of), strict=True)


def _list_faults(plan: Plan) -> list[Fault]:
    """Lists by microbatch that do not have an entry for each."""
    count = plan.workload.microbatches
    return [
        Fault(
            FaultCode.WRONG_LENGTH,
            path,
            f"one number for each of {count} microbatches, or {_one_for_all(path)}; "
            f"{len(numbers)} given",
        )
        for path, numbers in given_lists(plan)
        if len(numbers) != count
    ]


def _one_for_all(path: Path) -> str:
    if path == ("workload", "microbatch_sequence_lengths"):
        return "sequence_length in its place where all are equally long"
    return "one for all"


def resolve_batch(plan: Plan, sizes: SizeClasses) -> Batch:
    """global_batch_size = microbatch_size x microbatches x data.

    Raises `InvalidInput` with every fault: both sizes given, none where a profile prices the plan,
    lists of the wrong length, and degrees that do not divide what they split.
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
    elif prices_layers(plan):
        detail = "layers are priced at one shape: give microbatch_size or global_batch_size"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("workload", "microbatch_size"), detail))

    faults += _list_faults(plan)
    length: Amount | None = work.sequence_length
    lengths = work.microbatch_sequence_lengths
    if lengths is not None:
        if length is not None:
            detail = (
                "give sequence_length, or microbatch_sequence_lengths in its place (a patch that "
                "adds one sets the other to null)"
            )
            path = ("workload", "microbatch_sequence_lengths")
            faults.append(Fault(FaultCode.EXCLUSIVE_FIELDS, path, detail))
        length = sizes.amount(lengths) if len(lengths) == work.microbatches else None
    elif length is None and plan.assumed is not None:
        detail = "FLOPs are counted of tokens: say how long sequences are"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("workload", "sequence_length"), detail))
    elif length is None and degrees.context > 1 and prices_layers(plan):
        detail = "context splits sequences: say how long they are"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("workload", "sequence_length"), detail))
    of_rank = None
    if length is not None:
        of_rank = combine(lambda tokens: tokens // degrees.context, length)
        for tokens in sorted({length} if isinstance(length, int) else set(length)):
            faults += _split_faults(tokens, degrees)
    if faults:
        raise InvalidInput(faults)
    return Batch(microbatch_size, global_batch_size, held_fixed, length, of_rank)


def _split_faults(sequence_length: int, degrees: Degrees) -> list[Fault]:
    """Degrees that do not divide the tokens they split."""
    length, rest = divmod(sequence_length, degrees.context)
    if rest:
        detail = (
            f"sequence_length {sequence_length} must be a multiple of context {degrees.context}"
        )
        return [Fault(FaultCode.INDIVISIBLE, ("parallelism", "context"), detail)]
    if degrees.sequence_parallel and length % degrees.tensor:
        detail = (
            f"sequence_length / context = {length} must be a multiple of tensor {degrees.tensor} "
            "under sequence_parallel"
        )
        return [Fault(FaultCode.INDIVISIBLE, ("parallelism", "tensor"), detail)]
    return []


def batch_shapes(plan: Plan, batch: Batch, sizes: SizeClasses) -> list[BatchShape]:
    """A microbatch of each size class, as tensors of it are split.

    `batch` has a microbatch size.
    """
    if batch.microbatch_size is None:
        raise ValueError("without a microbatch size nobody knows the sizes of tensors")
    length = batch.sequence_length
    return [
        BatchShape(
            microbatch_size=batch.microbatch_size,
            sequence_length=None if length is None else at_class(length, number),
            lengths_differ=lengths_differ(plan),
            context=plan.degrees.context,
            tensor=plan.degrees.tensor,
            sequence_parallel=plan.degrees.sequence_parallel,
        )
        for number in range(sizes.count)
    ]
