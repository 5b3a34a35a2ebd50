"""What every calculation says about itself: what it used, assumed, represented and left out."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.api.schemas.uniform_routing import (
    UniformRouting,
    peaks_beside_uniform,
    uniform_routing_terms,
)
from service.app.pricing import Answerable, Ordered, Priced
from service.app.pricing import Pin as CorePin
from service.core.estimates.estimate import plan_live_activations
from service.core.estimates.uniform_routing import beside_uniform, known_peak
from service.core.plans.plan import Placed, ResolvedPlan, Statement
from service.core.schedules.transfers import TransferMode
from service.formats.documents.fields import or_unset

__all__ = [
    "Context",
    "Pin",
    "PlacedRank",
    "StatementOut",
    "WorkloadOut",
    "answer",
    "answer_type",
    "pin_terms",
    "statements",
    "workload_terms",
]


class Pin(msgspec.Struct, kw_only=True, frozen=True):
    """A stored document this answer used, at the revision it used."""

    kind: Annotated[str, Meta(description="Kind of document, as in its route.", examples=["plans"])]
    reference: Annotated[str, Meta(description="name@revision", examples=["two-dgx-h100@1"])]
    digest: Annotated[str, Meta(description="Digest of the revision's canonical content.")]


class PlacedRank(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One rank, its coordinates in each parallel dimension, and the device it runs on."""

    rank: Annotated[int, Meta(ge=0)]
    coordinates: Annotated[
        dict[str, int], Meta(description="Coordinate by dimension (tensor, context, ...).")
    ]
    device: Annotated[
        str | msgspec.UnsetType, Meta(description="Absent when the plan names no topology.")
    ] = msgspec.UNSET


