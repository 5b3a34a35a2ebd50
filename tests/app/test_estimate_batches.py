"""Batches of estimates as a use case: what is computed once, what is stored, what is refused."""

import json
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from service.app import estimates
from service.app.estimate_batches import (
    MAX_DOCUMENTS,
    MAX_PLAN_BYTES,
    Outcomes,
    Refused,
    _chunks,
    create_many,
)
from service.app.estimates import EstimateOutcome, EstimateQuestion
from service.app.ports import DocumentKind, Revision
from service.app.pricing import PlanQuestion, Priced
from service.app.services import Services
from service.core.errors import InvalidInput, WorkBudgetExceeded
from service.core.estimates.estimate import Estimate
from service.core.estimates.work import INLINE_WORK_BUDGET, Work, work_of
from service.core.units import to_seconds
from service.formats.documents import plan as plans
from service.formats.documents.plan import PlanDocument
from tests.app.fakes import FakeDocuments, FakeStorage, fake_services
from tests.app.plan_documents import INLINE_PLAN, decode_plan, inline_plan, store_chain, stored


def question(
    seconds: float = 0.006, claim: float | None = None, **plan: object
) -> EstimateQuestion:
    stages = [{"forward_seconds": seconds, "backward_seconds": 0.012}] * 2
    return EstimateQuestion(
        PlanQuestion(inline_plan(**{"costs": {"stages": stages}, **plan})), claim
    )


