"""What devices sustain in products of experts, and what is said of that."""

from collections.abc import Sequence
from math import inf

from service.core.errors import Statement
from service.core.models.dtypes import DType
from service.core.models.graph import Model
from service.core.moe.settings import MoeSettings
from service.core.plans.cost_sources import AssumedCosts
from service.core.plans.device_rates import slowest_rates, stated_dtype
from service.core.plans.plan import Plan
from service.core.profiles.roofline import COMPUTE_EFFICIENCY, MEMORY_EFFICIENCY, Roofline
from service.core.topology.cluster import Cluster

__all__ = ["nominal_rates", "product_dtype", "products_assumed", "stage_rates"]


def product_dtype(plan: Plan, model: Model | None) -> DType:
    """In which type experts compute; bf16 where nobody says."""
    return stated_dtype(plan, model) or DType.BF16


def nominal_rates(
    plan: Plan,
    settings: MoeSettings,
    model: Model | None,
    stages: int,
    devices: Sequence[Sequence[str]] | None,
    cluster: Cluster | None,
) -> tuple[Roofline, ...]:
    """What the slowest device of each stage gives at most; `devices` None without a topology.

    Raises `InvalidInput` with each rate that nobody gives.
    """
    compute, assumed = settings.compute, plan.assumed or AssumedCosts()
    rates = slowest_rates(
        product_dtype(plan, model),
        stages,
        devices,
        cluster,
        # By a curve nobody asks for a peak.
        peak_flops=inf if compute.curve else compute.peak_flops or assumed.peak_flops,
        memory_bytes_per_second=compute.memory_bytes_per_second or assumed.memory_bytes_per_second,
        path=("moe", "compute"),
    )
    return tuple(Roofline(flops, moved) for flops, moved in rates)


def stage_rates(
    plan: Plan,
    settings: MoeSettings,
    model: Model | None,
    stages: int,
    devices: Sequence[Sequence[str]] | None,
    cluster: Cluster | None,
) -> tuple[Roofline, ...]:
    """What they sustain; as `nominal_rates`."""
    of_peak, of_memory = _efficiencies(plan, settings)
    return tuple(
        Roofline(rate.flops_per_second * of_peak, rate.bytes_per_second * of_memory)
        for rate in nominal_rates(plan, settings, model, stages, devices, cluster)
    )


def _efficiencies(plan: Plan, settings: MoeSettings) -> tuple[float, float]:
    """Of the peak and of the memory bandwidth: the plan's of experts, else of layers, else ours."""
    compute, assumed = settings.compute, plan.assumed or AssumedCosts()
    return (
        compute.compute_efficiency or assumed.compute_efficiency or COMPUTE_EFFICIENCY,
        compute.memory_efficiency or assumed.memory_efficiency or MEMORY_EFFICIENCY,
    )


def products_assumed(
    plan: Plan, settings: MoeSettings, model: Model | None, *, extrapolated: bool
) -> tuple[Statement, ...]:
    """What was taken for granted of the products; `extrapolated` beyond the curve's points."""
    compute = settings.compute
    of_peak, of_memory = _efficiencies(plan, settings)
    tiles = f"rows rounded up to multiples of {compute.tile_rows}"
    if compute.curve:
        detail = (
            f"products of experts take what the plan's curve of {len(compute.curve)} points says "
            f"of each expert's rows, {tiles}, on straight lines between them"
        )
    else:
        detail = (
            f"products of experts take the longer of their FLOPs over {of_peak:.3g} of the peak "
            f"for {product_dtype(plan, model).value} and of reading each expert's weights over "
            f"{of_memory:.3g} of the memory bandwidth, {tiles}"
        )
    detail += (
        f"; a backward takes {compute.backward_ratio:g} times as long, half of it for the "
        f"gradients of weights; packing tokens moves their bytes at {of_memory:.3g} of the memory "
        "bandwidth"
    )
    said = [Statement("expert_products", detail)]
    if extrapolated:
        detail = (
            "some experts have fewer rows than the first point of the curve, and take as long, or "
            "more than the last, and go on along its last slope"
        )
        said.append(Statement("expert_curve_extrapolated", detail))
    return tuple(said)
