"""Edits: what has failed, what has changed, and edits that are at fault."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode, InvalidInput, Path
from service.core.topology.cluster import Cluster, LinkKind, RateOrigin, VertexKind
from service.core.topology.expand import Expansion, expand
from service.core.topology.paths import PathFinder
from service.core.topology.spec import (
    ChangedLink,
    ClusterSpec,
    DeviceSpec,
    Duplex,
    Edit,
    FailedDevice,
    FailedHost,
    FailedLink,
    HostSpec,
    LeafSpine,
    LinkSpec,
    MeasuredRate,
    RailOptimised,
)
from service.core.topology.summary import apart
from tests.core.topology.random_clusters import random_spec

GB = 1e9
HOSTS = ClusterSpec(
    hosts=(HostSpec(name="host", count=4, design="dgx-h100"),),
    fabric=LeafSpine(hosts_per_leaf=2, spines=2),
)


def edited(*edits: Edit, spec: ClusterSpec = HOSTS) -> Expansion:
    return expand(replace(spec, edits=edits))


def faults_of(*edits: Edit, spec: ClusterSpec = HOSTS) -> list[tuple[FaultCode, Path]]:
    with pytest.raises(InvalidInput) as refused:
        edited(*edits, spec=spec)
    return [(fault.code, fault.path) for fault in refused.value.faults]


def test_no_edits_change_nothing() -> None:
    plain = expand(HOSTS)
    assert not any("edits" in text for text in plain.assumptions)
    assert len(plain.cluster.devices) == 32


def test_a_failed_device_leaves_with_its_links() -> None:
    found = edited(FailedDevice("host0/gpu3"), FailedDevice("spine1"))
    assert [one.name for one in found.cluster.devices if one.host == "host0"] == [
        f"host0/gpu{n}" for n in (0, 1, 2, 4, 5, 6, 7)
    ]
    assert "spine1" not in found.cluster.vertices
    ends = {end for link in found.cluster.links for end in link}
    assert not ends & {"host0/gpu3", "spine1"}
    # A GPU has an NVLink and a PCIe link, the spine one to each of two leaves, both ways.
    assert len(expand(HOSTS).cluster.links) - len(found.cluster.links) == 2 * (2 + 2)
    assert (
        "edits: out of order are 0 of the hosts, 2 of the devices and switches and 8 of the"
        " directed links, each with what belongs to it"
    ) in found.assumptions


def test_a_failed_host_leaves_the_fabric_as_it_was_built() -> None:
    found = edited(FailedHost("host1")).cluster
    assert found.hosts == ("host0", "host2", "host3")
    assert len(found.devices) == 24
    # The leaf still has the uplinks that it got for 16 NICs.
    uplink = found.links["leaf0", "spine0"]
    assert uplink.bandwidth_bytes_per_second == 16 * 50 * GB / 2


def test_a_failed_uplink_leaves_one_way() -> None:
    """The designs plus one exception: the traffic of a leaf then has the other spine only."""
    before, after = (
        PathFinder(one.cluster)
        for one in (edited(), edited(FailedLink(source="spine1", target="leaf0")))
    )
    ways = []
    for finder in (before, after):
        paths = [finder.path(f"host0/gpu{n}", f"host2/gpu{n}") for n in range(8)]
        ways.append({path.vertices[4] for path in paths if path is not None})
    assert ways == [{"spine0", "spine1"}, {"spine0"}]


def test_one_way_may_fail_alone() -> None:
    found = edited(FailedLink(source="leaf0", target="spine0", one_way=True)).cluster
    assert ("leaf0", "spine0") not in found.links
    assert ("spine0", "leaf0") in found.links


def test_an_nvlink_port_with_fewer_links() -> None:
    """16 of 18 links carry 400 of 450 GB/s nominal, and 352 of 396 effective."""
    found = edited(ChangedLink(source="host0/gpu0", target="host0/nvswitch0", lanes=16))
    for ends in (("host0/gpu0", "host0/nvswitch0"), ("host0/nvswitch0", "host0/gpu0")):
        link = found.cluster.links[ends]
        assert link.lanes == 16
        assert link.bandwidth_bytes_per_second == pytest.approx(400 * GB, rel=1e-15)
        assert link.effective_bytes_per_second == pytest.approx(352 * GB, rel=1e-15)
        assert link.latency_seconds == 936.25e-9
        assert link.bandwidth_origin is RateOrigin.PRODUCT
        assert link.bandwidth_source == "16 of 18 lanes: 18 x NVLink 4"
    assert found.cluster.links["host0/gpu1", "host0/nvswitch0"].lanes == 18
    assert "edits: 2 of the directed links differ from what the rest says" in found.assumptions
    slower = PathFinder(found.cluster).path("host0/gpu1", "host0/gpu0")
    assert slower is not None
    assert slower.bandwidth_bytes_per_second == pytest.approx(400 * GB, rel=1e-15)


def test_a_new_nominal_rate_leaves_nothing_known_that_belonged_to_the_old() -> None:
    trained_down = ChangedLink(
        source="host0/nic0", target="leaf0", bandwidth_bytes_per_second=25 * GB
    )
    for ends in (("host0/nic0", "leaf0"), ("leaf0", "host0/nic0")):
        link = edited(trained_down).cluster.links[ends]
        assert link.bandwidth_bytes_per_second == 25 * GB
        assert link.effective_bytes_per_second is None
        assert (link.bandwidth_origin, link.bandwidth_source) == (RateOrigin.STATED, None)
        assert link.latency_seconds == 500e-9
    said = replace(
        trained_down,
        effective_bytes_per_second=24 * GB,
        bandwidth_origin=RateOrigin.READ,
        bandwidth_source="the port's counters",
        one_way=True,
    )
    found = edited(said).cluster.links
    assert found["host0/nic0", "leaf0"].effective_bytes_per_second == 24 * GB
    assert found["host0/nic0", "leaf0"].bandwidth_source == "the port's counters"
    assert found["leaf0", "host0/nic0"].bandwidth_bytes_per_second == 50 * GB


def test_what_was_measured_is_put_beside_what_is_nominal() -> None:
    measured = ChangedLink(
        source="host0/gpu0",
        target="host0/nvswitch0",
        effective_bytes_per_second=380 * GB,
        measured=MeasuredRate(370 * GB, "a tool", "2025-05-01"),
        latency_floor_seconds=1e-8,
        latency_seconds=1e-6,
    )
    link = edited(measured).cluster.links["host0/nvswitch0", "host0/gpu0"]
    assert link.bandwidth_bytes_per_second == 450 * GB
    assert link.effective_bytes_per_second == 380 * GB
    assert link.measured_bytes_per_second == 370 * GB
    assert (link.measured_source, link.measured_date) == ("a tool", "2025-05-01")
    assert (link.latency_floor_seconds, link.latency_seconds) == (1e-8, 1e-6)


def test_lanes_that_are_left_have_not_been_measured() -> None:
    said = LinkSpec(
        source="leaf0",
        target="leaf1",
        kind=LinkKind.FABRIC,
        bandwidth_bytes_per_second=100 * GB,
        measured=MeasuredRate(90 * GB, "a tool", "2025-05-01"),
        lanes=4,
    )
    spec = replace(HOSTS, links=(said,))
    link = edited(ChangedLink(source="leaf0", target="leaf1", lanes=3), spec=spec)
    found = link.cluster.links["leaf0", "leaf1"]
    assert found.bandwidth_bytes_per_second == 75 * GB
    assert found.bandwidth_source == "3 of 4 lanes"
    assert found.measured_bytes_per_second is None
    assert found.measured_source is None


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ((FailedHost("host4"),), [(FaultCode.UNKNOWN_NAME, 0, "name")]),
        ((FailedDevice("host0"),), [(FaultCode.UNKNOWN_NAME, 0, "name")]),
        ((FailedDevice("host0/gpu8"),), [(FaultCode.UNKNOWN_NAME, 0, "name")]),
        ((FailedLink(source="leaf0", target="leaf1"),), [(FaultCode.UNKNOWN_NAME, 0, "target")]),
        (
            (FailedLink(source="leaf7", target="leaf8"),),
            [(FaultCode.UNKNOWN_NAME, 0, "source"), (FaultCode.UNKNOWN_NAME, 0, "target")],
        ),
        (
            (FailedDevice("leaf0"), FailedDevice("leaf0")),
            [(FaultCode.DUPLICATE_NAME, 1, "name")],
        ),
        (
            (FailedHost("host0"), FailedDevice("host0/gpu0")),
            [(FaultCode.DUPLICATE_NAME, 1, "name")],
        ),
        (
            (FailedLink(source="leaf0", target="spine0"), FailedHost("host0")),
            [],
        ),
        (
            (FailedLink(source="leaf0", target="spine0"), FailedDevice("leaf0")),
            [(FaultCode.INCONSISTENT, 0, "source")],
        ),
        (
            (
                FailedLink(source="leaf0", target="spine0", one_way=True),
                ChangedLink(source="spine0", target="leaf0", lanes=1),
            ),
            [(FaultCode.DUPLICATE_NAME, 1, "source")],
        ),
        (
            (
                FailedLink(source="leaf0", target="spine0", one_way=True),
                FailedLink(source="spine0", target="leaf0", one_way=True),
            ),
            [],
        ),
        (
            (ChangedLink(source="leaf0", target="spine0"),),
            [(FaultCode.MISSING_FIELD, 0, "lanes")],
        ),
        (
            (ChangedLink(source="leaf0", target="spine0", lanes=2),),
            [(FaultCode.OUT_OF_RANGE, 0, "lanes")],
        ),
        (
            (
                ChangedLink(
                    source="host0/gpu0",
                    target="host0/nvswitch0",
                    lanes=9,
                    bandwidth_bytes_per_second=1e9,
                ),
            ),
            [(FaultCode.EXCLUSIVE_FIELDS, 0, "bandwidth_bytes_per_second")],
        ),
        (
            (
                ChangedLink(
                    source="leaf0",
                    target="spine0",
                    latency_seconds=1e-6,
                    bandwidth_source="a file",
                    bandwidth_origin=RateOrigin.READ,
                ),
            ),
            [
                (FaultCode.INCONSISTENT, 0, "bandwidth_origin"),
                (FaultCode.INCONSISTENT, 0, "bandwidth_source"),
            ],
        ),
        (
            (
                ChangedLink(
                    source="leaf0",
                    target="spine0",
                    bandwidth_bytes_per_second=1e9,
                    bandwidth_origin=RateOrigin.READ,
                ),
            ),
            [(FaultCode.MISSING_FIELD, 0, "bandwidth_source")],
        ),
        (
            (ChangedLink(source="leaf0", target="spine0", effective_bytes_per_second=401 * GB),),
            [(FaultCode.INCONSISTENT, 0, "effective_bytes_per_second")],
        ),
    ],
)
def test_edits_at_fault(
    edits: tuple[Edit, ...], expected: list[tuple[FaultCode, int, str]]
) -> None:
    if not expected:
        assert edited(*edits)
        return
    assert faults_of(*edits) == [(code, ("edits", n, name)) for code, n, name in expected]


def test_a_missing_link_names_those_that_are_there() -> None:
    with pytest.raises(InvalidInput) as refused:
        edited(FailedLink(source="leaf0", target="leaf1"))
    (fault,) = refused.value.faults
    assert fault.detail == (
        "there is no link from leaf0 to leaf1 or back; leaf0 has links to host0/nic0, host0/nic1,"
        " host0/nic2, host0/nic3, ..."
    )


def test_edits_of_what_is_broken_itself_are_not_at_fault() -> None:
    hosts = (*HOSTS.hosts, HostSpec(name="b", design="none"))
    spec = replace(HOSTS, hosts=hosts, fabric=LeafSpine(hosts_per_leaf=2, spines=0))
    edits = (
        FailedDevice("b/gpu0"),
        FailedHost("b"),
        FailedLink(source="leaf0", target="spine0"),
        FailedDevice("host9/gpu0"),
    )
    assert faults_of(*edits, spec=spec) == [
        (FaultCode.UNKNOWN_NAME, ("hosts", 1, "design")),
        (FaultCode.INCONSISTENT, ("fabric", "spines")),
        (FaultCode.UNKNOWN_NAME, ("edits", 3, "name")),
    ]


def shared_slot() -> ClusterSpec:
    """A GPU and a card of two ports on one PCIe switch."""
    devices = (
        DeviceSpec(name="gpu0", kind=VertexKind.GPU),
        DeviceSpec(name="nic0", kind=VertexKind.NIC, card="card0"),
        DeviceSpec(name="nic1", kind=VertexKind.NIC, card="card0"),
        DeviceSpec(name="pcie0", kind=VertexKind.PCIE_SWITCH),
    )
    links = [
        LinkSpec(
            source=one.name,
            target="pcie0",
            kind=LinkKind.PCIE,
            bandwidth_bytes_per_second=32 * GB,
            duplex=Duplex.HALF if one.name == "gpu0" else Duplex.FULL,
        )
        for one in devices[:3]
    ]
    return ClusterSpec(hosts=(HostSpec(name="h", devices=devices, links=tuple(links)),))


def test_links_that_share_a_capacity_are_edited_alike() -> None:
    spec = shared_slot()
    one, other = (
        ChangedLink(source=f"h/nic{n}", target="h/pcie0", bandwidth_bytes_per_second=16 * GB)
        for n in (0, 1)
    )
    links = edited(one, other, spec=spec).cluster.links
    assert links["h/nic0", "h/pcie0"].bandwidth_bytes_per_second == 16 * GB
    assert faults_of(one, spec=spec) == [(FaultCode.INCONSISTENT, ("edits", 0, "source"))]
    # What has failed shares nothing any more.
    assert edited(one, FailedLink(source="h/nic1", target="h/pcie0"), spec=spec)
    half = ChangedLink(source="h/gpu0", target="h/pcie0", bandwidth_bytes_per_second=16 * GB)
    assert edited(half, spec=spec)
    assert faults_of(replace(half, one_way=True), spec=spec) == [
        (FaultCode.INCONSISTENT, ("edits", 0, "source"))
    ]


def test_what_fails_may_leave_parts() -> None:
    spec = ClusterSpec(
        hosts=(HostSpec(name="host", count=2, design="dgx-h100"),), fabric=RailOptimised()
    )
    cut = [FailedLink(source=f"host1/nic{n}", target=f"rail{n}") for n in range(8)]
    found = edited(*cut, spec=spec).cluster
    assert apart(found) == ("host0/gpu0", "host1/gpu0")
    assert PathFinder(found).path("host0/gpu0", "host1/gpu0") is None


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_edits_do_what_a_document_without_the_parts_does(seed: int) -> None:
    """Cutting listed links, in any order of edits, is the cluster that never had them."""
    random = Random(seed)
    spec = random_spec(random)
    stated = [link for link in spec.links if random.random() < 0.5]
    gone = [FailedLink(source=link.source, target=link.target) for link in stated]
    random.shuffle(gone)
    left = replace(spec, links=tuple(link for link in spec.links if link not in stated))
    assert same(edited(*gone, spec=spec).cluster, expand(left).cluster)


def same(one: Cluster, other: Cluster) -> bool:
    return dict(one.vertices) == dict(other.vertices) and dict(one.links) == dict(other.links)
