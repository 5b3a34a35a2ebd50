"""Published rates of collectives, beside the bounds of the same links."""

from collections.abc import Iterator
from fractions import Fraction

from service.core.topology.cluster import Cluster
from service.core.topology.flows.bounds import (
    FlowRouting,
    bound_exchange,
    bound_gathering,
    bound_messages,
)
from service.core.topology.flows.demands import CollectiveKind, Exchange, Gathering, Messages
from service.core.topology.flows.results import BoundKind, FlowBounds
from service.core.topology.flows.study import FlowStudy
from validation.measured_rates import BOTH_WAYS, EXEMPT, MEASURED, SEND, Measured, design
from validation.rows import Row, Section, at_least, printed
from validation.small_clusters import (
    GB,
    between_devices,
    dgx_1_nvlinks,
    nvswitch_hosts,
    ring,
    torus,
    two_dgx_2,
)

__all__ = ["SECTIONS", "algorithm_rate", "all_gather_rate", "all_to_all_rate", "bus_factor"]

_MESSAGE_BYTES = Fraction(10**9)


def all_to_all_rate(cluster: Cluster) -> float:
    """Bytes per second that every ordered pair of devices can have at once, by any route."""
    study = FlowStudy(cluster)
    exchange = Exchange(study.network.gpus, Fraction(1))
    return 1 / _flow_seconds(bound_exchange(study, exchange, FlowRouting.ANY))


def all_gather_rate(cluster: Cluster, kind: CollectiveKind = CollectiveKind.ALL_GATHER) -> float:
    """Bytes that each device holds at the end, a second, by any route."""
    study = FlowStudy(cluster)
    gathering = Gathering(kind, study.network.gpus, Fraction(1))
    return 1 / _flow_seconds(bound_gathering(study, gathering, FlowRouting.ANY))


def _flow_seconds(found: FlowBounds) -> float:
    """The bound of the concurrent flow, which is exact for any routing."""
    flow = found.of(BoundKind.CONCURRENT_FLOW)
    if flow is None:
        raise ValueError("the cluster is too large for a concurrent flow")
    return flow.seconds


def algorithm_rate(measured: Measured) -> tuple[float, int]:
    """The greatest rate in GB/s that the bound leaves, and among how many devices."""
    study = FlowStudy(measured.cluster())
    devices = study.network.gpus
    found: FlowBounds
    if measured.kind == SEND:
        ends = int(devices[0]), int(devices[-1])
        found = bound_messages(study, Messages.of([(*ends, _MESSAGE_BYTES)]), FlowRouting.ANY)
    elif measured.kind == BOTH_WAYS:
        first, last = int(devices[0]), int(devices[-1])
        each = _MESSAGE_BYTES / 2
        both = Messages.of([(first, last, each), (last, first, each)])
        found = bound_messages(study, both, FlowRouting.ANY)
    elif measured.kind == CollectiveKind.ALL_TO_ALL:
        exchange = Exchange(devices, _MESSAGE_BYTES / len(devices))
        found = bound_exchange(study, exchange, FlowRouting.ANY)
    else:
        gathering = Gathering(CollectiveKind(measured.kind), devices, _MESSAGE_BYTES)
        found = bound_gathering(
            study, gathering, FlowRouting.ANY, in_network_reduction=measured.in_network_reduction
        )
    return float(_MESSAGE_BYTES) / found.seconds / GB, len(devices)


def bus_factor(kind: str, count: int) -> float:
    """What nccl-tests multiplies the algorithm bandwidth of `count` devices with."""
    if kind in (SEND, BOTH_WAYS):
        return 1.0
    return (2 if kind == CollectiveKind.ALL_REDUCE else 1) * (count - 1) / count


