"""From a topology document to a cluster, or to all that is wrong with it."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode, InvalidInput, Path
from service.core.topology.cluster import Cluster, LinkKind, RateOrigin, VertexKind
from service.core.topology.expand import MAX_HOSTS, expand
from service.core.topology.paths import PathFinder
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    Duplex,
    FabricRates,
    HostSpec,
    LeafSpine,
    LinkSpec,
    MeasuredRate,
    RailOptimised,
    ReverseSpec,
    SwitchSpec,
)
from service.core.topology.summary import apart, summarise

GPU = DeviceSpec(name="gpu0", kind=VertexKind.GPU, memory_bytes=10**9, peak_flops={"bf16": 1e12})
NIC = DeviceSpec(name="nic0", kind=VertexKind.NIC, port_bytes_per_second=25e9)


def link(source: str, target: str, rate: float = 1e9, **more: object) -> LinkSpec:
    return LinkSpec(
        source=source,
        target=target,
        kind=LinkKind.OTHER,
        bandwidth_bytes_per_second=rate,
        **more,  # type: ignore[arg-type]
    )


def half(source: str, target: str) -> LinkSpec:
    return link(source, target, duplex=Duplex.HALF)


def faults_of(spec: ClusterSpec) -> list[tuple[FaultCode, Path]]:
    with pytest.raises(InvalidInput) as refused:
        expand(spec)
    assert all(fault.detail for fault in refused.value.faults)
    return [(fault.code, fault.path) for fault in refused.value.faults]


def test_hosts_that_are_alike_are_named() -> None:
    hosts = (HostSpec(name="b", alike=("a", "login"), devices=(GPU,)),)
    assert expand(ClusterSpec(hosts=hosts)).cluster.hosts == ("b", "a", "login")
    both = HostSpec(name="b", count=2, alike=("c",), devices=(GPU,))
    twice = HostSpec(name="b", alike=("a", "b"), devices=(GPU,))
    assert faults_of(ClusterSpec(hosts=(both, twice))) == [
        (FaultCode.EXCLUSIVE_FIELDS, ("hosts", 0, "alike")),
        (FaultCode.DUPLICATE_NAME, ("hosts", 1, "alike", 1)),
    ]
    many = HostSpec(name="b", alike=tuple(f"c{n}" for n in range(MAX_HOSTS)), devices=(GPU,))
    assert faults_of(ClusterSpec(hosts=(many,))) == [(FaultCode.OUT_OF_RANGE, ("hosts",))]


def test_hosts_are_numbered_when_counted_and_named_when_not() -> None:
    hosts = (
        HostSpec(name="host", count=2, design="dgx-h100"),
        HostSpec(name="solo", devices=(GPU,)),
    )
    cluster = expand(ClusterSpec(hosts=hosts)).cluster
    assert cluster.hosts == ("host0", "host1", "solo")
    assert cluster.devices[0].name == "host0/gpu0"
    assert cluster.devices[-1].name == "solo/gpu0"
    assert cluster.devices[-1].peak_flops == {"bf16": 1e12}
    assert cluster.vertices["host1/nic3"].rail == 3
    assert cluster.vertices["host1/nic3"].port_bytes_per_second == 50e9


def test_a_link_is_two_directions_unless_simplex() -> None:
    spec = ClusterSpec(
        hosts=(HostSpec(name="a", devices=(GPU,)),),
        switches=(SwitchSpec("s"), SwitchSpec("t")),
        links=(link("a/gpu0", "s", 5e9), link("s", "t", 7e9, duplex=Duplex.SIMPLEX)),
    )
    links = expand(spec).cluster.links
    assert {pair: found.bandwidth_bytes_per_second for pair, found in links.items()} == {
        ("a/gpu0", "s"): 5e9,
        ("s", "a/gpu0"): 5e9,
        ("s", "t"): 7e9,
    }


def test_the_directions_of_a_half_duplex_link_share_its_capacity() -> None:
    spec = ClusterSpec(
        hosts=(HostSpec(name="h", count=2, devices=(GPU, NIC), links=(half("nic0", "gpu0"),)),),
        switches=(SwitchSpec("s"),),
        links=(link("h0/nic0", "s"), half("s", "h1/nic0")),
    )
    links = expand(spec).cluster.links
    assert {pair: found.resource for pair, found in links.items()} == {
        ("h0/nic0", "h0/gpu0"): "h0/gpu0<->h0/nic0",
        ("h0/gpu0", "h0/nic0"): "h0/gpu0<->h0/nic0",
        ("h1/nic0", "h1/gpu0"): "h1/gpu0<->h1/nic0",
        ("h1/gpu0", "h1/nic0"): "h1/gpu0<->h1/nic0",
        ("h0/nic0", "s"): "h0/nic0->s",
        ("s", "h0/nic0"): "s->h0/nic0",
        ("s", "h1/nic0"): "h1/nic0<->s",
        ("h1/nic0", "s"): "h1/nic0<->s",
    }
    assert {found.bandwidth_bytes_per_second for found in links.values()} == {1e9}


def test_what_differs_the_other_way_replaces_what_is_said() -> None:
    said = link(
        "s",
        "t",
        10e9,
        effective_bytes_per_second=6e9,
        measured=MeasuredRate(5e9, "a tool", "2025-01-31"),
        latency_floor_seconds=1e-7,
        latency_seconds=1e-6,
        lanes=2,
        reverse=ReverseSpec(
            bandwidth_bytes_per_second=8e9,
            bandwidth_origin=RateOrigin.READ,
            bandwidth_source="a file",
            measured=MeasuredRate(7e9, "another", "2025-02-28"),
            latency_seconds=2e-6,
        ),
    )
    spec = ClusterSpec(
        hosts=(HostSpec(name="a", devices=(GPU,)),),
        switches=(SwitchSpec("s"), SwitchSpec("t")),
        links=(said,),
    )
    links = expand(spec).cluster.links
    there, back = links["s", "t"], links["t", "s"]
    assert (there.bandwidth_bytes_per_second, back.bandwidth_bytes_per_second) == (10e9, 8e9)
    assert (there.bandwidth_origin, back.bandwidth_origin) == (RateOrigin.STATED, RateOrigin.READ)
    assert (there.bandwidth_source, back.bandwidth_source) == (None, "a file")
    assert there.effective_bytes_per_second == back.effective_bytes_per_second == 6e9
    assert (there.measured_bytes_per_second, back.measured_bytes_per_second) == (5e9, 7e9)
    assert (there.measured_source, back.measured_source) == ("a tool", "another")
    assert there.latency_floor_seconds == back.latency_floor_seconds == 1e-7
    assert (there.latency_seconds, back.latency_seconds) == (1e-6, 2e-6)
    assert there.lanes == back.lanes == 2


@pytest.mark.parametrize(
    ("bad", "faults"),
    [
        (
            link("s", "t", duplex=Duplex.SIMPLEX, reverse=ReverseSpec(latency_seconds=1e-6)),
            [(FaultCode.INCONSISTENT, ("reverse",))],
        ),
        (
            link("s", "t", duplex=Duplex.HALF, reverse=ReverseSpec(bandwidth_bytes_per_second=2e9)),
            [(FaultCode.INCONSISTENT, ("reverse", "bandwidth_bytes_per_second"))],
        ),
        # The effective rate is taken over and is too high for the other direction.
        (
            link(
                "s",
                "t",
                effective_bytes_per_second=9e8,
                reverse=ReverseSpec(bandwidth_bytes_per_second=8e8),
            ),
            [(FaultCode.INCONSISTENT, ("reverse", "effective_bytes_per_second"))],
        ),
        (
            link("s", "t", reverse=ReverseSpec(latency_floor_seconds=1.5)),
            [(FaultCode.OUT_OF_RANGE, ("reverse", "latency_floor_seconds"))],
        ),
        # What is wrong both ways is told once.
        (
            link("s", "t", latency_seconds=2.0, reverse=ReverseSpec(latency_floor_seconds=0.5)),
            [(FaultCode.OUT_OF_RANGE, ("latency_seconds",))],
        ),
    ],
    ids=["simplex", "half duplex", "taken over", "out of range", "both ways"],
)
def test_the_other_way_at_fault(bad: LinkSpec, faults: list[tuple[FaultCode, Path]]) -> None:
    host = HostSpec(name="a", devices=(GPU,))
    spec = ClusterSpec(hosts=(host,), switches=(SwitchSpec("s"), SwitchSpec("t")), links=(bad,))
    assert faults_of(spec) == [(code, ("links", 0, *path)) for code, path in faults]


def test_where_rates_come_from_is_kept_and_goes_on_to_the_fabric() -> None:
    port = replace(NIC, port_origin=RateOrigin.READ, port_source="a file")
    slot = link("gpu0", "nic0", bandwidth_origin=RateOrigin.PRODUCT, bandwidth_source="PCIe 4 x16")
    inside = (slot, link("gpu0", "nic1"))
    devices = (GPU, port, replace(port, name="nic1", port_origin=RateOrigin.ASSUMED))
    host = HostSpec(name="h", devices=devices, links=inside)

    def origins(rates: FabricRates) -> dict[str, tuple[RateOrigin, str | None]]:
        fabric = RailOptimised(spines=1, rates=rates)
        links = expand(ClusterSpec(hosts=(host,), fabric=fabric)).cluster.links.values()
        return {link.name: (link.bandwidth_origin, link.bandwidth_source) for link in links}

    found = origins(FabricRates())
    assert found["h/nic0->h/gpu0"] == (RateOrigin.PRODUCT, "PCIe 4 x16")
    assert found["h/gpu0->h/nic1"] == (RateOrigin.STATED, None)
    assert found["h/nic0->rail0"] == (RateOrigin.READ, "a file")
    assert found["rail1->h/nic1"] == (RateOrigin.ASSUMED, "a file")
    assumed = "leaves that are not oversubscribed"
    assert found["rail0->spine0"] == (RateOrigin.ASSUMED, assumed)
    on_assumed = origins(FabricRates(oversubscription_ratio=2))["rail0->spine0"]
    assert on_assumed[0] is RateOrigin.ASSUMED
    stated = origins(FabricRates(oversubscription_ratio=2, link_bytes_per_second=1e9))
    assert stated["h/nic1->rail1"] == (RateOrigin.STATED, None)
    assert stated["rail0->spine0"] == (RateOrigin.STATED, "the stated oversubscription")
    given = origins(FabricRates(uplink_bytes_per_second=1e9))
    assert given["rail0->spine0"] == (RateOrigin.STATED, None)


def test_the_rate_of_a_port_names_where_it_comes_from() -> None:
    port = replace(NIC, port_origin=RateOrigin.ASSUMED)
    host = HostSpec(name="h", devices=(GPU, port), links=(link("gpu0", "nic0"),))
    where = ("hosts", 0, "devices", 1, "port_source")
    assert faults_of(ClusterSpec(hosts=(host,))) == [(FaultCode.MISSING_FIELD, where)]


def test_all_that_a_link_says_is_kept() -> None:
    said = link(
        "s",
        "t",
        10e9,
        effective_bytes_per_second=9e9,
        measured=MeasuredRate(8e9, "a tool", "2025-01-31"),
        latency_floor_seconds=1e-7,
        latency_seconds=1e-6,
        lanes=2,
    )
    spec = ClusterSpec(
        hosts=(HostSpec(name="a", devices=(GPU,)),),
        switches=(SwitchSpec("s"), SwitchSpec("t")),
        links=(said,),
    )
    kept = expand(spec).cluster.links["t", "s"]
    assert kept.name == "t->s"
    assert (kept.bandwidth_bytes_per_second, kept.effective_bytes_per_second) == (10e9, 9e9)
    assert kept.measured_bytes_per_second == 8e9
    assert (kept.measured_source, kept.measured_date) == ("a tool", "2025-01-31")
    assert (kept.latency_floor_seconds, kept.latency_seconds, kept.lanes) == (1e-7, 1e-6, 2)


def test_listed_hosts_are_joined_by_a_fabric_and_their_nics_take_rails_by_place() -> None:
    devices = (GPU, NIC, DeviceSpec(name="other", kind=VertexKind.NIC, port_bytes_per_second=1e9))
    inside = (link("gpu0", "nic0"), link("gpu0", "other"))
    spec = ClusterSpec(
        hosts=(HostSpec(name="n", count=2, devices=devices, links=inside),),
        fabric=RailOptimised(),
    )
    cluster = expand(spec).cluster
    assert cluster.links["n1/nic0", "rail0"].bandwidth_bytes_per_second == 25e9
    assert cluster.links["rail1", "n0/other"].bandwidth_bytes_per_second == 1e9
    assert cluster.vertices["n0/other"].rail == 1


def test_hosts_of_several_kinds_share_one_fabric() -> None:
    """Two DGX H100, a p4d and a listed host: each NIC has its own rate, each pair of hosts a path.

    The fullest leaf has two DGX H100 of 8 x 50 GB/s, and all leaves have the uplinks it needs.
    """
    spec = ClusterSpec(
        hosts=(
            HostSpec(name="new", count=2, design="dgx-h100"),
            HostSpec(name="old", design="p4d"),
            HostSpec(name="own", devices=(GPU, NIC), links=(link("gpu0", "nic0", 2e9),)),
        ),
        fabric=LeafSpine(hosts_per_leaf=2, spines=4),
    )
    cluster = expand(spec).cluster
    assert _edge_rates(cluster) == {"new0": {50e9}, "new1": {50e9}, "old": {12.5e9}, "own": {25e9}}
    uplinks = {cluster.links[f"leaf{n}", "spine3"].bandwidth_bytes_per_second for n in (0, 1)}
    assert uplinks == {2 * 8 * 50e9 / 4}
    finder = PathFinder(cluster)
    for target, rate in (("new1/gpu3", 50e9), ("old/gpu5", 12.5e9), ("own/gpu0", 2e9)):
        path = finder.path("new0/gpu0", target)
        assert path is not None
        assert path.bandwidth_bytes_per_second == rate
    inside = finder.path("old/gpu0", "old/gpu7")
    assert inside is not None
    assert inside.bandwidth_bytes_per_second == 300e9


def _edge_rates(cluster: Cluster) -> dict[str, set[float]]:
    """The rates of the links that leave each host."""
    rates: dict[str, set[float]] = {}
    for found in cluster.links.values():
        host = cluster.vertices[found.source].host
        if host is not None and found.kind is LinkKind.NETWORK:
            rates.setdefault(host, set()).add(found.bandwidth_bytes_per_second)
    return rates


def test_links_may_end_at_switches_of_the_fabric() -> None:
    spec = ClusterSpec(
        hosts=(HostSpec(name="h", count=2, design="p4d"),),
        fabric=LeafSpine(hosts_per_leaf=1, spines=1),
        links=(link("leaf0", "leaf1", 3e9),),
    )
    assert ("leaf1", "leaf0") in expand(spec).cluster.links


def test_hosts_that_nothing_joins_are_parts() -> None:
    hosts = (
        HostSpec(name="host", count=2, design="dgx-h100"),
        HostSpec(name="solo", devices=(GPU, NIC)),
    )
    assert apart(expand(ClusterSpec(hosts=hosts)).cluster) == (
        "host0/gpu0",
        "host1/gpu0",
        "solo/gpu0",
    )
    joined = ClusterSpec(hosts=hosts, links=(link("host1/gpu7", "solo/gpu0"),))
    assert apart(expand(joined).cluster) == ("host0/gpu0", "host1/gpu0")
    # One direction is a link too, and a switch without accelerators is no part.
    one_way = link("host0/gpu3", "host1/gpu0", duplex=Duplex.SIMPLEX)
    spec = ClusterSpec(
        hosts=hosts[:1], switches=(SwitchSpec("s"), SwitchSpec("t")), links=(one_way,)
    )
    assert apart(expand(spec).cluster) == ("host0/gpu0",)
    fabric = ClusterSpec(hosts=hosts[:1], fabric=RailOptimised(spines=1))
    assert apart(expand(fabric).cluster) == ("host0/gpu0",)
    assert apart(expand(ClusterSpec(hosts=(), switches=(SwitchSpec("s"),))).cluster) == ()


def test_counts_of_two_joined_hosts() -> None:
    spec = ClusterSpec(
        hosts=(HostSpec(name="host", count=2, design="dgx-h100"),),
        fabric=RailOptimised(spines=1),
    )
    counts = summarise(expand(spec).cluster)
    # A host: 8 NVLink, 16 PCIe, 8 host bridge and 1 socket cables, each in two directions.
    assert (counts.hosts, counts.devices) == (2, 16)
    assert counts.links == 2 * (2 * (8 + 16 + 8 + 1) + 16 + 8)
    assert counts.links_by_kind[LinkKind.NETWORK] == 32
    assert counts.vertices_by_kind[VertexKind.LEAF] == 8
    assert counts.link_kinds == ("fabric", "host_bridge", "network", "nvlink", "pcie", "socket")


def test_assumptions_are_said_once_each() -> None:
    spec = ClusterSpec(
        hosts=tuple(HostSpec(name=name, design="p4d") for name in ("a", "b")),
        fabric=RailOptimised(),
    )
    said = expand(spec).assumptions
    assert len(set(said)) == len(said)
    assert any("p4d: the socket link is assumed" in text for text in said)
    # Of 58 cables the 8 of the network have a latency, and these and the sockets a known rate.
    assert any(text.startswith("latency is unknown on 100 of 116 ") for text in said)
    assert any(text.startswith("effective bandwidth is unknown on 96 of 116 ") for text in said)


def test_every_fault_is_found_at_once() -> None:
    spec = ClusterSpec(
        hosts=(
            HostSpec(name="a", design="no-such"),
            HostSpec(name="b", count=2, devices=(GPU, GPU), links=(link("gpu0", "gpu9"),)),
            HostSpec(name="b1", design="p4d"),
            HostSpec(name="c", design="p4d", devices=(GPU,)),
            HostSpec(name="d"),
            HostSpec(name="e", devices=(GPU, NIC), links=(link("gpu0", "nic0"),) * 2),
            HostSpec(name="f", design="p4d"),
        ),
        switches=(SwitchSpec("s"), SwitchSpec("s")),
        links=(
            link("s", "nowhere"),
            link("s", "f/gpu99"),
            link("s", "f/gpu0", 2e9, effective_bytes_per_second=3e9),
            link("s", "f/gpu1"),
            link("f/gpu1", "s", duplex=Duplex.SIMPLEX),
            link("s", "s"),
            link("s", "f/gpu2", float("inf")),
        ),
        fabric=LeafSpine(hosts_per_leaf=1, spines=1, rates=FabricRates(oversubscription_ratio=0.0)),
    )
    assert faults_of(spec) == [
        (FaultCode.UNKNOWN_NAME, ("hosts", 0, "design")),
        (FaultCode.DUPLICATE_NAME, ("hosts", 1, "devices", 1, "name")),
        (FaultCode.UNKNOWN_NAME, ("hosts", 1, "links", 0, "target")),
        (FaultCode.DUPLICATE_NAME, ("hosts", 2, "name")),
        (FaultCode.EXCLUSIVE_FIELDS, ("hosts", 3, "design")),
        (FaultCode.MISSING_FIELD, ("hosts", 4, "design")),
        (FaultCode.DUPLICATE_NAME, ("hosts", 5, "links", 1)),
        (FaultCode.DUPLICATE_NAME, ("switches", 1, "name")),
        (FaultCode.OUT_OF_RANGE, ("fabric", "oversubscription_ratio")),
        (FaultCode.UNKNOWN_NAME, ("links", 0, "target")),
        (FaultCode.UNKNOWN_NAME, ("links", 1, "target")),
        (FaultCode.INCONSISTENT, ("links", 2, "effective_bytes_per_second")),
        (FaultCode.DUPLICATE_NAME, ("links", 4)),
        (FaultCode.INCONSISTENT, ("links", 5, "target")),
        (FaultCode.OUT_OF_RANGE, ("links", 6, "bandwidth_bytes_per_second")),
    ]


def test_ends_in_what_is_broken_itself_are_not_reported_as_dangling() -> None:
    spec = ClusterSpec(
        hosts=(HostSpec(name="a", design="no-such"),),
        fabric=LeafSpine(hosts_per_leaf=0, spines=1),
        links=(link("a/gpu0", "leaf0"),),
    )
    assert faults_of(spec) == [
        (FaultCode.UNKNOWN_NAME, ("hosts", 0, "design")),
        (FaultCode.OUT_OF_RANGE, ("fabric", "hosts_per_leaf")),
    ]


@pytest.mark.parametrize(
    ("bad", "field", "code"),
    [
        (link("s", "t", 0.0), ("bandwidth_bytes_per_second",), FaultCode.OUT_OF_RANGE),
        (link("s", "t", float("nan")), ("bandwidth_bytes_per_second",), FaultCode.OUT_OF_RANGE),
        (
            link("s", "t", measured=MeasuredRate(2e9, "a tool", "2025-01-31")),
            ("measured_bytes_per_second", "value"),
            FaultCode.INCONSISTENT,
        ),
        (link("s", "t", latency_seconds=-1e-9), ("latency_seconds",), FaultCode.OUT_OF_RANGE),
        (
            link("s", "t", latency_floor_seconds=2.0),
            ("latency_floor_seconds",),
            FaultCode.OUT_OF_RANGE,
        ),
        (
            link("s", "t", latency_floor_seconds=1e-6, latency_seconds=1e-7),
            ("latency_seconds",),
            FaultCode.INCONSISTENT,
        ),
        (link("s", "t", lanes=0), ("lanes",), FaultCode.OUT_OF_RANGE),
        (
            link("s", "t", bandwidth_origin=RateOrigin.READ),
            ("bandwidth_source",),
            FaultCode.MISSING_FIELD,
        ),
    ],
)
def test_a_link_at_fault(bad: LinkSpec, field: Path, code: FaultCode) -> None:
    host = HostSpec(name="a", devices=(GPU,))
    spec = ClusterSpec(hosts=(host,), switches=(SwitchSpec("s"), SwitchSpec("t")), links=(bad,))
    assert (code, ("links", 0, *field)) in faults_of(spec)


def test_a_fabric_does_not_take_the_name_of_a_listed_switch() -> None:
    spec = ClusterSpec(
        hosts=(HostSpec(name="a", design="p4d"),),
        switches=(SwitchSpec("rail0"),),
        fabric=RailOptimised(),
    )
    assert faults_of(spec) == [(FaultCode.DUPLICATE_NAME, ("fabric",))]


def test_a_nic_port_does_not_carry_more_than_its_rate() -> None:
    nic = DeviceSpec(
        name="nic0",
        kind=VertexKind.NIC,
        port_bytes_per_second=1e9,
        port_effective_bytes_per_second=2e9,
    )
    spec = ClusterSpec(hosts=(HostSpec(name="a", devices=(GPU, nic)),))
    where = ("hosts", 0, "devices", 1, "port_effective_bytes_per_second")
    assert faults_of(spec) == [(FaultCode.INCONSISTENT, where)]


@pytest.mark.parametrize("count", [0, -1])
def test_a_host_counts_at_least_once(count: int) -> None:
    spec = ClusterSpec(hosts=(HostSpec(name="a", count=count, design="p4d"),))
    assert faults_of(spec) == [(FaultCode.OUT_OF_RANGE, ("hosts", 0, "count"))]


@pytest.mark.parametrize("count", [MAX_HOSTS, 10**15])
def test_too_large_is_refused_before_any_work(count: int) -> None:
    """A million billion hosts would never return if they were named first."""
    spec = ClusterSpec(hosts=(HostSpec(name="a", count=count, design="dgx-h100"),))
    assert set(faults_of(spec)) == {(FaultCode.OUT_OF_RANGE, ("hosts",))}
