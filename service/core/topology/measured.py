"""What benchmarks say of the links they used: effective rates and typical latencies.

A collective's bus rate is what every rank sends. Which links carry it, and how many share it, is
worked out from the number of ranks and hosts; where that is not certain, or the measurement lies
above what the links can carry, it is left out with the reason and nothing is made of it.

- Inside a host with NVLink, each rank's links to the others carry the bus rate together.
- Between hosts, rings (all-gather, reduce-scatter, broadcast, all-reduce) cross from host to host
  with the bus rate, over all NICs of a host together (nccl-tests#119: 96 GB/s over 4 HDR NICs); an
  all-to-all with what its ranks have for other hosts; a send-receive over one NIC.
- A perftest bandwidth is that of one NIC, and its one-way latency that of two cables at least.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.designs import DESIGNS
from service.core.topology.readings import MeasuredTransfer, TransferScope
from service.core.topology.spec import ClusterSpec, DeviceSpec, HostSpec, LinkSpec

__all__ = ["Measured", "Unused", "apply_measurements"]

_Number = TypeVar("_Number", int, float)

# Rings pass everything on from rank to rank.
_RINGS = frozenset({"all_gather", "reduce_scatter", "broadcast", "all_reduce"})
_ONE_NIC = frozenset({"write", "read", "send"})
# Of reads the tool tells the time there and back.
_ONE_WAY = frozenset({"write", "send"})
_TOO_FAST = "it, or another row of its run, asks more of"
# Below this a row is mostly latency, and its rate that of no link.
_LEAST_RATED_BYTES = 2**16
_MOSTLY_LATENCY = (
    f"messages below {_LEAST_RATED_BYTES} bytes take mostly latency: their rate is of no link"
)
_IN_NETWORK = (
    "asks more of links than they carry: an all-reduce may be added up in the network (NVLS in a"
    " host, SHARP between hosts), which moves less than the bus rate counts"
)


@dataclass(frozen=True, slots=True)
class Unused:
    """Measurements that say nothing of a link here: the first of them, how many, and why."""

    first: MeasuredTransfer
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """A cluster with what was measured of its links, in words what was taken for granted."""

    spec: ClusterSpec
    assumptions: tuple[str, ...]
    unused: tuple[Unused, ...]


def apply_measurements(spec: ClusterSpec, transfers: Sequence[MeasuredTransfer]) -> Measured:
    """Give links the effective rates and latencies that measurements tell of them.

    Of several measurements of one kind of link the highest rate counts, of an all-reduce only
    where nothing else was measured; of latencies that of the smallest message. Nominal rates stay
    as they are: an effective rate is at most nominal, and where one row of a run asks more of links
    than they carry none of its rows says anything.
    """
    shape = _Shape.of(spec)
    claims: dict[LinkKind, list[_Claim]] = {}
    reasons: dict[tuple[str, str, str], list[MeasuredTransfer]] = {}
    told = [(transfer, claim) for transfer in transfers for claim in _claims(transfer, shape)]
    of_others = {
        _run(transfer): claim
        for transfer, claim in told
        if isinstance(claim, str) and claim.startswith(_TOO_FAST)
    }
    for transfer, claim in told:
        said = of_others.get(_run(transfer), claim)
        if isinstance(said, str):
            reasons.setdefault((transfer.tool, transfer.collective, said), []).append(transfer)
        else:
            claims.setdefault(said.kind, []).append(said)
    assumptions = []
    for kind, rivals in claims.items():
        rated = [claim for claim in rivals if claim.share is not None]
        if rated:
            best = max(rated, key=lambda claim: (not claim.is_doubtful, claim.share or 0.0))
            spec = _with_share(spec, kind, best.share or 0.0)
            assumptions.append(_words(kind, best))
        timed = [claim for claim in rivals if claim.latency_seconds is not None]
        if timed:
            least = min(timed, key=lambda claim: claim.transfer.message_bytes)
            spec = _with_latency(spec, kind, least.latency_seconds or 0.0)
            assumptions.append(_latency_words(kind, least))
    unused = (Unused(found[0], len(found), key[2]) for key, found in reasons.items())
    return Measured(spec, tuple(assumptions), tuple(unused))


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one measurement says of links of a kind, as a share of their nominal rate."""

    kind: LinkKind
    transfer: MeasuredTransfer
    share: float | None = None
    latency_seconds: float | None = None

    @property
    def is_doubtful(self) -> bool:
        """Whether it may have moved less than the bus rate counts."""
        return self.transfer.collective == "all_reduce"


