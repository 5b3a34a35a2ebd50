"""Small readings to join: a host with two GPUs and two NICs, and fabrics over such hosts."""

from service.core.topology.cluster import Cluster, LinkKind, RateOrigin, VertexKind
from service.core.topology.expand import expand
from service.core.topology.join import Joined, Stated
from service.core.topology.readings import (
    AttachedHost,
    Cable,
    CableEnd,
    FoundDevice,
    FoundHost,
    FoundLink,
    FoundSwitch,
    NvlinkDomain,
    Rate,
    Reading,
)

__all__ = [
    "H100",
    "NDR",
    "at_host",
    "at_switch",
    "cluster_of",
    "device",
    "domain",
    "host",
    "inside",
    "link",
    "rail_fabric",
    "rate",
    "stated",
    "tree",
]

H100 = Stated(gpu="H100 SXM5")
NDR = Rate(50e9, RateOrigin.READ, "4x NDR")
PCIE = Rate(63e9, RateOrigin.READ, "32 GT/s x16")


def device(name: str, kind: VertexKind, **facts: object) -> FoundDevice:
    return FoundDevice(name=name, kind=kind, line=1, **facts)  # type: ignore[arg-type]


def link(
    source: str, target: str, kind: LinkKind, rate: Rate | None = None, lanes: int = 1
) -> FoundLink:
    return FoundLink(source=source, target=target, kind=kind, line=1, rate=rate, lanes=lanes)


def host(name: str | None = None, gpus: int = 2, rate: Rate | None = PCIE) -> FoundHost:
    """GPU k and NIC k under PCIe switch k, all switches under one CPU, NVLinks from 0 to 1."""
    devices = [
        device(f"gpu{k}", VertexKind.GPU, pci_address=f"0000:0{k}:00.0") for k in range(gpus)
    ]
    devices += [
        device(
            f"nic{k}",
            VertexKind.NIC,
            logical_names=(f"mlx5_{2 * k}",),
            port_guid=f"00000000000000a{k}",
            port_number=1,
            port_rate=NDR,
        )
        for k in range(gpus)
    ]
    devices += [device(f"pcie{k}", VertexKind.PCIE_SWITCH) for k in range(gpus)]
    devices.append(device("cpu0", VertexKind.CPU))
    links = [link("gpu0", "gpu1", LinkKind.NVLINK, lanes=6)]
    for k in range(gpus):
        links.append(link(f"gpu{k}", f"pcie{k}", LinkKind.PCIE, rate))
        links.append(link(f"nic{k}", f"pcie{k}", LinkKind.PCIE, rate))
        links.append(link(f"pcie{k}", "cpu0", LinkKind.HOST_BRIDGE, rate))
    return FoundHost(name=name, line=1, devices=tuple(devices), links=tuple(links))


def inside(*hosts: FoundHost, format_: str = "nccl_xml") -> Reading:
    return Reading(format=format_, facts={"hosts": len(hosts)}, hosts=hosts or (host(),))


def at_host(name: str | None, adapter: str | None, **facts: object) -> CableEnd:
    return CableEnd(host=name, adapter=adapter, **facts)  # type: ignore[arg-type]


def at_switch(name: str, port: int | None = None) -> CableEnd:
    return CableEnd(switch=name, port_number=port)


def rail_fabric(
    hosts: int = 2, adapters: tuple[str, ...] = ("mlx5_0", "mlx5_2"), rate: Rate | None = NDR
) -> Reading:
    """Adapter k of every host goes to leaf k; every leaf has two cables to the spine."""
    leaves = [f"L{k}" for k in range(len(adapters))]
    switches = [FoundSwitch(name=name, line=1, guid=f"{name}-guid") for name in (*leaves, "S0")]
    cables = [
        Cable(
            source=at_host(f"node{number}", adapter, port_number=1),
            target=at_switch(leaf, number + 1),
            line=1,
            rate=rate,
        )
        for number in range(hosts)
        for adapter, leaf in zip(adapters, leaves, strict=True)
    ]
    cables += [
        Cable(
            source=at_switch(leaf, 30 + cable),
            target=at_switch("S0", 2 * number + cable),
            line=1,
            rate=rate,
        )
        for number, leaf in enumerate(leaves)
        for cable in range(2)
    ]
    return Reading(
        format="ibnetdiscover",
        facts={"switches": len(switches)},
        switches=tuple(switches),
        cables=tuple(cables),
    )


def tree(*attached: tuple[str, str | None], above: tuple[tuple[str, str], ...] = ()) -> Reading:
    """A tree of names: hosts with the switch they are below, switches with the one above."""
    names = dict.fromkeys([s for _, s in attached if s] + [name for pair in above for name in pair])
    return Reading(
        format="slurm_conf",
        facts={},
        switches=tuple(FoundSwitch(name=name, line=1) for name in names),
        cables=tuple(
            Cable(source=at_switch(one), target=at_switch(other), line=1) for one, other in above
        ),
        attached=tuple(AttachedHost(host=h, switch=s, line=1) for h, s in attached),
        tree_only=True,
    )


def domain(name: str, *hosts: str, line: int = 3) -> Reading:
    return Reading(
        format="slurm_conf", facts={}, domains=(NvlinkDomain(name=name, hosts=hosts, line=line),)
    )


def stated(**fields: object) -> Stated:
    """What the caller says, of H100 when nothing else is said."""
    return Stated(**{"gpu": "H100 SXM5", **fields})  # type: ignore[arg-type]


def cluster_of(joined: Joined) -> Cluster:
    return expand(joined.spec).cluster


def rate(cluster: Cluster, source: str, target: str) -> tuple[float, RateOrigin]:
    found = cluster.links[source, target]
    return found.bandwidth_bytes_per_second, found.bandwidth_origin
