"""Plans set against the first of them: read, held to one contract, simulated, compared.

Stores nothing. Pointers of faults are into the request, under the plan they belong to.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from service.app.apart import run_apart, written_size
from service.app.patching import located
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
from service.core.errors import Fault, FaultCode, InvalidInput, UnlikePlans, WorkBudgetExceeded
from service.core.estimates.comparison import (
    ComparedTerms,
    Comparison,
    check_comparison,
    compare_terms,
    compared_terms,
)
from service.core.estimates.simulation import turns_on_links
from service.core.estimates.work import BATCH_WORK_BUDGET
from service.core.plans.likeness import (
    ContractField,
    ContractTerm,
    Likeness,
    agree,
    contract_terms,
    likeness,
)
from service.formats.documents import plan as plans

__all__ = ["Compared", "ComparedPlan", "NamedQuestion", "compare"]


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
class Compared:
    """All plans in the order of the request, and each later one against the first."""

    plans: Sequence[ComparedPlan]
    likeness: Likeness
    comparisons: Sequence[Comparison]


async def compare(
    services: Services,
    questions: Sequence[NamedQuestion],
    allowed: Collection[ContractField],
    decode_at: Callable[[int], PlanDecoder],
    render: Callable[[Compared], bytes],
) -> bytes:
    """The answer that `render` makes of the comparison; it runs on the executor, as pricing does.

    `decode_at` reads the patched plan of each place, as for one plan. Raises `InvalidInput` with
    the faults of all plans, `WorkBudgetExceeded` before anything is simulated, and `UnlikePlans`
    where contracts differ in a field that is not `allowed`.
    """
    _check_names(questions)
    pinned = await _pin_all(services, questions, decode_at)
    documents = [one.document for one in pinned]
    work = await run_apart(sum(map(written_size, documents)), _work, documents)
    services.holder.hold_work(work)
    prepared = [await understand(services, one) for one in pinned]
    priced: list[Priced] = []
    turns = 0
    with services.observer.span("price"):
        outcomes = _Collected()
        for place, one in enumerate(prepared):
            with outcomes.at(place):
                priced.append(await services.executor.run(price, one))
                turns += turns_on_links(priced[-1].simulated)
                _check_turns(turns)
        outcomes.raise_faults()
        named = list(zip(questions, priced, strict=True))
        return await services.executor.run(lambda: render(_compared(named, allowed)))


def _check_names(questions: Sequence[NamedQuestion]) -> None:
    first: dict[str, int] = {}
    faults = []
    for place, one in enumerate(questions):
        if first.setdefault(one.name, place) != place:
            detail = f"plan {first[one.name]} of the request is called {one.name!r} too"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, ("plans", place, "name"), detail))
    if faults:
        raise InvalidInput(faults)


class _Collected:
    """The faults of all plans, each under its place in the request."""

    def __init__(self) -> None:
        self._errors: list[InvalidInput] = []
        self._faults: list[Fault] = []

    @contextmanager
    def at(self, place: int) -> Iterator[None]:
        """Keep what is wrong with one plan."""
        try:
            yield
        except InvalidInput as error:
            self._errors.append(error)
            self._faults += [fault.under("plans", place) for fault in error.faults]

    def raise_faults(self) -> None:
        """Raise them together; as too much work where that is all that is wrong."""
        if not self._errors:
            return
        too_much = all(isinstance(error, WorkBudgetExceeded) for error in self._errors)
        raise (WorkBudgetExceeded if too_much else InvalidInput)(self._faults)


async def _pin_all(
    services: Services,
    questions: Sequence[NamedQuestion],
    decode_at: Callable[[int], PlanDecoder],
) -> list[Pinned]:
    pinned: list[Pinned] = []
    outcomes = _Collected()
    for place, one in enumerate(questions):
        with outcomes.at(place):
            pinned.append(await pin(services, one.question, decode_at(place)))
    outcomes.raise_faults()
    return pinned


def _work(documents: Sequence[plans.PlanDocument]) -> int:
    return check_comparison([plans.to_core(document) for document in documents])


def _check_turns(turns: int) -> None:
    """Known only once it is known who uses which link."""
    if turns > BATCH_WORK_BUDGET:
        detail = (
            "messages of these plans take more turns on links than one request may take: compare "
            "fewer at a time, or in latency mode"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("plan",), detail)])


def _compared(
    named: Sequence[tuple[NamedQuestion, Priced]], allowed: Collection[ContractField]
) -> Compared:
    contracts = [_contract(priced.prepared, priced) for _, priced in named]
    found = likeness(contracts)
    _refuse_unlike(named, contracts, [field for field in found.unlike if field not in allowed])
    compared = [
        ComparedPlan(asked.name, priced, contract, compared_terms(priced.simulated))
        for (asked, priced), contract in zip(named, contracts, strict=True)
    ]
    first, *later = compared
    return Compared(compared, found, [compare_terms(first.terms, other.terms) for other in later])


def _contract(prepared: Prepared, priced: Priced) -> dict[ContractField, ContractTerm]:
    profile = prepared.profile
    precision = None if profile is None else profile.precision
    return contract_terms(priced.resolved, model=prepared.model, precision=precision)


def _refuse_unlike(
    named: Sequence[tuple[NamedQuestion, Priced]],
    contracts: Sequence[dict[ContractField, ContractTerm]],
    unlike: Sequence[ContractField],
) -> None:
    """Raise `UnlikePlans` with a fault for each field and later plan that differs in it."""
    first, first_terms = named[0][0], contracts[0]
    faults = []
    for field in unlike:
        expected = first_terms.get(field)
        for place in range(1, len(named)):
            asked, found = named[place][0], contracts[place].get(field)
            if agree(expected, found):
                continue
            detail = (
                f"{field.value} is {_said(expected)} for {first.name!r} and {_said(found)} for "
                f"{asked.name!r}: make them equal, or name {field.value} in allow_unlike"
            )
            path = () if found is None else found.path
            fault = Fault(FaultCode.UNLIKE, path, detail)
            question = asked.question
            placed = located(InvalidInput([fault]), question.plan, question.patch)
            faults += [one.under("plans", place) for one in placed.faults]
    if faults:
        raise UnlikePlans(faults)


def _said(term: ContractTerm | None) -> str:
    return "not said" if term is None else term.text
