"""Networks that the accelerators have of their own, without NICs: NVLink domains and tori."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.fabric_parts import (
    DevicePort,
    FabricParts,
    HostPorts,
    effective_faults,
)
from service.core.topology.spec import DeviceNetworkSpec, LinkSpec, NvlinkDomain, SwitchSpec, Torus

__all__ = [
    "DEVICE_NETWORK_PREFIXES",
    "MAX_DIMENSIONS",
    "MAX_TORUS_DEVICES",
    "build_device_network",
    "nvlink_domain",
    "torus",
]

# How the names of what a device network makes begin.
DEVICE_NETWORK_PREFIXES = ("nvlink", "router")

MAX_DIMENSIONS = 3
# A path to the far side of a larger one is a search of milliseconds, for each pair anew.
MAX_TORUS_DEVICES = 4_096


def build_device_network(network: DeviceNetworkSpec, hosts: Sequence[HostPorts]) -> FabricParts:
    """The switches and links of whichever network of the accelerators the document asks for."""
    if isinstance(network, Torus):
        return torus(network, hosts)
    return nvlink_domain(network, hosts)


def nvlink_domain(network: NvlinkDomain, hosts: Sequence[HostPorts]) -> FabricParts:
    """NVSwitch vertices `nvlink0`, `nvlink1`, ...; see `NvlinkDomain` for the rule.

    Raises `InvalidInput`, paths relative to the network, when a number is out of range or a rate
    can't be known.
    """
    faults = _rate_faults(network)
    per_domain = len(hosts) if network.hosts_per_domain is None else network.hosts_per_domain
    if per_domain < 1:
        detail = f"at least 1 host a domain; got {per_domain}"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("hosts_per_domain",), detail))
    unknown = [gpu.name for host in hosts for gpu in host.gpus if gpu.bytes_per_second is None]
    if network.link_bytes_per_second is None and unknown:
        some = ", ".join(unknown[:3]) + (", ..." if len(unknown) > 3 else "")
        detail = (
            f"{len(unknown)} accelerators ({some}) have no port_bytes_per_second: give it there, or"
            " give here what each has to its NVSwitches"
        )
        faults.append(Fault(FaultCode.MISSING_FIELD, ("link_bytes_per_second",), detail))
    if faults:
        raise InvalidInput(faults)
    plugs = [
        (f"nvlink{number // per_domain}", gpu)
        for number, host in enumerate(hosts)
        for gpu in host.gpus
    ]
    switches = [
        SwitchSpec(name, VertexKind.NVSWITCH) for name in dict.fromkeys(n for n, _ in plugs)
    ]
    links = [_nvlink(network, gpu, name) for name, gpu in plugs]
    if faults := effective_faults(links):
        raise InvalidInput(faults)
    stated = "device network: all NVSwitch chips of a domain are one non-blocking vertex"
    return FabricParts(tuple(switches), tuple(links), (stated,))


def _nvlink(network: NvlinkDomain, port: DevicePort, switch: str) -> LinkSpec:
    gpu = port.on_link(network.link_bytes_per_second, network.link_effective_bytes_per_second)
    return LinkSpec(
        source=gpu.name,
        target=switch,
        kind=LinkKind.NVLINK,
        bandwidth_bytes_per_second=gpu.bytes_per_second or 0.0,
        effective_bytes_per_second=gpu.effective_bytes_per_second,
        latency_seconds=network.latency_seconds,
        lanes=network.lanes or gpu.lanes,
        bandwidth_origin=gpu.origin,
        bandwidth_source=gpu.source,
    )


def torus(network: Torus, hosts: Sequence[HostPorts]) -> FabricParts:
    """Routers `router<x>-<y>-<z>`, one beside each accelerator, and the links between them.

    Accelerators take the coordinates in order, the last dimension first. A device reaches its own
    router by what all links of the router carry together, so that this never binds before they do.
    Raises `InvalidInput`, paths relative to the network, when dimensions are out of range or are
    not those of so many accelerators.
    """
    gpus = [gpu.name for host in hosts for gpu in host.gpus]
    faults = [*_rate_faults(network), *_dimension_faults(network, len(gpus))]
    if faults:
        raise InvalidInput(faults)
    places = list(product(*(range(size) for size in network.dimensions)))
    pairs = [(one, other) for one in places for other in _neighbours(network, one)]
    degree = dict.fromkeys(places, 0)
    for pair in pairs:
        for place in pair:
            degree[place] += 1
    effective = network.link_effective_bytes_per_second
    links = [
        LinkSpec(
            source=gpu,
            target=_router(place),
            kind=LinkKind.OTHER,
            bandwidth_bytes_per_second=degree[place] * network.link_bytes_per_second,
            effective_bytes_per_second=effective and degree[place] * effective,
            latency_seconds=0.0,
            lanes=degree[place],
            bandwidth_source="as much as all links of the router carry",
        )
        for gpu, place in zip(gpus, places, strict=True)
        if degree[place]
    ]
    links += [
        LinkSpec(
            source=_router(one),
            target=_router(other),
            kind=LinkKind.FABRIC,
            bandwidth_bytes_per_second=network.link_bytes_per_second,
            effective_bytes_per_second=effective,
            latency_seconds=network.latency_seconds,
        )
        for one, other in pairs
    ]
    routers = tuple(SwitchSpec(_router(place), VertexKind.ROUTER) for place in places)
    stated = (
        "device network: the router beside each accelerator forwards without its help, and takes"
        " shortest ways only"
    )
    return FabricParts(routers, tuple(links), (stated,))


def _neighbours(network: Torus, place: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The next place in each dimension, around the end where that joins two more.

    A dimension of two has one link for each pair: around the end it would be the same pair again.
    """
    for axis, size in enumerate(network.dimensions):
        onward = place[axis] + 1
        if onward == size and not (network.wraparound and size > 2):
            continue
        yield (*place[:axis], onward % size, *place[axis + 1 :])


