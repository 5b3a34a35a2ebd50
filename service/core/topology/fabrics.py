"""Fabrics made from a few numbers: which switches exist and what joins them to the NICs."""

from collections.abc import Mapping, Sequence
from math import fsum

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.fabric_parts import (
    DevicePort,
    FabricParts,
    HostPorts,
    edge_links,
    fabric_assumptions,
    link_latency_seconds,
    rate_faults,
    too_many_links,
    uplink_origin,
)
from service.core.topology.fat_trees import fat_tree
from service.core.topology.spec import (
    FabricSpec,
    FatTree,
    LeafSpine,
    LinkSpec,
    RailOptimised,
    SwitchSpec,
)

__all__ = ["FABRIC_PREFIXES", "MAX_SPINES", "build_fabric", "leaf_spine", "rail_optimised"]

# How the names of the switches that a fabric makes begin.
FABRIC_PREFIXES = ("leaf", "rail", "spine", "core")

MAX_SPINES = 1_024


def build_fabric(fabric: FabricSpec, hosts: Sequence[HostPorts]) -> FabricParts:
    """The switches and links of whichever fabric the document asks for."""
    if isinstance(fabric, FatTree):
        return fat_tree(fabric, hosts)
    if isinstance(fabric, LeafSpine):
        return leaf_spine(fabric, hosts)
    return rail_optimised(fabric, hosts)


def leaf_spine(fabric: LeafSpine, hosts: Sequence[HostPorts]) -> FabricParts:
    """Leaves `leaf0`, `leaf1`, ... and spines `spine0`, ...; see `LeafSpine` for the rule.

    Host number h goes to leaf h // hosts_per_leaf with all its NICs. Raises `InvalidInput`, paths
    relative to the fabric, when a number is out of range or a rate can't be known.
    """
    faults = _range_faults(fabric)
    leaves = -(-len(hosts) // max(fabric.hosts_per_leaf, 1))
    if fabric.spines == 0 and leaves > 1:
        detail = f"{leaves} leaves need at least one spine to reach each other; got none"
        faults.append(Fault(FaultCode.INCONSISTENT, ("spines",), detail))
    if faults:
        raise InvalidInput(faults)
    switches = {f"leaf{leaf}": SwitchSpec(f"leaf{leaf}", VertexKind.LEAF) for leaf in range(leaves)}
    plugs = [
        (f"leaf{number // fabric.hosts_per_leaf}", nic)
        for number, host in enumerate(hosts)
        for nic in host.nics
    ]
    return _join(fabric, hosts, switches, plugs)


def rail_optimised(fabric: RailOptimised, hosts: Sequence[HostPorts]) -> FabricParts:
    """Rail switches `rail0`, `rail1`, ... and, when asked for, spines that join them.

    With `hosts_per_leaf` the switches of host group g are `rail0-g`, `rail1-g`, ... Without spines
    the rails are separate networks. Raises as `leaf_spine` does.
    """
    faults = _range_faults(fabric)
    if faults:
        raise InvalidInput(faults)
    switches: dict[str, SwitchSpec] = {}
    plugs = []
    for number, host in enumerate(hosts):
        for nic in host.nics:
            leaf = f"rail{nic.rail}"
            if fabric.hosts_per_leaf is not None:
                leaf += f"-{number // fabric.hosts_per_leaf}"
            switches.setdefault(leaf, SwitchSpec(leaf, VertexKind.LEAF, nic.rail))
            plugs.append((leaf, nic))
    return _join(fabric, hosts, switches, plugs)


def _range_faults(fabric: LeafSpine | RailOptimised) -> list[Fault]:
    faults = []
    if fabric.hosts_per_leaf is not None and fabric.hosts_per_leaf < 1:
        detail = f"at least 1 host a leaf; got {fabric.hosts_per_leaf}"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("hosts_per_leaf",), detail))
    if not 0 <= fabric.spines <= MAX_SPINES:
        detail = f"between 0 and {MAX_SPINES} spines; got {fabric.spines}"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("spines",), detail))
    return faults + rate_faults(fabric.rates, uplinks=fabric.spines != 0)


def _join(
    fabric: LeafSpine | RailOptimised,
    hosts: Sequence[HostPorts],
    leaves: Mapping[str, SwitchSpec],
    plugs: Sequence[tuple[str, DevicePort]],
) -> FabricParts:
    """Plug each NIC into its leaf, then join every leaf to every spine."""
    cables = len(plugs) + len(leaves) * fabric.spines
    faults = too_many_links(cables, "spines")
    if faults:
        raise InvalidInput(faults)
    latency = link_latency_seconds(fabric.rates)
    edge = edge_links(fabric.rates, plugs, latency)
    spines = [SwitchSpec(f"spine{s}", VertexKind.SPINE) for s in range(fabric.spines)]
    fill: dict[str, list[float]] = {leaf: [] for leaf in leaves}
    for link in edge:
        fill[link.target].append(link.bandwidth_bytes_per_second)
    uplink = fabric.rates.uplink_bytes_per_second
    origin, source = uplink_origin(fabric.rates, edge)
    if uplink is None and spines:
        # All leaves are the same product, so each has the uplinks that the fullest one needs.
        fullest = max((fsum(rates) for rates in fill.values()), default=0.0)
        uplink = fullest / ((fabric.rates.oversubscription_ratio or 1.0) * fabric.spines)
    trunks = [
        LinkSpec(
            source=leaf,
            target=spine.name,
            kind=LinkKind.FABRIC,
            bandwidth_bytes_per_second=uplink,
            latency_seconds=latency,
            bandwidth_origin=origin,
            bandwidth_source=source,
        )
        for leaf in leaves
        for spine in spines
        if uplink
    ]
    assumptions = fabric_assumptions(fabric.rates, hosts, uplinks=fabric.spines > 0)
    return FabricParts((*leaves.values(), *spines), (*edge, *trunks), assumptions)
