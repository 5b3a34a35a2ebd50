"""Random topologies, seeded: designs, listed hosts, fabrics, odd extra links, torn parts."""

from dataclasses import replace
from random import Random

from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.designs import DESIGNS
from service.core.topology.expand import expand
from service.core.topology.spec import (
    ClusterSpec,
    DeviceNetworkSpec,
    DeviceSpec,
    Duplex,
    FabricRates,
    FabricSpec,
    FatTree,
    HostSpec,
    LeafSpine,
    LinkSpec,
    NvlinkDomain,
    RailOptimised,
    SwitchSpec,
    Torus,
)

__all__ = ["random_cluster", "random_spec"]

# Few different rates, so that equal bottlenecks are common.
RATES = (5e9, 12.5e9, 25e9, 50e9, 100e9)


def _listed_host(random: Random, name: str) -> HostSpec:
    gpus, nics, bridges = random.randint(1, 4), random.randint(0, 3), random.randint(1, 2)
    devices = [DeviceSpec(name=f"gpu{i}", kind=VertexKind.GPU) for i in range(gpus)]
    devices += [
        DeviceSpec(name=f"nic{i}", kind=VertexKind.NIC, port_bytes_per_second=random.choice(RATES))
        for i in range(nics)
    ]
    devices += [DeviceSpec(name=f"pcie{i}", kind=VertexKind.PCIE_SWITCH) for i in range(bridges)]
    devices.append(DeviceSpec(name="cpu0", kind=VertexKind.CPU))
    ends = [device.name for device in devices if device.kind in (VertexKind.GPU, VertexKind.NIC)]
    links = [
        LinkSpec(
            source=end,
            target=f"pcie{random.randrange(bridges)}",
            kind=LinkKind.PCIE,
            bandwidth_bytes_per_second=random.choice(RATES),
        )
        for end in ends
        if random.random() < 0.9
    ]
    links += [
        LinkSpec(
            source=f"pcie{i}",
            target="cpu0",
            kind=LinkKind.HOST_BRIDGE,
            bandwidth_bytes_per_second=random.choice(RATES),
        )
        for i in range(bridges)
        if random.random() < 0.8
    ]
    return HostSpec(name=name, devices=tuple(devices), links=tuple(links))


def _fabric(random: Random) -> FabricSpec | None:
    shape = random.choice(("leaf_spine", "rail_optimised", "fat_tree", "none"))
    spines = random.randint(1, 3)
    rates = FabricRates(
        oversubscription_ratio=random.choice((None, 1.0, 2.0, 3.0)),
        link_bytes_per_second=random.choice((None, None, *RATES)),
    )
    if shape == "leaf_spine":
        return LeafSpine(hosts_per_leaf=random.randint(1, 3), spines=spines, rates=rates)
    if shape == "fat_tree":
        return FatTree(
            hosts_per_leaf=random.randint(1, 2),
            leaves_per_pod=random.randint(1, 2),
            spines_per_pod=spines,
            cores_per_spine=random.randint(1, 3),
            core_oversubscription_ratio=random.choice((None, 1.0, 2.0)),
            rates=rates,
        )
    if shape == "rail_optimised":
        if random.random() < 0.4:
            link = FabricRates(link_bytes_per_second=rates.link_bytes_per_second)
            return RailOptimised(spines=0, rates=link)
        per_leaf = random.choice((None, 1, 2))
        return RailOptimised(hosts_per_leaf=per_leaf, spines=spines, rates=rates)
    return None


def _device_network(random: Random, gpus: int, hosts: int) -> DeviceNetworkSpec | None:
    shape = random.choice(("nvlink_domain", "torus", *("none",) * 4))
    rate = random.choice(RATES)
    if shape == "nvlink_domain":
        return NvlinkDomain(
            hosts_per_domain=random.choice((None, 1, max(hosts - 1, 1))), link_bytes_per_second=rate
        )
    if shape == "torus":
        rows = max(size for size in (1, 2, 3, 4) if gpus % size == 0)
        return Torus(
            dimensions=(rows, gpus // rows),
            link_bytes_per_second=rate,
            wraparound=random.random() < 0.7,
        )
    return None


def _extra_link(random: Random, ends: list[str]) -> LinkSpec:
    source, target = random.sample(ends, 2)
    rate = random.choice(RATES)
    floor = random.choice((0.0, 0.0, 1e-7, 3e-7))
    return LinkSpec(
        source=source,
        target=target,
        kind=random.choice(list(LinkKind)),
        bandwidth_bytes_per_second=rate,
        effective_bytes_per_second=random.choice((None, rate, 0.8 * rate)),
        latency_floor_seconds=floor,
        latency_seconds=random.choice((None, floor, floor + 5e-7)),
        duplex=random.choice((Duplex.FULL, Duplex.FULL, Duplex.HALF, Duplex.SIMPLEX)),
    )


def random_spec(random: Random) -> ClusterSpec:
    """A valid topology of 1 to 6 hosts, not always connected."""
    hosts: list[HostSpec] = []
    for entry in range(random.randint(1, 3)):
        if random.random() < 0.3:
            hosts.append(_listed_host(random, f"odd{entry}"))
        else:
            design, count = random.choice(sorted(DESIGNS)), random.randint(1, 2)
            hosts.append(HostSpec(name=f"h{entry}-", count=count, design=design))
    switches = tuple(SwitchSpec(f"extra{i}") for i in range(random.randint(0, 2)))
    bare = ClusterSpec(hosts=tuple(hosts), switches=switches, fabric=_fabric(random))
    cluster = expand(bare).cluster
    network = _device_network(random, len(cluster.devices), len(cluster.hosts))
    bare = replace(bare, device_network=network)
    cluster = expand(bare).cluster
    ends, taken, links = list(cluster.vertices), set(cluster.links), []
    for _ in range(random.randint(0, 12)):
        link = _extra_link(random, ends)
        pairs = {(link.source, link.target), (link.target, link.source)}
        if not pairs & taken:
            taken |= pairs
            links.append(link)
    return replace(bare, links=tuple(links))


def random_cluster(random: Random) -> Cluster:
    """A random topology, expanded."""
    return expand(random_spec(random)).cluster
