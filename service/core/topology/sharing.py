"""What transfers have in common: the capacities along their pinned paths, level by level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.core.topology.cluster import Cluster, Link, LinkKind, VertexKind
from service.core.topology.paths import PhysicalPath
from service.core.topology.tiers import switch_tiers

__all__ = ["ShareLevel", "SharedCapacity", "level_of", "shared_capacities", "users_of"]


class ShareLevel(StrEnum):
    """Where a capacity lies, from the device outwards."""

    NVLINK = "nvlink"  # a GPU's port on its NVSwitch, or a private NVLink
    CARD = "card"  # PCIe of a card that several devices are on
    SLOT = "slot"  # PCIe between a GPU or a NIC and what it is plugged into
    UPLINK = "uplink"  # PCIe between two switches
    HOST_BRIDGE = "host_bridge"  # PCIe into a CPU
    ON_CHIP = "on_chip"  # one of several host bridges of a CPU, and the CPU
    SOCKET = "socket"  # CPU to CPU
    PORT = "port"  # a NIC's port to its switch
    LEAF_UPLINK = "leaf_uplink"  # a switch of the fabric to one that is farther from the devices
    LEAF_DOWNLINK = "leaf_downlink"  # and back
    FABRIC = "fabric"  # between switches of one tier
    OTHER = "other"


_BY_KIND: Mapping[LinkKind, ShareLevel] = {
    LinkKind.NVLINK: ShareLevel.NVLINK,
    LinkKind.HOST_BRIDGE: ShareLevel.HOST_BRIDGE,
    LinkKind.ON_CHIP: ShareLevel.ON_CHIP,
    LinkKind.SOCKET: ShareLevel.SOCKET,
    LinkKind.NETWORK: ShareLevel.PORT,
    LinkKind.OTHER: ShareLevel.OTHER,
}
_DEVICES = {VertexKind.GPU, VertexKind.NIC}


@dataclass(frozen=True, slots=True)
class SharedCapacity:
    """A capacity of a path that others use as well.

    `link` is the path's link that takes it up; `users` are the others by their positions.
    """

    level: ShareLevel
    link: Link
    users: tuple[int, ...]

    @property
    def transfers(self) -> int:
        """All that use it, the path itself included."""
        return 1 + len(self.users)

    @property
    def equal_share_bytes_per_second(self) -> float:
        """The nominal rate divided evenly among all that use it."""
        return self.link.bandwidth_bytes_per_second / self.transfers

    def lower_bound_seconds(self, message_bytes: int) -> float:
        """The least time in which as many bytes of each of them pass, latencies aside."""
        return self.transfers * message_bytes / self.link.bandwidth_bytes_per_second


def level_of(cluster: Cluster, link: Link) -> ShareLevel:
    """The level at which transfers meet on `link`."""
    if link.kind is LinkKind.FABRIC:
        tiers = switch_tiers(cluster)
        near, far = tiers.get(link.source, 0), tiers.get(link.target, 0)
        if near == far:
            return ShareLevel.FABRIC
        return ShareLevel.LEAF_UPLINK if near < far else ShareLevel.LEAF_DOWNLINK
    if link.kind in {LinkKind.PCIE, LinkKind.HOST_BRIDGE}:
        ends = (cluster.vertices[link.source], cluster.vertices[link.target])
        devices = [end for end in ends if end.kind in _DEVICES]
        if any(end.card is not None and end.slot is None for end in devices):
            return ShareLevel.CARD
        if link.kind is LinkKind.PCIE:
            return ShareLevel.SLOT if devices else ShareLevel.UPLINK
    return _BY_KIND[link.kind]


def users_of(paths: Sequence[PhysicalPath | None]) -> Mapping[str, tuple[int, ...]]:
    """By capacity (`Link.resource`) the positions of the paths that take it up.

    None stands for a pair that can't reach each other.
    """
    users: dict[str, dict[int, None]] = {}
    for number, path in enumerate(paths):
        for link in () if path is None else path.links:
            users.setdefault(link.resource, {})[number] = None
    return {name: tuple(numbers) for name, numbers in users.items()}


def shared_capacities(
    cluster: Cluster, path: PhysicalPath, users: Mapping[str, tuple[int, ...]]
) -> tuple[SharedCapacity, ...]:
    """The capacities of `path` that others (`users_of` them) use too, in the order of its links."""
    return tuple(
        SharedCapacity(level_of(cluster, link), link, users[link.resource])
        for link in path.links
        if link.resource in users
    )
