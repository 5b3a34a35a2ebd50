"""All that there is to say about the ways between two devices.

The pinned path comes first, then those that are as near and as wide, then those on which a GPU
forwards. What GPUs forward is no part of the pinned routing (docs/decisions/0003-physical-path.md);
communication libraries may do it, so these ways are shown with what they cost:

- `pxn`: to another host over a GPU of the same host that NVLink reaches, whose own pinned path
  leaves and arrives by NICs of one rail and passes no CPU before. Offered when the pinned path
  does not do so itself.
- `nvb`: within a host over a GPU that NVLink joins to both ends. Offered when the pinned path is
  not all NVLink itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.topology.cluster import Cluster, VertexKind
from service.core.topology.index import index_of
from service.core.topology.path_kinds import NicReach, PathKind, nic_reaches, path_kind
from service.core.topology.paths import PathFinder, PhysicalPath, joined, path_finder
from service.core.topology.sharing import SharedCapacity, shared_capacities, users_of

__all__ = [
    "MAX_CONCURRENT_PAIRS",
    "MAX_LINKS_SEARCHED",
    "MAX_LISTED_PATHS",
    "FoundPath",
    "PairPaths",
    "PathRole",
    "check_pairs",
    "find_pair_paths",
]

MAX_CONCURRENT_PAIRS = 1_024
MAX_LISTED_PATHS = 64

# Links looked at by all searches together: about a second. Pairs that are alike share a search.
MAX_LINKS_SEARCHED = 100_000_000

Pair = tuple[str, str]


class PathRole(StrEnum):
    """Why a path is listed."""

    PINNED = "pinned"
    EQUAL_COST = "equal_cost"
    PXN = "pxn"
    NVB = "nvb"


@dataclass(frozen=True, slots=True)
class FoundPath:
    """One way between two devices, and what it has in common with the concurrent pairs.

    `forwarded_by` is the GPU between, on the ways that have one. `source_nic` and `target_nic` are
    the NICs at the fabric, absent inside a host.
    """

    role: PathRole
    path: PhysicalPath
    kind: PathKind
    forwarded_by: str | None
    source_nic: NicReach | None
    target_nic: NicReach | None
    shared: tuple[SharedCapacity, ...]


@dataclass(frozen=True, slots=True)
class PairPaths:
    """The ways between two devices, the pinned one first; none when they can't reach each other.

    `equal_cost` and `forwarding` count what there is beside the pinned path, listed or not.
    `concurrent` has the pinned path of each concurrent pair, None for an unreachable one.
    """

    paths: tuple[FoundPath, ...]
    equal_cost: int
    forwarding: int
    concurrent: tuple[PhysicalPath | None, ...]


def find_pair_paths(
    cluster: Cluster, pair: Pair, concurrent: Sequence[Pair] = (), limit: int = 8
) -> PairPaths:
    """The ways of `pair`, up to `limit` of equal cost and up to `limit` with a GPU that forwards.

    Raises `InvalidInput` with every name that is not in the cluster (paths `source`, `target`,
    `concurrent/0/source`), and `WorkBudgetExceeded` for more pairs than can be searched for in a
    cluster of this size.
    """
    _check_names(cluster, pair, concurrent)
    finder = path_finder(cluster)
    _check_work(cluster, finder, pair, concurrent)
    others = tuple(finder.path(*other) for other in concurrent)
    users = users_of(others)

    def found(role: PathRole, path: PhysicalPath, forwarded_by: str | None = None) -> FoundPath:
        source_nic, target_nic = nic_reaches(cluster, path.links)
        return FoundPath(
            role=role,
            path=path,
            kind=path_kind(cluster, path.links),
            forwarded_by=forwarded_by,
            source_nic=source_nic,
            target_nic=target_nic,
            shared=shared_capacities(cluster, path, users),
        )

    pinned = finder.path(*pair)
    forwarded = sorted(_forwarded(cluster, finder, pair, pinned), key=_preference)
    listed = [] if pinned is None else [found(PathRole.PINNED, pinned)]
    listed += [
        found(PathRole.EQUAL_COST, path) for path in finder.equal_cost_paths(*pair, limit=limit)
    ]
    listed += [found(role, path, by) for role, path, by in forwarded[:limit]]
    return PairPaths(
        paths=tuple(listed),
        equal_cost=0 if pinned is None else pinned.equal_cost_alternatives,
        forwarding=len(forwarded),
        concurrent=others,
    )


_Forwarded = tuple[PathRole, PhysicalPath, str]


def _preference(one: _Forwarded) -> tuple[int, float, str]:
    """The nearest first, then the widest, then by the name of the GPU that forwards."""
    _, path, by = one
    return path.distance, -(path.bandwidth_bytes_per_second or 0.0), by


def _forwarded(
    cluster: Cluster, finder: PathFinder, pair: Pair, pinned: PhysicalPath | None
) -> Iterator[_Forwarded]:
    source, target = (cluster.vertices[name] for name in pair)
    if source.kind is not VertexKind.GPU or source.host is None or source.name == target.name:
        return
    inside = source.host == target.host
    if inside and target.kind is not VertexKind.GPU:
        return
    if pinned is not None and (
        path_kind(cluster, pinned.links) is PathKind.NVLINK
        or (not inside and _keeps_rail(cluster, pinned) and _leaves_near(cluster, pinned))
    ):
        return
    for gpu in index_of(cluster).names(source.host, VertexKind.GPU):
        if gpu in pair:
            continue
        first = finder.path(source.name, gpu)
        if first is None or path_kind(cluster, first.links) is not PathKind.NVLINK:
            continue
        second = finder.path(gpu, target.name)
        if second is None:
            continue
        if inside and path_kind(cluster, second.links) is PathKind.NVLINK:
            yield PathRole.NVB, joined((first, second)), gpu
        elif not inside and _keeps_rail(cluster, second) and _leaves_near(cluster, second):
            yield PathRole.PXN, joined((first, second)), gpu


def _keeps_rail(cluster: Cluster, path: PhysicalPath) -> bool:
    """Whether a path leaves and arrives by NICs of one rail."""
    nics = nic_reaches(cluster, path.links)
    rails = [None if nic is None else cluster.vertices[nic.nic].rail for nic in nics]
    return rails[0] is not None and rails[0] == rails[1]


def _leaves_near(cluster: Cluster, path: PhysicalPath) -> bool:
    """Whether the NIC that a path leaves by is reached without passing a CPU."""
    nic, _ = nic_reaches(cluster, path.links)
    return nic is not None and nic.kind in {PathKind.PIX, PathKind.PXB}


def check_pairs(cluster: Cluster, pairs: Sequence[Pair], field: str) -> None:
    """Refuse names that are not in the cluster, and more pairs than can be searched for.

    Raises `InvalidInput` or `WorkBudgetExceeded`; faults point to `field`.
    """
    unknown = dict.fromkeys(name for pair in pairs for name in pair if name not in cluster.vertices)
    if unknown:
        raise InvalidInput(
            [Fault(FaultCode.UNKNOWN_NAME, (field,), _unknown(name)) for name in unknown]
        )
    if path_finder(cluster).links_searched(pairs) > MAX_LINKS_SEARCHED:
        detail = "too many pairs in different parts of so large a topology: ask for fewer at once"
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, (field,), detail)])


def _unknown(name: str) -> str:
    return f"{name[:100]!r} is no device of this topology; a device is named host/device"


def _check_names(cluster: Cluster, pair: Pair, concurrent: Sequence[Pair]) -> None:
    faults = [
        Fault(
            FaultCode.UNKNOWN_NAME,
            (*where, end),
            _unknown(name),
        )
        for where, ends in (
            ((), pair),
            *((("concurrent", number), other) for number, other in enumerate(concurrent)),
        )
        for end, name in zip(("source", "target"), ends, strict=True)
        if name not in cluster.vertices
    ]
    if faults:
        raise InvalidInput(faults)


def _check_work(
    cluster: Cluster, finder: PathFinder, pair: Pair, concurrent: Sequence[Pair]
) -> None:
    gpus = index_of(cluster).names(cluster.vertices[pair[0]].host, VertexKind.GPU)
    beside = [(gpu, end) for gpu in gpus for end in pair]
    if finder.links_searched({pair, *beside, *concurrent}) <= MAX_LINKS_SEARCHED:
        return
    detail = (
        f"{len(concurrent)} concurrent pairs in different parts of so large a topology are too"
        " many: ask for fewer at once"
    )
    raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("concurrent",), detail)])
