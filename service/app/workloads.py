"""One plan under several workloads: patched, priced and weighed together.

Stores nothing. Pointers of faults are into the request: under the workload that speaks of them,
else under the plan or its patch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.app.apart import run_apart, written_size
from service.app.patching import apply_patch, touches
from service.app.pricing import PlanDecoder, PlanQuestion, Prepared, Priced, pin, price, understand
from service.app.services import Services
from service.core.errors import Fault, FaultCode, InvalidInput, Path, WorkBudgetExceeded
from service.core.estimates.estimate import Estimate, estimate_plans
from service.core.estimates.simulation import late_work
from service.core.estimates.work import BATCH_WORK_BUDGET, Work, check_batch, check_work
from service.core.estimates.workloads import WeighedEstimate, WorkloadMix, mix_of
from service.formats.documents import plan as plans
from service.formats.documents.plan import PlanDocument

__all__ = [
    "NamedWorkload",
    "Weighed",
    "WorkloadOutcome",
    "check_names",
    "judge",
    "placed_faults",
    "under_workloads",
]


@dataclass(frozen=True, slots=True)
class NamedWorkload:
    """A merge patch of a plan's `workload`, and how often it comes relative to the others."""

    name: str
    weight: float
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadOutcome:
    """The plan under one workload."""

    workload: NamedWorkload
    priced: Priced
    weighed: WeighedEstimate[Estimate]


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """All workloads in the order of the request, and their mix."""

    outcomes: Sequence[WorkloadOutcome]
    mix: WorkloadMix


async def judge(
    services: Services,
    question: PlanQuestion,
    workloads: Sequence[NamedWorkload],
    decode: PlanDecoder,
    decode_at: Callable[[int], PlanDecoder],
    render: Callable[[Weighed], bytes],
) -> bytes:
    """The answer that `render` makes; it runs on the executor, as pricing does.

    `decode` reads the plan with its patch, `decode_at` the plan under the workload at each place.
    Raises `InvalidInput` with the faults of all workloads, and `WorkBudgetExceeded` before anything
    is simulated.
    """
    prepared = await under_workloads(services, question, workloads, decode, decode_at)
    priced: list[Priced] = []
    faults: list[Fault] = []
    too_much = True
    late = 0
    with services.observer.span("price"):
        for place, one in enumerate(prepared):
            try:
                priced.append(await services.executor.run(price, one))
                late += late_work(priced[-1].simulated)
                _check_late(late, place)
            except InvalidInput as error:
                too_much = too_much and isinstance(error, WorkBudgetExceeded)
                faults += placed_faults(error.faults, place, workloads[place])
        if faults:
            raise (WorkBudgetExceeded if too_much else InvalidInput)(faults)
        return await services.executor.run(lambda: render(_weighed(workloads, priced)))


async def under_workloads(
    services: Services,
    question: PlanQuestion,
    workloads: Sequence[NamedWorkload],
    decode: PlanDecoder,
    decode_at: Callable[[int], PlanDecoder],
) -> list[Prepared]:
    """The plan prepared once for each workload, all within the budget of one request."""
    check_names("workload", [one.name for one in workloads])
    base = await pin(services, question, decode)
    size = written_size(base.document) * (1 + len(workloads))
    patched = await run_apart(size, _patched_all, base.document, workloads, decode_at)
    services.holder.hold_work(sum(work.total for _, work in patched))
    whole = await understand(services, base)
    return [
        replace(
            whole,
            pinned=replace(
                base,
                question=replace(
                    question,
                    patch=_united(question.patch or {}, {"workload": dict(workload.patch)}),
                ),
                document=document,
                work=work.total,
            ),
            plan=plans.to_core(document),
        )
        for workload, (document, work) in zip(workloads, patched, strict=True)
    ]


def check_names(noun: str, names: Sequence[str]) -> None:
    """Raise `InvalidInput` for each plan or workload of a request that is called as another is."""
    first: dict[str, int] = {}
    faults = []
    for place, name in enumerate(names):
        if first.setdefault(name, place) != place:
            detail = f"{noun} {first[name]} of the request is called {name!r} too"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, (f"{noun}s", place, "name"), detail))
    if faults:
        raise InvalidInput(faults)


def _patched_all(
    document: PlanDocument,
    workloads: Sequence[NamedWorkload],
    decode_at: Callable[[int], PlanDecoder],
) -> list[tuple[PlanDocument, Work]]:
    """The plan under each workload, and its work."""
    found: list[tuple[PlanDocument, Work]] = []
    faults: list[Fault] = []
    for place, workload in enumerate(workloads):
        try:
            patch = {"workload": dict(workload.patch)}
            patched = apply_patch(document, patch, decode_at(place))
        except InvalidInput as error:
            faults += placed_faults(error.faults, place, workload)
            continue
        try:
            found.append((patched, check_work(plans.to_core(patched))))
        except WorkBudgetExceeded as error:
            raise WorkBudgetExceeded(
                fault.under("workloads", place) for fault in error.faults
            ) from error
    if faults:
        raise InvalidInput(faults)
    check_batch((work for _, work in found), what="workloads")
    return found


def _check_late(late: int, place: int) -> None:
    if late > BATCH_WORK_BUDGET:
        detail = (
            "turns of messages on links and runs of experts, of the workloads up to this one, were "
            "more work than one request may take: send this one in another request, or use latency "
            "mode"
        )
        path: Path = ("workloads", place)
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, path, detail)])


def placed_faults(faults: Sequence[Fault], place: int, workload: NamedWorkload) -> list[Fault]:
    """Faults of a plan under one workload: those that its patch speaks of point there."""
    spoken = {"workload": dict(workload.patch)}
    placed = []
    for fault in faults:
        own = fault.path[:1] == ("patch",) and touches(spoken, fault.path[1:])
        path = ("workloads", place, *fault.path[1:]) if own else fault.path
        named = own or fault.path[:1] == ("workloads",)
        detail = fault.detail if named else f"under workload {workload.name!r}: {fault.detail}"
        placed.append(Fault(fault.code, path, detail))
    return placed


def _united(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What two patches speak of, one after the other."""
    united = dict(one)
    for name, value in other.items():
        before = united.get(name)
        both = isinstance(before, dict) and isinstance(value, dict)
        united[name] = _united(before, value) if both and before is not None else value
    return united


def _weighed(workloads: Sequence[NamedWorkload], priced: Sequence[Priced]) -> Weighed:
    weighed = []
    for place, (workload, estimate) in enumerate(
        zip(workloads, estimate_plans([one.simulated for one in priced]), strict=True)
    ):
        if isinstance(estimate, InvalidInput):
            raise InvalidInput(fault.under("workloads", place) for fault in estimate.faults)
        weighed.append(WeighedEstimate(workload.weight, estimate))
    outcomes = [WorkloadOutcome(*one) for one in zip(workloads, priced, weighed, strict=True)]
    return Weighed(outcomes, mix_of(weighed))
