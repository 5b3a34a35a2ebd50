"""From a request to a priced plan: read, patch, pin, resolve, simulate.

Reading and pinning happen with the storage; everything after runs on the executor as one pure
function of what was read. A large plan is never handled on the event loop.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from service.app.apart import run_apart, written_size
from service.app.document_kinds import references_of
from service.app.meanings import model_of, profile_of, routing_of
from service.app.patching import apply_patch, locate, located
from service.app.ports import DocumentKind, Revision
from service.app.references import find_all, resolve
from service.app.services import Services
from service.core.errors import InvalidInput
from service.core.estimates.simulation import (
    SimulatedPlan,
    plan_program,
    represented,
    represented_of_order,
    simulate_plans,
)
from service.core.estimates.uniform_routing import evenly_routed, is_uneven
from service.core.estimates.version import MODEL_VERSION
from service.core.estimates.work import check_work
from service.core.models.graph import Model
from service.core.moe.routing import Routing
from service.core.plans.plan import Plan, ResolvedPlan, Statement
from service.core.plans.resolve import resolve as resolve_plan
from service.core.profiles.profile import Profile
from service.core.schedules.program import Program
from service.core.topology.expand import Expansion
from service.formats.documents import plan as plans
from service.formats.documents.plan import PlanDocument

__all__ = [
    "Answerable",
    "Ordered",
    "Pin",
    "Pinned",
    "PlanDecoder",
    "PlanQuestion",
    "Prepared",
    "Priced",
    "calculate",
    "calculate_from_order",
    "patched",
    "pin",
    "pin_document",
    "pinned",
    "prepare",
    "price",
    "price_many",
    "put_in_order",
    "resolve_prepared",
    "understand",
]

# Reads a patched plan (plain JSON values) strictly; raises the caller's own error on a bad shape.
PlanDecoder = Callable[[Any], PlanDocument]


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What a calculation is asked about: a stored plan or a plan itself, perhaps patched."""

    plan: str | PlanDocument
    patch: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """A stored document at the revision that was used."""

    kind: DocumentKind
    reference: str
    digest: str


