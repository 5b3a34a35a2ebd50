"""Leaf-spine and rail-optimised fabrics: which switches, which links, how fast."""

from collections import Counter

import pytest

from service.core.errors import FaultCode, InvalidInput
from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.fabric_parts import (
    TYPICAL_LINK_LATENCY_SECONDS,
    DevicePort,
    FabricParts,
    HostPorts,
)
from service.core.topology.fabrics import build_fabric, leaf_spine, rail_optimised
from service.core.topology.spec import FabricRates, FabricSpec, LeafSpine, RailOptimised


def ports(hosts: int, nics: int, rate: float | None = 50e9) -> list[HostPorts]:
    return [
        HostPorts(
            f"host{h}", tuple(DevicePort(f"host{h}/nic{n}", n, rate, 48e9) for n in range(nics))
        )
        for h in range(hosts)
    ]


def links_of(parts: FabricParts, kind: LinkKind) -> dict[tuple[str, str], float]:
    return {
        (link.source, link.target): link.bandwidth_bytes_per_second
        for link in parts.links
        if link.kind is kind
    }


def test_leaf_spine_by_hand() -> None:
    """Five hosts of two 50 GB/s NICs, two a leaf, two spines, 2:1: 200 down, 100 up, 50 each."""
    rates = FabricRates(oversubscription_ratio=2.0)
    parts = leaf_spine(LeafSpine(hosts_per_leaf=2, spines=2, rates=rates), ports(5, 2))
    assert [switch.name for switch in parts.switches] == [
        *("leaf0", "leaf1", "leaf2"),
        *("spine0", "spine1"),
    ]
    edge = links_of(parts, LinkKind.NETWORK)
    assert edge["host3/nic1", "leaf1"] == 50e9
    assert edge["host4/nic0", "leaf2"] == 50e9
    assert len(edge) == 10
    assert links_of(parts, LinkKind.FABRIC) == {
        (leaf, spine): 50e9
        for leaf in ("leaf0", "leaf1", "leaf2")
        for spine in ("spine0", "spine1")
    }


def test_rail_optimised_by_hand() -> None:
    parts = rail_optimised(RailOptimised(spines=2), ports(3, 4))
    assert [(s.name, s.kind, s.rail) for s in parts.switches] == [
        *((f"rail{r}", VertexKind.LEAF, r) for r in range(4)),
        *((f"spine{s}", VertexKind.SPINE, None) for s in range(2)),
    ]
    edge = links_of(parts, LinkKind.NETWORK)
    assert set(edge) == {(f"host{h}/nic{n}", f"rail{n}") for h in range(3) for n in range(4)}
    # 3 x 50 GB/s come from the hosts and are spread over two spines.
    assert set(links_of(parts, LinkKind.FABRIC).values()) == {75e9}


def test_rails_without_spines_are_separate_networks() -> None:
    parts = rail_optimised(RailOptimised(), ports(2, 8))
    assert links_of(parts, LinkKind.FABRIC) == {}
    assert Counter(switch.kind for switch in parts.switches) == {VertexKind.LEAF: 8}


def test_groups_of_hosts_have_rail_switches_of_their_own() -> None:
    parts = rail_optimised(RailOptimised(hosts_per_leaf=2, spines=1), ports(4, 2))
    edge = links_of(parts, LinkKind.NETWORK)
    assert ("host1/nic1", "rail1-0") in edge
    assert ("host2/nic1", "rail1-1") in edge
    assert len(links_of(parts, LinkKind.FABRIC)) == 4


@pytest.mark.parametrize("fabric", [LeafSpine(hosts_per_leaf=2, spines=0), RailOptimised()])
def test_a_single_tier_needs_no_spine(fabric: FabricSpec) -> None:
    parts = build_fabric(fabric, ports(2, 2))
    assert {link.kind for link in parts.links} == {LinkKind.NETWORK}


