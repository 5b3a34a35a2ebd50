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
    "LayerCostsInclude",
    "MoeSettings",
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
    are rounded up to `tile_rows`, `launch_seconds` come once for each group of products.
    `backward_ratio` is a backward's time over a forward's.
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
class MoeSettings:
    """As a plan states it; None stands for what the model says, or for a default told of each.

    The routing is a document (`routing`), or a named skew that the plan states; without both tokens
    choose evenly. `layers` has the routing's layer of each expert layer in execution order; where
    it is None each takes the nearest one. `layers_per_stage`, `hidden_size`, `experts`, `top_k`,
    `expert_width`, `gated` and `tokens_per_rank` stand in for a model in plans without one.
    `experts_by_rank` has the experts of each rank of an expert group, contiguous where it is None.
    `overlap_chunks` m > 1 runs exchanges of one part under the products of another; a
    `compute_fraction_left` of the device is left to the products meanwhile. `exchange_efficiency`
    divides what a prediction takes, never a bound. `rows_percentile` is that of received rows for
    which memory is held, 1 the most of any layer and microbatch.
    """

    capacity: Capacity = field(default_factory=lambda: Capacity(OverflowPolicy.DROPLESS))
    routing: str | None = None
    skew: Skew | None = None
    layers: tuple[int, ...] | None = None
    layers_per_stage: tuple[int, ...] | None = None
    hidden_size: int | None = None
    experts: int | None = None
    top_k: int | None = None
    expert_width: int | None = None
    gated: bool | None = None
    tokens_per_rank: int | None = None
    experts_by_rank: tuple[tuple[int, ...], ...] | None = None
    replica_splitting: ReplicaSplitting = ReplicaSplitting.EVEN
    dispatcher: Dispatcher = Dispatcher.ALL_TO_ALL
    deduplication: Deduplication = Deduplication.NONE
    payloads: Payloads = Payloads()
    compute: ExpertCompute = ExpertCompute()
    layer_costs_include: LayerCostsInclude | None = None
    overlap_chunks: int = 1
    compute_fraction_left: float = 1.0
    shared_expert_overlaps: bool = False
    exchange_efficiency: float = 1.0
    fallback_seconds_per_row: float | None = None
    rows_percentile: float = 1.0