@dataclass(frozen=True, slots=True, eq=False)
class Pinned:
    """A plan with its references pinned to what they stand for at this moment.

    `document` has no description: words change no number, so they are no part of an identity.
    `stored_plan` is the pin of the plan itself when it was asked for by name; `work` is what
    simulating it takes, in operation-runs, and expanding its topology where that is still to do.
    """

    question: PlanQuestion
    document: PlanDocument
    stored_plan: Pin | None
    revisions: tuple[Revision, ...]
    work: int

    @property
    def pins(self) -> tuple[Pin, ...]:
        """What the plan refers to."""
        return tuple(Pin(r.kind, r.reference, r.digest) for r in self.revisions)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A pinned plan and what its references mean; nothing computed yet.

    `replays` says how often it will be simulated beyond what an estimate does.
    """

    pinned: Pinned
    plan: Plan
    topology: Expansion | None
    model: Model | None
    profile: Profile | None
    routing: Routing | None = None
    replays: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Answerable:
    """A plan with all its numbers and what the answer must say about itself."""

    prepared: Prepared
    resolved: ResolvedPlan
    represented: tuple[Statement, ...]
    not_represented: tuple[Statement, ...]

    @property
    def pins(self) -> tuple[Pin, ...]:
        """All stored documents that were used, the plan itself included."""
        pinned = self.prepared.pinned
        return pinned.pins if pinned.stored_plan is None else (pinned.stored_plan, *pinned.pins)

    @property
    def assumptions(self) -> tuple[Statement, ...]:
        """What was taken for granted of the plan and of its topology."""
        topology = self.prepared.topology
        of_topology = () if topology is None else topology.assumptions
        return (*self.resolved.assumptions, *(Statement("topology", text) for text in of_topology))

    @property
    def model_version(self) -> str:
        """The version of the cost model that priced it."""
        return MODEL_VERSION


@dataclass(frozen=True, slots=True, eq=False)
class Priced(Answerable):
    """A simulated plan.

    `uniform` is the same with tokens that choose their experts evenly, None where they do anyway.
    """

    simulated: SimulatedPlan
    uniform: SimulatedPlan | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Ordered(Answerable):
    """A plan and the order of its ranks; nothing is simulated. `uniform` is as of `Priced`."""

    program: Program
    uniform: ResolvedPlan | None = None


async def prepare(
    services: Services, question: PlanQuestion, decode: PlanDecoder, *, replays: int = 0
) -> Prepared:
    """Everything that pricing a plan needs. Raises as `pin` does, and when it would only wait."""
    pinned = await pin(services, question, decode, replays=replays)
    services.holder.hold_work(pinned.work)
    return replace(await understand(services, pinned), replays=replays)


async def pin(
    services: Services, question: PlanQuestion, decode: PlanDecoder, *, replays: int = 0
) -> Pinned:
    """Read, patch and pin a plan that will be simulated `replays` times more than an estimate.

    Raises `InvalidInput` for unknown references and for patches that keep what they invalidate,
    `WorkBudgetExceeded` before any work is done, and whatever `decode` raises.
    """
    if isinstance(question.plan, str):
        async with services.storage.reading() as unit:
            revision = await resolve(unit, DocumentKind.PLAN, question.plan, ("plan",))
        stored = Pin(DocumentKind.PLAN, revision.reference, revision.digest)
        content = revision.content
        asked = await run_apart(len(content), _asked, question, content, decode, replays)
    else:
        stored, given = None, question.plan
        asked = await run_apart(written_size(given), _asked, question, given, decode, replays)
    return await pin_document(services, question, *asked, stored)


def _asked(
    question: PlanQuestion, given: PlanDocument | bytes, decode: PlanDecoder, replays: int
) -> tuple[PlanDocument, int]:
    """The patched plan and its work, which is within the budget."""
    if isinstance(given, bytes):
        given = msgspec.json.decode(given, type=PlanDocument)
    document, plan = patched(question, given, decode)
    with locate(question.plan, question.patch):
        work = check_work(plan, replays=replays)
    return document, work.total


def patched(
    question: PlanQuestion, given: PlanDocument, decode: PlanDecoder
) -> tuple[PlanDocument, Plan]:
    """The plan that is asked about: the given one with the question's patch applied.

    Pure; raises `InvalidInput` for a patch that keeps what it invalidates, and what `decode` does.
    """
    document = given if question.patch is None else apply_patch(given, question.patch, decode)
    with locate(question.plan, question.patch):
        return document, plans.to_core(document)


async def pin_document(
    services: Services,
    question: PlanQuestion,
    document: PlanDocument,
    work: int,
    stored: Pin | None,
) -> Pinned:
    """Replace the references of a patched plan by `name@revision`, as they stand now."""
    references = references_of(document)
    if not references:
        return pinned(question, document, work, stored, ())
    async with services.storage.reading() as unit:
        found, faults = await find_all(unit, references)
    if faults:
        with locate(question.plan, question.patch):
            raise InvalidInput(faults)
    revisions = [revision for _, revision in found]
    for revision in revisions:
        if revision.kind is DocumentKind.TOPOLOGY:
            work += services.clusters.units(revision)
    return pinned(question, document, work, stored, revisions)


def pinned(
    question: PlanQuestion,
    document: PlanDocument,
    work: int,
    stored: Pin | None,
    revisions: Sequence[Revision],
) -> Pinned:
    """A patched plan and the revisions that its references stand for, put together."""
    named = {revision.kind: revision.reference for revision in revisions}
    pinned_document = msgspec.structs.replace(
        document,
        description=UNSET,
        topology=named.get(DocumentKind.TOPOLOGY, UNSET),
        costs=msgspec.structs.replace(
            document.costs,
            model=named.get(DocumentKind.MODEL, UNSET),
            profile=named.get(DocumentKind.PROFILE, UNSET),
        ),
        moe=document.moe
        if isinstance(document.moe, UnsetType)
        else msgspec.structs.replace(document.moe, routing=named.get(DocumentKind.ROUTING, UNSET)),
    )
    return Pinned(question, pinned_document, stored, tuple(revisions), work)


async def understand(services: Services, pinned: Pinned) -> Prepared:
    """Find out what the documents that a plan pins stand for."""
    run, document = services.executor.run, pinned.document
    of_kind = {revision.kind: revision for revision in pinned.revisions}
    topology = of_kind.get(DocumentKind.TOPOLOGY)
    model, profile = of_kind.get(DocumentKind.MODEL), of_kind.get(DocumentKind.PROFILE)
    routing = of_kind.get(DocumentKind.ROUTING)
    return Prepared(
        pinned=pinned,
        plan=await run_apart(written_size(document), plans.to_core, document),
        topology=None if topology is None else await services.clusters.get(topology),
        model=None if model is None else await run(model_of, model.content),
        profile=None if profile is None else await run(profile_of, profile.content),
        routing=None if routing is None else await run(routing_of, routing.content),
    )


def price(prepared: Prepared) -> Priced:
    """Resolve and simulate. Pure; raises `InvalidInput` with pointers into the request."""
    (outcome,) = price_many([prepared])
    if isinstance(outcome, InvalidInput):
        raise outcome
    return outcome


def price_many(prepared: Sequence[Prepared]) -> list[Priced | InvalidInput]:
    """For each plan the price, or what is wrong with it, as `price` would raise it. Pure.

    Plans that share an order are simulated together.
    """
    outcomes: dict[int, Priced | InvalidInput] = {}
    resolved: dict[int, ResolvedPlan] = {}
    evenly: dict[int, ResolvedPlan] = {}
    for index, one in enumerate(prepared):
        try:
            found = resolve_prepared(one)
            even = _evenly(one, found)
        except InvalidInput as error:
            outcomes[index] = error
            continue
        resolved[index] = found
        if even is not None:
            evenly[index] = even
    replays = max((one.replays for one in prepared), default=0)
    runs = simulate_plans([*resolved.values(), *evenly.values()], replays=replays)
    uniform = dict(zip(evenly, runs[len(resolved) :], strict=True))
    for index, run in zip(resolved, runs, strict=False):
        even_run = uniform.get(index)
        if isinstance(run, InvalidInput):
            outcomes[index] = run
        elif isinstance(even_run, InvalidInput):
            outcomes[index] = even_run
        else:
            outcomes[index] = Priced(
                prepared[index],
                run.resolved,
                represented(run),
                run.resolved.not_represented,
                run,
                even_run,
            )
    return [
        located(outcome, one.pinned.question.plan, one.pinned.question.patch, one.plan)
        if isinstance(outcome, InvalidInput)
        else outcome
        for one, outcome in ((one, outcomes[index]) for index, one in enumerate(prepared))
    ]


def put_in_order(prepared: Prepared) -> Ordered:
    """Resolve and build the order, simulating nothing. Pure; raises as `price` does."""
    question = prepared.pinned.question
    with locate(question.plan, question.patch, prepared.plan):
        resolved = resolve_prepared(prepared)
        program, uniform = plan_program(resolved), _evenly(prepared, resolved)
    included = (represented_of_order(resolved, program),)
    return Ordered(prepared, resolved, included, resolved.not_represented, program, uniform)


def resolve_prepared(prepared: Prepared) -> ResolvedPlan:
    """The plan against what its references mean. Pure; faults point into the plan document."""
    return resolve_plan(
        prepared.plan,
        cluster=None if prepared.topology is None else prepared.topology.cluster,
        model=prepared.model,
        profile=prepared.profile,
        routing=prepared.routing,
    )


def _evenly(prepared: Prepared, resolved: ResolvedPlan) -> ResolvedPlan | None:
    """The plan with tokens that choose evenly; None where they do anyway."""
    if not is_uneven(resolved):
        return None
    return resolve_prepared(replace(prepared, plan=evenly_routed(prepared.plan), routing=None))


async def calculate(
    services: Services,
    question: PlanQuestion,
    decode: PlanDecoder,
    render: Callable[[Priced], bytes],
    *,
    replays: int = 0,
) -> bytes:
    """One calculation from request to answer; pricing and rendering run on the executor.

    `replays` says how often `render` simulates the plan again beyond what an estimate does.
    """
    prepared = await prepare(services, question, decode, replays=replays)
    with services.observer.span("price"):
        return await services.executor.run(lambda: render(price(prepared)))


async def calculate_from_order(
    services: Services,
    question: PlanQuestion,
    decode: PlanDecoder,
    render: Callable[[Ordered], bytes],
) -> bytes:
    """The same of what follows from the order alone."""
    prepared = await prepare(services, question, decode)
    with services.observer.span("order"):
        return await services.executor.run(lambda: render(put_in_order(prepared)))