def test_rates_and_latency_can_be_said() -> None:
    rates = FabricRates(
        uplink_bytes_per_second=400e9,
        link_bytes_per_second=25e9,
        link_effective_bytes_per_second=23e9,
        latency_seconds=1e-6,
    )
    parts = rail_optimised(RailOptimised(spines=1, rates=rates), ports(2, 1))
    assert set(links_of(parts, LinkKind.NETWORK).values()) == {25e9}
    assert set(links_of(parts, LinkKind.FABRIC).values()) == {400e9}
    assert {link.latency_seconds for link in parts.links} == {1e-6}
    assert [link.effective_bytes_per_second for link in parts.links] == [23e9, 23e9, None]
    assert parts.assumptions == ()


def test_another_rate_than_the_nics_own_forgets_what_was_measured_at_that() -> None:
    rates = FabricRates(link_bytes_per_second=25e9)
    parts = rail_optimised(RailOptimised(rates=rates), ports(2, 1))
    assert {link.effective_bytes_per_second for link in parts.links} == {None}


def test_a_default_latency_is_said_to_be_one() -> None:
    parts = rail_optimised(RailOptimised(), ports(2, 1))
    assert {link.latency_seconds for link in parts.links} == {TYPICAL_LINK_LATENCY_SECONDS}
    assert any("500 ns" in text for text in parts.assumptions)


def test_hosts_without_nics_are_named() -> None:
    parts = rail_optimised(RailOptimised(), [*ports(2, 1), HostPorts("lonely", ())])
    assert any("1 hosts without a NIC" in t and "lonely" in t for t in parts.assumptions)


REFUSED: list[tuple[FabricSpec, list[HostPorts], list[tuple[FaultCode, str]]]] = [
    (
        LeafSpine(
            hosts_per_leaf=0,
            spines=-1,
            rates=FabricRates(oversubscription_ratio=0.0, uplink_bytes_per_second=float("nan")),
        ),
        ports(2, 1),
        [
            (FaultCode.OUT_OF_RANGE, "hosts_per_leaf"),
            (FaultCode.OUT_OF_RANGE, "spines"),
            (FaultCode.OUT_OF_RANGE, "oversubscription_ratio"),
            (FaultCode.EXCLUSIVE_FIELDS, "uplink_bytes_per_second"),
            (FaultCode.OUT_OF_RANGE, "uplink_bytes_per_second"),
        ],
    ),
    (
        LeafSpine(hosts_per_leaf=1, spines=0),
        ports(2, 1),
        [(FaultCode.INCONSISTENT, "spines")],
    ),
    (
        RailOptimised(rates=FabricRates(oversubscription_ratio=2.0, latency_seconds=-1.0)),
        ports(2, 1),
        [
            (FaultCode.INCONSISTENT, "oversubscription_ratio"),
            (FaultCode.OUT_OF_RANGE, "latency_seconds"),
        ],
    ),
    (
        RailOptimised(rates=FabricRates(uplink_bytes_per_second=1e9)),
        ports(2, 1),
        [(FaultCode.INCONSISTENT, "uplink_bytes_per_second")],
    ),
    (
        RailOptimised(),
        ports(2, 4, rate=None),
        [(FaultCode.MISSING_FIELD, "link_bytes_per_second")],
    ),
    (
        RailOptimised(rates=FabricRates(link_effective_bytes_per_second=60e9)),
        ports(2, 1),
        [(FaultCode.INCONSISTENT, "link_effective_bytes_per_second")],
    ),
    (RailOptimised(spines=1025), ports(2, 1), [(FaultCode.OUT_OF_RANGE, "spines")]),
    (
        LeafSpine(hosts_per_leaf=1, spines=1024),
        ports(100, 1),
        [(FaultCode.OUT_OF_RANGE, "spines")],
    ),
]


@pytest.mark.parametrize(("fabric", "hosts", "expected"), REFUSED)
def test_what_is_refused(
    fabric: FabricSpec, hosts: list[HostPorts], expected: list[tuple[FaultCode, str]]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        build_fabric(fabric, hosts)
    assert [(fault.code, fault.path) for fault in refused.value.faults] == [
        (code, (field,)) for code, field in expected
    ]
