"""What an iteration costs and makes of its devices: tokens, device-hours, utilisation.

Model FLOPs utilisation is what the model's arithmetic needs in an iteration over what all devices
could do meanwhile at their peak (Chowdhery et al., PaLM, 2022, appendix B); hardware FLOPs count
what is computed again too.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from service.core.estimates.simulation import SimulatedPlan
from service.core.models.dtypes import DType
from service.core.plans import iteration_statements as said
from service.core.plans.plan import PlanFlops, ResolvedPlan, Statement
from service.core.plans.schedule import has_backward
from service.core.units import PICOSECONDS_PER_SECOND

__all__ = ["Efficiency", "TrainingRun", "iteration_tokens", "plan_efficiency"]

# A forward takes two operations for each weight and token, and a backward twice that.
_FORWARD_FLOPS, _BACKWARD_FLOPS = 2, 4


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """All iterations that the plan's tokens take, at the predicted time of one."""

    tokens: int
    iterations: int
    seconds: float
    device_seconds: float


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Of one iteration; what is None is not known. Seconds are predictions.

    `peak_flops` is what all devices of the plan do in a second at most with numbers of
    `compute_dtype`. `run` is None where the plan does not say how many tokens it trains on.
    """

    devices: int
    device_seconds: float | None
    tokens_per_second_per_device: float | None
    flops: PlanFlops | None
    compute_dtype: DType | None
    peak_flops: float | None
    run: TrainingRun | None
    assumptions: tuple[Statement, ...]
    not_represented: tuple[Statement, ...]

    def utilisation(self, flops: int) -> float | None:
        """The share of the peak that so many operations in an iteration are."""
        if self.peak_flops is None or not self.device_seconds:
            return None
        return flops / (self.peak_flops * self.device_seconds / self.devices)


def plan_efficiency(simulated: SimulatedPlan, iteration: Fraction | None) -> Efficiency:
    """Of a plan whose iteration takes so many picoseconds; None where nobody knows it."""
    resolved = simulated.resolved
    devices = resolved.plan.degrees.world_size
    tokens = iteration_tokens(resolved)
    seconds = None if iteration is None else iteration / PICOSECONDS_PER_SECOND
    flops, assumed = _flops(resolved, tokens)
    dtype = _compute_dtype(resolved)
    peak = None if dtype is None else _peak(resolved, dtype)
    missing = [
        what
        for what, known in (
            ("the tokens of an iteration, or what the layers are made of", flops),
            ("the type that layers compute with", dtype),
            ("the peak of every device with that type", peak),
            ("the time of an iteration", seconds),
        )
        if known is None
    ]
    per_device = None
    if tokens is not None and seconds:
        per_device = float(tokens / seconds / devices)
    found = Efficiency(
        devices=devices,
        device_seconds=None if seconds is None else float(seconds * devices),
        tokens_per_second_per_device=per_device,
        flops=flops,
        compute_dtype=dtype,
        peak_flops=peak,
        run=_run(resolved, tokens, seconds),
        assumptions=() if missing else assumed,
        not_represented=(said.utilisation_unknown(missing),) if missing else (),
    )
    used = None if flops is None else found.utilisation(flops.hardware)
    if used is not None and used > 1:
        found = replace(found, assumptions=(*found.assumptions, said.ABOVE_PEAK))
    return found


def iteration_tokens(resolved: ResolvedPlan) -> Fraction | None:
    """The tokens of one iteration over all replicas; None where they are not known."""
    if resolved.global_batch_size is None or resolved.sequence_length is None:
        return None
    # Every microbatch has as many samples, so a sample has the mean length of the microbatches.
    return resolved.global_batch_size * resolved.sizes.spread(resolved.sequence_length).mean


def _flops(
    resolved: ResolvedPlan, tokens: Fraction | None
) -> tuple[PlanFlops | None, tuple[Statement, ...]]:
    """From the model; of stages that state their parameters two for each and token, thrice."""
    if resolved.flops is not None:
        layers = resolved.flops.from_parameters
        return resolved.flops, (said.flops_from_parameters(layers, "layer"),) if layers else ()
    stages = resolved.plan.stages or ()
    counts = [stage.parameter_count for stage in stages]
    known = [count for count in counts if count is not None]
    of_experts = any(stage.expert_parameter_count for stage in stages)
    if tokens is None or of_experts or not sum(known) or len(known) < len(counts):
        return None, ()
    each = _FORWARD_FLOPS + (_BACKWARD_FLOPS if has_backward(resolved.plan) else 0)
    needed = int(each * sum(known) * tokens)
    again = sum(
        count
        for count, stage in zip(known, resolved.stages, strict=True)
        if stage.recompute_picoseconds
    )
    flops = PlanFlops(needed, needed + int(_FORWARD_FLOPS * again * tokens), len(known))
    return flops, (said.flops_from_parameters(len(known), "stage"),)


def _compute_dtype(resolved: ResolvedPlan) -> DType | None:
    """What the plan says, else the type that all weights of the model have."""
    training = resolved.plan.training
    if training is not None and training.weight_dtype is not None:
        return training.weight_dtype
    if resolved.model is None:
        return None
    found = {one.dtype for layer in resolved.model.layers for one in layer.parameters}
    return found.pop() if len(found) == 1 else None


def _peak(resolved: ResolvedPlan, dtype: DType) -> float | None:
    """Of all devices together; None where that of any is unknown."""
    if resolved.cluster is None:
        return None
    peaks = []
    for placed in resolved.placement:
        device = None if placed.device is None else resolved.cluster.vertices[placed.device]
        peak = None if device is None else device.peak_flops.get(dtype.value)
        if not peak:
            return None
        peaks.append(peak)
    return sum(peaks)


def _run(
    resolved: ResolvedPlan, tokens: Fraction | None, seconds: Fraction | None
) -> TrainingRun | None:
    training = resolved.plan.training
    if training is None or training.tokens is None or not tokens or seconds is None:
        return None
    iterations = -(-training.tokens // tokens)
    lasts = iterations * seconds
    devices = resolved.plan.degrees.world_size
    return TrainingRun(training.tokens, int(iterations), float(lasts), float(lasts * devices))
