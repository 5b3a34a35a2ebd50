"""How the weights of a plan are trained: which numbers an optimizer keeps, and over whom they lie.

What a plan leaves open is filled in here, so that memory, gradient reduction and the optimizer's
step mean the same types. Bytes a parameter are those of mixed-precision training: Micikevicius et
al. (2018) for the master copy, Rajbhandari et al. (ZeRO, 2020) for the three stages of sharding.
"""

from dataclasses import dataclass
from enum import StrEnum

from service.core.models.dtypes import DType
from service.core.plans.gradient_reduction import GradientReduction, SecondsByPart

__all__ = ["MasterCopy", "Optimizer", "OptimizerSharding", "Training"]


class Optimizer(StrEnum):
    """What turns gradients into new weights."""

    ADAM = "adam"
    ADAMW = "adamw"
    LAMB = "lamb"
    ADAGRAD = "adagrad"
    LION = "lion"
    MOMENTUM = "momentum"  # stochastic gradient descent with momentum
    RMSPROP = "rmsprop"
    SGD = "sgd"

    @property
    def moments(self) -> int:
        """How many numbers it keeps of each parameter."""
        return _MOMENTS[self]


_MOMENTS = {
    Optimizer.ADAM: 2,
    Optimizer.ADAMW: 2,
    Optimizer.LAMB: 2,
    Optimizer.ADAGRAD: 1,
    Optimizer.LION: 1,
    Optimizer.MOMENTUM: 1,
    Optimizer.RMSPROP: 1,
    Optimizer.SGD: 0,
}


class OptimizerSharding(StrEnum):
    """What the ranks that hold the same weights split among them; each takes in those before it."""

    NONE = "none"
    OPTIMIZER = "optimizer"  # ZeRO-1, Megatron's distributed optimizer
    GRADIENTS = "gradients"  # ZeRO-2
    PARAMETERS = "parameters"  # ZeRO-3, FSDP

    @property
    def splits_optimizer(self) -> bool:
        """Whether a rank keeps master copy and moments of its share alone."""
        return self is not OptimizerSharding.NONE

    @property
    def splits_gradients(self) -> bool:
        """Whether a rank keeps the gradient of its share alone."""
        return self in (OptimizerSharding.GRADIENTS, OptimizerSharding.PARAMETERS)

    @property
    def splits_weights(self) -> bool:
        """Whether a rank keeps the weights of its share alone."""
        return self is OptimizerSharding.PARAMETERS


class MasterCopy(StrEnum):
    """The type of the copy of the weights that the optimizer changes, where it keeps one."""

    NONE = "none"
    FP64 = "fp64"
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def dtype(self) -> DType | None:
        """Of its elements; None where there is no copy."""
        return None if self is MasterCopy.NONE else DType(self.value)


@dataclass(frozen=True, slots=True)
class Training:
    """As a plan states it. `moment_dtypes` has one for each number that the optimizer keeps.

    None stands for a default: weights of the type that the model gives them, gradients of that of
    the weights, a master copy in fp32 where weights take fewer than four bytes, and moments of the
    type of the weights that the optimizer changes.
    """

    optimizer: Optimizer
    weight_dtype: DType | None = None
    gradient_dtype: DType | None = None
    master_dtype: MasterCopy | None = None
    optimizer_state_dtype: DType | None = None
    moment_dtypes: tuple[DType, ...] | None = None
    optimizer_sharding: OptimizerSharding = OptimizerSharding.NONE
    gradient_reduction: GradientReduction | None = None
    optimizer_step_seconds: SecondsByPart | None = None  # of a pipeline rank, or of each
    tokens: int | None = None  # in all iterations together

    def weights(self, own: DType | None) -> DType:
        """The type of a weight whose type in the model is `own` (None: the model names none)."""
        found = self.weight_dtype or own
        if found is None:
            raise ValueError("neither the plan nor a model says of what type the weights are")
        return found

    def gradients(self, own: DType | None) -> DType:
        """The type in which its gradient is kept."""
        return self.gradient_dtype or self.weights(own)

    def master(self, own: DType | None) -> DType | None:
        """The type of its master copy; None where there is none."""
        if self.master_dtype is not None:
            return self.master_dtype.dtype
        return DType.FP32 if self.weights(own).bytes_per_element < 4 else None

    def moments(self, own: DType | None) -> tuple[DType, ...]:
        """The types of what the optimizer keeps of it, one for each number."""
        if self.moment_dtypes is not None:
            return self.moment_dtypes
        each = self.optimizer_state_dtype or self.master(own) or self.weights(own)
        return (each,) * self.optimizer.moments
