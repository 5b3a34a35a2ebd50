"""The edits of a topology document: what has failed, and links that are not as they were made."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from service.core.topology import spec
from service.core.topology.cluster import RateOrigin
from service.formats.documents.fields import or_none
from service.formats.documents.topology_fields import (
    BytesPerSecond,
    LinkEnd,
    Name,
    Text,
    TopologyPart,
)
from service.formats.documents.topology_links import (
    EffectiveRate,
    LatencyFloor,
    Observation,
    TypicalLatency,
    measured_to_core,
)

__all__ = [
    "ChangedLinkDocument",
    "EditDocument",
    "FailedDeviceDocument",
    "FailedHostDocument",
    "FailedLinkDocument",
    "edit_to_core",
]


class _EditDocument(TopologyPart, frozen=True, kw_only=True, tag_field="kind"):
    """One exception to what the rest of the document says."""


class FailedHostDocument(_EditDocument, frozen=True, kw_only=True, tag="failed_host"):
    """A host that is out of order, with all that is in it and all links there."""

    name: Annotated[Name, Meta(description="The host.", examples=["host7"])]


class FailedDeviceDocument(_EditDocument, frozen=True, kw_only=True, tag="failed_device"):
    """A device or a switch that is out of order, with all its links."""

    name: Annotated[LinkEnd, Meta(examples=["host0/gpu3", "spine1"])]


class _LinkEditDocument(_EditDocument, frozen=True, kw_only=True):
    """An edit of the link between two ends, in whichever directions it has."""

    source: LinkEnd
    target: LinkEnd
    one_way: Annotated[bool, Meta(description="From source to target only.")] = False


class FailedLinkDocument(_LinkEditDocument, frozen=True, kw_only=True, tag="failed_link"):
    """A link that is out of order."""


class ChangedLinkDocument(_LinkEditDocument, frozen=True, kw_only=True, tag="changed_link"):
    """A link that is not as the rest of the document makes it. What is absent stays as it is."""

    lanes: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=1024,
                description="How many of its cables or lanes are left: nominal and effective rates"
                " are those of so many, a measured one is dropped.",
            ),
        ]
        | UnsetType
    ) = UNSET
    bandwidth_bytes_per_second: (
        Annotated[
            BytesPerSecond,
            Meta(
                description="Another nominal rate of all lanes together, instead of lanes: what the"
                " link carries in practice is then unknown unless it is given too."
            ),
        ]
        | UnsetType
    ) = UNSET
    bandwidth_origin: (
        Annotated[RateOrigin, Meta(description="How that rate came to be known; else `stated`.")]
        | UnsetType
    ) = UNSET
    bandwidth_source: (
        Annotated[Text, Meta(description="Where that rate comes from, in words.")] | UnsetType
    ) = UNSET
    effective_bytes_per_second: EffectiveRate = UNSET
    measured_bytes_per_second: Observation = UNSET
    latency_floor_seconds: LatencyFloor = UNSET
    latency_seconds: TypicalLatency = UNSET


EditDocument = FailedHostDocument | FailedDeviceDocument | FailedLinkDocument | ChangedLinkDocument


def edit_to_core(edit: EditDocument) -> spec.Edit:
    """The edit as the core knows it."""
    if isinstance(edit, FailedHostDocument):
        return spec.FailedHost(edit.name)
    if isinstance(edit, FailedDeviceDocument):
        return spec.FailedDevice(edit.name)
    if isinstance(edit, FailedLinkDocument):
        return spec.FailedLink(source=edit.source, target=edit.target, one_way=edit.one_way)
    return spec.ChangedLink(
        source=edit.source,
        target=edit.target,
        one_way=edit.one_way,
        lanes=or_none(edit.lanes),
        bandwidth_bytes_per_second=or_none(edit.bandwidth_bytes_per_second),
        bandwidth_origin=or_none(edit.bandwidth_origin),
        bandwidth_source=or_none(edit.bandwidth_source),
        effective_bytes_per_second=or_none(edit.effective_bytes_per_second),
        measured=measured_to_core(edit.measured_bytes_per_second),
        latency_floor_seconds=or_none(edit.latency_floor_seconds),
        latency_seconds=or_none(edit.latency_seconds),
    )
