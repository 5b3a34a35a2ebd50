"""How a Megatron-style launch trains: optimizer, types, what is sharded, when gradients move.

Gradients are kept and reduced in fp32 beside bf16 weights unless --grad-reduce-in-bf16 is given,
and else in the type of the weights unless --accumulate-allreduce-grads-in-fp32 is. Without
--overlap-grad-reduce they are reduced after the last backward, with it in buckets of
--ddp-bucket-size elements, or of 40 million or a million for each replica, whichever is more.
"""

from msgspec import UNSET, UnsetType

from service.core.models.dtypes import DType
from service.core.plans.gradient_reduction import ReductionOverlap
from service.core.plans.training import Optimizer, OptimizerSharding
from service.formats.documents.training import GradientReductionDocument, TrainingDocument
from service.formats.megatron_options import Options

__all__ = ["read_training"]

_BUCKET_ELEMENTS = 40_000_000
_BUCKET_ELEMENTS_OF_A_REPLICA = 1_000_000


def read_training(options: Options, dtype: DType, replicas: int) -> TrainingDocument | UnsetType:
    """The `training` of the plan; absent where the optimizer is none that plans know.

    `replicas` are the ranks that hold the same dense weights. Faults are told to `options`.
    """
    name = options.text("optimizer", "adam")
    optimizer = Optimizer.ADAM if name == "adam" else None
    if name == "sgd":
        still = options.text("sgd_momentum", "0.9").strip("0.") == ""
        optimizer = Optimizer.SGD if still else Optimizer.MOMENTUM
    if optimizer is None:
        options.leave_out("optimizer", "adam and sgd are read: give the plan's training yourself")
        return UNSET
    gradients = _gradient_dtype(options, dtype)
    sharded = options.flag("use_distributed_optimizer")
    options.assume(
        f"the optimizer is {optimizer.value}, gradients are kept and reduced in {gradients.value}"
    )
    return TrainingDocument(
        optimizer=optimizer,
        gradient_dtype=gradients,
        optimizer_sharding=OptimizerSharding.OPTIMIZER if sharded else UNSET,
        gradient_reduction=_reduction(options, gradients, replicas),
    )


def _gradient_dtype(options: Options, dtype: DType) -> DType:
    in_fp32 = options.flag("accumulate_allreduce_grads_in_fp32")
    if dtype is DType.BF16 and not options.flag("grad_reduce_in_bf16"):
        in_fp32 = True
    return DType.FP32 if in_fp32 else dtype


def _reduction(options: Options, gradients: DType, replicas: int) -> GradientReductionDocument:
    if not options.flag("overlap_grad_reduce"):
        return GradientReductionDocument(overlap=ReductionOverlap.NONE)
    default = max(_BUCKET_ELEMENTS, _BUCKET_ELEMENTS_OF_A_REPLICA * replicas)
    elements = options.size("ddp_bucket_size", default)
    return GradientReductionDocument(
        overlap=ReductionOverlap.BUCKETS, bucket_bytes=elements * gradients.bytes_per_element
    )