def _router(place: tuple[int, ...]) -> str:
    return "router" + "-".join(str(coordinate) for coordinate in place)


def _dimension_faults(network: Torus, gpus: int) -> list[Fault]:
    path = ("dimensions",)
    sizes = network.dimensions
    if not 1 <= len(sizes) <= MAX_DIMENSIONS or any(size < 1 for size in sizes):
        detail = f"1 to {MAX_DIMENSIONS} dimensions of at least 1; got {list(sizes)}"
        return [Fault(FaultCode.OUT_OF_RANGE, path, detail)]
    if prod(sizes) > MAX_TORUS_DEVICES:
        detail = f"a torus has at most {MAX_TORUS_DEVICES} accelerators; got {prod(sizes)}"
        return [Fault(FaultCode.OUT_OF_RANGE, path, detail)]
    if prod(sizes) != gpus:
        product_of = " x ".join(str(size) for size in sizes)
        detail = f"a torus of {product_of} has {prod(sizes)} accelerators; the hosts have {gpus}"
        return [Fault(FaultCode.INCONSISTENT, path, detail)]
    return []


def _rate_faults(network: DeviceNetworkSpec) -> list[Fault]:
    faults = []
    nominal, effective = network.link_bytes_per_second, network.link_effective_bytes_per_second
    for name, rate in (
        ("link_bytes_per_second", nominal),
        ("link_effective_bytes_per_second", effective),
    ):
        if rate is not None and not 1 <= rate <= 1e15:
            detail = f"a rate between 1 and 1e15 bytes per second; got {rate!r}"
            faults.append(Fault(FaultCode.OUT_OF_RANGE, (name,), detail))
    if nominal is not None and effective is not None and effective > nominal:
        detail = f"an effective rate is at most the nominal one ({nominal!r}); got {effective!r}"
        path = ("link_effective_bytes_per_second",)
        faults.append(Fault(FaultCode.INCONSISTENT, path, detail))
    latency = network.latency_seconds
    if latency is not None and not 0 <= latency <= 1:
        detail = f"a latency between 0 and 1 second; got {latency!r}"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("latency_seconds",), detail))
    return faults
