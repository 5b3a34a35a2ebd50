"""Lower bounds of many transfers: how long at least, what binds, and what proves it."""

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from service.core.topology.flows.witness import rounded_down

__all__ = [
    "Binding",
    "BindingKind",
    "BoundKind",
    "Direction",
    "FlowBound",
    "FlowBounds",
    "Load",
    "Method",
    "Part",
]


class BoundKind(StrEnum):
    """The kinds of lower bound, each at least as high as the one before it."""

    PORT = "port"
    LINK = "link"
    CUT = "cut"
    CONCURRENT_FLOW = "concurrent_flow"


class BindingKind(StrEnum):
    """What binds: a link, a set of vertices of one family of cuts, or lengths of links."""

    LINK = "link"
    DEVICE = "device"
    PCIE_SWITCH = "pcie_switch"
    NVLINK = "nvlink"
    HOST_BRIDGE = "host_bridge"
    SOCKET = "socket"
    HOST = "host"
    NVLINK_DOMAIN = "nvlink_domain"
    LEAF = "leaf"
    POD = "pod"
    RAIL = "rail"
    PARTITION = "partition"
    LENGTHS = "lengths"


class Direction(StrEnum):
    """Which way what binds is crossed."""

    OUT = "out"
    INTO = "into"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Binding:
    """What binds, by the name of a link, a device, a host, a switch or a vertex of the set."""

    kind: BindingKind
    name: str
    direction: Direction | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A capacity of a witness: its number, its length, and how many like it there are."""

    resource: int
    length: int
    copies: int = 1


@dataclass(frozen=True, slots=True)
class FlowBound:
    """No schedule takes less than `demanded` / `offered` seconds.

    `demanded` is bytes x length that must be taken up, `offered` bytes per second x length that the
    `parts` have; a cut has length 1 everywhere. Both are exact.
    """

    kind: BoundKind
    binding: Binding
    demanded: Fraction
    offered: Fraction
    parts: tuple[Part, ...]

    def times(self, factor: Fraction) -> "FlowBound":
        """The bound of so many times the bytes."""
        return replace(self, demanded=self.demanded * factor)

    def of_kind(self, kind: BoundKind) -> "FlowBound":
        """The same bound, as one of another kind that is at least as high."""
        return replace(self, kind=kind)

    @property
    def exact_seconds(self) -> Fraction:
        """The bound before it is rounded."""
        return self.demanded / self.offered

    @property
    def seconds(self) -> float:
        """The bound, rounded down."""
        return rounded_down(self.exact_seconds)


class Method(StrEnum):
    """How the bound of the concurrent flow was found, and whether it is the best there is."""

    PINNED_LOADS = "pinned_loads"  # exact: routes leave nothing to choose
    LINEAR_PROGRAM = "linear_program"  # exact, on every link
    SYMMETRIC_LINEAR_PROGRAM = "symmetric_linear_program"  # exact, one of each kind of link
    CUTS = "cuts"  # none: too large, so only cuts were looked at


@dataclass(frozen=True, slots=True)
class Load:
    """What each of `copies` capacities like `resource` carries, in bytes."""

    resource: int
    copies: int
    bytes: float


@dataclass(frozen=True, slots=True, eq=False)
class FlowBounds:
    """The bounds of each kind that could be found, in the order of `BoundKind`.

    `loads` are those of the pinned paths, or of one optimal routing; empty when neither is known.
    Pairs of vertices in `unreachable` have no route; the bounds are those of the others, and none
    for a collective that can't be completed. `latency_floor` is in seconds.
    """

    bounds: tuple[FlowBound, ...]
    method: Method
    loads: tuple[Load, ...] = ()
    latency_floor: Fraction = Fraction(0)
    unreachable: tuple[tuple[int, int], ...] = ()

    def of(self, kind: BoundKind) -> FlowBound | None:
        """The bound of one kind; None when nothing moves or it could not be found."""
        return next((bound for bound in self.bounds if bound.kind is kind), None)

    @property
    def seconds(self) -> float:
        """The greatest of the bounds and of the latency floor; 0 when nothing moves."""
        exact = max([self.latency_floor, *(bound.exact_seconds for bound in self.bounds)])
        return rounded_down(exact)

    def times(self, factor: Fraction) -> "FlowBounds":
        """The bounds of so many times the bytes."""
        return replace(
            self,
            bounds=tuple(bound.times(factor) for bound in self.bounds),
            loads=tuple(replace(load, bytes=load.bytes * float(factor)) for load in self.loads),
        )
