"""Fabrics that readings tell of: adapters, cables, tiers, rails, what two files both tell."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.join import join
from service.core.topology.readings import Cable, FoundSwitch, Reading
from tests.core.refusals import refusal_text, refusals
from tests.core.topology.found import (
    H100,
    NDR,
    at_host,
    at_switch,
    cluster_of,
    inside,
    rail_fabric,
    rate,
    stated,
)


def test_adapters_are_found_by_name_and_cables_add_up() -> None:
    joined = join([inside(), rail_fabric()], H100)
    cluster = cluster_of(joined)
    assert rate(cluster, "node1/nic1", "l1") == (50e9, RateOrigin.READ)
    assert rate(cluster, "l1", "s0") == (100e9, RateOrigin.READ)
    assert cluster.links["l1", "s0"].lanes == 2
    kinds = {name: cluster.vertices[name].kind for name in ("l0", "l1", "s0")}
    assert kinds == {"l0": VertexKind.LEAF, "l1": VertexKind.LEAF, "s0": VertexKind.SPINE}
    assert (
        "adapters of 2 (node0, node1) hosts are found in their inside: 4 by name" in joined.joined
    )


def test_leaves_of_one_rail_each_are_rail_switches() -> None:
    joined = join([inside(), rail_fabric()], H100)
    rails = {switch.name: switch.rail for switch in joined.spec.switches}
    assert rails == {"l0": 0, "l1": 1, "s0": None}
    assert "2 leaves serve one rail each, 2 rails in all" in joined.joined
    assert cluster_of(joined).vertices["node0/gpu1"].rail == 1


def test_a_leaf_for_all_nics_is_of_no_rail() -> None:
    fabric = rail_fabric()
    cables = tuple(
        replace(cable, target=at_switch("L0", number + 1)) if number < 4 else cable
        for number, cable in enumerate(fabric.cables)
    )
    joined = join([inside(), replace(fabric, cables=cables)], H100)
    assert {switch.rail for switch in joined.spec.switches} == {None}
    assert "leaves serve several rails each: no leaf is of one rail" in joined.joined


@pytest.mark.parametrize("guid", ["00000000000000a1", "a100000000000000"])
def test_adapters_are_found_by_guid_either_way_round(guid: str) -> None:
    fabric = Reading(
        format="ibnetdiscover",
        facts={},
        switches=(FoundSwitch(name="L0", line=1),),
        cables=(
            Cable(
                source=at_host(None, None, port_guid=guid, port_number=1),
                target=at_switch("L0", 1),
                line=4,
                rate=NDR,
            ),
        ),
    )
    joined = join([inside(), fabric], stated(hosts=("gpu-a",)))
    assert ("gpu-a/nic1", "l0") in cluster_of(joined).links
    # Of two hosts it can't be told which one the adapter is in.
    joined = join([inside(), fabric], stated(hosts=("gpu-a", "gpu-b")))
    assert not joined.spec.links
    assert any(f"1 ({guid}) adapters are left out" in warning for warning in joined.warnings)


def test_a_cable_without_a_rate_needs_one_or_the_port_of_its_nic() -> None:
    joined = join([inside(), rail_fabric(rate=None)], stated(rates={LinkKind.FABRIC: 40e9}))
    cluster = cluster_of(joined)
    assert rate(cluster, "node0/nic0", "l0") == (50e9, RateOrigin.READ)  # that of its port
    assert rate(cluster, "l0", "s0") == (80e9, RateOrigin.STATED)
    faults = refusals(lambda: join([inside(), rail_fabric(rate=None)], H100))
    assert faults == [(FaultCode.MISSING_FIELD, ("fabric_bytes_per_second",))]


def test_the_same_switches_and_cables_in_two_files_count_once() -> None:
    joined = join([inside(), rail_fabric(), rail_fabric()], H100)
    assert len(joined.spec.switches) == 3
    lanes = {link.name: link.lanes for link in cluster_of(joined).links.values()}
    assert (lanes["l0->s0"], lanes["node0/nic0->l0"]) == (2, 1)
    assert "3 switches are told by several files, by their GUID" in joined.joined
    assert "8 cables are told by several files and count once" in joined.joined


def without_guids(fabric: Reading, ports: bool = True) -> Reading:
    """The fabric as formats tell of it that know no GUIDs, and perhaps no ports."""
    switches = tuple(replace(switch, guid=None) for switch in fabric.switches)
    cables = fabric.cables
    if not ports:
        cables = tuple(
            replace(
                cable,
                source=replace(cable.source, port_number=None),
                target=replace(cable.target, port_number=None),
            )
            for cable in cables
        )
    return replace(fabric, switches=switches, cables=cables)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (without_guids(rail_fabric()), without_guids(rail_fabric())),
        (without_guids(rail_fabric(), ports=False), without_guids(rail_fabric(), ports=False)),
        (rail_fabric(), without_guids(rail_fabric(), ports=False)),
        (without_guids(rail_fabric(), ports=False), rail_fabric()),
    ],
)
def test_without_guids_switches_are_the_same_by_name(one: Reading, other: Reading) -> None:
    joined = join([inside(), one, other], H100)
    assert joined.spec.links == join([inside(), one], H100).spec.links
    assert "8 cables are told by several files and count once" in joined.joined
    (told,) = (text for text in joined.assumptions if "same name in several files" in text)
    assert told.startswith("3 (L0, L1, S0) switches")


def test_a_file_adds_the_cables_that_another_lacks() -> None:
    whole = without_guids(rail_fabric(), ports=False)
    part = replace(whole, cables=whole.cables[:-1])
    for files in ([part, whole], [whole, part]):
        joined = join([inside(), *files], H100)
        assert {s.name for s in joined.spec.switches} == {"l0", "l1", "s0"}
        assert cluster_of(joined).links["l1", "s0"].lanes == 2


def test_a_port_with_another_cable_in_each_file_is_refused() -> None:
    one = without_guids(rail_fabric())
    moved = replace(one.cables[-1], target=at_switch("L0", 40))
    faults = [(FaultCode.INCONSISTENT, ("files",))]
    other = replace(one, cables=(*one.cables[:-1], moved))
    assert refusals(lambda: join([inside(), one, other], H100)) == faults
    text = refusal_text(lambda: join([inside(), one, other], H100))
    assert "different cables at 1 (port 31 of l1)" in text


def managed(fabric: Reading, *, at: str = "S0", host: str = "ufm", ports: int = 1) -> Reading:
    """The fabric with a host that manages it."""
    cables = tuple(
        Cable(
            source=at_host(host, "mlx5_0", port_number=1 + number),
            target=at_switch(at, 60 + number),
            line=1,
            rate=NDR,
        )
        for number in range(ports)
    )
    return replace(fabric, cables=(*fabric.cables, *cables))


@pytest.mark.parametrize("at", ["S0", "L0"])
def test_a_spine_with_a_host_that_manages_the_fabric_is_no_leaf(at: str) -> None:
    joined = join([inside(), managed(rail_fabric(4), at=at)], H100)
    kinds = {switch.name: switch.kind for switch in joined.spec.switches}
    assert kinds == {"l0": VertexKind.LEAF, "l1": VertexKind.LEAF, "s0": VertexKind.SPINE}
    rails = {switch.name: switch.rail for switch in joined.spec.switches}
    assert rails == {"l0": 0, "l1": 1, "s0": None}


def test_a_cable_back_to_its_switch_is_left_out() -> None:
    fabric = rail_fabric()
    loop = Cable(source=at_switch("L0", 7), target=at_switch("L0", 8), line=99, rate=NDR)
    joined = join([inside(), replace(fabric, cables=(*fabric.cables, loop))], H100)
    assert [(item.file, item.line, item.detail) for item in joined.left_out] == [
        (1, 99, "a cable from l0 back to itself")
    ]


def test_parts_that_nothing_joins_stay_apart() -> None:
    fabric = rail_fabric()
    leaves_only = tuple(cable for cable in fabric.cables if cable.source.switch is None)
    joined = join([inside(), replace(fabric, cables=leaves_only)], H100)
    cluster = cluster_of(joined)
    assert not [link for link in cluster.links.values() if link.kind is LinkKind.FABRIC]
    assert len(cluster.vertices) == 2 * 7 + 3  # the lonely spine is kept, and no root is made
