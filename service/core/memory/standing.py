"""Terms of a rank that do not follow its operations: weights and what belongs to them, buffers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from service.core.amounts import largest
from service.core.memory.communicators import communicator_bytes, communicator_sizes
from service.core.memory.experts import dispatch_buffers
from service.core.memory.static import static_state, whole_gradients, whole_weights
from service.core.memory.terms import Term, TermOrigin, UnknownTerm
from service.core.plans.memory_settings import CONTEXT_BYTES, GATHERED_UNITS, WORKSPACE_BYTES
from service.core.plans.plan import Boundary, ResolvedPlan, ResolvedStage, TransferOrigin
from service.core.plans.rank_weights import HeldWeights, RankWeights
from service.core.plans.schedule import has_backward
from service.core.plans.training import OptimizerSharding, Training

__all__ = ["OnRank", "Standing", "on_ranks", "standing_terms"]

_NO_PARAMETERS = "the plan does not say how many parameters the stages of the rank have"
_NO_TRAINING = "the plan does not say how weights are trained (training)"
_NO_LAYERS = "stages that state their own costs have no layers, whose largest it is the size of"


@dataclass(frozen=True, slots=True, eq=False)
class OnRank:
    """A pipeline rank with its stages, the boundaries that it sends or receives over, and copies.

    `copies` is how many ranks hold a copy of its tied weights, the most of several; 1 without.
    """

    rank: int
    stages: list[ResolvedStage] = field(default_factory=list)
    boundaries: list[Boundary] = field(default_factory=list)
    copies: int = 1


def on_ranks(resolved: ResolvedPlan) -> list[OnRank]:
    """Every pipeline rank."""
    degree = resolved.plan.degrees.pipeline
    copies = [1] * degree
    for tied in resolved.tied_copies:
        for rank in tied.pipeline_ranks:
            copies[rank] = max(copies[rank], len(tied.pipeline_ranks))
    found = [OnRank(rank, copies=copies[rank]) for rank in range(degree)]
    for stage in resolved.stages:
        for rank in set(stage.ranks):
            found[rank].stages.append(stage)
    for boundary in resolved.boundaries:
        if boundary.origin is not TransferOrigin.LOCAL:
            ends = boundary.source, boundary.target
            for rank in {resolved.stages[end].ranks[boundary.direction] for end in ends}:
                found[rank].boundaries.append(boundary)
    return found


@dataclass(frozen=True, slots=True)
class Standing:
    """Bytes of one term, and when they are there.

    Always, unless `in_operations` (not at the optimizer's step), `in_backwards` (at operations that
    make gradients alone) or `at_step` (the step alone) says otherwise.
    """

    term: Term
    bytes: int
    origin: TermOrigin
    rule: str
    in_operations: bool = False
    in_backwards: bool = False
    at_step: bool = False


def standing_terms(
    resolved: ResolvedPlan, here: OnRank, versions: int
) -> tuple[list[Standing], list[UnknownTerm]]:
    """What a rank holds whatever it runs, and what of that is not known.

    `versions` is how many versions of its weights a rank keeps, 1 unless the schedule is
    asynchronous.
    """
    known: list[Standing] = []
    unknown: list[UnknownTerm] = []
    weights = resolved.rank_weights[here.rank]
    training = resolved.plan.training if has_backward(resolved.plan) else None
    typed = weights is not None and all(
        one.dtype is not None or resolved.plan.training is not None for one in weights.held
    )
    if weights is None or not typed:
        unknown.append(UnknownTerm(Term.WEIGHTS, _NO_PARAMETERS if not weights else _NO_TRAINING))
        unknown += _unknown_state(resolved, _NO_PARAMETERS if not weights else _NO_TRAINING)
    else:
        known += _weights(weights, resolved.plan.training, versions, trained=training is not None)
        if training is not None:
            known += _trained(weights.held, training)
            _of_largest_layer(resolved, weights, training, known, unknown)
        else:
            unknown += _unknown_state(resolved, _NO_TRAINING)
        if weights.buffer_bytes:
            rule = "buffers of the layers (state that is not trained), each in its own type"
            known.append(Standing(Term.BUFFERS, weights.buffer_bytes, TermOrigin.COMPUTED, rule))
    _boundary_buffers(here.boundaries, known, unknown)
    buffers = dispatch_buffers(resolved, [stage.stage for stage in here.stages])
    if buffers is not None and buffers.size:
        term, origin = Term.DISPATCH_BUFFERS, TermOrigin.COMPUTED
        known.append(Standing(term, buffers.size, origin, buffers.rule, in_operations=True))
    known += _of_the_device(resolved, here)
    return known, unknown


def _unknown_state(resolved: ResolvedPlan, reason: str) -> Iterator[UnknownTerm]:
    if has_backward(resolved.plan):
        for term in (Term.GRADIENTS, Term.MASTER_WEIGHTS, Term.OPTIMIZER_MOMENTS):
            yield UnknownTerm(term, reason)


def _weights(
    weights: RankWeights, training: Training | None, versions: int, *, trained: bool
) -> Iterator[Standing]:
    sharding = OptimizerSharding.NONE
    if training is not None and trained:
        sharding = training.optimizer_sharding
    size = whole_weights(weights.held, training, sharding)
    if not size:
        return
    rule = f"weights: {_each(weights.held, size, split=sharding.splits_weights)}"
    yield Standing(Term.WEIGHTS, size, TermOrigin.COMPUTED, rule)
    if versions > 1:
        rule = f"{versions - 1} more of {versions} versions of the weights that the schedule keeps"
        yield Standing(Term.WEIGHT_VERSIONS, (versions - 1) * size, TermOrigin.COMPUTED, rule)


def _trained(held: Sequence[HeldWeights], training: Training) -> Iterator[Standing]:
    state, sharding = static_state(held, training), training.optimizer_sharding
    name, count = training.optimizer.value, training.optimizer.moments
    of_optimizer = sharding.splits_optimizer
    for term, size, what, split in (
        (Term.GRADIENTS, state.gradients, "gradients", sharding.splits_gradients),
        (
            Term.MASTER_WEIGHTS,
            state.master_weights,
            f"the copy of the weights that {name} changes",
            of_optimizer,
        ),
        (
            Term.OPTIMIZER_MOMENTS,
            state.optimizer_moments,
            f"{count} number{'s' if count > 1 else ''} that {name} keeps",
            of_optimizer,
        ),
        (
            Term.STEP_GRADIENTS,
            state.step_gradients,
            f"gradients in the type that {name} computes in, during its step",
            of_optimizer,
        ),
    ):
        if size:
            rule = f"{what}: {_each(held, size, split=split)}"
            at_step = term is Term.STEP_GRADIENTS
            yield Standing(term, size, TermOrigin.COMPUTED, rule, at_step=at_step)


def _each(held: Sequence[HeldWeights], size: int, *, split: bool) -> str:
    """How many bytes of how many elements, and among how many ranks a share of each lies."""
    elements = sum(one.elements for one in held)
    told = f"{size / elements:.6g} bytes of each of {elements:,} elements"
    # Experts may have other replicas than dense weights.
    replicas = sorted({one.replicas for one in held})
    if not split or replicas == [1]:
        return told
    return f"{told}, split over {' and '.join(map(str, replicas))} ranks"


def _of_largest_layer(
    resolved: ResolvedPlan,
    weights: RankWeights,
    training: Training,
    known: list[Standing],
    unknown: list[UnknownTerm],
) -> None:
    """What sharding makes whole for a while: weights of layers, and gradients of the largest."""
    settings, sharding = resolved.plan.memory, training.optimizer_sharding
    several = any(one.replicas > 1 for one in weights.held)
    layer = weights.largest_layer
    if sharding.splits_weights and several:
        if layer is None:
            unknown.append(UnknownTerm(Term.GATHERED_WEIGHTS, _NO_LAYERS))
        else:
            units = settings.gathered_layers or GATHERED_UNITS
            rule = f"weights of {units} times the largest layer, gathered whole"
            origin = TermOrigin.GIVEN if settings.gathered_layers else TermOrigin.DEFAULT
            size = units * whole_weights(layer, training)
            gathered = Standing(Term.GATHERED_WEIGHTS, size, origin, rule, in_operations=True)
            known.append(gathered)
    if settings.gradient_bucket_bytes is not None:
        size, origin, rule = settings.gradient_bucket_bytes, TermOrigin.GIVEN, "as the plan says"
    elif not sharding.splits_gradients or not several:
        return  # gradients are reduced where they lie
    elif layer is None:
        unknown.append(UnknownTerm(Term.GRADIENT_BUCKETS, _NO_LAYERS))
        return
    else:
        size, origin = whole_gradients(layer, training), TermOrigin.DEFAULT
        rule = "gradients of the largest layer, whole before each rank keeps its share"
    bucket = Standing(Term.GRADIENT_BUCKETS, size, origin, rule, in_backwards=True)
    known.append(bucket)


def _boundary_buffers(
    here: Sequence[Boundary], known: list[Standing], unknown: list[UnknownTerm]
) -> None:
    """One to receive into and one to send from, each for the largest that crosses a boundary."""
    if not here:
        return
    sizes = [boundary.forward_bytes for boundary in here]
    sizes += [boundary.backward_bytes for boundary in here if boundary.returns]
    if None in sizes:
        reason = "the bytes over a boundary of the rank are not given"
        unknown.append(UnknownTerm(Term.BOUNDARY_BUFFERS, reason))
        return
    most = max(largest(size) for size in sizes if size is not None)
    rule = "two buffers of the most that the rank sends or receives over a boundary"
    known.append(
        Standing(Term.BOUNDARY_BUFFERS, 2 * most, TermOrigin.COMPUTED, rule, in_operations=True)
    )


def _of_the_device(resolved: ResolvedPlan, here: OnRank) -> Iterator[Standing]:
    """Workspace, communicators and context: the plan's, else our defaults."""
    settings = resolved.plan.memory
    size, origin, rule = WORKSPACE_BYTES, TermOrigin.DEFAULT, "of matrix libraries on one stream"
    measured = [
        None if stage.sources is None else stage.sources.workspace_bytes for stage in here.stages
    ]
    if None not in measured:
        size = max(largest(each) for each in measured if each is not None)
        origin, rule = TermOrigin.MEASURED, "of the layer of the rank that needs most"
    if settings.workspace_bytes is not None:
        size, origin, rule = settings.workspace_bytes, TermOrigin.GIVEN, "as the plan says"
    yield Standing(Term.WORKSPACE, size, origin, rule, in_operations=True)
    sizes = communicator_sizes(resolved.plan.degrees, here.copies)
    count = len(sizes) if settings.communicators is None else settings.communicators
    if settings.communicator_bytes is not None:
        size = count * settings.communicator_bytes
    elif settings.communicators is None:
        size = communicator_bytes(sizes)
    else:
        size = communicator_bytes((3,) * count)
    if count:
        given = settings.communicators is not None and settings.communicator_bytes is not None
        groups = "1 group" if count == 1 else f"{count} groups"
        yield Standing(
            Term.COMMUNICATORS,
            size,
            TermOrigin.GIVEN if given else TermOrigin.DEFAULT,
            f"communication buffers of {groups} of ranks",
        )
    size, origin, rule = CONTEXT_BYTES, TermOrigin.DEFAULT, "the device's context and driver"
    if settings.context_bytes is not None:
        size, origin = settings.context_bytes, TermOrigin.GIVEN
    yield Standing(Term.CONTEXT, size, origin, rule)
