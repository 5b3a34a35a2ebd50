"""Which GPUs leave their host through the same things, from the NIC to the sockets between.

Each GPU sends through its nearest NIC: the one of least routing distance in its host, then of the
widest way there, then of the GPU's own rail (the order of docs/decisions/0003-physical-path.md).
Where several are left the wiring does not say which is used: all are listed, and the first by name
is counted. What GPUs share is told of the way out; a full-duplex link has as much the other way.

Hosts that are alike inside, and whose NICs have ports of the same rates, are told of once.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.topology.cluster import Cluster, Link, Vertex, VertexKind
from service.core.topology.index import ClusterIndex, index_of
from service.core.topology.path_kinds import PathKind, path_kind
from service.core.topology.paths import PathFinder, PhysicalPath, path_finder
from service.core.topology.sharing import ShareLevel, level_of

__all__ = [
    "MAX_COMPARED_NICS",
    "CommonCapacity",
    "GpuNics",
    "HostSharing",
    "NicDistance",
    "Oddity",
    "OddityCode",
    "check_sharing_work",
    "host_sharing",
    "like_hosts",
]


MAX_COMPARED_NICS = 20_000


class OddityCode(StrEnum):
    """What may surprise about the way out of a host."""

    AMBIGUOUS_NIC = "ambiguous_nic"  # several NICs are equally near
    CROSSES_SOCKETS = "crosses_sockets"  # the nearest NIC is beyond a link between sockets
    IDLE_NIC = "idle_nic"  # a NIC that is nearest to no GPU
    MIXED_DISTANCES = "mixed_distances"  # some GPUs are nearer to their NICs than others
    NO_NIC = "no_nic"  # no NIC can be reached inside the host


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something to look at, and the devices it is about."""

    code: OddityCode
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NicDistance:
    """A NIC and the way to it: its kind, and its links up to the port of the NIC."""

    nic: str
    kind: PathKind
    path: PhysicalPath


@dataclass(frozen=True, slots=True)
class GpuNics:
    """The NICs nearest to a GPU, the one that is counted first; more than one is ambiguous.

    `equal_share_bytes_per_second` is the least of what an even split of each capacity on its way
    out leaves it, its NIC's port included, when all GPUs of the host send; None without a NIC.
    """

    gpu: str
    nics: tuple[NicDistance, ...]
    equal_share_bytes_per_second: float | None

    @property
    def is_ambiguous(self) -> bool:
        """Whether the wiring leaves open which NIC is used."""
        return len(self.nics) > 1


@dataclass(frozen=True, slots=True)
class CommonCapacity:
    """A capacity on the way out of several GPUs; `link` is one that takes it up."""

    level: ShareLevel
    link: Link
    gpus: tuple[str, ...]

    @property
    def equal_share_bytes_per_second(self) -> float:
        """The nominal rate divided evenly among its GPUs."""
        return self.link.bandwidth_bytes_per_second / len(self.gpus)


@dataclass(frozen=True, slots=True)
class HostSharing:
    """The ways out of one host, and what its GPUs have in common on them."""

    host: str
    gpus: tuple[GpuNics, ...]
    common: tuple[CommonCapacity, ...]
    oddities: tuple[Oddity, ...]


def like_hosts(
    cluster: Cluster, gpus: Collection[str] | None = None
) -> tuple[tuple[str, ...], ...]:
    """Hosts that are alike, group by group, in the order of the cluster.

    Alike are hosts with the same devices, rails and links inside, and the same links leaving them
    apart from where to. With `gpus` the hosts have the same ones of these, and others are left out.
    """
    return _all_alike(cluster) if gpus is None else _alike(cluster, gpus)


@lru_cache(maxsize=16)
def _all_alike(cluster: Cluster) -> tuple[tuple[str, ...], ...]:
    """All hosts, which all who ask for the same cluster share."""
    return _alike(cluster, None)


def _alike(cluster: Cluster, gpus: Collection[str] | None) -> tuple[tuple[str, ...], ...]:
    parts: dict[str, list[Hashable]] = {host: [] for host in cluster.hosts}
    chosen = None if gpus is None else set(gpus)
    wanted: set[str] = set()
    for vertex in cluster.vertices.values():
        if vertex.host is None:
            continue
        is_chosen = vertex.kind is VertexKind.GPU and (chosen is None or vertex.name in chosen)
        if is_chosen:
            wanted.add(vertex.host)
        common = vertex.port, vertex.card, vertex.slot
        parts[vertex.host].append((_within(vertex), vertex.kind, vertex.rail, common, is_chosen))
    for link in cluster.links.values():
        source, target = cluster.vertices[link.source], cluster.vertices[link.target]
        if source.host is not None:
            inside = _within(target) if target.host == source.host else None
            # What is shared follows from the devices, but for the directions of one link.
            shared = link.shared_capacity is not None and "<->" in link.shared_capacity
            parts[source.host].append(
                (_within(source), inside, link.kind, link.bandwidth_bytes_per_second, shared)
            )
    groups: dict[Hashable, list[str]] = {}
    for host, known in parts.items():
        if chosen is None or host in wanted:
            groups.setdefault(frozenset(known), []).append(host)
    return tuple(tuple(group) for group in groups.values())