class Renderer:
    """Renders the makespan, and counts how often it is asked for which digest."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(
        self, priced: Priced, _estimate: Estimate, digest: str, question: EstimateQuestion
    ) -> bytes:
        self.asked[digest] += 1
        makespan = to_seconds(priced.simulated.timeline.makespan)
        return json.dumps([digest, makespan, question.asserted_iteration_seconds]).encode()


async def outcomes(
    services: Services, questions: list[EstimateQuestion], render: Renderer | None = None
) -> Outcomes:
    return await create_many(services, questions, decode_plan, render or Renderer())


async def test_equal_plans_are_computed_once_and_known_ones_not_at_all() -> None:
    services = fake_services()
    known = await estimates.create(services, question(0.001), decode_plan, Renderer())
    render = Renderer()
    asked = [question(0.002), question(0.001), question(0.002), question(0.003), question(0.002)]
    answers = await outcomes(services, asked, render)
    assert all(isinstance(answer, EstimateOutcome) for answer in answers)
    found = [answer for answer in answers if isinstance(answer, EstimateOutcome)]
    assert [answer.created for answer in found] == [True, False, True, True, True]
    assert found[1].stored == known.stored
    assert found[0].stored is found[2].stored is found[4].stored
    assert sorted(render.asked.values()) == [1, 1]


async def test_all_new_answers_are_stored_in_one_unit_of_work() -> None:
    class CountingStorage(FakeStorage):
        writes = 0

        def writing(self):  # type: ignore[no-untyped-def]
            self.writes += 1
            return super().writing()

    storage = CountingStorage()
    services = fake_services(storage)
    asked = [question(0.001 * n) for n in range(1, 100)]
    await outcomes(services, asked)
    assert (len(storage.state.estimates), storage.writes) == (99, 1)
    await outcomes(services, asked)
    assert storage.writes == 1, "nothing is new"


async def test_equal_plans_that_are_refused_are_each_told_their_own_place() -> None:
    """The same inputs, once as they are and once by a patch: the fault is in another place."""
    chimera, odd = {"kind": "chimera"}, {"microbatches": 7}
    base = question(schedule=chimera).plan.plan
    answers = await outcomes(
        fake_services(),
        [
            question(schedule=chimera, workload=odd),
            EstimateQuestion(PlanQuestion(base, {"workload": odd})),
        ],
    )
    paths = []
    for answer in answers:
        assert isinstance(answer, Refused)
        assert isinstance(answer.error, InvalidInput)
        paths.append([fault.path for fault in answer.error.faults])
    assert paths == [
        [("plan", "workload", "microbatches")],
        [("patch", "workload", "microbatches")],
    ]


async def test_what_is_referred_to_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    services = fake_services()
    await store_chain(services)
    reads = Counter[tuple[DocumentKind, str]]()
    find = FakeDocuments.find

    async def counted(
        documents: FakeDocuments, kind: DocumentKind, name: str, number: int | None = None
    ) -> Revision | None:
        reads[kind, name] += 1
        return await find(documents, kind, name, number)

    monkeypatch.setattr(FakeDocuments, "find", counted)
    asked = [EstimateQuestion(PlanQuestion("chain-plan"), n + 1.0) for n in range(30)]
    answers = await outcomes(services, asked)
    assert [a.plan_reference for a in answers if isinstance(a, EstimateOutcome)] == [
        "chain-plan@1"
    ] * 30
    assert set(reads.values()) == {1}
    assert len(reads) == 4


async def test_all_plans_together_are_held_to_a_budget_before_any_is_priced() -> None:
    def fail(*_: object) -> bytes:
        pytest.fail("nothing is priced")

    large = question(workload={"microbatches": 100_000})
    document = large.plan.plan
    assert isinstance(document, PlanDocument)
    assert work_of(plans.to_core(document)).total < INLINE_WORK_BUDGET
    with pytest.raises(WorkBudgetExceeded) as refused:
        await create_many(fake_services(), [large] * 5, decode_plan, fail)
    assert [fault.path for fault in refused.value.faults] == [("plans",)]


class Ledger:
    """Writes down the work that is held."""

    def __init__(self) -> None:
        self.prepared: list[int] = []
        self.held: list[int] = []

    def hold_preparation(self, size_bytes: int) -> None:
        self.prepared.append(size_bytes)

    def hold_work(self, units: int) -> None:
        self.held.append(units)


async def test_the_work_of_what_is_new_is_held_and_given_back_as_it_is_done() -> None:
    ledger = Ledger()
    services = replace(fake_services(), holder=ledger)
    numbers = range(1, 41)  # two turns of at most 32
    known = question(workload={"microbatches": 1})
    await estimates.create(services, known, decode_plan, Renderer())
    ledger.held.clear()
    asked = [question(workload={"microbatches": number}) for number in numbers] * 2
    await outcomes(services, asked)
    work = {number: work_of(plans.to_core(asked[number - 1].plan.plan)).total for number in numbers}  # type: ignore[arg-type]
    assert ledger.held[0] == sum(work.values()) - work[1]
    assert ledger.held[1:] == sorted(set(ledger.held[1:]), reverse=True)
    assert len(ledger.held) > 2
    assert ledger.held[-1] == 0
    assert ledger.prepared == [0]


async def test_stored_plans_are_prepared_once_and_again_for_each_patch() -> None:
    ledger = Ledger()
    services = replace(fake_services(), holder=ledger)
    size = len((await stored(services, DocumentKind.PLAN, "mine", INLINE_PLAN)).content)
    patch = {"workload": {"microbatches": 9}}
    asked = [EstimateQuestion(PlanQuestion("mine", given)) for given in (None, patch, patch)]
    await outcomes(services, asked)
    assert ledger.prepared == [3 * size]


async def test_a_plan_beyond_its_own_budget_is_refused_alone_and_counts_for_nothing() -> None:
    too_large = question(workload={"microbatches": 10_000_000})
    answers = await outcomes(fake_services(), [too_large, question(), too_large])
    assert isinstance(answers[1], EstimateOutcome)
    for answer in (answers[0], answers[2]):
        assert isinstance(answer, Refused)
        assert isinstance(answer.error, WorkBudgetExceeded)
        assert [fault.path for fault in answer.error.faults] == [
            ("plan", "workload", "microbatches")
        ]


async def test_the_bytes_of_patched_plans_are_limited() -> None:
    words = {"description": "x" * 2000, **INLINE_PLAN}
    size = len(json.dumps(words))
    plan = decode_plan(words)
    few = [EstimateQuestion(PlanQuestion(plan, {}), n + 1.0) for n in range(3)]
    assert all(isinstance(a, EstimateOutcome) for a in await outcomes(fake_services(), few))
    many = few[:1] * (MAX_PLAN_BYTES // size * 2)
    with pytest.raises(WorkBudgetExceeded, match="bytes of plans"):
        await outcomes(fake_services(), many)
    services = fake_services()
    await stored(services, DocumentKind.PLAN, "wordy", words)
    named = [EstimateQuestion(PlanQuestion("wordy", {}))] * len(many)
    with pytest.raises(WorkBudgetExceeded, match="bytes of plans"):
        await outcomes(services, named)


async def test_the_documents_that_plans_refer_to_are_limited() -> None:
    asked = [question(topology=f"nowhere-{n}") for n in range(MAX_DOCUMENTS)]
    answers = await outcomes(fake_services(), asked)
    assert all(isinstance(answer, Refused) for answer in answers)
    with pytest.raises(WorkBudgetExceeded, match="at most"):
        await outcomes(fake_services(), [*asked, question(topology="one-more")])


async def test_an_error_that_nobody_foresaw_is_raised() -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await create_many(fake_services(), [question()], decode_plan, broken)


def test_plans_that_share_an_order_stand_side_by_side() -> None:
    """Chunks are cut by work and by number, and hold each plan once."""

    @dataclass
    class Read:
        order: str
        work: Work

    @dataclass(eq=False)
    class Item:
        read: Read
        name: int = 0

    items = [Item(Read("ab"[n % 2], Work(1, 1)), n) for n in range(100)]
    chunks = list(_chunks(items))  # type: ignore[arg-type]
    names = [item.name for chunk in chunks for item in chunk]  # type: ignore[attr-defined]
    assert names == [*range(0, 100, 2), *range(1, 100, 2)]
    assert max(map(len, chunks)) < 100
    heavy = [Item(Read("a", Work(1_500_000, 1)), n) for n in range(3)]
    assert [len(chunk) for chunk in _chunks(heavy)] == [1, 1, 1]  # type: ignore[arg-type]
    placed = [Item(Read("a", Work(1, 1, paths=2))) for _ in range(10)]
    assert [len(chunk) for chunk in _chunks(placed)] == [4, 4, 2]  # type: ignore[arg-type]
