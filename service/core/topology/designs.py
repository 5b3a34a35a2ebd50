"""Reference designs of hosts by name: the tables of `design_facts`, wired up."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.design_facts import FACTS, GB, GpuFacts, HostFacts, Wire
from service.core.topology.spec import DeviceSpec, LinkSpec

__all__ = ["DESIGNS", "HostDesign"]


@dataclass(frozen=True, slots=True)
class HostDesign:
    """The inside of one host: devices and links by their names within it, and what is assumed."""

    name: str
    title: str
    devices: tuple[DeviceSpec, ...]
    links: tuple[LinkSpec, ...]
    assumptions: tuple[str, ...]


def _devices(facts: HostFacts) -> tuple[DeviceSpec, ...]:
    gpus, nics = [], []
    for switch in range(facts.pcie_switches):
        for local in range(facts.gpus_per_switch):
            # Each GPU is paired with the NIC of its own place under the switch.
            paired = local * facts.nics_per_switch // facts.gpus_per_switch
            name = f"gpu{switch * facts.gpus_per_switch + local}"
            rail = switch * facts.nics_per_switch + paired
            gpus.append(_gpu(name, rail, facts.gpu))
        for local in range(facts.nics_per_switch):
            rail = switch * facts.nics_per_switch + local
            nics.append(
                DeviceSpec(
                    name=f"nic{rail}",
                    kind=VertexKind.NIC,
                    rail=rail,
                    port_bytes_per_second=facts.nic.bandwidth,
                    port_effective_bytes_per_second=facts.nic.effective,
                    port_origin=RateOrigin.PRODUCT,
                    port_source=facts.nic.source,
                )
            )
    switches = [
        DeviceSpec(name=f"pcie{index}", kind=VertexKind.PCIE_SWITCH)
        for index in range(facts.pcie_switches)
    ]
    cpus = [DeviceSpec(name=f"cpu{index}", kind=VertexKind.CPU) for index in range(2)]
    if facts.nvswitch_port is not None:
        switches.insert(0, DeviceSpec(name="nvswitch0", kind=VertexKind.NVSWITCH))
    return (*gpus, *nics, *switches, *cpus)


def _gpu(name: str, rail: int, facts: GpuFacts | None) -> DeviceSpec:
    if facts is None:
        return DeviceSpec(name=name, kind=VertexKind.GPU, rail=rail)
    return DeviceSpec(
        name=name,
        kind=VertexKind.GPU,
        rail=rail,
        product=facts.product,
        memory_bytes=facts.memory_bytes,
        memory_bytes_per_second=facts.memory_bytes_per_second,
        peak_flops=dict(facts.peak_flops),
    )


def _link(source: str, target: str, kind: LinkKind, wire: Wire, count: int = 1) -> LinkSpec:
    return LinkSpec(
        source=source,
        target=target,
        kind=kind,
        bandwidth_bytes_per_second=wire.bandwidth * count,
        effective_bytes_per_second=wire.effective and wire.effective * count,
        latency_seconds=wire.latency_seconds,
        lanes=wire.lanes * count,
        bandwidth_origin=RateOrigin.PRODUCT,
        bandwidth_source=wire.source,
    )


def _links(facts: HostFacts) -> tuple[LinkSpec, ...]:
    links = []
    gpus = facts.pcie_switches * facts.gpus_per_switch
    nics = facts.pcie_switches * facts.nics_per_switch
    if facts.nvswitch_port is not None:
        links += [
            _link(f"gpu{gpu}", "nvswitch0", LinkKind.NVLINK, facts.nvswitch_port)
            for gpu in range(gpus)
        ]
    if facts.nvlink is not None:
        links += [
            _link(f"gpu{one}", f"gpu{other}", LinkKind.NVLINK, facts.nvlink, count)
            for one, other, count in facts.mesh
        ]
    for prefix, number, per_switch in (
        ("gpu", gpus, facts.gpus_per_switch),
        ("nic", nics, facts.nics_per_switch),
    ):
        links += [
            _link(f"{prefix}{index}", f"pcie{index // per_switch}", LinkKind.PCIE, facts.pcie)
            for index in range(number)
        ]
    links += [
        _link(f"pcie{s}", f"cpu{2 * s // facts.pcie_switches}", LinkKind.HOST_BRIDGE, facts.pcie)
        for s in range(facts.pcie_switches)
    ]
    links.append(
        LinkSpec(
            source="cpu0",
            target="cpu1",
            kind=LinkKind.SOCKET,
            bandwidth_bytes_per_second=facts.socket.links * facts.socket.link_rate,
            effective_bytes_per_second=facts.socket.effective,
            lanes=facts.socket.links,
            bandwidth_origin=RateOrigin.ASSUMED,
            bandwidth_source=f"{facts.socket.links} x {facts.socket.words}",
        )
    )
    return tuple(links)


def _assumptions(facts: HostFacts) -> tuple[str, ...]:
    socket = facts.socket
    nominal, effective = socket.links * socket.link_rate / GB, socket.effective / GB
    wiring = f"{socket.links} x {socket.words} ({nominal:g} GB/s nominal)"
    stated = [
        f"{facts.name}: the socket link is assumed to be {wiring} and to carry {effective:g} GB/s"
    ]
    if facts.nvswitch_port is not None:
        stated.append(f"{facts.name}: all NVSwitch chips of a host are one non-blocking vertex")
    wires = {"NVLink": facts.nvswitch_port, "PCIe": facts.pcie, "NIC": facts.nic}
    measured = [name for name, wire in wires.items() if wire is not None and wire.effective]
    stated.append(
        f"{facts.name}: effective rates ({', '.join(measured)}) are published measurements of like"
        " links, not of this cluster"
    )
    return (*stated, *facts.assumptions)


def _design(facts: HostFacts) -> HostDesign:
    return HostDesign(
        name=facts.name,
        title=facts.title,
        devices=_devices(facts),
        links=_links(facts),
        assumptions=_assumptions(facts),
    )


DESIGNS: Mapping[str, HostDesign] = MappingProxyType(
    {facts.name: _design(facts) for facts in FACTS}
)
"""Every reference design by name."""
