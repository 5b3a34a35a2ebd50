"""What the attributes of NCCL's XML say of one PCI function: kind, connection, ports."""

import re
from collections.abc import Callable
from enum import Enum, auto

from service.core.topology.cluster import VertexKind
from service.core.topology.readings import FoundDevice, Rate, RateOrigin
from service.formats.pasted_text import Findings, shown
from service.formats.pci_tree import card_of, pcie_rate
from service.formats.xml_elements import Element

__all__ = ["DeviceKind", "connection_rate", "hexadecimal", "kind_of", "nic_ports", "whole"]

_HEX = re.compile(r"(0x)?[0-9a-fA-F]{1,16}")
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) GT/s(?: PCIe)?")
# What links of devices that do nothing, and of emulated bridges, say (nccl-tests#256).
_IDLE_GIGATRANSFERS = 5.0
_MAX_MEGABITS = 10_000_000
_VIRTUAL_NICS = re.compile(r"(lo|virbr|docker|veth|br-|tun|tap).*")
_BRIDGES = (0x0604, 0x0801)  # the second is the data-direct function of ConnectX-8
_ACCELERATORS = (0x0300, 0x0302, 0x0380, 0x1200)


class DeviceKind(Enum):
    """What a PCI function is."""

    BRIDGE = auto()
    GPU = auto()
    NIC = auto()
    OTHER = auto()


def kind_of(element: Element) -> DeviceKind:
    """By what it holds, else by its class."""
    names = {child.name for child in element.children}
    if "gpu" in names:
        return DeviceKind.GPU
    if "nic" in names:
        return DeviceKind.NIC
    class_ = hexadecimal(element.attributes.get("class", ""))
    if "pci" in names or (class_ is not None and class_ >> 8 in _BRIDGES):
        return DeviceKind.BRIDGE
    if class_ is not None and class_ >> 8 in _ACCELERATORS:
        return DeviceKind.GPU
    if class_ is not None and class_ >> 16 == 0x02:
        return DeviceKind.NIC
    return DeviceKind.OTHER


def connection_rate(element: Element) -> tuple[Rate | None, str | None]:
    """The rate of a function's connection upwards, and why it is not what the file says."""
    speed = element.attributes.get("link_speed", "").strip()
    width = element.attributes.get("link_width", "").strip()
    found = _SPEED.fullmatch(speed)
    if found is None:
        if speed in {"", "Unknown"}:
            return None, None
        return None, f"link_speed {shown(speed)} is no speed that is known"
    gigatransfers = float(found[1])
    if gigatransfers <= _IDLE_GIGATRANSFERS:
        return None, f"link_speed {shown(speed)} is that of an idle or emulated link: not believed"
    if width in {"", "0"}:
        rate = pcie_rate(gigatransfers, 16)
        source = f"{speed} as the file says, 16 lanes since it does not say"
        return (rate and Rate(rate, RateOrigin.ASSUMED, source)) or None, None
    rate = pcie_rate(gigatransfers, whole(width) or 0)
    if rate is None:
        return None, f"link_width {shown(width)} at {speed} is no connection of PCIe"
    return Rate(rate, RateOrigin.READ, f"{speed} x{width}"), None


def nic_ports(
    findings: Findings,
    element: Element,
    address: str | None,
    numa: int | None,
    name_of: Callable[[Element | None], str],
) -> list[FoundDevice]:
    """The ports of a NIC: each <net>, or one port where the file holds only its PCI function.

    `element` is a <pci> with <nic> in it, or a <nic> itself.
    """
    nics = [element] if element.name == "nic" else list(element.named("nic"))
    nets = [net for nic in nics for net in nic.named("net")]
    # Functions of one device number share a connection, and so do the ports of one function.
    card = None if address is None else card_of(address)
    if not nets:
        if element.name == "nic" or nics:
            findings.leave_out(element.line, "a <nic> without a <net>")
            return []
        return [
            FoundDevice(
                name=name_of(None),
                kind=VertexKind.NIC,
                line=element.line,
                pci_address=address,
                card=card,
                numa=numa,
            )
        ]
    ports = []
    for net in nets:
        title = net.attributes.get("name", "")
        if _VIRTUAL_NICS.fullmatch(title):
            findings.leave_out(net.line, f"{shown(title)} is no NIC but a bridge inside the system")
            continue
        rail = whole(net.attributes.get("rail", ""))
        ports.append(
            FoundDevice(
                name=name_of(net),
                kind=VertexKind.NIC,
                line=net.line,
                pci_address=address,
                logical_names=(title,) if title else (),
                port_number=whole(net.attributes.get("port", "")),
                port_guid=_guid(net),
                port_rate=_port_rate(findings, net),
                card=card,
                rail=rail if rail is not None and 0 <= rail < 1024 else None,
                numa=numa,
            )
        )
    return ports


def _port_rate(findings: Findings, net: Element) -> Rate | None:
    text = net.attributes.get("speed", "")
    megabits = whole(text)
    if megabits is None or megabits <= 0:
        findings.leave_out(net.line, f"speed {shown(text)}: the rate of this port is not known")
        return None
    if megabits > _MAX_MEGABITS:
        findings.refuse(net.line, f"has speed {text}; it is in Mb/s, at most {_MAX_MEGABITS}")
        return None
    return Rate(megabits * 1e6 / 8, RateOrigin.READ, f"{megabits} Mb/s")


def _guid(net: Element) -> str | None:
    value = hexadecimal(net.attributes.get("guid", ""))
    return f"{value:016x}" if value else None


def hexadecimal(text: str) -> int | None:
    """`0x10de`, or without the prefix."""
    return int(text, 16) if _HEX.fullmatch(text) else None


def whole(text: str) -> int | None:
    """A whole number of at most nine digits."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None