@dataclass(frozen=True, slots=True)
class _Shape:
    """What all hosts have in common; None where they differ or have none.

    `nvlink_port` is what the NVLinks of one GPU carry together, `cable` what one NIC's link does,
    both nominal and in bytes per second.
    """

    gpus: int | None
    nics: int | None
    nvlink_port: float | None
    is_switched: bool
    cable: float | None
    is_design: bool

    @staticmethod
    def of(spec: ClusterSpec) -> "_Shape":
        insides = [_inside(host) for host in spec.hosts]
        gpus = {
            sum(device.kind is VertexKind.GPU for device in devices) for devices, _links in insides
        }
        ports = {port for devices, links in insides for port in _nvlink_ports(devices, links)}
        kinds = {device.kind for devices, _links in insides for device in devices}
        cables = [link for link in spec.links if link.kind is LinkKind.NETWORK]
        nics = Counter(
            end.partition("/")[0]
            for link in cables
            for end in (link.source, link.target)
            if "/" in end
        )
        return _Shape(
            gpus=_only(gpus),
            nics=_only(set(nics.values())),
            nvlink_port=_only(ports),
            is_switched=VertexKind.NVSWITCH in kinds,
            cable=_only({link.bandwidth_bytes_per_second / link.lanes for link in cables}),
            is_design=any(host.design is not None for host in spec.hosts),
        )


def _inside(host: HostSpec) -> tuple[Sequence[DeviceSpec], Sequence[LinkSpec]]:
    if host.design is None:
        return host.devices, host.links
    design = DESIGNS.get(host.design)
    return (design.devices, design.links) if design else ((), ())


def _nvlink_ports(devices: Iterable[DeviceSpec], links: Iterable[LinkSpec]) -> set[float]:
    """What the NVLinks of each GPU carry together."""
    ports = {device.name: 0.0 for device in devices if device.kind is VertexKind.GPU}
    for link in links:
        if link.kind is LinkKind.NVLINK:
            for end in (link.source, link.target):
                if end in ports:
                    ports[end] += link.bandwidth_bytes_per_second
    return set(ports.values())


def _run(transfer: MeasuredTransfer) -> tuple[object, ...]:
    """What the rows of one run of a benchmark have in common."""
    timed = transfer.latency_seconds is not None
    return (transfer.tool, transfer.collective, transfer.ranks, transfer.devices, timed)


def _only(values: set[_Number]) -> _Number | None:
    """The one value there is, when there is one and it is not zero."""
    return (next(iter(values)) or None) if len(values) == 1 else None


def _claims(transfer: MeasuredTransfer, shape: _Shape) -> Iterator[_Claim | str]:
    """What a measurement says, or why it says nothing."""
    if transfer.scope is TransferScope.UNKNOWN:
        yield "nothing says whether it was inside a host or between hosts"
    elif transfer.scope is TransferScope.INSIDE_HOST:
        yield _inside_host(transfer, shape)
    elif transfer.latency_seconds is not None:
        yield _latency(transfer)
    else:
        yield _between_hosts(transfer, shape)


def _inside_host(transfer: MeasuredTransfer, shape: _Shape) -> _Claim | str:
    rate = transfer.bus_bytes_per_second
    if rate is None or transfer.ranks < 2:
        return "it has no bus rate of two ranks or more"
    if shape.nvlink_port is None:
        return "GPUs of the hosts here have no NVLink, or not all the same"
    if shape.is_design:
        return "the inside of a reference design has its own effective rates"
    if not shape.is_switched and not (
        transfer.ranks == shape.gpus and transfer.collective in _RINGS - {"broadcast"}
    ):
        return "NVLinks go from GPU to GPU here, and only a ring of all GPUs fills them evenly"
    return _checked(LinkKind.NVLINK, transfer, rate / shape.nvlink_port)


