"""The pinned paths between all devices of a group, laid out so that dense matrices add up quickly.

The paths are those of `service.core.topology.paths`, found by its router and no other way. Sources
that are wired alike have like paths to one target, so each such kind of source has one row of links
for each target; in it the links of the source's own host stand for those of any host like it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.block_kernels import add_loads, lay_rows
from service.core.topology.flows.block_templates import (
    ORDERS,
    SAME_HOST,
    Templates,
    coded,
)
from service.core.topology.flows.blocks import Blocks
from service.core.topology.flows.network import Network
from service.core.topology.flows.study import FlowStudy
from service.core.topology.routing import Router
from service.core.units import to_picoseconds

__all__ = ["BlockLoads", "BlockPaths", "block_paths"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

# Pairs without a path that are named.
_NAMED_LOST = 8


@dataclass(frozen=True, slots=True, eq=False)
class BlockLoads:
    """(E,) bytes on each link, and (D,) the latencies of each device's peers added up.

    `sending_picoseconds` are those of the paths to whom a device sends, `getting_picoseconds` of
    the paths from whom it gets; a latency that is not known is its guaranteed floor.
    """

    link_bytes: Int64Array
    sending_picoseconds: Int64Array
    getting_picoseconds: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class BlockPaths:
    """Of D devices, those of one group after the other: `sizes` has how many each group has.

    `lost` are pairs of vertices, within a group, that no allowed path joins: the first ones.
    """

    sizes: tuple[int, ...]
    lost: tuple[tuple[int, int], ...]
    _kind: Int32Array
    _host: Int32Array
    _home: Int32Array
    _row_of: Int32Array  # by kind of source, order of hosts and target
    _row_first: Int64Array
    _row_links: Int32Array
    _local: Int32Array  # by home and place
    _wait: Int64Array

    def loads(self, blocks: Blocks) -> BlockLoads:
        """What blocks of these groups, in their order, put on the links of their paths.

        Pairs without a path put nothing on any: who asks has looked at `lost`.
        """
        if tuple(len(one.devices) for one in blocks.groups) != self.sizes:
            raise ValueError(f"these are the paths of groups of {self.sizes} devices")
        count = sum(self.sizes)
        loads = np.zeros(len(self._wait), dtype=np.int64)
        sending, getting = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        wait = self._wait if self._wait.any() else np.empty(0, dtype=np.int64)
        first = 0
        for one in blocks.groups:
            add_loads(
                one.between,
                first,
                self._kind,
                self._host,
                self._row_of,
                self._row_first,
                self._row_links,
                self._local,
                self._home,
                wait,
                loads,
                sending,
                getting,
            )
            first += len(one.devices)
        return BlockLoads(loads, sending, getting)


def block_paths(study: FlowStudy, groups: Sequence[Int32Array]) -> BlockPaths:
    """The paths within each of some groups of devices (vertices of the study's network).

    Kept with the study as long as they are among the last that were asked for. Raises
    `WorkBudgetExceeded` (path `topology`) where finding them looks at too many links.
    """
    devices = [np.ascontiguousarray(one, dtype=np.int32) for one in groups]
    key = "block paths", *(one.tobytes() for one in devices)
    return study.keep(key, lambda: _paths(study, devices))


def _paths(study: FlowStudy, groups: Sequence[Int32Array]) -> BlockPaths:
    router = study.finder.router
    links = study.keep("links by the router's numbers", lambda: _Links(study.network, router))
    devices = links.vertex[np.concatenate([np.empty(0, dtype=np.int32), *groups])]
    sizes = tuple(len(one) for one in groups)
    block = np.repeat(np.arange(len(groups)), sizes)
    found = Templates(router, devices, block, alike=True)
    if found.chooses_inside:
        found = Templates(router, devices, block, alike=False)
    row_of, row_first, row_links, local = _laid(links, router, found)
    return BlockPaths(
        sizes=sizes,
        lost=_lost(found, groups),
        _kind=found.kind,
        _host=found.host,
        _home=found.home,
        _row_of=row_of,
        _row_first=row_first,
        _row_links=row_links,
        _local=local,
        _wait=links.wait,
    )


class _Links:
    """The links of a network by the router's numbers of their ends.

    `vertex` (V,) are these numbers in the order of the network, `wait` (E,) the latency of each
    link in picoseconds.
    """

    def __init__(self, network: Network, router: Router) -> None:
        self.vertices = len(router.names)
        self.vertex = np.array([router.number[name] for name in network.names], dtype=np.int32)
        self.tail, self.head = self.vertex[network.tail], self.vertex[network.head]
        waits = [
            link.latency_floor_seconds if link.latency_seconds is None else link.latency_seconds
            for link in network.links
        ]
        self.wait = np.array([to_picoseconds(one) for one in waits], dtype=np.int64)
        keys = self._keys(self.tail, self.head)
        order = np.argsort(keys)
        self.key, self.number = keys[order], order.astype(np.int32)

    def _keys(self, tail: Int32Array, head: Int32Array) -> Int64Array:
        keys: Int64Array = tail.astype(np.int64) * self.vertices + head
        return keys

    def between(self, tail: Int32Array, head: Int32Array) -> Int32Array:
        """The numbers of links that there are, by their ends."""
        found: Int32Array = self.number[np.searchsorted(self.key, self._keys(tail, head))]
        return found


def _laid(
    links: _Links, router: Router, found: Templates
) -> tuple[Int32Array, Int64Array, Int32Array, Int32Array]:
    """The row of each kind of source, order and target; where each begins; links; those of homes.

    Rows of sources in other hosts than their target are of a kind; those within a host are of it.
    """
    hosts = len(router.members)
    first_member = np.concatenate([[0], np.cumsum([len(host) for host in router.members])])
    base = np.where(found.host >= 0, first_member[np.maximum(found.host, 0)], 0)
    row_of = np.full((len(found.wired_of_kind), ORDERS, len(found.devices)), -1, dtype=np.int32)
    of_kind = [np.flatnonzero(found.kind == kind) for kind in range(len(found.wired_of_kind))]
    # One host of its kind has its links as they are: one of them may lead to another host.
    alike: dict[int, list[int]] = {}
    for home, wired in zip(found.homes.tolist(), found.wired_of_home.tolist(), strict=True):
        alike.setdefault(wired, []).append(home)
    rows = 0
    # Of each row: its template, its source's host and its target's, and whether links are local.
    columns: list[Int64Array] = []
    for (one, way, other), template in found.number.items():
        if found.found[template] is None:
            continue
        mine, wired = of_kind[other], int(found.wired_of_kind[one])
        several = len(alike[wired]) > 1
        row_of[one, way, mine] = np.arange(rows, rows + len(mine))
        rows += len(mine)
        column = np.zeros((4, len(mine)), dtype=np.int64)
        column[0], column[2] = template, base[mine]
        if way == SAME_HOST:
            column[1] = base[mine]
        elif wired < hosts:
            column[1] = first_member[wired if several else alike[wired][0]]
            column[3] = several
        columns.append(column)
    place, local = _local_links(links, router, found)
    laid = np.concatenate([np.empty((4, 0), dtype=np.int64), *columns], axis=1).astype(np.int32)
    first, row_links = _rows(links, router, found, laid, place)
    return row_of, first, row_links, local


def _rows(
    links: _Links, router: Router, found: Templates, laid: Int32Array, place: Int32Array
) -> tuple[Int64Array, Int32Array]:
    """Where each row begins, and the links of all."""
    templates = coded(router, found.found)
    destination = np.zeros(links.vertices, dtype=np.int32)
    destination[list(router.destination)] = list(router.destination.values())
    members = np.array([one for host in router.members for one in host], dtype=np.int32)
    length = np.zeros(laid.shape[1], dtype=np.int64)
    first = np.zeros(laid.shape[1] + 1, dtype=np.int64)
    row_links = np.empty(0, dtype=np.int32)
    # Counted first, then laid.
    for _ in range(2):
        total = lay_rows(
            laid[0],
            laid[1],
            laid[2],
            laid[3],
            templates.first_leg,
            templates.start,
            templates.leg_end,
            templates.first_choice,
            templates.first_offset,
            templates.choices,
            templates.offsets,
            templates.entries,
            members,
            destination,
            links.vertices,
            links.key,
            links.number,
            place,
            first,
            length,
            row_links,
        )
        first[1:] = np.cumsum(length)
        row_links = row_links if len(row_links) else np.empty(total, dtype=np.int32)
    return first, row_links


def _local_links(links: _Links, router: Router, found: Templates) -> tuple[Int32Array, Int32Array]:
    """(E,) the place of each link among those of its host, and (homes, L) the links of each home.

    A link of one host stands at the same place in all hosts like it.
    """
    hosts = len(router.members)
    tail_host, head_host = router.hosts[links.tail], router.hosts[links.head]
    place = np.zeros(len(links.tail), dtype=np.int32)
    chosen_of: dict[int, Int64Array] = {}
    rows: list[Int32Array] = []
    for home, wired in zip(found.homes.tolist(), found.wired_of_home.tolist(), strict=True):
        if home >= hosts:
            rows.append(np.empty(0, dtype=np.int32))
            continue
        if wired not in chosen_of:
            chosen_of[wired] = np.flatnonzero((tail_host == wired) | (head_host == wired))
            place[chosen_of[wired]] = np.arange(len(chosen_of[wired]))
        chosen = chosen_of[wired]
        moved = np.arange(links.vertices, dtype=np.int32)
        moved[list(router.members[wired])] = router.members[home]
        rows.append(links.between(moved[links.tail[chosen]], moved[links.head[chosen]]))
    local = np.zeros((len(rows), max([1, *map(len, rows)])), dtype=np.int32)
    for home, row in enumerate(rows):
        local[home, : len(row)] = row
    return place, local


def _lost(found: Templates, groups: Sequence[Int32Array]) -> tuple[tuple[int, int], ...]:
    """The first pairs that nothing joins."""
    kinds = {key for key, number in found.number.items() if found.found[number] is None}
    lost: list[tuple[int, int]] = []
    vertices = [int(vertex) for group in groups for vertex in group]
    for group in range(len(groups) if kinds else 0):
        mine = np.flatnonzero(found.block == group).tolist()
        for one in mine:
            for other in mine:
                key = int(found.kind[one]), found.way(one, other), int(found.kind[other])
                if one != other and key in kinds:
                    lost.append((vertices[one], vertices[other]))
                    if len(lost) == _NAMED_LOST:
                        return tuple(lost)
    return tuple(lost)
