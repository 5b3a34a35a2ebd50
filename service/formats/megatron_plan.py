"""The plan of a Megatron-style launch: degrees, batch, schedule and partition from its arguments.

Blocks are laid on stages as Megatron lays them: as many on each, the first and the last as the
`decoder_..._pipeline_num_layers` say; the embedding stands on the first stage, final norm and head
on the last. Stages count chunk by chunk over the ranks.
"""

from msgspec import UNSET, UnsetType

from service.core.models.dimensions import Experts
from service.core.plans.plan import TiedParameters
from service.core.profiles.profile import Recompute
from service.formats.documents.costs import CostsDocument
from service.formats.documents.fields import MAX_MICROBATCHES, MAX_STAGES
from service.formats.documents.partition import PartitionDocument
from service.formats.documents.plan import (
    ParallelismDocument,
    PlanDocument,
    WorkloadDocument,
)
from service.formats.documents.recompute import RecomputeDocument
from service.formats.documents.schedule import ScheduleDocument, ScheduleKind
from service.formats.megatron_options import Options
from service.formats.megatron_training import read_training
from service.formats.transformer_model import Transformer

__all__ = ["read_plan"]


def read_plan(options: Options, model: Transformer) -> PlanDocument | None:
    """The plan, with empty costs; None where no microbatch size is given.

    Where the head is the embedding again, first and last stage each hold a copy. Faults are told
    to `options`.
    """
    blocks = len(model.blocks)
    if not options.has("micro_batch_size"):
        return None
    size = options.size("micro_batch_size")
    tensor = _degree(options, "tensor_model_parallel_size")
    pipeline = _degree(options, "pipeline_model_parallel_size")
    context = _degree(options, "context_parallel_size")
    data = _data(options, tensor * pipeline * context)
    chunks = _chunks(options, blocks, pipeline)
    counts = _counts(options, blocks, pipeline, chunks)
    length = options.size("seq_length")
    has_experts = any(isinstance(block, Experts) for block in model.blocks)
    expert, expert_tensor = _expert_degrees(options, has_experts, tensor, tensor * context * data)
    return PlanDocument(
        costs=CostsDocument(),
        workload=WorkloadDocument(
            microbatches=_microbatches(options, size, data),
            microbatch_size=size,
            sequence_length=length,
        ),
        parallelism=ParallelismDocument(
            pipeline=pipeline,
            tensor=tensor,
            context=context,
            data=data,
            expert=expert,
            expert_tensor=expert_tensor,
            sequence_parallel=options.flag("sequence_parallel"),
        ),
        partition=PartitionDocument(
            layers_per_stage=counts,
            tied_parameters=TiedParameters.DUPLICATE if model.tied and len(counts) > 1 else UNSET,
        ),
        schedule=_schedule(options, pipeline, chunks),
        recompute=_recompute(options),
        training=read_training(options, model.dtype, context * data),
    )


def _degree(options: Options, name: str) -> int:
    degree = options.size(name, 1)
    if degree > MAX_STAGES:
        options.refuse(name, f"is at most {MAX_STAGES}")
        return 1
    return degree


def _expert_degrees(
    options: Options, has_experts: bool, tensor: int, ranks: int
) -> tuple[int | UnsetType, int | UnsetType]:
    """Over how many of the ranks of a stage experts lie, and each of them.

    As the other layers, where the arguments do not say over how many ranks an expert is spread.
    """
    if not has_experts:
        return UNSET, UNSET
    expert = _degree(options, "expert_model_parallel_size")
    spread = tensor
    if options.has("expert_tensor_parallel_size"):
        spread = _degree(options, "expert_tensor_parallel_size")
    if ranks % (expert * spread):
        options.refuse_together(
            f"{expert} x {spread} ranks for experts (--expert-model-parallel-size x"
            f" --expert-tensor-parallel-size) do not divide the {ranks} ranks of a stage"
        )
    return expert, spread


