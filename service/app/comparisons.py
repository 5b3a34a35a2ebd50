"""Plans set against the first of them: read, held to one contract, simulated, compared.

Stores nothing. Pointers of faults are into the request, under the plan they belong to.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from service.app.apart import run_apart, written_size
from service.app.patching import locate, located
from service.app.ports import DocumentKind
from service.app.pricing import (
    Pinned,
    PlanDecoder,
    PlanQuestion,
    Prepared,
    Priced,
    pin,
    price,
    understand,
)
from service.app.services import Services
from service.app.workloads import NamedWorkload, check_names, placed_faults, under_workloads
from service.core.errors import Fault, FaultCode, InvalidInput, UnlikePlans, WorkBudgetExceeded
from service.core.estimates.attribution import Attribution, mixed
from service.core.estimates.comparison import (
    ComparedTerms,
    Comparison,
    check_comparison,
    compare_terms,
    compared_terms,
)
from service.core.estimates.simulation import late_work
from service.core.estimates.work import BATCH_WORK_BUDGET
from service.core.estimates.workloads import WeighedEstimate, WorkloadMix, mix_of
from service.core.plans.likeness import (
    ContractField,
    ContractTerm,
    Likeness,
    agree,
    contract_terms,
    likeness,
)
from service.formats.documents import plan as plans
from service.formats.documents.plan import PlanDocument

__all__ = [
    "Compared",
    "ComparedCase",
    "ComparedMix",
    "ComparedPlan",
    "ComparisonQuestion",
    "NamedQuestion",
    "compare",
]


@dataclass(frozen=True, slots=True)
class NamedQuestion:
    """A plan that is compared, and what the answer calls it."""

    name: str
    question: PlanQuestion


@dataclass(frozen=True, slots=True, eq=False)
class ComparedPlan:
    """A priced plan with its contract."""

    name: str
    priced: Priced
    contract: dict[ContractField, ContractTerm]
    terms: ComparedTerms


@dataclass(frozen=True, slots=True, eq=False)
class ComparedCase:
    """All plans under one workload (None: each under its own), each later one against the first."""

    workload: NamedWorkload | None
    plans: Sequence[ComparedPlan]
    likeness: Likeness
    comparisons: Sequence[Comparison]


@dataclass(frozen=True, slots=True, eq=False)
class ComparedMix:
    """All workloads by their shares: of each plan, and of each later one against the first."""

    plans: Sequence[WorkloadMix]
    attributions: Sequence[Attribution | None]


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Every case, and their mix; None where no workloads are asked for."""

    cases: Sequence[ComparedCase]
    mix: ComparedMix | None


@dataclass(frozen=True, slots=True)
class ComparisonQuestion:
    """Plans to compare with the first of them, each under all workloads, or under its own."""

    plans: Sequence[NamedQuestion]
    workloads: Sequence[NamedWorkload]
    allowed: Collection[ContractField]


async def compare(
    services: Services,
    question: ComparisonQuestion,
    decode_at: Callable[..., PlanDecoder],
    render: Callable[[Compared], bytes],
) -> bytes:
    """The answer that `render` makes of the comparison; it runs on the executor, as pricing does.

    `decode_at` reads a plan whose patch stands at a place in the request. Raises `InvalidInput`
    with the faults of all plans, `WorkBudgetExceeded` before anything is simulated, and
    `UnlikePlans` where contracts differ in a field that is not allowed.
    """
    check_names("plan", [one.name for one in question.plans])
    prepared = await _prepare_all(services, question, decode_at)
    with services.observer.span("price"):
        judged = await _judge_all(services, question, prepared)
        return await services.executor.run(lambda: render(_compared(question, judged)))


