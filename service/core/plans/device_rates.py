"""What the devices of each stage compute and move, as a plan or the topology states it."""

from collections import Counter
from collections.abc import Sequence

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.models.dtypes import DType
from service.core.models.graph import Model
from service.core.plans.plan import Plan
from service.core.topology.cluster import Cluster

__all__ = ["slowest_rates", "stated_dtype"]


def stated_dtype(plan: Plan, model: Model | None) -> DType | None:
    """In which type a plan computes: as it says; else that of the most weights. None if unknown."""
    stated = None if plan.assumed is None else plan.assumed.compute_dtype
    if stated is None and plan.training is not None:
        stated = plan.training.weight_dtype
    if stated is not None or model is None:
        return stated
    counts: Counter[DType] = Counter()
    for weight in model.weights:
        counts[weight.dtype] += weight.count
    if not counts:
        return None
    return max(counts, key=lambda dtype: (counts[dtype], dtype.value))


def slowest_rates(
    dtype: DType,
    stages: int,
    devices: Sequence[Sequence[str]] | None,
    cluster: Cluster | None,
    *,
    peak_flops: float | None,
    memory_bytes_per_second: float | None,
    path: Path,
) -> list[tuple[float, float]]:
    """FLOP/s in a type, and bytes of memory per second, of the slowest device of each stage.

    `devices` has those of each stage, None without a topology. What is given goes before what
    devices say. Raises `InvalidInput` with each of the two that nobody gives, at its name below
    `path`.
    """
    stated = {"peak_flops": peak_flops, "memory_bytes_per_second": memory_bytes_per_second}
    silent: dict[str, list[str]] = {name: [] for name in stated}

    def slowest(field: str, stage: int) -> float:
        given = stated[field]
        if given is not None:
            return given
        found = []
        for name in dict.fromkeys(devices[stage]) if devices is not None else ():
            vertex = None if cluster is None else cluster.vertices[name]
            rate = None
            if vertex is not None:
                peak = vertex.peak_flops.get(dtype.value)
                rate = peak if field == "peak_flops" else vertex.memory_bytes_per_second
            if rate is None:
                silent[field].append(name)
            else:
                found.append(rate)
        return min(found, default=0.0)

    rates = [
        (slowest("peak_flops", stage), slowest("memory_bytes_per_second", stage))
        for stage in range(stages)
    ]
    faults = []
    for field, names in silent.items():
        what = f"a peak for {dtype.value}" if field == "peak_flops" else "its memory bandwidth"
        if devices is None and stated[field] is None:
            detail = f"without a topology no device says {what}: give it here, or name a topology"
        elif names:
            others = len(set(names)) - 1
            more = f" (and {others} more devices)" if others > 0 else ""
            detail = f"device {names[0]!r}{more} of the topology does not say {what}: give it here"
        else:
            continue
        faults.append(Fault(FaultCode.MISSING_FIELD, (*path, field), detail))
    if faults:
        raise InvalidInput(faults)
    return rates
