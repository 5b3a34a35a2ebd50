"""What the options of a plan that does not fit would cost: each priced as a plan of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from service.app.patching import apply_patch
from service.app.pricing import PlanDecoder, Priced, resolve_prepared
from service.core.errors import InvalidInput
from service.core.estimates.cadence import plan_cadence
from service.core.estimates.iteration import plan_iteration
from service.core.estimates.memory import PlanMemory, plan_memory
from service.core.estimates.memory_options import MemoryOption, memory_options
from service.core.estimates.simulation import SimulatedPlan, simulate_plan
from service.core.estimates.work import check_work
from service.formats.documents import plan as plans

__all__ = ["PricedOption", "iteration_of", "price_options"]


@dataclass(frozen=True, slots=True, eq=False)
class PricedOption:
    """An option with its memory and its iteration in picoseconds, or with why it has none."""

    option: MemoryOption
    memory: PlanMemory | None
    iteration: Fraction | None
    why_not: str | None


def price_options(priced: Priced, memory: PlanMemory, decode: PlanDecoder) -> list[PricedOption]:
    """Every option of a plan that does not fit, each simulated once. Pure.

    An option that can't be priced is kept, with every reason.
    """
    options = memory_options(priced.resolved, memory)
    return [_priced(priced, option, decode) for option in options]


def iteration_of(simulated: SimulatedPlan) -> Fraction | None:
    """The predicted time of one iteration, in picoseconds."""
    return plan_iteration(simulated, plan_cadence(simulated)).picoseconds


def _priced(priced: Priced, option: MemoryOption, decode: PlanDecoder) -> PricedOption:
    if option.why_not is not None:
        return PricedOption(option, None, None, option.why_not)
    prepared = priced.prepared
    try:
        document = apply_patch(prepared.pinned.document, option.patch, decode)
        plan = plans.to_core(document)
        check_work(plan)
        simulated = simulate_plan(resolve_prepared(replace(prepared, plan=plan)))
        memory = plan_memory(simulated.resolved, simulated.timeline.program, simulated.timeline)
    except InvalidInput as refused:
        return PricedOption(option, None, None, _reasons([f.detail for f in refused.faults]))
    return PricedOption(option, memory, iteration_of(simulated), None)


def _reasons(details: Sequence[str]) -> str:
    more = f"; and {len(details) - 3} more" if len(details) > 3 else ""
    return "; ".join(details[:3]) + more
