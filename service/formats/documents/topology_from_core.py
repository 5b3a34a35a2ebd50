"""A topology document written from what the core knows: the way back of `topology.to_core`."""

import datetime
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology import spec
from service.formats.documents.topology import TopologyDocument
from service.formats.documents.topology_fields import MAX_ASSUMPTIONS, MAX_SENTENCE

__all__ = ["MAX_ENTRIES", "from_core"]

# Devices and links written out, host by host: tens of megabytes of JSON.
MAX_ENTRIES = 200_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def from_core(cluster: spec.ClusterSpec) -> TopologyDocument:
    """The document that means `cluster`, with its hosts, switches and links written out.

    What has its default value is not written. Raises `InvalidInput` for a cluster with a fabric, a
    device network or edits (what is made from a few numbers has a document already), when the
    document would be larger than one may be, or would hold a name, number or text that documents
    don't.
    """
    if cluster.fabric is not None or cluster.device_network is not None or cluster.edits:
        detail = "only hosts, switches and links are written out"
        raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, (), detail)])
    entries = len(cluster.links) + sum(len(h.devices) + len(h.links) for h in cluster.hosts)
    if entries > MAX_ENTRIES:
        detail = (
            f"the document would list {entries} devices and links, at most {MAX_ENTRIES} may be:"
            " name hosts with a count, or a reference design"
        )
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, (), detail)])
    # Like hosts share their devices and links, which are written once for all of them.
    known: dict[int, Any] = {}
    plain = {
        "hosts": [_host(host, known) for host in cluster.hosts],
        "switches": [
            _without_gaps(name=switch.name, kind=switch.kind.value, rail=switch.rail)
            for switch in cluster.switches
        ],
        "links": [_link(link) for link in cluster.links],
        "assumptions": _sentences(cluster.assumptions),
    }
    try:
        return msgspec.convert(plain, TopologyDocument)
    except msgspec.ValidationError as error:
        detail = f"the topology can't be written as a document: {error}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, (), detail[:500])]) from error


def _sentences(assumptions: Sequence[str]) -> list[str]:
    """As many as a document holds, each on one line; the last says how many more there were."""
    lines = [_CONTROL.sub(" ", text)[:MAX_SENTENCE] for text in assumptions]
    if len(lines) <= MAX_ASSUMPTIONS:
        return lines
    kept = lines[: MAX_ASSUMPTIONS - 1]
    return [*kept, f"and {len(lines) - len(kept)} more, which the answer to the import listed"]


def _host(host: spec.HostSpec, known: dict[int, Any]) -> dict[str, Any]:
    if id(host.devices) not in known:
        known[id(host.devices)] = [_device(device) for device in host.devices]
    if id(host.links) not in known:
        known[id(host.links)] = [_link(link) for link in host.links]
    return _without_gaps(
        name=host.name,
        count=host.count,
        alike=list(host.alike),
        design=host.design,
        devices=known[id(host.devices)],
        links=known[id(host.links)],
    )


def _device(device: spec.DeviceSpec) -> dict[str, Any]:
    return _without_gaps(
        name=device.name,
        kind=device.kind.value,
        product=device.product,
        rail=device.rail,
        port_bytes_per_second=device.port_bytes_per_second,
        port_effective_bytes_per_second=device.port_effective_bytes_per_second,
        port_origin=device.port_origin.value,
        port_source=device.port_source,
        port_lanes=device.port_lanes,
        port=device.port,
        card=device.card,
        slot=device.slot,
        memory_bytes=device.memory_bytes,
        memory_bytes_per_second=device.memory_bytes_per_second,
        peak_flops=dict(device.peak_flops),
    )


def _link(link: spec.LinkSpec) -> dict[str, Any]:
    return _without_gaps(
        source=link.source,
        target=link.target,
        kind=link.kind.value,
        bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        bandwidth_origin=link.bandwidth_origin.value,
        bandwidth_source=link.bandwidth_source,
        effective_bytes_per_second=link.effective_bytes_per_second,
        measured_bytes_per_second=_measured(link.measured),
        latency_floor_seconds=link.latency_floor_seconds or None,
        latency_seconds=link.latency_seconds,
        lanes=link.lanes,
        duplex=link.duplex.value,
        reverse=None if link.reverse is None else _reverse(link.reverse),
    )


def _reverse(reverse: spec.ReverseSpec) -> dict[str, Any]:
    origin = reverse.bandwidth_origin
    return _without_gaps(
        bandwidth_bytes_per_second=reverse.bandwidth_bytes_per_second,
        bandwidth_origin=None if origin is None else origin.value,
        bandwidth_source=reverse.bandwidth_source,
        effective_bytes_per_second=reverse.effective_bytes_per_second,
        measured_bytes_per_second=_measured(reverse.measured),
        latency_floor_seconds=reverse.latency_floor_seconds,
        latency_seconds=reverse.latency_seconds,
    )


def _measured(measured: spec.MeasuredRate | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    return {
        "value": measured.bytes_per_second,
        "source": measured.source,
        "date": datetime.date.fromisoformat(measured.date),
    }


def _without_gaps(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
