"""A plan as asked for, and a plan as resolved against a cluster, a model and a profile."""

from dataclasses import dataclass, field
from enum import StrEnum

from service.core.amounts import Amount, SizeClasses
from service.core.errors import Statement
from service.core.models.activations import StageLogits
from service.core.models.cuts import CrossingTensor, SkipRouting
from service.core.models.dimensions import Split
from service.core.models.graph import Model
from service.core.models.weights import StageWeights
from service.core.moe.settings import MoeSettings
from service.core.plans.contract import Contract
from service.core.plans.cost_sources import AssumedCosts, CostSources
from service.core.plans.given_stage import (
    ActivationChange,
    GivenBytes,
    GivenSeconds,
    GivenStage,
)
from service.core.plans.loads import DeviceLoad, LoadRule
from service.core.plans.memory_settings import MemorySettings
from service.core.plans.moe.results import PlanMoe
from service.core.plans.rank_weights import RankWeights
from service.core.plans.tied import TiedCopies, TiedParameters
from service.core.plans.training import Training
from service.core.profiles.interpolation import UnmeasuredShapes
from service.core.profiles.provenance import Provenance
from service.core.schedules.program import PairMode, StageEdge
from service.core.schedules.transfers import TransferMode
from service.core.topology.cluster import Cluster
from service.core.topology.paths import PhysicalPath

__all__ = [
    "ActivationChange",
    "AssumedCosts",
    "Boundary",
    "CostSources",
    "CrossingTensor",
    "Degrees",
    "Dimension",
    "GivenBytes",
    "GivenSeconds",
    "GivenStage",
    "Partition",
    "Placed",
    "Placement",
    "Plan",
    "PlanFlops",
    "Provenance",
    "RankPair",
    "ResolvedPlan",
    "ResolvedStage",
    "Schedule",
    "SkipRouting",
    "Statement",
    "TiedParameters",
    "TransferOrigin",
    "Workload",
]


class Dimension(StrEnum):
    """The dimensions ranks are laid out in."""

    TENSOR = "tensor"
    CONTEXT = "context"
    DATA = "data"
    PIPELINE = "pipeline"


class TransferOrigin(StrEnum):
    """What a boundary's transfer time was taken from."""

    LOCAL = "local"  # both stages live on one rank: nothing is sent
    GIVEN = "given"  # transfer_seconds of the plan
    PATH = "path"  # bytes over the physical path
    ASSUMED_ZERO = "assumed_zero"  # nothing known; counted as zero, and the answer says so


