"""A part of a cluster that a job got: by a host list, by patterns of devices, or rank by rank."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.plans.devices import expand_devices
from service.core.topology.cluster import Cluster, VertexKind
from service.core.topology.expand import MAX_HOSTS
from service.core.topology.hostlist import expand_hostlist
from service.core.topology.index import index_of

__all__ = ["Allocation", "of_devices", "of_hosts", "of_ranks", "outside_faults"]

# Faults of one allocation that are told.
_MAX_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Allocation:
    """The accelerators of an allocation in rank order, and in words what was assumed of them."""

    devices: tuple[str, ...]
    assumptions: tuple[str, ...] = ()


def of_hosts(cluster: Cluster, text: str) -> Allocation:
    """All GPUs of the hosts of a host list expression, as Slurm writes them.

    Raises `InvalidInput` (path `hosts`): what is no host list, hosts that are not there, that have
    no GPU, or are listed twice.
    """
    try:
        names = expand_hostlist(text, at_most=MAX_HOSTS)
    except InvalidInput as refused:
        raise InvalidInput([fault.under("hosts") for fault in refused.faults]) from None
    index, faults = index_of(cluster), []
    for name, count in Counter(names).items():
        if name not in index.members:
            detail = f"{name[:100]!r} is no host of this topology"
            faults.append(Fault(FaultCode.UNKNOWN_NAME, ("hosts",), detail))
        elif not index.names(name, VertexKind.GPU):
            detail = f"host {name!r} has no GPU"
            faults.append(Fault(FaultCode.INCONSISTENT, ("hosts",), detail))
        elif count > 1:
            detail = f"host {name!r} is listed {count} times"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, ("hosts",), detail))
    if faults:
        raise InvalidInput(faults[:_MAX_FAULTS])
    return Allocation(tuple(gpu for host in names for gpu in index.names(host, VertexKind.GPU)))


def of_devices(cluster: Cluster, patterns: Sequence[str]) -> Allocation:
    """The GPUs of names, patterns and lists, as in `placement.devices` of a plan.

    Raises as `expand_devices` does, with paths below `devices`.
    """
    try:
        return Allocation(expand_devices(cluster, patterns))
    except InvalidInput as refused:
        faults = [Fault(fault.code, fault.path[1:], fault.detail) for fault in refused.faults]
        raise type(refused)(faults) from None


def of_ranks(cluster: Cluster, hosts: Sequence[str]) -> Allocation:
    """One GPU for each rank: the k-th rank on a host has its k-th GPU.

    Raises `InvalidInput` (path `rank_file`): hosts that are not there, and more ranks than GPUs.
    """
    index, faults = index_of(cluster), []
    taken = Counter[str]()
    devices = []
    for host, count in Counter(hosts).items():
        gpus = len(index.names(host, VertexKind.GPU))
        if host not in index.members:
            detail = f"{host[:100]!r} is no host of this topology"
            faults.append(Fault(FaultCode.UNKNOWN_NAME, ("rank_file",), detail))
        elif count > gpus:
            detail = (
                f"host {host!r} has {gpus} GPUs and {count} ranks: each rank has one of its own"
            )
            faults.append(Fault(FaultCode.TOO_FEW_DEVICES, ("rank_file",), detail))
    if faults:
        raise InvalidInput(faults[:_MAX_FAULTS])
    for host in hosts:
        devices.append(index.names(host, VertexKind.GPU)[taken[host]])
        taken[host] += 1
    return Allocation(
        tuple(devices),
        ("the first rank on a host has its first GPU, the next its next: slots are of CPUs",),
    )


def outside_faults(
    cluster: Cluster, allocation: Allocation, named: Iterable[tuple[Path, str]]
) -> list[Fault]:
    """A fault for each named device that is no part of the allocation, at its path.

    A GPU has to be one of the allocation's, any other device in one of its hosts; switches outside
    hosts and names that are unknown are none of its business.
    """
    gpus = set(allocation.devices)
    hosts = {cluster.vertices[name].host for name in gpus}
    faults = []
    for path, name in named:
        vertex = cluster.vertices.get(name)
        if vertex is None or vertex.host is None:
            continue
        inside = name in gpus if vertex.kind is VertexKind.GPU else vertex.host in hosts
        if not inside:
            detail = f"{name!r} is no part of the allocation"
            faults.append(Fault(FaultCode.INCONSISTENT, path, detail))
    return faults
