"""How a plan runs its experts: what it states beside the routing itself."""

from dataclasses import dataclass, field
from enum import StrEnum

from service.core.models.dtypes import DType
from service.core.moe.overflow import Capacity, OverflowPolicy
from service.core.moe.skews import Skew

__all__ = [
    "Deduplication",
    "Dispatcher",
    "ExpertCompute",
    "ExpertShape",
    "LayerCostsInclude",
    "MoeSettings",
    "Overlap",
    "Payload",
    "Payloads",
    "ReplicaSplitting",
    "RowsSeconds",
]


class Dispatcher(StrEnum):
    """How tokens get to their experts."""

    ALL_TO_ALL = "all_to_all"
    ALL_GATHER = "all_gather"  # every rank gets all tokens of the group


class Deduplication(StrEnum):
    """Of how many of a token's experts one copy is sent."""

    NONE = "none"  # one for each expert
    RANK = "rank"  # one for each rank that has any of them
    NODE = "node"  # one for each host, to the rank of like place, which passes it on inside


class ReplicaSplitting(StrEnum):
    """Which replica of an expert serves whom."""

    EVEN = "even"  # each source divides its tokens over all, as evenly as they go
    BY_SOURCE = "by_source"  # source r goes to replica r modulo their number
    LOCAL_FIRST = "local_first"  # the source's own rank, else its own host, else all evenly


class LayerCostsInclude(StrEnum):
    """What of a layer with experts is in the costs that the plan, profile or assumption gives."""

    NOTHING = "nothing"  # neither the experts' products nor their exchanges
    EXPERTS = "experts"  # the products, of tokens that choose evenly
    EXPERTS_AND_EXCHANGE = "experts_and_exchange"  # and the exchanges, of the same tokens


@dataclass(frozen=True, slots=True)
class Payload:
    """What one copy of a token weighs: hidden size x bytes of `dtype`, `scale_bytes` for each block
    of `scale_block` elements (none where that is None), and `metadata_bytes` (token and expert
    numbers, weights).
    """

    dtype: DType = DType.BF16
    scale_block: int | None = None
    scale_bytes: int = 4
    metadata_bytes: int = 0

    def bytes_of(self, hidden_size: int) -> int:
        """Of one copy."""
        scales = 0 if self.scale_block is None else -(-hidden_size // self.scale_block)
        whole = hidden_size * self.dtype.bytes_per_element
        return whole + scales * self.scale_bytes + self.metadata_bytes


@dataclass(frozen=True, slots=True)
class Payloads:
    """Those of each exchange. The gradient of a combine goes the way of a dispatch, and back."""

    forward_dispatch: Payload = Payload()
    forward_combine: Payload = Payload()
    backward_dispatch: Payload = Payload()
    backward_combine: Payload = Payload()


@dataclass(frozen=True, slots=True)
class RowsSeconds:
    """A measured point of a curve: the forward products of one expert's `rows` take `seconds`."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ExpertCompute:
    """What the products of experts take on one rank.

    By a measured `curve` over the rows of an expert, or from the device's rates where it is empty:
    then `compute_efficiency` and `memory_efficiency` are those of assumed costs. An expert's rows
    are rounded up to `tile_rows`, `launch_seconds` come once for each group of products, and for
    each packing. `backward_ratio` is a backward's time over a forward's.
    """

    curve: tuple[RowsSeconds, ...] = ()
    tile_rows: int = 128
    launch_seconds: float = 0.0
    backward_ratio: float = 2.0
    peak_flops: float | None = None
    memory_bytes_per_second: float | None = None
    compute_efficiency: float | None = None
    memory_efficiency: float | None = None


@dataclass(frozen=True, slots=True)
class Overlap:
    """Exchanges of one part run under the products of another, where there are several `chunks`.

    `compute_fraction_left` of the device is left to the products meanwhile. The shared expert, if
    there is one, runs under the dispatch where `shared_expert` says so.
    """

    chunks: int = 1
    compute_fraction_left: float = 1.0
    shared_expert: bool = False


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """Layers with experts of a plan without a model: how many each stage has, and what they are.

    `hidden_size` elements of a token go through each of its `top_k` experts, which are `width` wide
    and `gated` or not. `tokens_per_rank` are those of a microbatch on each rank, None where the
    workload says how many there are.
    """

    layers_per_stage: tuple[int, ...]
    hidden_size: int
    experts: int
    top_k: int
    width: int
    gated: bool = True
    tokens_per_rank: int | None = None


@dataclass(frozen=True, slots=True)
class MoeSettings:
    """As a plan states it; None stands for what the model says, or for a default told of each.

    The routing is a document (`routing`), or a named skew that the plan states; without both tokens
    choose evenly. `routing_layers` has the routing's layer of each expert layer in execution order;
    where it is None each takes the nearest one. `shape` stands in for a model in plans without one.
    `experts_by_rank` has the experts of each rank of an expert group, contiguous where it is None.
    `exchange_efficiency` divides what a prediction takes, never a bound. `rows_percentile` is that
    of received rows for which memory is held, 1 the most of any layer and microbatch. Routing
    weights multiply what experts give where `weights_after_experts` says so, and their outputs are
    kept for that; else they multiply what is inside an expert.
    """

    capacity: Capacity = field(default_factory=lambda: Capacity(OverflowPolicy.DROPLESS))
    routing: str | None = None
    skew: Skew | None = None
    routing_layers: tuple[int, ...] | None = None
    shape: ExpertShape | None = None
    experts_by_rank: tuple[tuple[int, ...], ...] | None = None
    replica_splitting: ReplicaSplitting = ReplicaSplitting.EVEN
    dispatcher: Dispatcher = Dispatcher.ALL_TO_ALL
    deduplication: Deduplication = Deduplication.NONE
    payloads: Payloads = Payloads()
    compute: ExpertCompute = ExpertCompute()
    layer_costs_include: LayerCostsInclude | None = None
    overlap: Overlap = Overlap()
    exchange_efficiency: float = 1.0
    fallback_seconds_per_row: float | None = None
    rows_percentile: float = 1.0
    weights_after_experts: bool = False
