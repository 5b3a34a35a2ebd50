"""What is particular to each kind of document: its struct, its check, what people see first.

A new kind of document is one entry of `DOCUMENT_TYPES`. The checks are pure and can take long, so
they run away from the event loop.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from service.app.ports import DocumentKind, MeasurementRow, Revision, TopologySummary
from service.app.references import NamedReference
from service.app.weights import EXPANSION_UNITS
from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.estimates.work import check_work
from service.core.moe.routing_summary import summarise_routing
from service.core.plans.check import check_plan
from service.core.profiles.measurement import TIME_FIELDS
from service.core.profiles.profile import Profile
from service.core.topology.cluster import Cluster
from service.core.topology.designs import DESIGNS
from service.core.topology.expand import MAX_HOSTS, MAX_LINKS, MAX_VERTICES, expand
from service.core.topology.summary import apart, summarise
from service.formats.documents import model as models
from service.formats.documents import plan as plans
from service.formats.documents import profile as profiles
from service.formats.documents import routing as routings
from service.formats.documents import topology as topologies
from service.formats.documents.fields import MAX_INTEGER, or_none
from service.formats.documents.model import ModelDocument
from service.formats.documents.plan import PlanDocument
from service.formats.documents.profile import ProfileDocument
from service.formats.documents.routing import RoutingDocument
from service.formats.documents.topology import TopologyDocument

__all__ = [
    "DOCUMENT_TYPES",
    "MAX_LARGE_DOCUMENT_BYTES",
    "DocumentType",
    "Examined",
    "measurement_rows",
    "references_of",
]


# As much as a file that is imported: what is made of one can be put back. Plans are not imported
# in bulk.
MAX_LARGE_DOCUMENT_BYTES = 16 * 2**20
MAX_PLAN_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Examined:
    """What the check of a valid document found out."""

    summary: dict[str, Any]
    warnings: tuple[str, ...] = ()
    topology: TopologySummary | None = None
    profile: Profile | None = None


@dataclass(frozen=True, slots=True)
class DocumentType:
    """One kind of document. `examine` raises `InvalidInput` with every fault.

    `units` is the work of examining one, in operation-runs, beyond that of reading its bytes;
    `most_bytes` is what one may have in its stored form, and what a request with one may have.
    """

    kind: DocumentKind
    struct: type[Struct]
    examine: Callable[[Any], Examined]
    units: Callable[[Any], int] = lambda _: 0
    most_bytes: int = MAX_LARGE_DOCUMENT_BYTES


def _examine_topology(document: TopologyDocument) -> Examined:
    expansion = expand(topologies.to_core(document))
    counts = summarise(expansion.cluster)
    return Examined(
        summary={
            "hosts": counts.hosts,
            "devices": counts.devices,
            "links": counts.links,
            "vertices_by_kind": {str(kind): n for kind, n in counts.vertices_by_kind.items()},
            "links_by_kind": {str(kind): n for kind, n in counts.links_by_kind.items()},
        },
        warnings=(*expansion.assumptions, *_unjoined(expansion.cluster)),
        topology=TopologySummary(
            hosts=counts.hosts,
            devices=counts.devices,
            links=counts.links,
            link_kinds=tuple(str(kind) for kind in counts.link_kinds),
        ),
    )


def _units_of_topology(document: TopologyDocument) -> int:
    """A document of a few lines may stand for hundreds of thousands of links."""
    size = 0
    for host in document.hosts:
        inside = len(host.devices) + len(host.links)
        if not isinstance(host.design, UnsetType) and host.design in DESIGNS:
            design = DESIGNS[host.design]
            inside = len(design.devices) + len(design.links)
        count = 1 + len(host.alike) if isinstance(host.count, UnsetType) else host.count
        # A full-duplex link is two, and a summary looks at all of them once more.
        size += 2 * inside * min(count, MAX_HOSTS)
    return EXPANSION_UNITS * min(size, MAX_VERTICES + MAX_LINKS)


def _unjoined(cluster: Cluster) -> Iterator[str]:
    """A cluster in parts is legal: a plan may stay within one. Mostly its fabric was forgotten."""
    parts = apart(cluster)
    if len(parts) > 1:
        yield (
            f"the accelerators are in {len(parts)} parts that no links join, the first with "
            f"{parts[0]!r}, the next with {parts[1]!r}: no plan can send from one to another; add "
            "a fabric, or links"
        )


def _examine_model(document: ModelDocument) -> Examined:
    model = models.to_core(document)
    parameters = model.parameter_count
    if parameters > MAX_INTEGER:
        detail = f"at most {MAX_INTEGER} elements in all weights together; got {parameters}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("layers",), detail)])
    return Examined(
        summary={
            "layers": len(model.layers),
            "tensors": len(model.tensors),
            "parameters": parameters,
            **_described(document.description),
        }
    )


def _examine_profile(document: ProfileDocument) -> Examined:
    profile = profiles.to_core(document)
    sizes = sorted({measurement.microbatch_size for measurement in document.measurements})
    summary: dict[str, Any] = {
        "measurements": len(document.measurements),
        "layers": len({measurement.layer for measurement in document.measurements}),
        "smallest_microbatch_size": sizes[0],
        "largest_microbatch_size": sizes[-1],
        **_described(document.description),
    }
    stated = {"device": document.device, "precision": document.precision}
    summary |= {name: text for name, text in stated.items() if text is not UNSET}
    return Examined(summary, profile=profile)


def _examine_routing(document: RoutingDocument) -> Examined:
    built = routings.built_routing(document)
    routing = built.routing
    found = summarise_routing(routing)
    summary: dict[str, Any] = {"level": routing.level, "experts": routing.experts}
    if routing.top_k is not None:
        summary["top_k"] = routing.top_k
    if routing.skew is not None:
        summary["skew"] = routing.skew.kind
    else:
        summary["layers"] = len(routing.layers)
    summary["steps"] = routing.steps
    if found.sources is not None:
        summary["sources"] = found.sources
    if found.tokens is not None:
        summary["fewest_tokens"], summary["most_tokens"] = found.tokens
    if found.padded_tokens:
        summary["padded_tokens"] = found.padded_tokens
    if found.expert_max_over_mean is not None:
        least, most = found.expert_max_over_mean
        summary["least_expert_max_over_mean"] = least
        summary["most_expert_max_over_mean"] = most
    stated = {"model": document.model, "dataset": document.dataset}
    summary |= {name: text for name, text in stated.items() if text is not UNSET}
    return Examined(summary | _described(document.description), built.warnings)


def _units_of_routing(document: RoutingDocument) -> int:
    """Each entry is looked at a few times, beyond being read."""
    if isinstance(document.layers, UnsetType):
        return 0
    return sum(
        (or_none(document.top_k) or 1) * len(or_none(layer.topk_ids) or ())
        + document.experts * (1 + len(or_none(layer.matrix) or ()))
        for layer in document.layers
    )


def _examine_plan(document: PlanDocument) -> Examined:
    """What needs no other document is checked now, the rest when the plan is priced."""
    plan = plans.to_core(document)
    check_work(plan)
    faults = check_plan(plan)
    if faults:
        raise InvalidInput(faults)
    return Examined(
        summary={
            "schedule": plan.schedule.kind,
            "pipeline": plan.degrees.pipeline,
            "world_size": plan.degrees.world_size,
            "microbatches": plan.workload.microbatches,
            **_described(document.description),
        }
    )


def _described(description: str | UnsetType) -> dict[str, str]:
    return {} if isinstance(description, UnsetType) else {"description": description}


DOCUMENT_TYPES = {
    document_type.kind: document_type
    for document_type in (
        DocumentType(
            DocumentKind.TOPOLOGY, TopologyDocument, _examine_topology, _units_of_topology
        ),
        DocumentType(DocumentKind.MODEL, ModelDocument, _examine_model),
        DocumentType(DocumentKind.PROFILE, ProfileDocument, _examine_profile),
        DocumentType(DocumentKind.ROUTING, RoutingDocument, _examine_routing, _units_of_routing),
        DocumentType(DocumentKind.PLAN, PlanDocument, _examine_plan, most_bytes=MAX_PLAN_BYTES),
    )
}


def references_of(document: Struct) -> tuple[NamedReference, ...]:
    """What a document refers to, in the order of its fields; only plans refer to anything."""
    if not isinstance(document, PlanDocument):
        return ()
    found: list[tuple[DocumentKind, str | UnsetType, Path]] = [
        (DocumentKind.TOPOLOGY, document.topology, ("topology",)),
        (DocumentKind.MODEL, document.costs.model, ("costs", "model")),
        (DocumentKind.PROFILE, document.costs.profile, ("costs", "profile")),
    ]
    if not isinstance(document.moe, UnsetType):
        found.append((DocumentKind.ROUTING, document.moe.routing, ("moe", "routing")))
    return tuple(
        NamedReference(kind, reference, path)
        for kind, reference, path in found
        if not isinstance(reference, UnsetType)
    )


# What a row repeats of a measurement under the same name.
_AS_MEASURED = (
    *TIME_FIELDS,
    "saved_activation_bytes",
    "workspace_bytes",
    "samples",
    "relative_deviation",
)


def measurement_rows(profile: Profile, revision: Revision) -> Iterator[MeasurementRow]:
    """A profile's measurements as rows under the revision that was stored, in its order."""
    return (
        MeasurementRow(
            profile=revision.name,
            profile_revision=revision.number,
            position=position,
            layer=measurement.layer,
            device=profile.device,
            precision=profile.precision,
            microbatch_size=measurement.point.microbatch_size,
            sequence_length=measurement.point.sequence_length,
            tensor_parallel=measurement.point.tensor_parallel,
            recompute=measurement.point.recompute.value,
            **{field: getattr(measurement, field) for field in _AS_MEASURED},
        )
        for position, measurement in enumerate(profile.measurements)
    )