class WorkloadOut(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The batch as resolved: the size that was given is held fixed, the other follows."""

    microbatches: Annotated[int, Meta(ge=1, description="Microbatches of one iteration.")]
    microbatch_size: Annotated[
        int | msgspec.UnsetType, Meta(description="Samples in one microbatch of one replica.")
    ] = msgspec.UNSET
    global_batch_size: Annotated[
        int | msgspec.UnsetType, Meta(description="Samples of one iteration over all replicas.")
    ] = msgspec.UNSET
    sequence_length: Annotated[
        int | msgspec.UnsetType,
        Meta(description="Tokens of one sample, where all microbatches have as many."),
    ] = msgspec.UNSET
    microbatch_sequence_lengths: Annotated[
        list[int] | msgspec.UnsetType,
        Meta(description="Tokens of one sample of each microbatch, where they differ."),
    ] = msgspec.UNSET
    held_fixed: Annotated[
        str | msgspec.UnsetType,
        Meta(description="microbatch_size or global_batch_size, whichever the plan gives."),
    ] = msgspec.UNSET


class StatementOut(msgspec.Struct, kw_only=True, frozen=True):
    """Something the answer says about itself."""

    code: Annotated[str, Meta(description="Stable, for machines.")]
    detail: Annotated[str, Meta(description="A sentence, for people.")]


class Context(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The part that all answers of the calculations share."""

    model_version: Annotated[
        str, Meta(description="Version of the cost model; the same inputs under it repeat exactly.")
    ]
    pins: Annotated[list[Pin], Meta(description="Stored documents this answer used.")]
    transfer_mode: Annotated[
        TransferMode, Meta(description="How transfers were charged, as asked for or by default.")
    ]
    workload: WorkloadOut
    placement: Annotated[list[PlacedRank], Meta(description="Every rank, resolved.")]
    assumptions: Annotated[
        list[StatementOut], Meta(description="What was taken for granted to compute this.")
    ]
    represented: Annotated[
        list[StatementOut], Meta(description="Operations and resources the numbers include.")
    ]
    not_represented: Annotated[
        list[StatementOut], Meta(description="What the numbers leave out; unknown is not zero.")
    ]
    uniform_routing: Annotated[
        UniformRouting | msgspec.UnsetType,
        Meta(
            description="The main numbers beside those of the same plan with tokens that choose "
            "their experts evenly; absent where they do anyway, and where there are no experts."
        ),
    ] = msgspec.UNSET


def answer_type(name: str, terms: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The wire type of an answer: the fields of `terms` and those of `Context`, side by side.

    Structs can't inherit from two bases with fields, and an estimate nests the terms without the
    context, so the flat answers are put together here.
    """
    fields: list[tuple[str, Any, Any] | tuple[str, Any]] = [
        (field.name, field.type) if field.required else (field.name, field.type, field.default)
        for field in msgspec.structs.fields(Context)
    ]
    return msgspec.defstruct(
        name, fields, bases=(terms,), kw_only=True, frozen=True, module=__name__
    )


def statements(items: Sequence[Statement]) -> list[StatementOut]:
    """Core statements as wire statements."""
    return [StatementOut(code=item.code, detail=item.detail) for item in items]


def pin_terms(pins: Sequence[CorePin]) -> list[Pin]:
    """Used documents as wire pins."""
    return [Pin(kind=one.kind.value, reference=one.reference, digest=one.digest) for one in pins]


def workload_terms(resolved: ResolvedPlan) -> WorkloadOut:
    """The batch of a resolved plan."""
    return WorkloadOut(
        microbatches=resolved.plan.workload.microbatches,
        **_known(
            microbatch_size=resolved.microbatch_size,
            global_batch_size=resolved.global_batch_size,
            held_fixed=resolved.held_fixed,
            **_sequence_lengths(resolved),
        ),
    )


def _placed(placed: Placed) -> PlacedRank:
    return PlacedRank(
        rank=placed.rank,
        coordinates={dimension.value: at for dimension, at in placed.coordinates},
        device=or_unset(placed.device),
    )


def answer(
    type_: type[msgspec.Struct],
    terms: msgspec.Struct,
    priced: Answerable,
    *,
    names_plan: bool = True,
    also_assumed: Sequence[Statement] = (),
    also_represented: Sequence[Statement] = (),
    also_left_out: Sequence[Statement] = (),
    left_out: Sequence[Statement] | None = None,
    represented_here: frozenset[str] = frozenset(),
) -> msgspec.Struct:
    """The terms with the context of the priced plan, as the answer's type.

    `also_assumed` adds to the assumptions, `also_represented` to what is represented and
    `also_left_out` to what is not; `left_out` stands in place of what the plan itself leaves out.
    `represented_here` are the codes of what the plan leaves out and this answer does not.
    `names_plan`
    says whether a stored plan is named among the pins: an estimate depends on the content of its
    plan alone, whatever name it was asked for by.
    """
    resolved = priced.resolved
    of_plan = priced.not_represented if left_out is None else left_out
    context = Context(
        model_version=priced.model_version,
        transfer_mode=resolved.transfer_mode,
        pins=pin_terms(priced.pins if names_plan else priced.prepared.pinned.pins),
        workload=workload_terms(resolved),
        placement=[_placed(placed) for placed in resolved.placement],
        assumptions=statements((*priced.assumptions, *also_assumed)),
        represented=statements((*priced.represented, *also_represented)),
        not_represented=statements(
            (
                *(said for said in of_plan if said.code not in represented_here),
                *also_left_out,
            )
        ),
        uniform_routing=_uniform_routing(priced),
    )
    fields = {name: getattr(terms, name) for name in terms.__struct_fields__}
    fields |= {name: getattr(context, name) for name in context.__struct_fields__}
    return type_(**fields)


def _uniform_routing(priced: Answerable) -> UniformRouting | msgspec.UnsetType:
    """Unset where tokens choose evenly; of the order alone where nothing was simulated."""
    if isinstance(priced, Priced) and priced.uniform is not None:
        return uniform_routing_terms(beside_uniform(priced.simulated, priced.uniform))
    if isinstance(priced, Ordered) and priced.uniform is not None:
        routed, uniform = (
            known_peak(plan_live_activations(resolved, priced.program))
            for resolved in (priced.resolved, priced.uniform)
        )
        return peaks_beside_uniform(routed, uniform)
    return msgspec.UNSET


def _sequence_lengths(resolved: ResolvedPlan) -> dict[str, Any]:
    length = resolved.sequence_length
    if length is None or isinstance(length, int):
        return {"sequence_length": length}
    lengths = [length[number] for number in resolved.sizes.of_microbatch]
    return {"microbatch_sequence_lengths": lengths}


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
