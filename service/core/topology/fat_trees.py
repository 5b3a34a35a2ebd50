"""Fat trees of three tiers: pods of leaves and spines, joined by cores.

The k-ary tree is that of Al-Fares et al. (https://doi.org/10.1145/1402958.1402967): k pods of k/2
leaves and k/2 spines, (k/2)^2 cores, and k/2 hosts' ports on each leaf; all switches have k ports.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.fabric_parts import (
    FabricParts,
    HostPorts,
    edge_links,
    fabric_assumptions,
    link_latency_seconds,
    rate_faults,
    too_many_links,
    uplink_origin,
)
from service.core.topology.spec import FatTree, LinkSpec, SwitchSpec

__all__ = ["MAX_PORTS_PER_SWITCH", "fat_tree"]

MAX_PORTS_PER_SWITCH = 1_024

_SHAPE = ("hosts_per_leaf", "leaves_per_pod", "spines_per_pod", "cores_per_spine")
_ALIKE = "all links of a k-ary fat tree have the rate of its hosts' links"


@dataclass(frozen=True, slots=True)
class _Shape:
    """How many of each there are; spine j of every pod is joined to the cores of group j."""

    hosts_per_leaf: int
    leaves_per_pod: int
    spines_per_pod: int
    cores_per_spine: int
    leaves: int

    @property
    def pods(self) -> int:
        return -(-self.leaves // self.leaves_per_pod)

    @property
    def links(self) -> int:
        spines = self.pods * self.spines_per_pod
        return self.leaves * self.spines_per_pod + spines * self.cores_per_spine


def fat_tree(fabric: FatTree, hosts: Sequence[HostPorts]) -> FabricParts:
    """Leaves `leaf0`, ..., spines `spine<pod>-<j>` and cores `core<j>-<c>`; see `FatTree`.

    Host number h goes to leaf h // hosts_per_leaf with all its NICs, leaf number l to pod
    l // leaves_per_pod. Raises `InvalidInput`, paths relative to the fabric, when a number is out
    of range, hosts do not fit or a rate can't be known.
    """
    faults = _faults(fabric)
    if faults:
        raise InvalidInput(faults)
    shape = _shape(fabric, hosts)
    plugs = [
        (f"leaf{number // shape.hosts_per_leaf}", nic)
        for number, host in enumerate(hosts)
        for nic in host.nics
    ]
    last = "ports_per_switch" if fabric.ports_per_switch is not None else "cores_per_spine"
    faults = too_many_links(len(plugs) + shape.links, last)
    if faults:
        raise InvalidInput(faults)
    latency = link_latency_seconds(fabric.rates)
    edge = edge_links(fabric.rates, plugs, latency)
    assumptions = fabric_assumptions(fabric.rates, hosts, uplinks=fabric.ports_per_switch is None)
    if fabric.ports_per_switch is None and fabric.core_oversubscription_ratio is None:
        assumptions = (*assumptions, "fabric: spines are not oversubscribed")
    trunks = _trunks(fabric, shape, edge, latency) if edge else []
    return FabricParts(tuple(_switches(shape)), (*edge, *trunks), assumptions)


def _faults(fabric: FatTree) -> list[Fault]:
    faults = []

    def refuse(field: str, detail: str, code: FaultCode = FaultCode.OUT_OF_RANGE) -> None:
        faults.append(Fault(code, (field,), detail))

    ports = fabric.ports_per_switch
    for name in _SHAPE:
        number = getattr(fabric, name)
        if ports is not None:
            if number is not None:
                detail = "it follows from ports_per_switch: give that, or the four numbers"
                refuse(name, detail, FaultCode.EXCLUSIVE_FIELDS)
        elif number is None:
            detail = "a fat tree needs ports_per_switch, or this beside the other three numbers"
            refuse(name, detail, FaultCode.MISSING_FIELD)
        elif not 1 <= number <= 4096:
            refuse(name, f"between 1 and 4096; got {number}")
    if ports is not None:
        if ports % 2 or not 2 <= ports <= MAX_PORTS_PER_SWITCH:
            detail = f"an even number of ports from 2 to {MAX_PORTS_PER_SWITCH}; got {ports}"
            refuse("ports_per_switch", detail)
        for name, ratio in (
            ("oversubscription_ratio", fabric.rates.oversubscription_ratio),
            ("uplink_bytes_per_second", fabric.rates.uplink_bytes_per_second),
            ("core_oversubscription_ratio", fabric.core_oversubscription_ratio),
        ):
            if ratio is not None:
                refuse(name, f"{_ALIKE}: give the four numbers instead", FaultCode.INCONSISTENT)
        return faults + rate_faults(fabric.rates, uplinks=True)
    core = fabric.core_oversubscription_ratio
    if core is not None and not 1e-3 <= core <= 1e6:
        refuse("core_oversubscription_ratio", f"a ratio between 0.001 and 1e6; got {core!r}")
    return faults + rate_faults(fabric.rates, uplinks=True)


def _shape(fabric: FatTree, hosts: Sequence[HostPorts]) -> _Shape:
    if fabric.ports_per_switch is None:
        numbers = {name: getattr(fabric, name) for name in _SHAPE}
        return _Shape(leaves=-(-len(hosts) // numbers["hosts_per_leaf"]), **numbers)
    half = fabric.ports_per_switch // 2
    # Hosts without a NIC take no port, wherever they are.
    counts = {len(host.nics) for host in hosts if host.nics} or {1}
    if len(counts) > 1 or half % min(counts):
        detail = (
            f"a leaf has {half} ports for hosts, which whole hosts must fill; these have"
            f" {' or '.join(str(count) for count in sorted(counts))} NICs: take another number of"
            " ports, or give the four numbers"
        )
        raise InvalidInput([Fault(FaultCode.INCONSISTENT, ("ports_per_switch",), detail)])
    per_leaf = half // min(counts)
    leaves = -(-len(hosts) // per_leaf)
    shape = _Shape(per_leaf, half, half, half, leaves)
    if shape.pods > fabric.ports_per_switch:
        most = fabric.ports_per_switch * half * per_leaf
        detail = f"switches of {fabric.ports_per_switch} ports join at most {most} such hosts"
        detail += f"; there are {len(hosts)}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, ("ports_per_switch",), detail)])
    return shape


def _switches(shape: _Shape) -> list[SwitchSpec]:
    found = [SwitchSpec(f"leaf{leaf}", VertexKind.LEAF) for leaf in range(shape.leaves)]
    found += [
        SwitchSpec(f"spine{pod}-{spine}", VertexKind.SPINE)
        for pod in range(shape.pods)
        for spine in range(shape.spines_per_pod)
    ]
    found += [
        SwitchSpec(f"core{spine}-{core}", VertexKind.CORE)
        for spine in range(shape.spines_per_pod)
        for core in range(shape.cores_per_spine)
    ]
    return found


def _trunks(
    fabric: FatTree, shape: _Shape, edge: Sequence[LinkSpec], latency: float
) -> list[LinkSpec]:
    """Leaves to the spines of their pod, and spines to the cores of their group."""
    fill: dict[str, list[float]] = {}
    for link in edge:
        fill.setdefault(link.target, []).append(link.bandwidth_bytes_per_second)
    if fabric.ports_per_switch is not None:
        uplink = core = max(link.bandwidth_bytes_per_second for link in edge)
        assumed = any(link.bandwidth_origin is RateOrigin.ASSUMED for link in edge)
        origin = RateOrigin.ASSUMED if assumed else RateOrigin.STATED
        uplink_from: tuple[RateOrigin, str | None] = (origin, _ALIKE)
        core_from = uplink_from
    else:
        uplink_from = uplink_origin(fabric.rates, edge)
        stated = fabric.rates.uplink_bytes_per_second
        # As in other fabrics, all leaves (and all spines) have what the fullest one needs.
        ratio = fabric.rates.oversubscription_ratio or 1.0
        fullest = max(fsum(rates) for rates in fill.values())
        uplink = fullest / (ratio * shape.spines_per_pod) if stated is None else stated
        below = min(shape.leaves, shape.leaves_per_pod)
        above = fabric.core_oversubscription_ratio
        core = below * uplink / ((above or 1.0) * shape.cores_per_spine)
        core_from = _core_origin(fabric, uplink_from[0])
    lower = [
        (f"leaf{leaf}", f"spine{leaf // shape.leaves_per_pod}-{spine}", uplink, uplink_from)
        for leaf in range(shape.leaves)
        for spine in range(shape.spines_per_pod)
    ]
    upper = [
        (f"spine{pod}-{spine}", f"core{spine}-{number}", core, core_from)
        for pod in range(shape.pods)
        for spine in range(shape.spines_per_pod)
        for number in range(shape.cores_per_spine)
    ]
    return [
        LinkSpec(
            source=source,
            target=target,
            kind=LinkKind.FABRIC,
            bandwidth_bytes_per_second=rate,
            latency_seconds=latency,
            bandwidth_origin=origin,
            bandwidth_source=words,
        )
        for source, target, rate, (origin, words) in (*lower, *upper)
    ]


def _core_origin(fabric: FatTree, of_uplinks: RateOrigin) -> tuple[RateOrigin, str | None]:
    if fabric.core_oversubscription_ratio is None:
        return RateOrigin.ASSUMED, "spines that are not oversubscribed"
    if of_uplinks is RateOrigin.ASSUMED:
        return RateOrigin.ASSUMED, "the stated oversubscription of links whose rate is assumed"
    return RateOrigin.STATED, "the stated oversubscription"
