"""What costs of layers are worked out from, and what their sums rest on."""

from dataclasses import dataclass

from service.core.amounts import Amount
from service.core.models.dtypes import DType
from service.core.profiles.measurement import Communication
from service.core.profiles.provenance import Provenance

__all__ = ["AssumedCosts", "CostSources"]


@dataclass(frozen=True, slots=True)
class AssumedCosts:
    """Rates that costs of layers are worked out from; None: what the devices say, and defaults.

    Efficiencies are fractions of the peak and of the memory bandwidth that a device sustains.
    """

    compute_efficiency: float | None = None
    memory_efficiency: float | None = None
    peak_flops: float | None = None  # per second
    memory_bytes_per_second: float | None = None
    compute_dtype: DType | None = None  # None: that of the weights


@dataclass(frozen=True, slots=True)
class CostSources:
    """What the costs of a stage that were summed over its layers rest on.

    `layers` has how many layers got their costs in which way. The deviations are of one run over
    the mean, None where a layer's is unknown: at most that of all layers deviating together, and
    that of layers deviating each by itself; the largest over the size classes. `relative_error` is
    by how much of it the work may be off for costs that were interpolated, None where nobody knows.
    `samples` is the
    least number of runs behind any of its layers, None where one does not say.
    `communication` is what of the tensor-parallel collectives is in the times, and what is hidden.
    """

    layers: tuple[tuple[Provenance, int], ...]
    communication: Communication
    relative_deviation_at_most: float | None
    relative_deviation_if_independent: float | None
    relative_error: float | None
    samples: int | None
    workspace_bytes: Amount | None
