"""How long transfers over pinned paths take: what can't be beaten, and what is expected.

All of it assumes that every transfer keeps to its pinned path. The two directions of a full-duplex
link do not compete; links that share a capacity, such as those of a half-duplex link, do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.cluster import Link
from service.core.topology.paths import PhysicalPath

__all__ = [
    "MAX_MESSAGE_BYTES",
    "LinkLoad",
    "LinkLoads",
    "Transfer",
    "link_loads",
    "transfer_lower_bound_seconds",
    "transfer_prediction_seconds",
]

MAX_MESSAGE_BYTES = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes to be sent over one path."""

    path: PhysicalPath
    message_bytes: int


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """All that one link must carry: total bytes, and which transfers (by position).

    Where links share a capacity it is what they carry together, `link` the first one used of them.
    """

    link: Link
    total_bytes: int
    transfers: tuple[int, ...]

    @property
    def name(self) -> str:
        """The capacity that is loaded: the link's name, or that of what it shares."""
        return self.link.resource

    @property
    def lower_bound_seconds(self) -> float:
        """No less than this passes between the first byte on the link and the last off it."""
        return self.total_bytes / self.link.bandwidth_bytes_per_second


@dataclass(frozen=True, slots=True)
class LinkLoads:
    """The load of every used link, in the order of first use.

    `binding` is the first link of greatest `lower_bound_seconds`, the witness of the bound;
    absent when no link is used.
    """

    loads: tuple[LinkLoad, ...]
    binding: LinkLoad | None

    @property
    def lower_bound_seconds(self) -> float:
        """No set of start times moves all bytes within less than this; 0 when no link is used."""
        return 0.0 if self.binding is None else self.binding.lower_bound_seconds

    def plus(self, carried: Sequence[tuple[Link, int]]) -> "LinkLoads":
        """With further bytes on links, which are no transfers; capacities not used yet follow."""
        loads = {load.name: load for load in self.loads}
        for link, size in carried:
            before = loads.get(link.resource, LinkLoad(link, 0, ()))
            loads[link.resource] = replace(before, total_bytes=before.total_bytes + size)
        return _loads(loads.values())

    @property
    def shared(self) -> tuple[LinkLoad, ...]:
        """The links that more than one transfer uses."""
        return tuple(load for load in self.loads if len(load.transfers) > 1)


def _loads(loads: Iterable[LinkLoad]) -> LinkLoads:
    found = tuple(loads)
    return LinkLoads(found, max(found, key=lambda load: load.lower_bound_seconds, default=None))


def transfer_lower_bound_seconds(path: PhysicalPath, message_bytes: int) -> float:
    """Guaranteed latency floors plus bytes over the nominal bottleneck; 0 without links.

    Assumes full nominal capacity for this message alone, cut-through at every hop. Nothing on this
    path is quicker: neither pipelining, chunks nor another schedule (topology note, p2p bound).
    Raises `InvalidInput` for bytes out of range.
    """
    _check(message_bytes, ("message_bytes",))
    if path.bandwidth_bytes_per_second is None:
        return 0.0
    return path.latency_floor_seconds + message_bytes / path.bandwidth_bytes_per_second


def transfer_prediction_seconds(path: PhysicalPath, message_bytes: int) -> float:
    """Typical latencies plus bytes over the effective bottleneck; never below the lower bound.

    Where a link's latency or effective rate is unknown its floor or nominal rate stands in; the
    path counts these links. Assumes an otherwise idle path and cut-through at every hop. Raises
    `InvalidInput` for bytes out of range.
    """
    _check(message_bytes, ("message_bytes",))
    if path.effective_bytes_per_second is None:
        return 0.0
    return path.latency_seconds + message_bytes / path.effective_bytes_per_second


def link_loads(transfers: Sequence[Transfer]) -> LinkLoads:
    """Bytes on each directed link when each transfer keeps to its pinned path.

    Links of one shared capacity count as one. The bound is max over links of bytes / nominal
    capacity: the cut of a single edge. It holds
    from the first start to the last end whatever the start times, and only for these paths: with
    equal-cost paths in use, traffic may spread further. Raises `InvalidInput` for bytes out of
    range.
    """
    total: dict[str, int] = {}
    users: dict[str, dict[int, None]] = {}
    links: dict[str, Link] = {}
    for number, transfer in enumerate(transfers):
        _check(transfer.message_bytes, (number, "message_bytes"))
        for link in transfer.path.links:
            key = link.resource
            links.setdefault(key, link)
            total[key] = total.get(key, 0) + transfer.message_bytes
            # A path may take up one capacity twice, in both directions.
            users.setdefault(key, {})[number] = None
    return _loads(LinkLoad(links[key], total[key], tuple(users[key])) for key in links)


def _check(message_bytes: int, path: tuple[str | int, ...]) -> None:
    if not 0 <= message_bytes <= MAX_MESSAGE_BYTES:
        detail = f"a message has between 0 and {MAX_MESSAGE_BYTES} bytes; got {message_bytes}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, path, detail)])
