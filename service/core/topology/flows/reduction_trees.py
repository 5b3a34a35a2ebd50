"""An all-reduce that the network adds up: one tree for each share of the message.

Each device owns a share. Within a host all devices send theirs to the one that stands at the
owner's place there, these send on to the owner, and the sum goes back the same way over the pinned
paths of that direction. NVSwitches and switches of the fabric add up what goes on over the same
link, and copy what comes back; other vertices pass on each piece by itself. So libraries use the
reduction of NVSwitches (NVLS) within hosts and that of the fabric (SHARP) between the devices of
one rail.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.topology.cluster import VertexKind
from service.core.topology.flows.exchanges import MAX_PINNED_PAIRS, paths_are_found
from service.core.topology.flows.network import Network
from service.core.topology.flows.study import FlowStudy
from service.core.topology.rings import by_host

__all__ = ["ReductionTrees", "reduction_trees"]

Int32Array = npt.NDArray[np.int32]

_ADDING = frozenset(
    {
        VertexKind.NVSWITCH,
        VertexKind.LEAF,
        VertexKind.SPINE,
        VertexKind.CORE,
        VertexKind.SWITCH,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class ReductionTrees:
    """How many shares each used link (by number) carries, and the latency of the deepest tree
    there and back, in seconds.
    """

    shares: Mapping[int, int]
    latency_seconds: float

    def seconds_of_a_byte(self, network: Network) -> float:
        """How long the fullest capacity is busy at effective rates when a share is one byte."""
        busy: dict[int, float] = {}
        for link, count in self.shares.items():
            resource = int(network.resource[link])
            busy[resource] = busy.get(resource, 0.0) + count / float(network.effective[link])
        return max(busy.values(), default=0.0)


def reduction_trees(study: FlowStudy, devices: Int32Array) -> ReductionTrees | None:
    """The trees of an all-reduce among devices, in this order in their hosts.

    None where a path is missing, or where there are more than can be looked up.
    """
    network = study.network
    hosts = {one: network.cluster.vertices[network.names[one]].host for one in devices.tolist()}
    groups = by_host(devices.tolist(), hosts)
    places = max(map(len, groups))
    pairs = sum(places * (len(group) - 1) for group in groups) + len(devices) * (len(groups) - 1)
    if 2 * pairs > MAX_PINNED_PAIRS:
        return None
    inner = list(_within_hosts(groups, places))
    outer = list(_between_hosts(groups))
    ends = [
        pair
        for root, members, _ in (*inner, *outer)
        for member in members
        for pair in ((member, root), (root, member))
    ]
    if not paths_are_found(study, ends):
        return None
    counts: Counter[int] = Counter()
    latency = 0.0
    for trees in (inner, outer):
        deepest = 0.0
        for tree in trees:
            found = _carried(study, *tree[:2])
            if found is None:
                return None
            for link, streams in found.streams.items():
                counts[link] += streams * tree[2]
            deepest = max(deepest, found.latency_seconds)
        latency += deepest
    return ReductionTrees(dict(sorted(counts.items())), latency)


# Who gets, who sends to it, and for how many owners it does.
_Tree = tuple[int, Sequence[int], int]


def _within_hosts(groups: Sequence[Sequence[int]], places: int) -> Iterator[_Tree]:
    for place in range(places):
        owners = sum(len(group) > place for group in groups)
        for group in groups:
            leader = group[place % len(group)]
            members = [device for device in group if device != leader]
            if members:
                yield leader, members, owners


def _between_hosts(groups: Sequence[Sequence[int]]) -> Iterator[_Tree]:
    for group in groups:
        for place, owner in enumerate(group):
            members = [other[place % len(other)] for other in groups if other is not group]
            if members:
                yield owner, members, 1


@dataclass(frozen=True, slots=True)
class _Carried:
    streams: Mapping[int, int]
    latency_seconds: float


def _carried(study: FlowStudy, root: int, members: Sequence[int]) -> _Carried | None:
    """What each link carries of one share to the root and back, and the longest way there and back.

    A piece is named after where it was last added up or copied: what leaves a switch over one link
    is one piece, whatever comes in.
    """
    network = study.network
    pieces: dict[int, set[tuple[bool, int]]] = {}
    there, back = 0.0, 0.0
    for member in members:
        out = study.finder.path(network.names[member], network.names[root])
        into = study.finder.path(network.names[root], network.names[member])
        if out is None or into is None:
            return None
        there = max(there, out.latency_seconds)
        back = max(back, into.latency_seconds)
        links = [network.link_number[link.source, link.target] for link in out.links]
        _name_pieces(pieces, links, [_adds(network, int(network.tail[n])) for n in links], member)
        links = [network.link_number[link.source, link.target] for link in into.links][::-1]
        _name_pieces(pieces, links, [_adds(network, int(network.head[n])) for n in links], member)
    return _Carried({link: len(found) for link, found in pieces.items()}, there + back)


def _name_pieces(
    pieces: dict[int, set[tuple[bool, int]]],
    links: Sequence[int],
    merges: Sequence[bool],
    member: int,
) -> None:
    """Add the piece of a member to its links, seen from the member on."""
    piece = False, member
    for link, is_merged in zip(links, merges, strict=True):
        if is_merged:
            piece = True, link
        pieces.setdefault(link, set()).add(piece)


def _adds(network: Network, vertex: int) -> bool:
    return network.cluster.vertices[network.names[vertex]].kind in _ADDING
