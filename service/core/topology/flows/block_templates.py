"""What leads from each kind of device to each other kind, searched for once, as arrays.

Devices of hosts that are wired alike are of one kind where they have the same place in them: the
router finds the same for all pairs of two kinds whose hosts come in the same order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.topology.routing import Found, Router

__all__ = ["MAX_BLOCK_LINKS_SEARCHED", "ORDERS", "SAME_HOST", "Coded", "Templates", "coded"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

# Links that the searches for all kinds of pairs look at together: some seconds.
MAX_BLOCK_LINKS_SEARCHED = 400_000_000

# The source's host comes before the target's, is the same, or comes after it: see `Router`.
ORDERS = 3
SAME_HOST = 1

# Rows of pairs that are looked at together.
_ROWS = 256


class Templates:
    """What was found for the pairs of kinds that groups of devices need.

    `devices` (D,) are the router's numbers, `block` (D,) the group of each. With `alike` hosts that
    are wired alike are one kind; else each host is its own. `host`, `home` and `kind` (D,): the
    host of each device (negative for none), the number of its host or of itself without one among
    `homes` (H,), and its kind. `wired_of_kind` has the first host wired like that of a kind.
    `number` says by kind of source, order of hosts and kind of target which of `found` it is.
    `chooses_inside`: some path to another host has a choice before it leaves its own for good; what
    is found then is not the same for all hosts alike.
    """

    def __init__(
        self, router: Router, devices: Int32Array, block: Int64Array, *, alike: bool
    ) -> None:
        self.devices, self.block = devices, block
        vertices, hosts = len(router.names), len(router.members)
        self.host: Int32Array = router.hosts[devices].astype(np.int32)
        outside = self.host < 0
        home = np.where(outside, hosts + devices, self.host).astype(np.int64)
        wired = home.copy()
        if alike:
            first = np.array(router.first_alike, dtype=np.int64)
            wired[~outside] = first[self.host[~outside]]
        self.homes, numbered = np.unique(home, return_inverse=True)
        self.home: Int32Array = numbered.astype(np.int32)
        self.wired_of_home: Int64Array = np.zeros(len(self.homes), dtype=np.int64)
        self.wired_of_home[self.home] = wired
        place = np.array(router.place, dtype=np.int64)[devices]
        kinds, numbered = np.unique(wired * vertices + place, return_inverse=True)
        self.kind: Int32Array = numbered.astype(np.int32)
        self.wired_of_kind: Int64Array = kinds // vertices
        self.found: list[Found | None] = []
        self.number: dict[tuple[int, int, int], int] = {}
        self.chooses_inside = False
        self._search(router)

    def way(self, one: int, other: int) -> int:
        """The order of the hosts of two devices."""
        return int(np.sign(int(self.host[one]) - int(self.host[other]))) + SAME_HOST

    def _search(self, router: Router) -> None:
        looked = 0
        seen = set()
        for key, (source, target) in self._wanted().items():
            found, search = router.found(source, target)
            if search.key not in seen:
                seen.add(search.key)
                looked += search.links
            if looked > MAX_BLOCK_LINKS_SEARCHED:
                detail = (
                    "finding the physical paths between all ranks of the expert groups looks at "
                    "too many links: use smaller groups, or hosts that are wired alike"
                )
                raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("topology",), detail)])
            self.number[key] = len(self.found)
            self.found.append(found)
            if found is not None and key[1] != SAME_HOST:
                home = int(router.hosts[found.source])
                self.chooses_inside |= home >= 0 and any(
                    len(leg.choices) > len(leg.offsets) - 1 and int(router.hosts[leg.end]) == home
                    for leg in found.legs
                )

    def _wanted(self) -> dict[tuple[int, int, int], tuple[int, int]]:
        """The kinds of pairs within groups, and a pair of each."""
        kinds = len(self.wired_of_kind)
        wanted: dict[tuple[int, int, int], tuple[int, int]] = {}
        # Groups with the same kinds in the same order of hosts have the same kinds of pairs.
        shapes: set[tuple[bytes, bytes]] = set()
        for group in range(int(self.block.max(initial=-1)) + 1):
            mine = np.flatnonzero(self.block == group)
            kind, host = self.kind[mine].astype(np.int64), self.host[mine]
            shape = kind.tobytes(), np.unique(host, return_inverse=True)[1].tobytes()
            if shape in shapes:
                continue
            shapes.add(shape)
            for low in range(0, len(mine), _ROWS):
                rows = slice(low, low + _ROWS)
                way = np.sign(host[rows][:, None] - host[None, :]) + SAME_HOST
                keys = (kind[rows][:, None] * ORDERS + way) * kinds + kind[None, :]
                # From a device to itself there is nothing to find.
                keys[np.arange(len(keys)), np.arange(low, low + len(keys))] = -1
                found, positions = np.unique(keys, return_index=True)
                for key, position in zip(found.tolist(), positions.tolist(), strict=True):
                    if key < 0:
                        continue
                    rest, other = divmod(key, kinds)
                    row, column = divmod(position, len(mine))
                    ends = int(self.devices[mine[low + row]]), int(self.devices[mine[column]])
                    wanted.setdefault((*divmod(rest, ORDERS), other), ends)
        return wanted


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Templates as `lay_rows` reads them; vertices of the hosts of both ends by their place there.

    Legs of template i stand from `first_leg[i]`, choices and entries of leg l from
    `first_choice[l]` and its offsets from `first_offset[l]`. One without a path has no legs.
    """

    first_leg: Int64Array
    start: Int32Array
    leg_end: Int32Array
    first_choice: Int64Array
    first_offset: Int64Array
    choices: Int32Array
    offsets: Int32Array
    entries: Int32Array


