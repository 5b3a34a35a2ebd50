"""Clusters of a few lines, made of nothing but the links that a published figure speaks of."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from service.core.topology.cluster import Cluster, Link, LinkKind, Vertex, VertexKind

__all__ = [
    "GB",
    "between_devices",
    "cluster_of",
    "dgx_1_nvlinks",
    "nvswitch_hosts",
    "ring",
    "shared_nic_hosts",
    "torus",
    "two_dgx_2",
    "with_rates",
]

GB = 1e9

# Pairs of the hybrid cube mesh of eight V100 and how many NVLinks join each (the matrix that
# nvidia-smi shows of a DGX-1).
CUBE_MESH = (
    *((0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2)),
    *((2, 3, 2), (2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2)),
    *((5, 7, 1), (6, 7, 2)),
)


def cluster_of(
    devices: Iterable[str],
    joined: Iterable[tuple[str, str, float]],
    kind: LinkKind = LinkKind.NVLINK,
    kinds: Mapping[frozenset[str], LinkKind] | None = None,
) -> Cluster:
    """`devices` (host/gpu0) are accelerators, every other name a switch; links go both ways."""
    gpus = set(devices)
    vertices: dict[str, Vertex] = {}
    links: dict[tuple[str, str], Link] = {}
    joined = list(joined)
    for name in [*sorted(gpus), *(end for one, other, _ in joined for end in (one, other))]:
        host, _, inside = name.rpartition("/")
        if name in gpus:
            what = VertexKind.GPU
        else:
            what = VertexKind.NIC if inside.startswith("nic") else VertexKind.SWITCH
        vertices.setdefault(name, Vertex(name, what, host or None))
    for one, other, rate in joined:
        of_pair = (kinds or {}).get(frozenset((one, other)), kind)
        for source, target in ((one, other), (other, one)):
            links[source, target] = Link(source, target, of_pair, rate)
    return Cluster(vertices, links)


def between_devices(cluster: Cluster, count: int | None = None) -> Cluster:
    """The first few of its devices (all by default) and nothing but the links between them."""
    kept = dict(list({device.name: device for device in cluster.devices}.items())[:count])
    return Cluster(
        kept, {ends: link for ends, link in cluster.links.items() if set(ends) <= kept.keys()}
    )


def with_rates(cluster: Cluster, rates: Mapping[tuple[str, str], float]) -> Cluster:
    """The same cluster with other nominal rates on some directed links."""
    links = {
        ends: replace(
            link, bandwidth_bytes_per_second=rates.get(ends, link.bandwidth_bytes_per_second)
        )
        for ends, link in cluster.links.items()
    }
    return Cluster(cluster.vertices, links)


def ring(count: int, rate: float = 1.0) -> Cluster:
    """Devices in a ring, each joined to the next."""
    names = [f"a/gpu{number}" for number in range(count)]
    return cluster_of(names, [(names[i], names[(i + 1) % count], rate) for i in range(count)])


def torus(width: int, height: int, rate: float = 1.0) -> Cluster:
    """Devices on a torus, each joined to the next in its row and in its column."""
    name = {(x, y): f"a/gpu{x}-{y}" for x in range(width) for y in range(height)}
    joined = [(name[x, y], name[(x + 1) % width, y], rate) for x, y in name]
    joined += [(name[x, y], name[x, (y + 1) % height], rate) for x, y in name]
    return cluster_of(name.values(), joined)


def dgx_1_nvlinks() -> Cluster:
    """The NVLinks of a DGX-1 and nothing else, 25 GB/s each."""
    names = [f"a/gpu{number}" for number in range(8)]
    return cluster_of(names, [(names[i], names[j], 25 * GB * n) for i, j, n in CUBE_MESH])


def nvswitch_hosts(
    hosts: int, gpus: int, nvlink: float, nic: float | None = None, *, rails: bool = False
) -> Cluster:
    """Hosts whose GPUs meet in a switch, each with a NIC of its own when `nic` is given.

    All NICs meet in one switch, or those of each place in one of their own.
    """
    devices, joined, kinds = [], [], {}
    for host in (f"h{number}" for number in range(hosts)):
        for place in range(gpus):
            device, port = f"{host}/gpu{place}", f"{host}/nic{place}"
            devices.append(device)
            joined.append((device, f"{host}/nvs", nvlink))
            if nic is not None:
                switch = f"rail{place}" if rails else "switch"
                joined += [(device, port, nic), (port, switch, nic)]
                kinds[frozenset((device, port))] = LinkKind.PCIE
                kinds[frozenset((port, switch))] = LinkKind.NETWORK
    return cluster_of(devices, joined, kinds=kinds)


def two_dgx_2() -> Cluster:
    """Sixteen V100 with 125 GB/s into their switch, eight NICs of 12.5 GB/s beside it."""
    devices = [f"h{host}/gpu{place}" for host in range(2) for place in range(16)]
    joined = [(name, f"{name.partition('/')[0]}/nvs", 125e9) for name in devices]
    for host in range(2):
        for place in range(8):
            joined.append((f"h{host}/nvs", f"h{host}/nic{place}", 12.5e9))
            joined.append((f"h{host}/nic{place}", "switch", 12.5e9))
    return cluster_of(devices, joined)


def shared_nic_hosts(hosts: int) -> Cluster:
    """Hosts of eight A100 whose four NICs of 200 Gb/s each serve two; all meet in one switch."""
    devices, joined, kinds = [], [], {}
    for host in (f"h{number}" for number in range(hosts)):
        for place in range(8):
            device, port = f"{host}/gpu{place}", f"{host}/nic{place // 2}"
            devices.append(device)
            joined += [(device, f"{host}/nvs", 300 * GB), (device, port, 31.5 * GB)]
            kinds[frozenset((device, port))] = LinkKind.PCIE
        for port in (f"{host}/nic{place}" for place in range(4)):
            joined.append((port, "switch", 25 * GB))
            kinds[frozenset((port, "switch"))] = LinkKind.NETWORK
    return cluster_of(devices, joined, kinds=kinds)
