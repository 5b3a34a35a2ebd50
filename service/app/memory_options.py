"""What the options of a plan that does not fit would cost: each priced as a plan of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from service.app.patching import apply_patch
from service.app.pricing import PlanDecoder, Priced, resolve_prepared
from service.core.errors import InvalidInput
from service.core.estimates.iteration import plan_iteration
from service.core.estimates.memory import PlanMemory, plan_memory
from service.core.estimates.memory_options import MemoryOption, memory_options
from service.core.estimates.simulation import simulate_plan
from service.core.estimates.work import INLINE_WORK_BUDGET, check_work, work_of
from service.formats.documents import plan as plans

__all__ = ["PricedOption", "price_options"]

_TOO_MUCH = "too much to simulate in one request beside the others: ask for it alone, as a patch"


@dataclass(frozen=True, slots=True, eq=False)
class PricedOption:
    """An option with its memory and its iteration in picoseconds, or with why it has none."""

    option: MemoryOption
    memory: PlanMemory | None
    iteration: Fraction | None
    why_not: str | None


def price_options(priced: Priced, memory: PlanMemory, decode: PlanDecoder) -> list[PricedOption]:
    """Every option of a plan that does not fit, each simulated once. Pure.

    An option that can't be priced is kept, with every reason. All of them together are within what
    one request may ask for: those for which nothing is left of it say so.
    """
    left = INLINE_WORK_BUDGET - work_of(priced.prepared.plan).total
    found = []
    for option in memory_options(priced.resolved, memory):
        one, work = _priced(priced, option, decode, left)
        left -= work
        found.append(one)
    return found


def _priced(
    priced: Priced, option: MemoryOption, decode: PlanDecoder, budget: int
) -> tuple[PricedOption, int]:
    """The option, and the work that it took, in operation-runs."""
    if option.why_not is not None:
        return PricedOption(option, None, None, option.why_not), 0
    prepared = priced.prepared
    try:
        document = apply_patch(prepared.pinned.document, option.patch, decode)
        plan = plans.to_core(document)
        work = check_work(plan).total
        if work > budget:
            return PricedOption(option, None, None, _TOO_MUCH), 0
        simulated = simulate_plan(resolve_prepared(replace(prepared, plan=plan)))
        memory = plan_memory(simulated.resolved, simulated.timeline.program, simulated.timeline)
    except InvalidInput as refused:
        return PricedOption(option, None, None, _reasons([f.detail for f in refused.faults])), 0
    return PricedOption(option, memory, plan_iteration(simulated).picoseconds, None), work


def _reasons(details: Sequence[str]) -> str:
    more = f"; and {len(details) - 3} more" if len(details) > 3 else ""
    return "; ".join(details[:3]) + more