def _within(vertex: Vertex) -> str:
    return vertex.name.removeprefix(f"{vertex.host}/")


def check_sharing_work(cluster: Cluster, hosts: Iterable[str]) -> None:
    """Raises `WorkBudgetExceeded` (path `host`) when `hosts` have too many GPUs times NICs."""
    index = index_of(cluster)
    pairs = sum(
        len(index.names(host, VertexKind.GPU)) * len(index.names(host, VertexKind.NIC))
        for host in hosts
    )
    if pairs > MAX_COMPARED_NICS:
        detail = (
            f"these hosts have {pairs} ways between a GPU and a NIC of its host, and an answer"
            f" compares at most {MAX_COMPARED_NICS}: ask for one host, or a smaller one"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("host",), detail)])


def host_sharing(cluster: Cluster, host: str, gpus: Collection[str] | None = None) -> HostSharing:
    """The ways out of `host` for all its GPUs, or for those among `gpus`."""
    finder = path_finder(cluster)
    index = index_of(cluster)
    nics = index.names(host, VertexKind.NIC)
    senders = [gpu for gpu in index.names(host, VertexKind.GPU) if gpus is None or gpu in gpus]
    ports = {nic: _port(cluster, index, nic) for nic in nics}
    nearest = {gpu: _nearest(cluster, finder, gpu, nics) for gpu in senders}
    ways = {
        gpu: (*found[0].path.links, *ports[found[0].nic]) for gpu, found in nearest.items() if found
    }
    common = tuple(_capacities(cluster, ways))
    users = {capacity.link.resource: len(capacity.gpus) for capacity in common}
    told = tuple(
        GpuNics(
            gpu,
            found,
            min(link.bandwidth_bytes_per_second / users[link.resource] for link in ways[gpu])
            if found
            else None,
        )
        for gpu, found in nearest.items()
    )
    return HostSharing(
        host=host,
        gpus=told,
        common=tuple(capacity for capacity in common if len(capacity.gpus) > 1),
        oddities=tuple(_oddities(told, nics)),
    )


def _port(cluster: Cluster, index: ClusterIndex, nic: str) -> tuple[Link, ...]:
    """The link that leaves the host at a NIC, when it is one: its port."""
    host = cluster.vertices[nic].host
    leaving = [link for link in index.leaving[nic] if cluster.vertices[link.target].host != host]
    return tuple(leaving) if len(leaving) == 1 else ()


def _nearest(
    cluster: Cluster, finder: PathFinder, gpu: str, nics: Sequence[str]
) -> tuple[NicDistance, ...]:
    found = []
    for nic in nics:
        path = finder.path(gpu, nic)
        if path is None or any(cluster.vertices[name].host is None for name in path.vertices):
            continue
        rail, own = cluster.vertices[nic].rail, cluster.vertices[gpu].rail
        foreign = rail is not None and own is not None and rail != own
        rank = path.distance, -(path.bandwidth_bytes_per_second or 0.0), foreign
        found.append((rank, NicDistance(nic, path_kind(cluster, path.links), path)))
    best = min((rank for rank, _ in found), default=None)
    return tuple(sorted((way for rank, way in found if rank == best), key=lambda way: way.nic))


def _capacities(cluster: Cluster, ways: Mapping[str, Sequence[Link]]) -> Iterator[CommonCapacity]:
    users: dict[str, dict[str, None]] = {}
    links: dict[str, Link] = {}
    for gpu, way in ways.items():
        for link in way:
            links.setdefault(link.resource, link)
            users.setdefault(link.resource, {})[gpu] = None
    for resource, link in links.items():
        yield CommonCapacity(level_of(cluster, link), link, tuple(users[resource]))


def _oddities(gpus: Sequence[GpuNics], nics: Sequence[str]) -> Iterator[Oddity]:
    without = tuple(one.gpu for one in gpus if not one.nics)
    if without:
        yield Oddity(OddityCode.NO_NIC, without)
    ambiguous = tuple(one.gpu for one in gpus if one.is_ambiguous)
    if ambiguous:
        yield Oddity(OddityCode.AMBIGUOUS_NIC, ambiguous)
    crossing = tuple(one.gpu for one in gpus if one.nics and one.nics[0].kind is PathKind.SYS)
    if crossing:
        yield Oddity(OddityCode.CROSSES_SOCKETS, crossing)
    kinds = {one.nics[0].kind for one in gpus if one.nics}
    if len(kinds) > 1:
        yield Oddity(OddityCode.MIXED_DISTANCES, tuple(one.gpu for one in gpus if one.nics))
    used = {way.nic for one in gpus for way in one.nics}
    idle = tuple(nic for nic in nics if nic not in used)
    if idle:
        yield Oddity(OddityCode.IDLE_NIC, idle)
