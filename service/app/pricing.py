"""From a request to a priced plan: read, patch, pin, resolve, simulate.

Reading and pinning happen on the event loop with the storage; everything after runs on the
executor as one pure function of what was read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET

from service.app.document_kinds import references_of
from service.app.patching import apply_patch, locate
from service.app.ports import DocumentKind, Revision
from service.app.references import NamedReference, find_all, resolve
from service.app.services import Services
from service.core.errors import InvalidInput
from service.core.estimates.simulation import SimulatedPlan, represented, simulate_plan
from service.core.estimates.version import MODEL_VERSION
from service.core.estimates.work import work_of
from service.core.models.graph import Model
from service.core.plans.plan import Plan, ResolvedPlan, Statement
from service.core.plans.resolve import resolve as resolve_plan
from service.core.profiles.profile import Profile
from service.core.topology.expand import Expansion
from service.formats.documents import model as models
from service.formats.documents import plan as plans
from service.formats.documents import profile as profiles
from service.formats.documents.plan import PlanDocument

__all__ = [
    "Pin",
    "PlanDecoder",
    "PlanQuestion",
    "Prepared",
    "Priced",
    "calculate",
    "pin_plan",
    "prepare",
    "price",
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
class Prepared:
    """A plan with its references pinned and what they stand for read; nothing computed yet.

    `document` has no description: words change no number, so they are no part of an identity.
    `stored_plan` is the pin of the plan itself when it was asked for by name.
    """

    question: PlanQuestion
    document: PlanDocument
    plan: Plan
    stored_plan: Pin | None
    pins: tuple[Pin, ...]
    topology: Expansion | None
    model: Model | None
    profile: Profile | None


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A simulated plan and what the answer must say about itself."""

    prepared: Prepared
    simulated: SimulatedPlan
    represented: tuple[Statement, ...]
    not_represented: tuple[Statement, ...]

    @property
    def resolved(self) -> ResolvedPlan:
        """The plan with all its numbers."""
        return self.simulated.resolved

    @property
    def pins(self) -> tuple[Pin, ...]:
        """All stored documents that were used, the plan itself included."""
        stored = self.prepared.stored_plan
        return self.prepared.pins if stored is None else (stored, *self.prepared.pins)

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


async def prepare(
    services: Services, question: PlanQuestion, decode: PlanDecoder, *, replays: int = 0
) -> Prepared:
    """Read, patch and pin a plan that will be simulated `replays` times more than an estimate.

    Raises `InvalidInput` for unknown references and for patches that keep what they invalidate,
    `WorkBudgetExceeded` before any work is done, and whatever `decode` raises.
    """
    if isinstance(question.plan, str):
        async with services.storage.reading() as unit:
            revision = await resolve(unit, DocumentKind.PLAN, question.plan, ("plan",))
        stored = Pin(DocumentKind.PLAN, revision.reference, revision.digest)
        document = msgspec.json.decode(revision.content, type=PlanDocument)
    else:
        stored, document = None, question.plan
    if question.patch is not None:
        document = apply_patch(document, question.patch, decode)
    with locate(question.plan, question.patch):
        work_of(plans.to_core(document), replays=replays).check()
    return await pin_plan(services, question, document, stored)


async def pin_plan(
    services: Services, question: PlanQuestion, document: PlanDocument, stored: Pin | None
) -> Prepared:
    """Replace the plan's references by `name@revision` and read what they stand for."""
    found = await _read(services, question, references_of(document))
    named = {reference.kind: revision.reference for reference, revision in found}
    pinned = msgspec.structs.replace(
        document,
        description=UNSET,
        topology=named.get(DocumentKind.TOPOLOGY, UNSET),
        costs=msgspec.structs.replace(
            document.costs,
            model=named.get(DocumentKind.MODEL, UNSET),
            profile=named.get(DocumentKind.PROFILE, UNSET),
        ),
    )
    read = {reference.kind: revision for reference, revision in found}
    topology = read.get(DocumentKind.TOPOLOGY)
    model, profile = read.get(DocumentKind.MODEL), read.get(DocumentKind.PROFILE)
    return Prepared(
        question=question,
        document=pinned,
        plan=plans.to_core(pinned),
        stored_plan=stored,
        pins=tuple(
            Pin(reference.kind, revision.reference, revision.digest)
            for reference, revision in found
        ),
        topology=None if topology is None else await services.clusters.get(topology),
        model=None if model is None else await services.executor.run(_model, model.content),
        profile=None if profile is None else await services.executor.run(_profile, profile.content),
    )


async def _read(
    services: Services, question: PlanQuestion, references: tuple[NamedReference, ...]
) -> list[tuple[NamedReference, Revision]]:
    if not references:
        return []
    async with services.storage.reading() as unit:
        found, faults = await find_all(unit, references)
    if faults:
        with locate(question.plan, question.patch):
            raise InvalidInput(faults)
    return found


# A revision never changes, so what its content means is kept.
@lru_cache(maxsize=16)
def _model(content: bytes) -> Model:
    return models.to_core(msgspec.json.decode(content, type=models.ModelDocument))


@lru_cache(maxsize=16)
def _profile(content: bytes) -> Profile:
    return profiles.to_core(msgspec.json.decode(content, type=profiles.ProfileDocument))


def price(prepared: Prepared) -> Priced:
    """Resolve and simulate. Pure; raises `InvalidInput` with pointers into the request."""
    with locate(prepared.question.plan, prepared.question.patch):
        resolved = resolve_plan(
            prepared.plan,
            cluster=None if prepared.topology is None else prepared.topology.cluster,
            model=prepared.model,
            profile=prepared.profile,
        )
        simulated = simulate_plan(resolved)
    return Priced(prepared, simulated, represented(simulated), resolved.not_represented)


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
