"""Estimates: stored answers addressed by the digest of everything they depend on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from service.app.apart import run_apart, written_size
from service.app.errors import NotFound, Superseded
from service.app.idempotency import Record, record_nothing
from service.app.patching import located
from service.app.ports import StoredEstimate
from service.app.pricing import (
    Pinned,
    PlanDecoder,
    PlanQuestion,
    Prepared,
    Priced,
    pin,
    pin_document,
    price,
    understand,
)
from service.app.services import Services
from service.core.errors import InvalidInput
from service.core.estimates.estimate import Estimate, estimate_plans
from service.core.estimates.version import MODEL_VERSION
from service.core.estimates.work import work_of
from service.formats.documents import plan as plans
from service.formats.documents.canonical import canonical_bytes, digest
from service.formats.documents.estimate_inputs import EstimateInputs, PinnedDocument
from service.formats.documents.fields import or_unset
from service.formats.documents.plan import PlanDocument

__all__ = [
    "EstimateOutcome",
    "EstimateQuestion",
    "RenderEstimate",
    "answer",
    "answers",
    "create",
    "get",
    "identity",
    "new_estimate",
    "reprice",
]


@dataclass(frozen=True, slots=True)
class EstimateQuestion:
    """A plan to estimate, and an iteration time claimed for it."""

    plan: PlanQuestion
    asserted_iteration_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EstimateOutcome:
    """The stored answer; `created` when this request computed it, `plan` its pin if stored."""

    stored: StoredEstimate
    created: bool
    plan_reference: str | None


# (priced plan, its terms, digest, the question) -> the answer's bytes
RenderEstimate = Callable[[Priced, Estimate, str, EstimateQuestion], bytes]


async def create(
    services: Services,
    question: EstimateQuestion,
    decode: PlanDecoder,
    render: RenderEstimate,
    record: Record[EstimateOutcome] = record_nothing,
) -> EstimateOutcome:
    """The estimate of a plan: the stored answer where the digest is known, else a new one.

    `record` is called in the transaction that stores a new one.

    Raises what `service.app.pricing.pin` and `price` raise, and when a new one would only wait;
    nothing is stored then.
    """
    pinned = await pin(services, question.plan, decode)
    size = written_size(pinned.document)
    inputs, name = await run_apart(size, identity, pinned, question)
    reference = None if pinned.stored_plan is None else pinned.stored_plan.reference
    known = await _find(services, name)
    if known is not None:
        services.observer.estimated(computed=False)
        return EstimateOutcome(known, created=False, plan_reference=reference)
    services.holder.hold_work(pinned.work)
    prepared = await understand(services, pinned)
    with services.observer.span("price"):
        content = await services.executor.run(
            lambda: answer(price(prepared), name, question, render)
        )
    stored = new_estimate(services, name, inputs, content)
    outcome = EstimateOutcome(stored, created=True, plan_reference=reference)
    async with services.storage.writing() as unit:
        await unit.estimates.add(stored)
        await record(unit, outcome)
    services.observer.estimated(computed=True)
    return outcome


def new_estimate(services: Services, name: str, inputs: bytes, content: bytes) -> StoredEstimate:
    """An answer as it is stored: its digest, what that is the digest of, and its bytes."""
    return StoredEstimate(
        digest=name,
        model_version=MODEL_VERSION,
        request=inputs,
        answer=content,
        created_at=services.clock.now(),
    )


async def get(services: Services, name: str) -> StoredEstimate:
    """The stored estimate of that digest. Raises `NotFound`."""
    stored = await _find(services, name)
    if stored is None:
        raise NotFound(f"no estimate {name[:100]!r} is stored; POST the plan to /v1/estimates")
    return stored


async def reprice(services: Services, name: str) -> Prepared:
    """What a stored estimate was computed from, ready to be priced again for its timeline.

    Raises `NotFound`, and `Superseded` when the cost model has changed since: the same inputs would
    give other numbers now. It is refused when it would only wait.
    """
    stored = await get(services, name)
    if stored.model_version != MODEL_VERSION:
        raise Superseded(
            f"this estimate was made by cost model {stored.model_version}, the service runs "
            f"{MODEL_VERSION}: POST its plan to /v1/estimates for a new one with a timeline"
        )
    plan, work = await run_apart(len(stored.request), _stored_inputs, stored.request)
    services.holder.hold_work(work)
    pinned = await pin_document(services, PlanQuestion(plan), plan, work, None)
    return await understand(services, pinned)


def _stored_inputs(request: bytes) -> tuple[PlanDocument, int]:
    """The plan of a stored estimate and its work."""
    plan = msgspec.json.decode(request, type=EstimateInputs).plan
    return plan, work_of(plans.to_core(plan)).total


async def _find(services: Services, name: str) -> StoredEstimate | None:
    async with services.storage.reading() as unit:
        return await unit.estimates.find(name)


def answers(
    asked: Sequence[tuple[Priced, str, EstimateQuestion]], render: RenderEstimate
) -> list[bytes | InvalidInput]:
    """For each priced plan, its digest and its question the answer's bytes, or what is wrong. Pure.

    What is wrong is a term beyond what is counted. Plans that share an order are replayed together.
    """
    estimates = estimate_plans([priced.simulated for priced, _, _ in asked])
    return [
        located(estimate, question.plan.plan, question.plan.patch)
        if isinstance(estimate, InvalidInput)
        else render(priced, estimate, digest, question)
        for (priced, digest, question), estimate in zip(asked, estimates, strict=True)
    ]


def answer(
    priced: Priced, digest: str, question: EstimateQuestion, render: RenderEstimate
) -> bytes:
    """The bytes of one answer. Raises `InvalidInput` where a term is beyond what is counted."""
    (outcome,) = answers([(priced, digest, question)], render)
    if isinstance(outcome, InvalidInput):
        raise outcome
    return outcome


def identity(pinned: Pinned, question: EstimateQuestion) -> tuple[bytes, str]:
    """Everything that an estimate depends on, as canonical bytes, and their digest."""
    asserted = question.asserted_iteration_seconds
    inputs = canonical_bytes(
        EstimateInputs(
            model_version=MODEL_VERSION,
            plan=pinned.document,
            pins=[
                PinnedDocument(kind=pin.kind.value, reference=pin.reference, digest=pin.digest)
                for pin in pinned.pins
            ],
            asserted_iteration_seconds=or_unset(asserted),
        )
    )
    return inputs, digest("estimate", inputs)