async def _prepare_all(
    services: Services, question: ComparisonQuestion, decode_at: Callable[..., PlanDecoder]
) -> list[list[Prepared]]:
    """For each plan, one for each workload."""
    if question.workloads:
        return await _prepare_under_workloads(services, question, decode_at)
    pinned: list[Pinned] = []
    collected = _Collected()
    for place, one in enumerate(question.plans):
        with collected.at(place, one.name):
            pinned.append(await pin(services, one.question, decode_at("plans", place, "patch")))
    collected.raise_faults()
    await _hold_work(services, [[one.document for one in pinned]])
    return [[await understand(services, one)] for one in pinned]


async def _prepare_under_workloads(
    services: Services, question: ComparisonQuestion, decode_at: Callable[..., PlanDecoder]
) -> list[list[Prepared]]:
    prepared: list[list[Prepared]] = []
    collected = _Collected()
    for place, one in enumerate(question.plans):
        with collected.at(place, one.name):
            prepared.append(
                await under_workloads(
                    services,
                    one.question,
                    question.workloads,
                    decode_at("plans", place, "patch"),
                    lambda workload: decode_at("workloads", workload),
                )
            )
    collected.raise_faults()
    by_case = zip(*prepared, strict=True)
    await _hold_work(services, [[one.pinned.document for one in case] for case in by_case])
    return prepared


async def _hold_work(services: Services, cases: Sequence[Sequence[PlanDocument]]) -> None:
    size = sum(written_size(document) for case in cases for document in case)
    services.holder.hold_work(await run_apart(size, _work, cases))


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """A priced plan and the terms that are compared."""

    priced: Priced
    terms: ComparedTerms


async def _judge_all(
    services: Services, question: ComparisonQuestion, prepared: Sequence[Sequence[Prepared]]
) -> list[list[_Judged]]:
    judged: list[list[_Judged]] = []
    late = 0
    collected = _Collected()
    for place, (asked, of_plan) in enumerate(zip(question.plans, prepared, strict=True)):
        judged.append([])
        for case, one in enumerate(of_plan):
            with collected.at(place, asked.name), _spoken_by(question.workloads, case):
                found = await services.executor.run(_judge, one)
                late += late_work(found.priced.simulated)
                _check_late(late)
                judged[-1].append(found)
    collected.raise_faults()
    return judged


def _judge(prepared: Prepared) -> _Judged:
    priced = price(prepared)
    question = prepared.pinned.question
    with locate(question.plan, question.patch, prepared.plan):
        return _Judged(priced, compared_terms(priced.simulated))


@contextmanager
def _spoken_by(workloads: Sequence[NamedWorkload], case: int) -> Iterator[None]:
    """Let faults of what a workload speaks of point to it."""
    try:
        yield
    except InvalidInput as error:
        if not workloads:
            raise
        raise type(error)(placed_faults(error.faults, case, workloads[case])) from error


class _Collected:
    """The faults of all plans, each under its place in the request."""

    def __init__(self) -> None:
        self._errors: list[InvalidInput] = []
        self._faults: list[Fault] = []

    @contextmanager
    def at(self, place: int, name: str) -> Iterator[None]:
        """Keep what is wrong with one plan; what a workload makes wrong points there already."""
        try:
            yield
        except InvalidInput as error:
            self._errors.append(error)
            self._faults += [
                Fault(fault.code, fault.path, f"plan {name!r}: {fault.detail}")
                if fault.path[:1] == ("workloads",)
                else fault.under("plans", place)
                for fault in error.faults
            ]

    def raise_faults(self) -> None:
        """Raise them together; as too much work where that is all that is wrong."""
        if not self._errors:
            return
        too_much = all(isinstance(error, WorkBudgetExceeded) for error in self._errors)
        raise (WorkBudgetExceeded if too_much else InvalidInput)(self._faults)


def _work(cases: Sequence[Sequence[PlanDocument]]) -> int:
    return check_comparison([[plans.to_core(document) for document in case] for case in cases])


def _check_late(late: int) -> None:
    """Known only once it is known who uses which link, and what experts are asked."""
    if late > BATCH_WORK_BUDGET:
        detail = (
            "turns of messages on links and runs of experts of these plans are more work than one "
            "request may take: compare fewer at a time, or in latency mode"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("plan",), detail)])


