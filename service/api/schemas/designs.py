"""Wire types of reference designs: what is in them, in counts and rates."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, convert

from service.api.schemas.topologies import DeviceEntry, LinkEntry, device_entry, link_entry
from service.core.topology.cluster import Cluster, Link, LinkKind, RateOrigin, VertexKind
from service.formats.documents.fields import or_unset
from service.formats.documents.topology import TopologyDocument
from service.formats.reference_designs import Reference, ReferenceKind

__all__ = ["Design", "DesignEntry", "Designs", "LinkGroup", "design_entry", "whole_design"]


class LinkGroup(Struct, kw_only=True, frozen=True):
    """Cables that are alike. Rates are of one cable (all its lanes), in one direction."""

    kind: LinkKind
    between: Annotated[
        list[VertexKind],
        Meta(min_length=2, max_length=2, description="What they join, in the order of names."),
    ]
    count: Annotated[int, Meta(ge=1, description="How many cables, each in both directions.")]
    lanes: Annotated[int, Meta(ge=1, description="Links of one cable.")]
    bandwidth_bytes_per_second: Annotated[float, Meta(gt=0, description="Nominal.")]
    bandwidth_origin: RateOrigin
    bandwidth_source: Annotated[str, Meta(description="Where it follows from.")] | UnsetType = UNSET
    effective_bytes_per_second: (
        Annotated[float, Meta(gt=0, description="What like links carry in practice.")] | UnsetType
    ) = UNSET


class DesignEntry(Struct, kw_only=True, frozen=True):
    """A reference design in a few counts. What is absent is unknown."""

    name: Annotated[
        str,
        Meta(description="The `design` of a host; a network by its `kind`.", examples=["dgx-h100"]),
    ]
    kind: ReferenceKind
    title: str
    hosts: Annotated[int, Meta(ge=1, description="In the example: 1 for a design of a host.")]
    vertices_by_kind: Annotated[
        dict[str, int],
        Meta(description="Of one host; of a network the accelerators and what is outside hosts."),
    ]
    link_groups: Annotated[
        list[LinkGroup], Meta(description="Of one host; of a network those that are not in hosts.")
    ]
    accelerator: (
        Annotated[DeviceEntry, Meta(description="The first one; all are alike.")] | UnsetType
    ) = UNSET
    assumptions: Annotated[list[str], Meta(description="What of it is taken for granted.")]


class Designs(Struct, kw_only=True, frozen=True):
    """All reference designs."""

    items: list[DesignEntry]


class Design(DesignEntry, kw_only=True, frozen=True):
    """A reference design with every part, and a document that uses it."""

    document: Annotated[
        TopologyDocument, Meta(description="A topology to start from: PUT it under a name.")
    ]
    devices: (
        Annotated[list[DeviceEntry], Meta(description="Of a host: all that is in it.")] | UnsetType
    ) = UNSET
    links: (
        Annotated[list[LinkEntry], Meta(description="Of a host: every directed link in it.")]
        | UnsetType
    ) = UNSET


def design_entry(reference: Reference) -> DesignEntry:
    """One design in counts and rates."""
    return DesignEntry(**_fields(reference))


def whole_design(reference: Reference) -> Design:
    """One design with its parts and a document."""
    is_host = reference.kind is ReferenceKind.HOST
    cluster = reference.cluster
    return Design(
        **_fields(reference),
        document=convert(reference.document, TopologyDocument),
        devices=[device_entry(one) for one in cluster.vertices.values()] if is_host else UNSET,
        links=[link_entry(one) for one in cluster.links.values()] if is_host else UNSET,
    )


def _fields(reference: Reference) -> dict[str, Any]:
    cluster, is_host = reference.cluster, reference.kind is ReferenceKind.HOST
    vertices = cluster.vertices
    counted = [
        one
        for one in vertices.values()
        if is_host or one.host is None or one.kind is VertexKind.GPU
    ]
    links = [
        link
        for link in cluster.links.values()
        if is_host or None in (vertices[link.source].host, vertices[link.target].host)
    ]
    accelerator = cluster.devices[0]
    return {
        "name": reference.name,
        "kind": reference.kind,
        "title": reference.title,
        "hosts": len(cluster.hosts),
        "vertices_by_kind": dict(Counter(one.kind.value for one in counted)),
        "link_groups": list(_groups(cluster, links)),
        "accelerator": UNSET if accelerator.product is None else device_entry(accelerator),
        "assumptions": list(reference.assumptions),
    }


def _groups(cluster: Cluster, links: Sequence[Link]) -> Iterator[LinkGroup]:
    """Cables that are alike, in the order of the first one; each is counted in one direction."""
    counts = Counter[tuple[Any, ...]]()
    for link in links:
        ends = cluster.vertices[link.source], cluster.vertices[link.target]
        is_one_way = (link.target, link.source) not in cluster.links
        if link.source < link.target or is_one_way:
            between = tuple(sorted((end.kind for end in ends), key=str))
            counts[
                link.kind,
                between,
                link.lanes,
                link.bandwidth_bytes_per_second,
                *(
                    link.bandwidth_origin,
                    link.bandwidth_source,
                    link.effective_bytes_per_second,
                ),
            ] += 1
    for (kind, between, lanes, rate, origin, source, effective), count in counts.items():
        yield LinkGroup(
            kind=kind,
            between=list(between),
            count=count,
            lanes=lanes,
            bandwidth_bytes_per_second=rate,
            bandwidth_origin=origin,
            bandwidth_source=or_unset(source),
            effective_bytes_per_second=or_unset(effective),
        )
