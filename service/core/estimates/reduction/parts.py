"""What is reduced: of each stage the gradients that a rank holds, and the ranks that hold the same.

Dense weights lie on the tensor-parallel ranks, each share on all context and data ranks, and in a
schedule of two directions on both pipeline ranks of the stage. Experts lie on expert x
expert_tensor ranks of a stage, numbered tensor first, then context, then data, as Megatron does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.core.memory.static import whole_gradients, whole_weights
from service.core.models.dimensions import Split
from service.core.models.dtypes import DType
from service.core.plans.held_weights import weights_of_stages
from service.core.plans.placement import Layout, layout
from service.core.plans.plan import ResolvedPlan
from service.core.plans.rank_weights import HeldWeights, PlacedWeights
from service.core.plans.training import Training

__all__ = ["HeldBytes", "Part", "PartKind", "held_bytes", "reduced_parts", "replicas"]


class PartKind(StrEnum):
    """Which weights of a stage: these have replicas of their own."""

    DENSE = "dense"
    EXPERT = "expert"


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """The weights of one kind that a rank of a stage holds, and the bytes that belong to them.

    `step_bytes` is what the optimizer reads and writes for all of them: gradients, weights, its own
    copy of these and what it keeps of them, each once; None without an optimizer. Layers are those
    of the stage in execution order.
    """

    stage: int
    kind: PartKind
    elements: int
    weight_bytes: int
    gradient_bytes: int
    step_bytes: int | None
    gradient_bytes_by_layer: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Weights with the groups of ranks that hold the same: each group adds up its gradients."""

    held: HeldBytes
    pipeline_ranks: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def replicas(self) -> int:
        """How many ranks a group has."""
        return len(self.groups[0])


def held_bytes(resolved: ResolvedPlan) -> tuple[tuple[HeldBytes, ...] | None, ...]:
    """Of a rank of each stage, by kind; None where its parameters or their types are not known.

    They are not of a model without a single parameter, nor of stages that state a count alone where
    nothing is said of training.
    """
    model = resolved.model
    known = (
        resolved.plan.training is not None
        if model is None
        else any(layer.parameters for layer in model.layers)
    )
    if not known:
        return (None,) * len(resolved.stages)
    return tuple(
        None if placed is None else _bytes(resolved, stage, placed)
        for stage, placed in enumerate(weights_of_stages(resolved))
    )


def _bytes(
    resolved: ResolvedPlan, stage: int, placed: Sequence[PlacedWeights]
) -> tuple[HeldBytes, ...]:
    training = resolved.plan.training
    layers = None if resolved.model is None else len(resolved.stages[stage].layers)
    found = []
    for kind in PartKind:
        of_kind = [
            one
            for one in placed
            if one.held.elements and one.is_expert is (kind is PartKind.EXPERT)
        ]
        if not of_kind:
            continue
        held = [one.held for one in of_kind]
        found.append(
            HeldBytes(
                stage=stage,
                kind=kind,
                elements=sum(one.elements for one in held),
                weight_bytes=whole_weights(held, training),
                gradient_bytes=_gradients(held, training),
                step_bytes=None
                if training is None
                else sum(one.elements * _step_bytes(training, one.dtype) for one in held),
                gradient_bytes_by_layer=None
                if layers is None
                else _by_layer(
                    layers, [(one.layer, _gradients([one.held], training)) for one in of_kind]
                ),
            )
        )
    return tuple(found)


def _by_layer(layers: int, found: Sequence[tuple[int | None, int]]) -> tuple[int, ...]:
    sums = [0] * layers
    for layer, size in found:
        if layer is not None:
            sums[layer] += size
    return tuple(sums)


def _gradients(held: Sequence[HeldWeights], training: Training | None) -> int:
    """Bytes, in the type of the weights where nothing is said of training."""
    return whole_weights(held, None) if training is None else whole_gradients(held, training)


def _step_bytes(training: Training, own: DType | None) -> int:
    """What a step moves of one parameter: each number that is read, and each that is written."""
    weight, master = training.weights(own), training.master(own)
    changed = 2 * (master or weight).bytes_per_element
    copied = 0 if master is None else weight.bytes_per_element
    kept = sum(2 * moment.bytes_per_element for moment in training.moments(own))
    return training.gradients(own).bytes_per_element + changed + copied + kept


def reduced_parts(resolved: ResolvedPlan, held: Sequence[HeldBytes]) -> tuple[Part, ...]:
    """The weights of `held` that several ranks hold, with their groups."""
    ranks = layout(resolved.plan.placement, resolved.plan.degrees)
    parts = []
    for one in held:
        if replicas(resolved, one) > 1:
            pipeline_ranks = _pipeline_ranks(resolved, one)
            groups = tuple(_groups(ranks, pipeline_ranks, _apart(resolved, one.kind)))
            parts.append(Part(one, pipeline_ranks, groups))
    return tuple(parts)


def replicas(resolved: ResolvedPlan, held: HeldBytes) -> int:
    """How many ranks hold the same of these weights."""
    degrees = resolved.plan.degrees
    dense = held.kind is PartKind.DENSE
    of_rank = degrees.weight_replicas if dense else degrees.expert_replicas
    return len(_pipeline_ranks(resolved, held)) * of_rank


def _pipeline_ranks(resolved: ResolvedPlan, held: HeldBytes) -> tuple[int, ...]:
    return tuple(sorted(set(resolved.stages[held.stage].ranks)))


def _apart(resolved: ResolvedPlan, kind: PartKind) -> int:
    """How many ranks hold different weights of the kind."""
    split = Split.TENSOR if kind is PartKind.DENSE else Split.EXPERT
    return resolved.plan.degrees.sharing(split)


def _groups(ranks: Layout, pipeline_ranks: Sequence[int], apart: int) -> Iterator[tuple[int, ...]]:
    """The ranks of a stage that are equal in their place below `apart`, in ascending order."""
    of_stage = [ranks.ranks_at(number) for number in pipeline_ranks]
    for place in range(apart):
        yield tuple(sorted(rank for held in of_stage for rank in held[place::apart]))