def coded(router: Router, templates: Sequence[Found | None]) -> Coded:
    """All templates one after the other."""
    legs = [() if one is None else one.legs for one in templates]
    flat = [leg for of_one in legs for leg in of_one]
    of_leg = np.repeat(np.arange(len(legs)), [len(of_one) for of_one in legs])
    widths = np.array([len(leg.choices) for leg in flat], dtype=np.int64)
    heights = np.array([len(leg.offsets) for leg in flat], dtype=np.int64)
    sources = np.array([0 if one is None else one.source for one in templates], dtype=np.int64)
    targets = np.array([0 if one is None else one.target for one in templates], dtype=np.int64)
    place = np.array(router.place, dtype=np.int64)

    def code(vertex: Int64Array, template: Int64Array) -> Int32Array:
        host, vertices = router.hosts[vertex], len(place)
        near = (host >= 0) & (host == router.hosts[sources[template]])
        far = (host >= 0) & (host == router.hosts[targets[template]])
        away = np.where(far, 2 * vertices + place[vertex], vertex)
        return np.where(near, vertices + place[vertex], away).astype(np.int32)

    choices = _joined([leg.choices for leg in flat])
    return Coded(
        first_leg=_starts(np.array([len(of_one) for of_one in legs], dtype=np.int64)),
        start=code(sources, np.arange(len(legs))),
        leg_end=code(np.array([leg.end for leg in flat], dtype=np.int64), of_leg),
        first_choice=_starts(widths)[:-1],
        first_offset=_starts(heights)[:-1],
        choices=code(choices, np.repeat(of_leg, widths)),
        offsets=_joined([leg.offsets for leg in flat]).astype(np.int32),
        entries=_joined([leg.entries for leg in flat]).astype(np.int32),
    )


def _starts(lengths: Int64Array) -> Int64Array:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _joined(parts: Sequence[Sequence[int] | Int32Array]) -> Int64Array:
    count = sum(map(len, parts))
    return np.fromiter((one for part in parts for one in part), np.int64, count)