def _all_to_all() -> Iterator[Row]:
    for what, cluster, rate in (
        ("SCCL: DGX-1, NVLinks of 25 alone", dgx_1_nvlinks(), "9.375"),
        ("by hand: 8 H100, NVSwitch of 450, no NICs", nvswitch_hosts(1, 8, 450e9), "64.2857"),
        ("by hand: 8 H100, and over NICs of 50", nvswitch_hosts(1, 8, 450e9, 50e9), "71.43"),
        ("by hand: 2 x 8 H100, one switch", nvswitch_hosts(2, 8, 450e9, 50e9), "6.25"),
        (
            "by hand: 2 x 8 H100, a rail for each place",
            nvswitch_hosts(2, 8, 450e9, 50e9, rails=True),
            "6.25",
        ),
    ):
        yield Row(what, rate, all_to_all_rate(cluster) / GB)
    for count, rate in ((4, "0.5"), (8, "0.125"), (16, "0.03125")):
        yield Row(
            f"by hand: ring of {count}, links of 1", rate, all_to_all_rate(ring(count, GB)) / GB
        )
    yield Row("by hand: torus of 4 x 4, links of 1", "0.125", all_to_all_rate(torus(4, 4, GB)) / GB)


def _all_gather() -> Iterator[Row]:
    for what, cluster, rate in (
        ("8 A100, 300 into an NVSwitch", nvswitch_hosts(1, 8, 300e9), "342.857"),
        ("2 x 8 A100, and NICs of 25", nvswitch_hosts(2, 8, 300e9, 25e9), "346.667"),
        ("16 dies of MI250, links of 50", between_devices(design("mi250x")()), "342.857"),
    ):
        yield Row(f"ForestColl: {what}", rate, all_gather_rate(cluster) / GB)
    rate = f"{8 / (7 / 6) * 25:.3f}"
    yield Row("SCCL: DGX-1, 7/6 rounds of a block", rate, all_gather_rate(dgx_1_nvlinks()) / GB)


def _measured() -> Iterator[Row]:
    for one in MEASURED:
        rate, count = algorithm_rate(one)
        factor = 1.0 if one.is_algorithm_rate else bus_factor(one.kind, count)
        which = ", algorithm bandwidth" if one.is_algorithm_rate else ""
        what = f"{one.what}: {one.kind.replace('_', '-')}{which} ({one.source})"
        yield Row(what, f"{one.rate:g}", rate * factor)
    reached = 32 * all_to_all_rate(two_dgx_2()) / GB
    yield Row("2 DGX-2: all-to-all, TE-CCL's schedule (its output files)", "12.42", reached)
    for exempt in EXEMPT:
        of_link = Measured(exempt.what, exempt.cluster, SEND, 0.0, exempt.source)
        rate, _ = algorithm_rate(of_link)
        for figure in exempt.rates:
            what = f"{exempt.what} (DeepEP {exempt.source})"
            yield Row(what, f"{figure:g}", rate, exempt.reason)


SECTIONS = (
    Section(
        name="all_to_all",
        title="All-to-all of known hosts",
        source=(
            "SCCL (PPoPP 2021) for the DGX-1: bandwidth-optimal in 1/3 of a round for each block "
            "and link. The others by hand: 450/7 from a port, (450+50)/7 with a NIC beside it, "
            "400/64 from the cut between two hosts, 8/n^2 from distances on a ring or torus."
        ),
        text="Every device sends the same to every other. The rate of each ordered pair, from the "
        "greatest concurrent flow by any route over nominal links, GB/s in one direction.",
        what="links",
        unit="GB/s a pair",
        rule=printed("a concurrent flow is exact, and ends on whole fractions."),
        rows=lambda: tuple(_all_to_all()),
    ),
    Section(
        name="all_gather",
        title="All-gather of known hosts",
        source=(
            "ForestColl (arXiv 2402.06787), computed by its authors' program; SCCL (PPoPP 2021)."
        ),
        text="Bytes that each device holds at the end, a second, from the greatest flow by any "
        "route over nominal links.",
        what="links",
        unit="GB/s",
        rule=printed("no schedule is quicker than the worst cut, and one reaches it."),
        rows=lambda: tuple(_all_gather()),
    ),
    Section(
        name="measured_rates",
        title="Measured rates and their bounds",
        source="the thread or page in parentheses in each row; stas00 is stas00/ml-engineering.",
        text="""
What people measured with public tools, as bus bandwidth of nccl-tests unless it says otherwise,
and the most that our bound leaves on the same nominal links by any route. A bound is no forecast:
it knows no protocol, launch or congestion. Where switches add up what they pass on (NVLS, SHARP)
the bound is that of a reduction in the network.
""",
        what="machine and test",
        unit="GB/s",
        rule=at_least("nothing that was measured may be quicker than a lower bound on its time."),
        rows=lambda: tuple(_measured()),
        is_bound=True,
    ),
)
