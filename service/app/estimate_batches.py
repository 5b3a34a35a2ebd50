"""Many estimates at once: read, computed and stored together, each as if it were asked for alone.

What several plans refer to is read once, plans with equal inputs are computed once, those that
share an order are simulated together, and all new answers are stored in one transaction.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import msgspec

from service.app.apart import USUAL, run_apart
from service.app.document_kinds import references_of
from service.app.estimates import (
    EstimateOutcome,
    EstimateQuestion,
    RenderEstimate,
    answers,
    identity,
    new_estimate,
)
from service.app.idempotency import Record, record_nothing
from service.app.patching import locate, located
from service.app.ports import DocumentKind, Revision, StoredEstimate
from service.app.pricing import (
    Pin,
    Pinned,
    PlanDecoder,
    PlanQuestion,
    Prepared,
    Priced,
    patched,
    pinned,
    price_many,
    understand,
)
from service.app.references import Absent, look_up
from service.app.services import Services
from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.estimates.simulation import late_work
from service.core.estimates.work import BATCH_WORK_BUDGET, Work, check_batch, check_work
from service.formats.documents.plan import PlanDocument

__all__ = ["MAX_DOCUMENTS", "MAX_PLAN_BYTES", "Outcomes", "Refused", "create_many"]

T = TypeVar("T")

# Bytes of plans that are read for one batch: each stored plan counts once, and each plan once more
# for every patch, as a patched plan is read and checked anew.
MAX_PLAN_BYTES = 16 * 2**20
# Topologies, models, profiles and routings that the plans of one batch may refer to.
MAX_DOCUMENTS = 64

# A batch is taken to be large: what it holds is only known when it has been read.
_LARGE = USUAL + 1

# Plans that the executor works on before others have their turn, and the work they are at most.
_CHUNK_PLANS = 32
_CHUNK_WORK = 2_000_000
# On a topology a plan may turn out to be much more work than can be seen in it.
_CHUNK_PLANS_ON_TOPOLOGIES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Refused:
    """What asking for this plan alone would raise."""

    error: Exception


# One for each question, in order.
Outcomes = Sequence[EstimateOutcome | Refused]


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """A plan with its patch applied, and the work that it is."""

    question: EstimateQuestion
    document: PlanDocument
    stored_plan: Pin | None
    work: Work
    order: Hashable  # equal for plans whose stages run in one order


@dataclass(frozen=True, slots=True, eq=False)
class _Identified:
    """A pinned plan and what its estimate is addressed by."""

    read: _Read
    pinned: Pinned
    inputs: bytes
    digest: str


async def create_many(
    services: Services,
    questions: Sequence[EstimateQuestion],
    decode: PlanDecoder,
    render: RenderEstimate,
    record: Record[Outcomes] = record_nothing,
) -> Outcomes:
    """For each question what `service.app.estimates.create` would return or raise, in order.

    `created` is true for all that ask for an estimate that was not stored before. `record` is
    called in the transaction that stores new ones.

    Raises `WorkBudgetExceeded`, pointing at `plans`, before any plan is priced when all of them
    together are too much, and when they would only wait; nothing is stored then.
    """
    stored_plans, plan_bytes = await _stored_plans(services, [one.plan for one in questions])
    services.holder.hold_preparation(plan_bytes)
    # Beside the executor: a batch that is known, or too much, does not wait behind simulations.
    read = await run_apart(_LARGE, _read_all, questions, stored_plans, decode)
    found = await _referenced(services, _only(_Read, read))
    items = await run_apart(_LARGE, _identify_all, read, found)
    identified = _only(_Identified, items)
    async with services.storage.reading() as unit:
        known = await unit.estimates.find_all({item.digest for item in identified})
    new = [item for item in identified if item.digest not in known]
    first = {item.digest: item for item in reversed(new)}
    work = _work_of(first.values())
    services.holder.hold_work(work + _expansion_units(services, first.values()))
    computed = await _compute(services, list(reversed(first.values())), render, work)
    # A refusal points into the question it answers, so others with the same inputs need their own.
    computed |= await _compute(
        services,
        [
            item
            for item in new
            if item is not first[item.digest] and isinstance(computed[first[item.digest]], Refused)
        ],
        render,
    )
    fresh = {answer.digest: answer for answer in _only(StoredEstimate, list(computed.values()))}
    outcomes = [_outcome(item, computed.get(item), known, fresh) for item in items]
    if fresh:
        async with services.storage.writing() as unit:
            await unit.estimates.add(*fresh.values())
            await record(unit, outcomes)
    for outcome in _only(EstimateOutcome, outcomes):
        services.observer.estimated(computed=outcome.created)
    return outcomes


def _outcome(
    item: "_Identified | Refused",
    computed: StoredEstimate | Refused | None,
    known: Mapping[str, StoredEstimate],
    fresh: Mapping[str, StoredEstimate],
) -> EstimateOutcome | Refused:
    if isinstance(item, Refused):
        return item
    if isinstance(computed, Refused):
        return computed
    created = item.digest in fresh
    plan = item.pinned.stored_plan
    return EstimateOutcome(
        fresh[item.digest] if created else known[item.digest],
        created,
        None if plan is None else plan.reference,
    )


def _only(type_: type[T], items: Sequence[T | Refused]) -> list[T]:
    return [item for item in items if isinstance(item, type_)]


async def _stored_plans(
    services: Services, questions: Sequence[PlanQuestion]
) -> tuple[dict[str, Revision | Absent], int]:
    """The plans that are asked for by name, each read once, and the bytes of plans to be read."""
    patches: dict[str, int] = {}
    plan_bytes = 0
    for question in questions:
        is_patched = question.patch is not None
        if isinstance(question.plan, str):
            patches[question.plan] = patches.get(question.plan, 0) + is_patched
        elif is_patched:
            plan_bytes += len(msgspec.json.encode(question.plan))
    _check_plan_bytes(plan_bytes)
    found: dict[str, Revision | Absent] = {}
    if not patches:
        return found, plan_bytes
    async with services.storage.reading() as unit:
        for reference, count in patches.items():
            revision = await look_up(unit, DocumentKind.PLAN, reference)
            found[reference] = revision
            if isinstance(revision, Revision):
                plan_bytes += len(revision.content) * (1 + count)
                _check_plan_bytes(plan_bytes)
    return found, plan_bytes


def _check_plan_bytes(plan_bytes: int) -> None:
    if plan_bytes > MAX_PLAN_BYTES:
        detail = (
            f"these are more than {MAX_PLAN_BYTES} bytes of plans, each counted again for every "
            "patch of it: send fewer of them at a time"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("plans",), detail)])


def _read_all(
    questions: Sequence[EstimateQuestion],
    stored_plans: Mapping[str, Revision | Absent],
    decode: PlanDecoder,
) -> list[_Read | Refused]:
    """Apply all patches, and refuse the whole when it is too much work."""
    decoded = {
        name: msgspec.json.decode(revision.content, type=PlanDocument)
        for name, revision in stored_plans.items()
        if isinstance(revision, Revision)
    }
    read: list[_Read | Refused] = []
    for question in questions:
        try:
            read.append(_read(question, stored_plans, decoded, decode))
        # `decode` raises an error of the caller's own, who is asked for it again.
        except Exception as error:
            read.append(Refused(error))
    check_batch(item.work for item in _only(_Read, read))
    return read


def _read(
    question: EstimateQuestion,
    stored_plans: Mapping[str, Revision | Absent],
    decoded: Mapping[str, PlanDocument],
    decode: PlanDecoder,
) -> _Read:
    asked = question.plan
    stored = None
    if isinstance(asked.plan, str):
        revision = stored_plans[asked.plan]
        if isinstance(revision, Absent):
            raise InvalidInput([revision.fault(("plan",))])
        stored = Pin(DocumentKind.PLAN, revision.reference, revision.digest)
        plan = decoded[asked.plan]
    else:
        plan = asked.plan
    document, core = patched(asked, plan, decode)
    with locate(asked.plan, asked.patch):
        work = check_work(core)
    order = core.schedule, core.degrees.pipeline, core.workload.microbatches
    return _Read(question, document, stored, work, order)


_Key = tuple[DocumentKind, str]


async def _referenced(services: Services, read: Sequence[_Read]) -> dict[_Key, Revision | Absent]:
    """What the plans refer to, each read once."""
    references = dict.fromkeys(
        (reference.kind, reference.reference)
        for item in read
        for reference in references_of(item.document)
    )
    if len(references) > MAX_DOCUMENTS:
        detail = (
            f"these plans refer to {len(references)} topologies, models, profiles and routings; "
            f"the plans of one request refer to at most {MAX_DOCUMENTS}"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("plans",), detail)])
    if not references:
        return {}
    async with services.storage.reading() as unit:
        return {key: await look_up(unit, *key) for key in references}


def _identify_all(
    read: Sequence[_Read | Refused], found: Mapping[_Key, Revision | Absent]
) -> list[_Identified | Refused]:
    identified: list[_Identified | Refused] = []
    for item in read:
        if isinstance(item, Refused):
            identified.append(item)
            continue
        try:
            identified.append(_identify(item, found))
        except InvalidInput as error:
            identified.append(Refused(error))
    return identified


def _identify(read: _Read, found: Mapping[_Key, Revision | Absent]) -> _Identified:
    asked = read.question.plan
    revisions, faults = [], []
    for reference in references_of(read.document):
        revision = found[reference.kind, reference.reference]
        if isinstance(revision, Absent):
            faults.append(revision.fault(reference.path))
        else:
            revisions.append(revision)
    if faults:
        with locate(asked.plan, asked.patch):
            raise InvalidInput(faults)
    pin = pinned(asked, read.document, read.work.total, read.stored_plan, revisions)
    return _Identified(read, pin, *identity(pin, read.question))


def _work_of(items: Iterable[_Identified]) -> int:
    return sum(item.read.work.total for item in items)


def _expansion_units(services: Services, items: Iterable[_Identified]) -> int:
    """The work of expanding the topologies that are used for the first time."""
    revisions = {
        revision.digest: revision
        for item in items
        for revision in item.pinned.revisions
        if revision.kind is DocumentKind.TOPOLOGY
    }
    return sum(map(services.clusters.units, revisions.values()))


async def _compute(
    services: Services, items: Sequence[_Identified], render: RenderEstimate, held: int = 0
) -> dict["_Identified | Refused", StoredEstimate | Refused]:
    """For each item the new answer, or what is wrong with its plan.

    `held` is what the request holds as work that is still to be done; it is given back as it is.
    """
    computed: dict[_Identified | Refused, StoredEstimate | Refused] = {}
    late = 0
    for chunk in _chunks(items):
        if late > BATCH_WORK_BUDGET:
            computed |= {item: Refused(_too_much_before(item)) for item in chunk}
            continue
        prepared = [await understand(services, item.pinned) for item in chunk]
        with services.observer.span("price"):
            found, more = await services.executor.run(_answers, chunk, prepared, render)
        late += more
        held = max(0, held - _work_of(chunk))
        services.holder.hold_work(held)
        for item, content in zip(chunk, found, strict=True):
            computed[item] = (
                content
                if isinstance(content, Refused)
                else new_estimate(services, item.digest, item.inputs, content)
            )
    return computed


def _answers(
    items: Sequence[_Identified], prepared: Sequence[Prepared], render: RenderEstimate
) -> tuple[list[bytes | Refused], int]:
    """The answers, and the work that was known only once their documents were read."""
    outcomes = price_many(prepared)
    late = sum(late_work(one.simulated) for one in outcomes if isinstance(one, Priced))
    asked = [
        (priced, item.digest, item.read.question)
        for item, priced in zip(items, outcomes, strict=True)
        if not isinstance(priced, InvalidInput)
    ]
    rendered = iter(answers(asked, render))
    found = [one if isinstance(one, InvalidInput) else next(rendered) for one in outcomes]
    return [Refused(one) if isinstance(one, InvalidInput) else one for one in found], late


def _too_much_before(item: _Identified) -> InvalidInput:
    detail = (
        "turns of messages on links and runs of experts, of the plans before this one, were more "
        "work than one request may take: send this plan in another request, or use latency mode"
    )
    fault = Fault(FaultCode.WORK_BUDGET, ("schedule", "transfer_mode"), detail)
    asked = item.read.question.plan
    return located(WorkBudgetExceeded([fault]), asked.plan, asked.patch)


def _chunks(items: Sequence[_Identified]) -> Iterator[list[_Identified]]:
    """Parts of about equal work, those that share an order side by side."""
    by_order: dict[Hashable, list[_Identified]] = {}
    for item in items:
        by_order.setdefault(item.read.order, []).append(item)
    chunk: list[_Identified] = []
    work = 0
    for item in chain.from_iterable(by_order.values()):
        most = _CHUNK_PLANS_ON_TOPOLOGIES if item.read.work.paths else _CHUNK_PLANS
        if chunk and (len(chunk) >= most or work + item.read.work.total > _CHUNK_WORK):
            yield chunk
            chunk, work = [], 0
        chunk.append(item)
        work += item.read.work.total
    if chunk:
        yield chunk
