"""Reference designs of hosts by name: the rows of `design_table`, wired up."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.design_facts import GB, SocketFacts, Wire
from service.core.topology.design_table import FACTS, HostFacts
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
    for share in range(facts.shares):
        for local in range(facts.gpus_per_share):
            # Each GPU is paired with the NIC of its own place in the share.
            paired = local * facts.nics_per_share // facts.gpus_per_share
            name = f"gpu{share * facts.gpus_per_share + local}"
            rail = share * facts.nics_per_share + paired
            gpus.append(_gpu(name, rail, facts))
        for local in range(facts.nics_per_share):
            rail = share * facts.nics_per_share + local
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
    planes = 0 if facts.nvswitch_port is None else facts.nvswitch_planes
    switches = [
        DeviceSpec(name=f"nvswitch{plane}", kind=VertexKind.NVSWITCH) for plane in range(planes)
    ]
    switches += [
        DeviceSpec(name=name, kind=VertexKind.PCIE_SWITCH)
        for name in (*_pcie_switches(facts), *_upper_switches(facts))
    ]
    cpus = [DeviceSpec(name=f"cpu{index}", kind=VertexKind.CPU) for index in range(2)]
    return (*gpus, *nics, *switches, *cpus)


def _pcie_switches(facts: HostFacts) -> list[str]:
    return [] if facts.chip_to_chip else [f"pcie{share}" for share in range(facts.shares)]


def _upper_switches(facts: HostFacts) -> list[str]:
    if facts.switches_per_upper is None:
        return []
    return [f"upper{index}" for index in range(facts.shares // facts.switches_per_upper)]


def _gpu(name: str, rail: int, facts: HostFacts) -> DeviceSpec:
    gpu = DeviceSpec(name=name, kind=VertexKind.GPU, rail=rail)
    if facts.gpu is not None:
        gpu = replace(
            gpu,
            product=facts.gpu.product,
            memory_bytes=facts.gpu.memory_bytes,
            memory_bytes_per_second=facts.gpu.memory_bytes_per_second,
            peak_flops=dict(facts.gpu.peak_flops),
        )
    if facts.domain_port is not None:
        gpu = replace(
            gpu,
            port_bytes_per_second=facts.domain_port.bandwidth,
            port_effective_bytes_per_second=facts.domain_port.effective,
            port_origin=RateOrigin.PRODUCT,
            port_source=facts.domain_port.source,
            port_lanes=facts.domain_port.lanes,
        )
    return gpu


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
    return (*_gpu_links(facts), *_host_links(facts), _socket_link(facts.socket))


def _gpu_links(facts: HostFacts) -> Iterator[LinkSpec]:
    """What joins the GPUs without the host: NVSwitch planes, or links of pairs."""
    gpus = facts.shares * facts.gpus_per_share
    if facts.nvswitch_port is not None:
        for gpu in range(gpus):
            plane = f"nvswitch{gpu * facts.nvswitch_planes // gpus}"
            yield _link(f"gpu{gpu}", plane, LinkKind.NVLINK, facts.nvswitch_port)
    if facts.nvswitch_trunk is not None:
        yield _link("nvswitch0", "nvswitch1", LinkKind.NVLINK, facts.nvswitch_trunk)
    if facts.mesh is not None:
        for one, other, count in facts.mesh.pairs:
            yield _link(f"gpu{one}", f"gpu{other}", LinkKind.NVLINK, facts.mesh.link, count)


def _host_links(facts: HostFacts) -> Iterator[LinkSpec]:
    """How GPUs and NICs reach the CPUs."""
    gpus, nics = facts.shares * facts.gpus_per_share, facts.shares * facts.nics_per_share
    if facts.chip_to_chip is not None:
        for gpu in range(gpus):
            cpu = f"cpu{gpu // facts.gpus_per_share}"
            yield _link(f"gpu{gpu}", cpu, LinkKind.OTHER, facts.chip_to_chip)
        for nic in range(nics):
            cpu = f"cpu{nic // facts.nics_per_share}"
            yield _link(f"nic{nic}", cpu, LinkKind.HOST_BRIDGE, facts.pcie)
        return
    for prefix, number, per_share, wire in (
        ("gpu", gpus, facts.gpus_per_share, facts.gpu_pcie or facts.pcie),
        ("nic", nics, facts.nics_per_share, facts.pcie),
    ):
        for index in range(number):
            yield _link(f"{prefix}{index}", f"pcie{index // per_share}", LinkKind.PCIE, wire)
    top = _pcie_switches(facts)
    if facts.switches_per_upper is not None:
        below, top = top, _upper_switches(facts)
        for index, switch in enumerate(below):
            upper = top[index // facts.switches_per_upper]
            yield _link(switch, upper, LinkKind.PCIE, facts.pcie)
    for index, switch in enumerate(top):
        yield _link(switch, f"cpu{2 * index // len(top)}", LinkKind.HOST_BRIDGE, facts.pcie)


def _socket_link(facts: SocketFacts) -> LinkSpec:
    return LinkSpec(
        source="cpu0",
        target="cpu1",
        kind=LinkKind.SOCKET,
        bandwidth_bytes_per_second=facts.links * facts.link_rate,
        effective_bytes_per_second=facts.effective,
        lanes=facts.links,
        bandwidth_origin=RateOrigin.ASSUMED,
        bandwidth_source=f"{facts.links} x {facts.words}",
    )


def _assumptions(facts: HostFacts) -> tuple[str, ...]:
    socket = facts.socket
    wiring = (
        f"{socket.links} x {socket.words} ({socket.links * socket.link_rate / GB:g} GB/s nominal)"
    )
    carries = "" if socket.effective is None else f" and to carry {socket.effective / GB:g} GB/s"
    stated = [f"{facts.name}: the socket link is assumed to be {wiring}{carries}"]
    if facts.nvswitch_port is not None:
        of = "a host" if facts.nvswitch_planes == 1 else "a plane"
        stated.append(f"{facts.name}: all NVSwitch chips of {of} are one non-blocking vertex")
    wires = {
        "NVLink": facts.nvswitch_port,
        "xGMI": None if facts.mesh is None else facts.mesh.link,
        "PCIe": facts.pcie,
        "NIC": facts.nic,
    }
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
