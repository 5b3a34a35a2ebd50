"""What a rank keeps of its weights throughout an iteration: these, gradients, optimizer state.

Per parameter, with d ranks that hold the same elements (Rajbhandari et al., 2020; weights and
gradients of w and g bytes, a master copy and moments of k together):

    none          w + g + k
    optimizer     w + g + k / d        ZeRO-1, distributed optimizer
    gradients     w + (g + k) / d      ZeRO-2
    parameters    (w + g + k) / d      ZeRO-3, FSDP

With bf16 weights, fp32 gradients and fp32 Adam that is 18, and 6 + 12 / d with a distributed
optimizer; with bf16 gradients 16, 4 + 12 / d, 2 + 14 / d and 16 / d.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.models.dtypes import DType
from service.core.plans.rank_weights import HeldWeights
from service.core.plans.training import OptimizerSharding, Training

__all__ = ["StaticState", "static_state", "whole_gradients", "whole_weights"]


@dataclass(frozen=True, slots=True)
class StaticState:
    """Bytes on one rank. `step_gradients` are there during the optimizer's step alone."""

    weights: int
    gradients: int
    master_weights: int
    optimizer_moments: int
    step_gradients: int

    @property
    def total(self) -> int:
        """All that stays: without what the step needs for itself."""
        return self.weights + self.gradients + self.master_weights + self.optimizer_moments


def static_state(held: Sequence[HeldWeights], training: Training) -> StaticState:
    """Of the weights that a rank holds.

    Each kind of weight is split on its own, rounded up to an element. Where gradients take fewer
    bytes than the weights that the optimizer changes, its step works on a copy of its share of them
    in that type, as DeepSpeed and Megatron-LM do.
    """
    sharding = training.optimizer_sharding
    weights = gradients = master = moments = step = 0
    for one in held:
        of_optimizer = _kept(one, split=sharding.splits_optimizer)
        kept_gradients = _kept(one, split=sharding.splits_gradients)
        weights += whole_weights([one], training, sharding)
        gradient = training.gradients(one.dtype)
        gradients += kept_gradients * gradient.bytes_per_element
        copy = training.master(one.dtype)
        master += of_optimizer * (0 if copy is None else copy.bytes_per_element)
        each = sum(moment.bytes_per_element for moment in training.moments(one.dtype))
        moments += of_optimizer * each
        changed = copy or training.weights(one.dtype)
        if gradient.bytes_per_element < changed.bytes_per_element:
            step += of_optimizer * changed.bytes_per_element
    return StaticState(weights, gradients, master, moments, step)


def whole_weights(
    held: Sequence[HeldWeights],
    training: Training | None,
    sharding: OptimizerSharding = OptimizerSharding.NONE,
) -> int:
    """Bytes of weights alone, whole unless `sharding` splits them; of their own type untrained."""
    total = 0
    for one in held:
        dtype = one.dtype if training is None else training.weights(one.dtype)
        if dtype is None:
            raise ValueError("weights of no type have no bytes: the plan was not checked")
        total += _kept(one, split=sharding.splits_weights) * dtype.bytes_per_element
    return total


def _kept(one: HeldWeights, *, split: bool) -> int:
    """Elements: all, or the share of one of the ranks that hold the same."""
    return -(-one.elements // one.replicas) if split else one.elements


def whole_gradients(held: Sequence[HeldWeights], training: Training) -> int:
    """Bytes of the gradients of these before they are split among the ranks that hold the same."""

    def each(dtype: DType | None) -> int:
        return training.gradients(dtype).bytes_per_element

    return sum(one.elements * each(one.dtype) for one in held)
