"""Which capacity a link takes up: its own, or one that it shares with other links.

A half-duplex link has one capacity for both directions. Ports, cards and slots of a host have one
for all their devices: the functions of a port share its line, the devices of a card or of a slot
share its connection to the rest of the host. docs/decisions/0017-topology-model.md has the reasons.
"""

from collections.abc import Sequence

from service.core.errors import Fault, FaultCode
from service.core.topology.cluster import LinkKind, Vertex, VertexKind
from service.core.topology.spec import DeviceSpec

__all__ = ["device_group_faults", "shared_capacity"]

_INTO_THE_HOST = (LinkKind.PCIE, LinkKind.HOST_BRIDGE)


def shared_capacity(kind: LinkKind, source: Vertex, target: Vertex, *, half: bool) -> str | None:
    """The name of what a directed link shares with others, None when its capacity is its own.

    It is made of the link's ends, a device standing for the slot, card or port that connects it:
    `host/card0->host/pcie0`, and `host/gpu0<->host/pcie0` for a half-duplex link.
    """
    ends = [_connection(kind, source, target), _connection(kind, target, source)]
    if ends[0] == ends[1]:
        ends = [source.name, target.name]
    if half:
        return "<->".join(sorted(ends))
    return None if ends == [source.name, target.name] else "->".join(ends)


def _connection(kind: LinkKind, device: Vertex, far: Vertex) -> str:
    """What connects `device` to `far`: itself, or what it has in common with other devices."""
    if device.host is None:
        return device.name
    if device.host == far.host:
        inner = device.slot or device.card or device.port
        common = inner if kind in _INTO_THE_HOST else None
    else:
        common = device.port
    return device.name if common is None else f"{device.host}/{common}"


def device_group_faults(devices: Sequence[DeviceSpec]) -> list[Fault]:
    """What the ports, cards and slots of one host's devices have wrong; paths under `devices`.

    Their names differ from each other and from those of devices, because capacities are named by
    them. A port is one of a NIC, has one line rate and is on one card.
    """
    faults = []
    names = {device.name for device in devices}
    kinds: dict[str, str] = {}
    ports: dict[str, DeviceSpec] = {}
    for index, device in enumerate(devices):
        for what in ("port", "card", "slot"):
            name = getattr(device, what)
            if name is None:
                continue
            taken = "device" if name in names else kinds.setdefault(name, what)
            if taken != what:
                detail = (
                    f"{name!r} is the name of a {taken} of this host; name the {what} otherwise"
                )
                faults.append(Fault(FaultCode.DUPLICATE_NAME, (index, what), detail))
        if device.port is None:
            continue
        if device.kind is not VertexKind.NIC:
            detail = f"a port is one of a NIC; {device.name!r} is a {device.kind.value}"
            faults.append(Fault(FaultCode.INCONSISTENT, (index, "port"), detail))
            continue
        first = ports.setdefault(device.port, device)
        for field, words in (
            ("port_bytes_per_second", "has one line rate"),
            ("port_effective_bytes_per_second", "has one effective rate"),
            ("card", "is on one card"),
        ):
            here, there = getattr(device, field), getattr(first, field)
            if here != there:
                detail = (
                    f"port {device.port!r} {words}: {device.name!r} says {_said(here)},"
                    f" {first.name!r} {_said(there)}"
                )
                faults.append(Fault(FaultCode.INCONSISTENT, (index, field), detail))
    return faults


def _said(value: object) -> str:
    return "nothing" if value is None else repr(value)