@dataclass(frozen=True, slots=True)
class Degrees:
    """Parallel degrees; world size = tensor x context x data x pipeline.

    Experts lie inside the ranks of a stage: `expert` x `expert_tensor` of them hold each expert
    once, and the rest of tensor x context x data are replicas of it.
    """

    pipeline: int
    tensor: int = 1
    context: int = 1
    data: int = 1
    sequence_parallel: bool = False
    expert: int = 1
    expert_tensor: int = 1

    @property
    def world_size(self) -> int:
        """How many ranks the plan has."""
        return self.pipeline * self.tensor * self.context * self.data

    def sharing(self, split: Split | None) -> int:
        """Among how many ranks a weight is spread; the tensor-parallel ones where nobody says."""
        if split is Split.EXPERT:
            return self.expert * self.expert_tensor
        return 1 if split is Split.NONE else self.tensor

    def share(self, count: int, split: Split | None) -> int:
        """Of so many elements of a weight those on one rank, rounded up."""
        return -(-count // self.sharing(split))

    @property
    def weight_replicas(self) -> int:
        """How many ranks hold the same dense weights: context x data."""
        return self.context * self.data

    @property
    def expert_replicas(self) -> int:
        """How many ranks hold the same experts: tensor x context x data over those of one copy."""
        return self.tensor * self.weight_replicas // (self.expert * self.expert_tensor)

    def of(self, dimension: Dimension) -> int:
        """The degree in one dimension."""
        return int(getattr(self, dimension.value))


@dataclass(frozen=True, slots=True)
class Workload:
    """The batch. At most one of microbatch and global batch size is given and held fixed.

    `microbatch_sequence_lengths`, one for each microbatch, stands in place of `sequence_length`.
    """

    microbatches: int
    microbatch_size: int | None = None
    global_batch_size: int | None = None
    sequence_length: int | None = None
    microbatch_sequence_lengths: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """Which layers each stage holds: exactly one of the three forms."""

    layers_per_stage: tuple[int, ...] | None = None
    cuts: tuple[int, ...] | None = None  # index of the first layer of stage 1, 2, ...
    stages: tuple[tuple[str, ...], ...] | None = None
    skip_routing: SkipRouting = SkipRouting.RELAY
    tied_parameters: TiedParameters = TiedParameters.REFUSE
    load_rule: LoadRule | None = None  # None: no load is counted beside the simulation


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which schedule runs the stages, and how transfers between them are charged."""

    kind: str
    chunks_per_rank: int = 1
    transfer_mode: TransferMode | None = None  # None: link where links are known, else latency
    recompute_before_gradient: bool = False
    group_size: int | None = None  # microbatches of a group; None: the schedule's own
    pair_mode: PairMode | None = None  # None: fused where stages say how long pairs take
    order: tuple[str, ...] | None = None  # what each rank runs, for the explicit schedule
    memory_limit_activations: int | None = None  # for zb_auto; None: as many as ranks


@dataclass(frozen=True, slots=True)
class Placement:
    """How ranks are laid on devices: `order` innermost first, `devices` in rank order."""

    order: tuple[Dimension, ...] = (
        Dimension.TENSOR,
        Dimension.CONTEXT,
        Dimension.DATA,
        Dimension.PIPELINE,
    )
    devices: tuple[str, ...] | None = None  # names, globs, bracket lists; None: all of the cluster


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for. Costs are either `stages`, or a model, cut by a partition, with a profile
    or with assumed rates.
    """

    degrees: Degrees
    workload: Workload
    schedule: Schedule
    stages: tuple[GivenStage, ...] | None = None
    model: str | None = None
    profile: str | None = None
    partition: Partition | None = None
    topology: str | None = None
    placement: Placement = field(default_factory=Placement)
    recompute: str = "none"  # which measurements a profile is asked for: none, full, selective
    training: Training | None = None
    assumed: AssumedCosts | None = None  # in place of a profile
    unmeasured_shapes: UnmeasuredShapes | None = None  # None: interpolate
    recompute_layers: tuple[tuple[str, str], ...] = ()  # names or patterns with policies of theirs
    contract: Contract = field(default_factory=Contract)
    memory: MemorySettings = field(default_factory=MemorySettings)
    moe: MoeSettings | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """One rank, its coordinates by dimension, and its device (None without a topology)."""

    rank: int
    coordinates: tuple[tuple[Dimension, int], ...]
    device: str | None

    def at(self, dimension: Dimension) -> int:
        """The coordinate in one dimension."""
        return dict(self.coordinates)[dimension]


@dataclass(frozen=True, slots=True)
class ResolvedStage:
    """The cost of one microbatch on one stage, in whole picoseconds; see `ResolvedPlan.sizes`.

    `ranks` are the pipeline ranks it lives on, one for each direction of the schedule. The halves
    of the backward are None where they are not known apart, `pair_picoseconds` where a pair with
    the stage's forward takes as long as its two operations. `recomputed_bytes` are what its
    recomputation makes beside the activation bytes it kept, 0 where it has none and None where
    nobody knows. `provenance` is the weakest of its layers'; `sources` is None where the plan gives
    the costs itself. `layer_gradient_picoseconds` is what each layer takes of the operation that
    gives the gradients of weights, None where that is not known of every layer. `logits` are those
    that were computed, whose `kept` the activation bytes contain; `activations_assumed` counts the
    layers whose activations nobody measured.
    """

    stage: int
    ranks: tuple[int, ...]
    layers: tuple[str, ...]
    forward_picoseconds: Amount
    backward_picoseconds: Amount  # 0 where the schedule has no backward
    backward_input_picoseconds: Amount | None
    backward_weight_picoseconds: Amount | None
    recompute_picoseconds: Amount
    pair_picoseconds: Amount | None
    activation_bytes: Amount | None
    activation_deltas: ActivationChange | None
    recomputed_bytes: Amount | None
    provenance: Provenance
    sources: CostSources | None = None
    layer_gradient_picoseconds: tuple[Amount, ...] | None = None
    logits: StageLogits | None = None
    activations_assumed: int = 0

    @property
    def rank(self) -> int:
        """The pipeline rank in the first direction."""
        return self.ranks[0]


@dataclass(frozen=True, slots=True)
class RankPair:
    """Two ranks that exchange a boundary's payload, and the pinned paths there and back.

    Picoseconds as in `Boundary`; None where neither the plan nor bytes on a path give them.
    """

    source_rank: int
    target_rank: int
    source_device: str | None
    target_device: str | None
    forward_path: PhysicalPath | None
    backward_path: PhysicalPath | None
    forward_picoseconds: Amount | None
    backward_picoseconds: Amount | None
    forward_bound_picoseconds: Amount | None
    backward_bound_picoseconds: Amount | None


@dataclass(frozen=True, slots=True)
class Boundary:
    """Stage `source` hands its tensors to `target`. Times are of the slowest rank pair.

    Where stages live on several ranks there is one for each direction. `LOCAL` ones have no pairs.
    `returns` says whether a gradient goes back: not where the schedule has no backward, and not
    where none of the tensors needs one.

    `*_picoseconds` is the predicted transfer of one microbatch, `*_bound_picoseconds` what it
    takes at least (at most the prediction).
    """

    source: int
    target: int
    direction: int
    tensors: tuple[CrossingTensor, ...] | None
    forward_bytes: Amount | None
    backward_bytes: Amount | None
    returns: bool
    origin: TransferOrigin
    forward_picoseconds: Amount
    backward_picoseconds: Amount
    forward_bound_picoseconds: Amount
    backward_bound_picoseconds: Amount
    pairs: tuple[RankPair, ...]

    @property
    def edge(self) -> StageEdge:
        """What it is to a schedule."""
        return StageEdge(self.source, self.target, self.direction, self.returns)


@dataclass(frozen=True, slots=True)
class PlanFlops:
    """Floating-point operations of one iteration on all ranks: what the model needs, and with what
    is computed again.

    A recomputation is a forward again of a layer under `full`, and its attention products under
    `selective`. `from_parameters` counts layers without dimensions.
    """

    model: int
    hardware: int
    from_parameters: int


@dataclass(frozen=True, slots=True)
class ResolvedPlan:
    """A plan with every number it needs, and what was assumed or left out on the way.

    `sizes` says which microbatches are alike; an amount of a stage or boundary is one number for
    all of them, or one for each of its classes. `memory_bytes` is the memory of the smallest device
    of each pipeline rank, None where no device of it has a known one. `weights` says what each
    stage holds, None where the plan states its costs itself; `loads` has those of the pipeline
    ranks by the partition's load rule, None without one. `flops` is None where `weights` are, and
    where nobody says how many tokens there are. `model` and `cluster` are what the plan names, if
    it names them; `moe` what its experts do, which is in the times of the stages.
    """

    plan: Plan
    transfer_mode: TransferMode
    sizes: SizeClasses
    stages: tuple[ResolvedStage, ...]
    boundaries: tuple[Boundary, ...]
    weights: tuple[StageWeights, ...] | None
    rank_weights: tuple[RankWeights | None, ...]
    tied_copies: tuple[TiedCopies, ...]
    loads: tuple[DeviceLoad, ...] | None
    placement: tuple[Placed, ...]
    model: Model | None
    cluster: Cluster | None
    memory_bytes: tuple[int | None, ...]
    microbatch_size: int | None
    global_batch_size: int | None
    held_fixed: str | None  # "microbatch_size" or "global_batch_size"
    sequence_length: Amount | None
    flops: PlanFlops | None
    assumptions: tuple[Statement, ...]
    not_represented: tuple[Statement, ...]
    moe: PlanMoe | None = None
