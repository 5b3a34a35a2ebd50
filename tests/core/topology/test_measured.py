"""What measurements say of links, on clusters small enough to work it out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.measured import Measured, apply_measurements
from service.core.topology.readings import MeasuredTransfer, TransferScope
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    HostSpec,
    LinkSpec,
    ReverseSpec,
    SwitchSpec,
)

GB = 1e9


def link(source: str, target: str, kind: LinkKind, gigabytes: float) -> LinkSpec:
    return LinkSpec(
        source=source, target=target, kind=kind, bandwidth_bytes_per_second=gigabytes * GB
    )


def cluster(
    gpus: int = 8, nics: int = 8, hosts: int = 2, nvlink: float = 450, cable: float = 50
) -> ClusterSpec:
    """Hosts of GPUs on one NVSwitch, with NICs on one switch."""
    devices = [
        DeviceSpec(name="nvswitch0", kind=VertexKind.NVSWITCH),
        DeviceSpec(name="pcie0", kind=VertexKind.PCIE_SWITCH),
        *(DeviceSpec(name=f"gpu{n}", kind=VertexKind.GPU) for n in range(gpus)),
        *(DeviceSpec(name=f"nic{n}", kind=VertexKind.NIC) for n in range(nics)),
    ]
    inside = [
        *(link(f"gpu{n}", "nvswitch0", LinkKind.NVLINK, nvlink) for n in range(gpus)),
        *(link(f"gpu{n}", "pcie0", LinkKind.PCIE, 63) for n in range(gpus)),
        *(link(f"nic{n}", "pcie0", LinkKind.PCIE, 63) for n in range(nics)),
    ]
    return ClusterSpec(
        hosts=tuple(
            HostSpec(name=f"h{host}", devices=tuple(devices), links=tuple(inside))
            for host in range(hosts)
        ),
        switches=(SwitchSpec("leaf"),),
        links=tuple(
            link(f"h{host}/nic{n}", "leaf", LinkKind.NETWORK, cable)
            for host in range(hosts)
            for n in range(nics)
        ),
    )


def transfer(
    collective: str, gigabytes: float | None, hosts: int = 1, per_host: int = 8, size: int = 2**30
) -> MeasuredTransfer:
    """A collective over all GPUs of some hosts."""
    return MeasuredTransfer(
        tool="nccl-tests",
        collective=collective,
        message_bytes=size,
        ranks=hosts * per_host,
        scope=TransferScope.INSIDE_HOST if hosts == 1 else TransferScope.BETWEEN_HOSTS,
        line=1,
        bus_bytes_per_second=None if gigabytes is None else gigabytes * GB,
        devices=tuple(f"n{h}/gpu{n}" for h in range(hosts) for n in range(per_host)),
    )


def perftest(
    collective: str,
    gigabytes: float | None = None,
    microseconds: float | None = None,
    size: int | None = None,
) -> MeasuredTransfer:
    """A row of a bandwidth test, of large messages, or of a latency test, of small ones."""
    size = (2**20 if microseconds is None else 2) if size is None else size
    return MeasuredTransfer(
        tool="perftest",
        collective=collective,
        message_bytes=size,
        ranks=2,
        scope=TransferScope.BETWEEN_HOSTS,
        line=1,
        bus_bytes_per_second=None if gigabytes is None else gigabytes * GB,
        latency_seconds=None if microseconds is None else microseconds / 1e6,
    )


def effective(found: Measured, kind: LinkKind) -> set[float | None]:
    """Effective rates of all links of a kind, in GB/s."""
    links = [*found.spec.links, *(each for host in found.spec.hosts for each in host.links)]
    rates = [each.effective_bytes_per_second for each in links if each.kind is kind]
    return {None if rate is None else round(rate / GB, 6) for rate in rates}


def reason(spec: ClusterSpec, *transfers: MeasuredTransfer) -> str:
    """Why nothing at all was used."""
    found = apply_measurements(spec, transfers)
    assert found.spec == spec
    assert found.assumptions == ()
    return "; ".join(each.reason for each in found.unused)


@pytest.mark.parametrize(
    ("measured", "kind", "expected"),
    [
        # nccl-tests#212: about 370 of 450 GB/s in a host of eight H100.
        (transfer("all_gather", 370), LinkKind.NVLINK, 370),
        (transfer("alltoall", 335), LinkKind.NVLINK, 335),
        (transfer("sendrecv", 330, per_host=2), LinkKind.NVLINK, 330),
        # Eight NICs carry the bus rate of a ring from host to host.
        (transfer("all_reduce", 384, hosts=2), LinkKind.NETWORK, 48),
        (transfer("reduce_scatter", 360, hosts=4), LinkKind.NETWORK, 45),
        # Of 15 others 8 are in the other host: 90 x 8 / 15 leaves each GPU by its own NIC.
        (transfer("alltoall", 90, hosts=2), LinkKind.NETWORK, 48),
        (transfer("sendrecv", 47, hosts=2), LinkKind.NETWORK, 47),
        (perftest("write", 49.05), LinkKind.NETWORK, 49.05),
        (perftest("read", 46), LinkKind.NETWORK, 46),
    ],
)
def test_a_measurement_speaks_for_the_links_it_used(
    measured: MeasuredTransfer, kind: LinkKind, expected: float
) -> None:
    found = apply_measurements(cluster(), [measured])
    assert effective(found, kind) == {expected}
    others = {LinkKind.NVLINK, LinkKind.NETWORK, LinkKind.PCIE} - {kind}
    assert all(effective(found, each) == {None} for each in others)
    (assumed,) = found.assumptions
    assert f"{kind.value} links carry" in assumed
    assert measured.collective in assumed
    assert found.unused == ()


def test_four_nics_share_what_eight_gpus_reduce() -> None:
    # nccl-tests#119: 96 GB/s over four HDR NICs are 24 of 25 GB/s each.
    spec = cluster(nics=4, hosts=3, nvlink=300, cable=25)
    found = apply_measurements(spec, [transfer("all_reduce", 96, hosts=3)])
    assert effective(found, LinkKind.NETWORK) == {24}
    assert "without reduction in the network" in found.assumptions[0]


def test_the_highest_rate_counts_and_an_all_reduce_only_alone() -> None:
    rows = [transfer("all_gather", 100, size=1), transfer("all_gather", 340)]
    found = apply_measurements(cluster(), [*rows, transfer("all_reduce", 420)])
    assert effective(found, LinkKind.NVLINK) == {340}
    assert effective(
        apply_measurements(cluster(), [transfer("all_reduce", 420)]), LinkKind.NVLINK
    ) == {420}


def test_what_lies_above_the_links_is_left_out() -> None:
    in_network = "may be added up in the network (NVLS in a host, SHARP between hosts)"
    assert in_network in reason(cluster(), transfer("all_reduce", 475))
    assert in_network in reason(cluster(), transfer("all_reduce", 470, hosts=2))
    assert "more of nvlink links than" in reason(cluster(), transfer("all_gather", 500))
    assert "more of network links than" in reason(cluster(), perftest("write", 51))


def test_a_run_that_is_of_faster_links_says_nothing_by_its_slow_rows_either() -> None:
    """A sweep over 49 GB/s links, on a cluster of 25: its small messages are below that."""
    sweep = [perftest("write", rate, size=size) for rate, size in ((1, 2**16), (49, 2**23))]
    found = apply_measurements(cluster(cable=25), sweep)
    assert effective(found, LinkKind.NETWORK) == {None}
    assert [unused.count for unused in found.unused] == [2]
    # Another run is another matter.
    assert effective(
        apply_measurements(cluster(cable=25), [*sweep, perftest("send", 24)]), LinkKind.NETWORK
    ) == {24}


def test_the_rate_of_small_messages_is_of_no_link() -> None:
    assert "mostly latency" in reason(cluster(), perftest("write", 0.01, size=2))


def test_latency_is_halved_over_the_two_cables() -> None:
    found = apply_measurements(
        cluster(),
        [perftest("write", microseconds=2.0), perftest("send", microseconds=9, size=4096)],
    )
    assert {each.latency_seconds for each in found.spec.links} == {1e-6}
    assert "1 us each" in found.assumptions[0]
    floor = replace(cluster().links[0], latency_floor_seconds=3e-6)
    slow = replace(cluster(), links=(floor, *cluster().links[1:]))
    found = apply_measurements(slow, [perftest("write", microseconds=2.0)])
    assert found.spec.links[0].latency_seconds == 3e-6
    assert "there and back" in reason(cluster(), perftest("read", microseconds=2))


def test_both_directions_are_measured_where_they_differ() -> None:
    one_way = replace(cluster().links[0], reverse=ReverseSpec(bandwidth_bytes_per_second=25 * GB))
    spec = replace(cluster(), links=(one_way, *cluster().links[1:]))
    found = apply_measurements(spec, [perftest("write", 40)])
    back = found.spec.links[0].backward()
    assert found.spec.links[0].effective_bytes_per_second == pytest.approx(40 * GB)
    assert back.effective_bytes_per_second == pytest.approx(20 * GB)


def test_links_from_gpu_to_gpu_are_filled_by_a_ring_of_all() -> None:
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)]
    host = HostSpec(
        name="h",
        devices=tuple(DeviceSpec(name=f"gpu{n}", kind=VertexKind.GPU) for n in range(4)),
        links=tuple(link(f"gpu{a}", f"gpu{b}", LinkKind.NVLINK, 25) for a, b in pairs),
    )
    spec = ClusterSpec(hosts=(host,))
    found = apply_measurements(spec, [transfer("all_gather", 40, per_host=4)])
    assert effective(found, LinkKind.NVLINK) == {20}
    for other in (transfer("all_gather", 20, per_host=2), transfer("sendrecv", 20, per_host=4)):
        assert "only a ring of all GPUs" in reason(spec, other)


@pytest.mark.parametrize(
    ("spec", "measured", "expected"),
    [
        (
            cluster(),
            replace(perftest("write", 40), scope=TransferScope.UNKNOWN),
            "inside a host or",
        ),
        (cluster(), transfer("all_gather", 300, hosts=2, per_host=4), "not all GPUs of hosts"),
        (cluster(), replace(transfer("all_gather", 300, hosts=2), devices=()), "not all GPUs of"),
        (cluster(), transfer("all_gather", None), "no bus rate of two ranks"),
        (cluster(), transfer("all_gather", None, hosts=2), "neither a rate nor a latency"),
        (cluster(), transfer("gather", 30, hosts=2), "what gather puts on which link"),
        (cluster(nvlink=0.001), transfer("all_gather", 1), "more of nvlink links than"),
        (replace(cluster(), links=()), perftest("write", 40), "no cables of NICs"),
        (
            replace(
                cluster(),
                links=(link("h0/nic0", "leaf", LinkKind.NETWORK, 25), *cluster().links[1:]),
            ),
            perftest("write", 20),
            "not all at one rate",
        ),
        (
            ClusterSpec(hosts=(HostSpec(name="h", design="dgx-h100"),)),
            transfer("all_gather", 370),
            "reference design has its own",
        ),
        (
            ClusterSpec(
                hosts=(HostSpec(name="h", devices=(DeviceSpec(name="gpu0", kind=VertexKind.GPU),)),)
            ),
            transfer("all_gather", 370),
            "have no NVLink",
        ),
    ],
)
def test_what_is_not_certain_says_nothing(
    spec: ClusterSpec, measured: MeasuredTransfer, expected: str
) -> None:
    assert expected in reason(spec, measured)


def test_like_reasons_are_told_once() -> None:
    rows = [replace(transfer("all_reduce", 475 + n), line=n) for n in range(3)]
    (unused,) = apply_measurements(cluster(), rows).unused
    assert (unused.count, unused.first.line) == (3, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["all_reduce", "all_gather", "alltoall", "sendrecv", "broadcast"]),
            st.floats(0.001, 2000),
            st.integers(1, 3),
        ),
        max_size=6,
    ),
    st.lists(st.floats(0.001, 100), max_size=3),
)
def test_nominal_rates_stay_and_effective_ones_are_at_most_these(
    collectives: list[tuple[str, float, int]], bandwidths: list[float]
) -> None:
    spec = cluster()
    rows = [transfer(name, rate, hosts) for name, rate, hosts in collectives]
    found = apply_measurements(spec, [*rows, *(perftest("write", rate) for rate in bandwidths)])
    before, after = expand(spec).cluster.links, expand(found.spec).cluster.links
    for key, link_ in after.items():
        assert link_.bandwidth_bytes_per_second == before[key].bandwidth_bytes_per_second
        known = link_.effective_bytes_per_second
        assert known is None or 0 < known <= link_.bandwidth_bytes_per_second