def _compared(question: ComparisonQuestion, judged: Sequence[Sequence[_Judged]]) -> Compared:
    by_case = list(zip(*judged, strict=True))
    contracts = [[_contract(one.priced) for one in case] for case in by_case]
    found = [likeness(case) for case in contracts]
    _refuse_unlike(question, contracts, found)
    names = [one.name for one in question.plans]
    cases = []
    for place, case in enumerate(by_case):
        first, *later = compared = [
            ComparedPlan(name, one.priced, contract, one.terms)
            for name, one, contract in zip(names, case, contracts[place], strict=True)
        ]
        cases.append(
            ComparedCase(
                question.workloads[place] if question.workloads else None,
                compared,
                found[place],
                [compare_terms(first.terms, other.terms) for other in later],
            )
        )
    return Compared(cases, _mix(cases) if question.workloads else None)


def _mix(cases: Sequence[ComparedCase]) -> ComparedMix:
    weights = [case.workload.weight for case in cases if case.workload is not None]
    mixes = [
        mix_of(
            [
                WeighedEstimate(weight, plan.terms)
                for weight, plan in zip(weights, of_plan, strict=True)
            ]
        )
        for of_plan in zip(*(case.plans for case in cases), strict=True)
    ]
    shares = mixes[0].weight_fractions
    return ComparedMix(
        mixes,
        [
            mixed(shares, [one.attribution for one in of_plan])
            for of_plan in zip(*(case.comparisons for case in cases), strict=True)
        ],
    )


def _contract(priced: Priced) -> dict[ContractField, ContractTerm]:
    prepared = priced.prepared
    precision = None if prepared.profile is None else prepared.profile.precision
    digests = {pin.kind: pin.digest for pin in prepared.pinned.pins}
    return contract_terms(
        priced.resolved,
        model=prepared.model,
        precision=precision,
        routing_digest=digests.get(DocumentKind.ROUTING),
    )


def _refuse_unlike(
    question: ComparisonQuestion,
    contracts: Sequence[Sequence[dict[ContractField, ContractTerm]]],
    found: Sequence[Likeness],
) -> None:
    """Raise `UnlikePlans` with a fault for each field and later plan that differs in it.

    What differs in the same way under all workloads is told once.
    """
    cases_of: dict[Fault, list[int]] = {}
    for case, (terms, alike) in enumerate(zip(contracts, found, strict=True)):
        for field in alike.unlike:
            if field in question.allowed:
                continue
            for place in range(1, len(terms)):
                for fault in _unlike_faults(question.plans, terms, field, place):
                    cases_of.setdefault(fault, []).append(case)
    if not cases_of:
        return
    raise UnlikePlans(
        fault
        if len(cases) == len(contracts)
        else Fault(fault.code, fault.path, f"{_under(question, cases)}: {fault.detail}")
        for fault, cases in cases_of.items()
    )


def _under(question: ComparisonQuestion, cases: Sequence[int]) -> str:
    names = ", ".join(repr(question.workloads[case].name) for case in cases)
    return f"under workload{'s' * (len(cases) > 1)} {names}"


def _unlike_faults(
    asked: Sequence[NamedQuestion],
    contracts: Sequence[dict[ContractField, ContractTerm]],
    field: ContractField,
    place: int,
) -> list[Fault]:
    expected, found = contracts[0].get(field), contracts[place].get(field)
    if agree(expected, found):
        return []
    own = asked[place]
    detail = (
        f"{field.value} is {_said(expected)} for {asked[0].name!r} and {_said(found)} for "
        f"{own.name!r}: make them equal, or name {field.value} in allow_unlike"
    )
    fault = Fault(FaultCode.UNLIKE, () if found is None else found.path, detail)
    where = located(InvalidInput([fault]), own.question.plan, own.question.patch)
    return [one.under("plans", place) for one in where.faults]


def _said(term: ContractTerm | None) -> str:
    return "not said" if term is None else term.text
