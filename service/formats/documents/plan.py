"""The plan document: what is trained, cut into which stages, on which devices, in which order."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from service.core.plans.memory_settings import MemorySettings
from service.core.plans.plan import (
    Degrees,
    Dimension,
    Placement,
    Plan,
    Schedule,
    Workload,
)
from service.core.profiles.measurement import Recompute
from service.formats.documents.contract import ContractDocument, contract_to_core
from service.formats.documents.costs import CostsDocument, assumed_to_core, stage_to_core
from service.formats.documents.fields import (
    MAX_LISTED_MICROBATCHES,
    MAX_MICROBATCHES,
    MAX_STAGES,
    PositiveCount,
    Reference,
    Text,
    or_none,
    tuple_or_none,
)
from service.formats.documents.memory import MemoryDocument, memory_to_core
from service.formats.documents.moe import MoeDocument, moe_to_core
from service.formats.documents.partition import (
    PartitionDocument,
    partition_to_core,
    stated_stages,
)
from service.formats.documents.recompute import RecomputeDocument, layers_to_core
from service.formats.documents.schedule import ScheduleDocument, schedule_to_core
from service.formats.documents.training import TrainingDocument, training_to_core

__all__ = [
    "ParallelismDocument",
    "PlacementDocument",
    "PlanDocument",
    "WorkloadDocument",
    "to_core",
]


class WorkloadDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The batch of one iteration: at most one of microbatch_size and global_batch_size.

    The one given is held fixed and the other follows:
    global_batch_size = microbatch_size x microbatches x data.
    """

    microbatches: Annotated[
        int,
        Meta(ge=1, le=MAX_MICROBATCHES, description="Of each data-parallel replica", examples=[16]),
    ]
    microbatch_size: (
        Annotated[PositiveCount, Meta(description="Samples in a microbatch", examples=[1])]
        | UnsetType
    ) = UNSET
    global_batch_size: (
        Annotated[
            PositiveCount,
            Meta(description="Samples in an iteration over all replicas", examples=[32]),
        ]
        | UnsetType
    ) = UNSET
    sequence_length: (
        Annotated[PositiveCount, Meta(description="Tokens per sample", examples=[4096])] | UnsetType
    ) = UNSET
    microbatch_sequence_lengths: (
        Annotated[
            list[PositiveCount],
            Meta(
                min_length=1,
                max_length=MAX_LISTED_MICROBATCHES,
                description="Tokens per sample of each microbatch, in place of sequence_length. A "
                "profile is asked for each of these lengths; times in costs.stages are lists where "
                "they differ",
                examples=[[4096, 2048]],
            ),
        ]
        | UnsetType
    ) = UNSET


Degree = Annotated[int, Meta(ge=1, le=MAX_STAGES)]


class ParallelismDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Degrees; the world size is tensor x context x data x pipeline."""

    pipeline: (
        Annotated[
            Degree,
            Meta(
                description="Ranks that stages are laid on; when absent, the number of stages "
                "(given or of the partition) over chunks_per_rank, or of texts in the order",
                examples=[4],
            ),
        ]
        | UnsetType
    ) = UNSET
    tensor: (
        Annotated[Degree, Meta(description="Ranks that share each layer; 1 when absent")]
        | UnsetType
    ) = UNSET
    context: (
        Annotated[Degree, Meta(description="Ranks that share each sequence; 1 when absent")]
        | UnsetType
    ) = UNSET
    data: Annotated[Degree, Meta(description="Replicas; 1 when absent")] | UnsetType = UNSET
    expert: (
        Annotated[
            Degree,
            Meta(
                description="Ranks that share the experts of a layer; 1 when absent. They lie "
                "inside tensor x context x data, which expert x expert_tensor divides",
                examples=[8],
            ),
        ]
        | UnsetType
    ) = UNSET
    expert_tensor: (
        Annotated[Degree, Meta(description="Ranks that share each expert; 1 when absent")]
        | UnsetType
    ) = UNSET
    sequence_parallel: (
        Annotated[
            bool,
            Meta(
                description="Tensors with a sequence are split over the tensor-parallel ranks too, "
                "outside the layers; false when absent"
            ),
        ]
        | UnsetType
    ) = UNSET


class PlacementDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How ranks are laid on the devices of the topology."""

    order: (
        Annotated[
            list[Dimension],
            Meta(
                min_length=1,
                max_length=4,
                description="Dimensions from the innermost, each once; one of degree 1 may be left "
                "out. When absent: tensor, context, data, pipeline",
                examples=[["tensor", "data", "pipeline"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    devices: (
        Annotated[
            list[
                Annotated[
                    str,
                    Meta(
                        pattern=r"^[A-Za-z0-9_.:/*?\[\],-]+$(?!\n)",
                        min_length=1,
                        max_length=255,
                        description="A device, a pattern with * and ?, or a host list in brackets",
                    ),
                ]
            ],
            Meta(
                min_length=1,
                max_length=MAX_STAGES,
                description="The allocation in rank order; all devices of the topology when absent",
                examples=[["host0/gpu*", "host[1-3,7]/gpu[0-1]"]],
            ),
        ]
        | UnsetType
    ) = UNSET


class PlanDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A plan. What is left out takes the default that its description names."""

    description: Text | UnsetType = UNSET
    topology: Annotated[Reference, Meta(examples=["two-dgx-h100@1"])] | UnsetType = UNSET
    costs: Annotated[CostsDocument, Meta(description="What each stage costs")]
    workload: Annotated[WorkloadDocument, Meta(description="The batch of one iteration")]
    parallelism: (
        Annotated[ParallelismDocument, Meta(description="Parallel degrees")] | UnsetType
    ) = UNSET
    partition: (
        Annotated[PartitionDocument, Meta(description="The layers of each stage")] | UnsetType
    ) = UNSET
    schedule: Annotated[ScheduleDocument, Meta(description="The order of operations")]
    placement: Annotated[PlacementDocument, Meta(description="Ranks on devices")] | UnsetType = (
        UNSET
    )
    recompute: (
        Annotated[RecomputeDocument, Meta(description="Activations computed again")] | UnsetType
    ) = UNSET
    training: (
        Annotated[TrainingDocument, Meta(description="How the weights are trained")] | UnsetType
    ) = UNSET
    contract: (
        Annotated[ContractDocument, Meta(description="What plans must share to be compared")]
        | UnsetType
    ) = UNSET
    memory: (
        Annotated[MemoryDocument, Meta(description="What a device holds beside")] | UnsetType
    ) = UNSET
    moe: Annotated[MoeDocument, Meta(description="How experts run")] | UnsetType = UNSET


def to_core(document: PlanDocument) -> Plan:
    """The plan with its defaults. Never refuses: `service.core.plans.resolve` finds the faults."""
    stages = or_none(document.costs.stages)
    assumed = or_none(document.costs.assumed)
    partition = partition_to_core(or_none(document.partition))
    schedule = schedule_to_core(document.schedule)
    stated = len(stages) if stages is not None else stated_stages(partition)
    recompute = or_none(document.recompute)
    policy = None if recompute is None else or_none(recompute.default)
    training, memory = or_none(document.training), or_none(document.memory)
    moe = or_none(document.moe)
    return Plan(
        degrees=_degrees(or_none(document.parallelism), _stated_ranks(schedule, stated)),
        workload=Workload(
            microbatches=document.workload.microbatches,
            microbatch_size=or_none(document.workload.microbatch_size),
            global_batch_size=or_none(document.workload.global_batch_size),
            sequence_length=or_none(document.workload.sequence_length),
            microbatch_sequence_lengths=tuple_or_none(
                document.workload.microbatch_sequence_lengths
            ),
        ),
        schedule=schedule,
        stages=None if stages is None else tuple(stage_to_core(stage) for stage in stages),
        model=or_none(document.costs.model),
        profile=or_none(document.costs.profile),
        assumed=None if assumed is None else assumed_to_core(assumed),
        unmeasured_shapes=or_none(document.costs.unmeasured_shapes),
        partition=partition,
        topology=or_none(document.topology),
        placement=_placement(or_none(document.placement)),
        recompute=(policy or Recompute.NONE).value,
        training=None if training is None else training_to_core(training),
        recompute_layers=layers_to_core(recompute),
        contract=contract_to_core(document.contract),
        memory=MemorySettings() if memory is None else memory_to_core(memory),
        moe=None if moe is None else moe_to_core(moe),
    )


def _stated_ranks(schedule: Schedule, stages: int) -> int:
    """How many pipeline ranks the plan speaks of without saying so."""
    if schedule.order is not None:
        return len(schedule.order)
    return max(1, stages // schedule.chunks_per_rank)


def _degrees(document: ParallelismDocument | None, derived: int) -> Degrees:
    if document is None:
        return Degrees(pipeline=derived)
    return Degrees(
        pipeline=or_none(document.pipeline) or derived,
        tensor=or_none(document.tensor) or 1,
        context=or_none(document.context) or 1,
        data=or_none(document.data) or 1,
        sequence_parallel=or_none(document.sequence_parallel) or False,
        expert=or_none(document.expert) or 1,
        expert_tensor=or_none(document.expert_tensor) or 1,
    )


def _placement(document: PlacementDocument | None) -> Placement:
    if document is None:
        return Placement()
    order = tuple_or_none(document.order)
    return Placement(
        order=Placement().order if order is None else order,
        devices=tuple_or_none(document.devices),
    )