def _between_hosts(transfer: MeasuredTransfer, shape: _Shape) -> _Claim | str:
    rate = transfer.bus_bytes_per_second
    if rate is None:
        return "it has neither a rate nor a latency"
    if shape.cable is None:
        return "the cluster here has no cables of NICs, or not all at one rate"
    if transfer.collective in _ONE_NIC:
        return _checked(LinkKind.NETWORK, transfer, rate / shape.cable)
    hosts = {name.partition("/")[0] for name in transfer.devices}
    per_host = transfer.ranks / len(hosts) if hosts else 0.0
    if shape.gpus is None or shape.nics is None or per_host != shape.gpus:
        return "its ranks are not all GPUs of hosts as they are here: which NICs it used is open"
    if transfer.collective in _RINGS:
        rate /= shape.nics
    elif transfer.collective == "alltoall":
        away = (transfer.ranks - per_host) / (transfer.ranks - 1)
        rate *= away * per_host / shape.nics
    elif transfer.collective != "sendrecv":
        return f"what {transfer.collective} puts on which link is not known"
    return _checked(LinkKind.NETWORK, transfer, rate / shape.cable)


def _latency(transfer: MeasuredTransfer) -> _Claim | str:
    if transfer.collective not in _ONE_WAY:
        return "it is the time there and back; that of a write or a send is one way"
    # At least two cables, one at each NIC; with more than one switch between they are a bit less.
    each = (transfer.latency_seconds or 0.0) / 2
    return _Claim(LinkKind.NETWORK, transfer, latency_seconds=each)


def _checked(kind: LinkKind, transfer: MeasuredTransfer, share: float) -> _Claim | str:
    if share <= 1:
        if transfer.message_bytes < _LEAST_RATED_BYTES:
            return _MOSTLY_LATENCY
        return _Claim(kind, transfer, share=share)
    if transfer.collective == "all_reduce":
        return _IN_NETWORK
    over = f"{_TOO_FAST} {kind.value} links than they nominally carry here"
    return f"{over}: the rates of the cluster, or the file, are of another machine"


def _with_share(spec: ClusterSpec, kind: LinkKind, share: float) -> ClusterSpec:
    """Every link of the kind carries this share of what it nominally does, both ways."""

    def slowed(link: LinkSpec) -> LinkSpec:
        rate = link.bandwidth_bytes_per_second
        back = link.reverse
        if back is not None:
            other = back.bandwidth_bytes_per_second or rate
            back = replace(back, effective_bytes_per_second=other * share)
        return replace(link, effective_bytes_per_second=rate * share, reverse=back)

    return _with_links(spec, kind, slowed)


def _with_latency(spec: ClusterSpec, kind: LinkKind, seconds: float) -> ClusterSpec:
    def timed(link: LinkSpec) -> LinkSpec:
        return replace(link, latency_seconds=max(seconds, link.latency_floor_seconds))

    return _with_links(spec, kind, timed)


def _with_links(
    spec: ClusterSpec, kind: LinkKind, change: Callable[[LinkSpec], LinkSpec]
) -> ClusterSpec:
    def changed(links: Iterable[LinkSpec]) -> tuple[LinkSpec, ...]:
        return tuple(change(link) if link.kind is kind else link for link in links)

    hosts = tuple(replace(host, links=changed(host.links)) for host in spec.hosts)
    return replace(spec, hosts=hosts, links=changed(spec.links))


def _words(kind: LinkKind, claim: _Claim) -> str:
    transfer = claim.transfer
    doubt = ", taken to be without reduction in the network" if claim.is_doubtful else ""
    return (
        f"{kind.value} links carry {100 * (claim.share or 0.0):.3g} % of their nominal rate in"
        f" practice: {transfer.tool}, {transfer.collective} of {transfer.message_bytes} bytes over"
        f" {transfer.ranks} ranks at {(transfer.bus_bytes_per_second or 0.0) / 1e9:g} GB/s{doubt}"
    )


def _latency_words(kind: LinkKind, claim: _Claim) -> str:
    transfer = claim.transfer
    return (
        f"{kind.value} links take {(claim.latency_seconds or 0.0) * 1e6:.3g} us each: half of what"
        f" {transfer.tool} measured for a {transfer.collective} of {transfer.message_bytes} bytes,"
        " adapters included"
    )