def _data(options: Options, others: int) -> int:
    """What is left of the ranks that are launched."""
    if options.has("world_size"):
        ranks = options.size("world_size")
    elif options.has("nproc_per_node"):
        ranks = options.size("nproc_per_node") * options.size("nnodes", 1)
    else:
        options.assume("the arguments do not say how many ranks are launched: data parallelism 1")
        return 1
    data, rest = divmod(ranks, others)
    if rest or not 1 <= data <= MAX_STAGES:
        options.refuse_together(
            f"{ranks} ranks are launched, no multiple of tensor x pipeline x context = {others}"
        )
        return 1
    return data


def _microbatches(options: Options, size: int, data: int) -> int:
    batch = options.size("global_batch_size", size * data)
    count, rest = divmod(batch, size * data)
    if rest or not 1 <= count <= MAX_MICROBATCHES:
        options.refuse_together(
            f"--global-batch-size {batch} is no multiple of --micro-batch-size {size} x {data} "
            "data-parallel ranks"
        )
        return 1
    return count


def _chunks(options: Options, blocks: int, pipeline: int) -> int:
    """Stages of each rank."""
    if options.has("num_virtual_stages_per_pipeline_rank"):
        chunks = options.size("num_virtual_stages_per_pipeline_rank")
    elif options.has("num_layers_per_virtual_pipeline_stage"):
        each = options.size("num_layers_per_virtual_pipeline_stage")
        chunks, rest = divmod(blocks, pipeline * each)
        if rest or not chunks:
            options.refuse_together(
                f"{blocks} layers are no multiple of {pipeline} pipeline ranks x {each} layers of "
                "a virtual stage"
            )
            return 1
    else:
        return 1
    if chunks * pipeline > MAX_STAGES:
        options.refuse_together(f"{chunks * pipeline} stages; at most {MAX_STAGES}")
        return 1
    return chunks


def _counts(options: Options, blocks: int, pipeline: int, chunks: int) -> list[int]:
    """Layers of each stage in execution order: blocks, and what stands before and after them."""
    stages = pipeline * chunks
    own: dict[int, int] = {}
    for name, stage in (
        ("decoder_first_pipeline_num_layers", 0),
        ("decoder_last_pipeline_num_layers", stages - 1),
    ):
        if options.has(name):
            own[stage] = options.size(name)
            if chunks > 1:
                options.refuse_together(
                    f"--{name.replace('_', '-')} with virtual stages is not read"
                )
    for name in (
        "pipeline_model_parallel_layout",
        "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
    ):
        if options.has(name) and options.text(name, "") not in {"", "False"}:
            options.refuse(name, "is not read: give layers by decoder_..._pipeline_num_layers")
    left, others = blocks - sum(own.values()), stages - len(own)
    if left < 0 or (others == 0 and left) or (others and left % others):
        options.refuse_together(f"{left} of {blocks} layers do not go evenly on {others} stages")
        return [1] * stages
    counts = [own.get(stage, left // others if others else 0) for stage in range(stages)]
    counts[0] += 1
    counts[-1] += 2
    return counts


def _schedule(options: Options, pipeline: int, chunks: int) -> ScheduleDocument:
    if chunks == 1:
        return ScheduleDocument(kind=ScheduleKind.ONE_F_ONE_B)
    group = options.size("microbatch_group_size_per_vp_stage", pipeline)
    return ScheduleDocument(
        kind=ScheduleKind.INTERLEAVED_1F1B, chunks_per_rank=chunks, group_size=group
    )


def _recompute(options: Options) -> RecomputeDocument:
    policy = options.text("recompute_granularity", "none")
    if options.flag("recompute_activations"):
        policy = "selective"
    if policy not in {"none", "selective", "full"}:
        options.refuse("recompute_granularity", "is selective or full")
        return RecomputeDocument(default=UNSET)
    return RecomputeDocument(default=Recompute(policy))
