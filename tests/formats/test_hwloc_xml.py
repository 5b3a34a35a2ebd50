"""hwloc's export: a small host of our own, and damaged ones."""

from pathlib import Path

import pytest

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.readings import FoundDevice, FoundHost, FoundLink
from service.formats.hwloc_xml import looks_like_hwloc_xml, read_hwloc_xml
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

HOST = (Path(__file__).parent / "fixtures" / "hosts" / "two-sockets.hwloc.xml").read_bytes()
PCIE3_X16 = 16 * 8e9 / 8 * 128 / 130


def host(content: bytes = HOST) -> FoundHost:
    (found,) = read_hwloc_xml(content).hosts
    return found


def device(name: str, content: bytes = HOST) -> FoundDevice:
    return next(device for device in host(content).devices if device.name == name)


def links(kind: LinkKind, content: bytes = HOST) -> dict[tuple[str, str], FoundLink]:
    return {(link.source, link.target): link for link in host(content).links if link.kind is kind}


def test_files_are_recognised_by_their_root() -> None:
    assert looks_like_hwloc_xml(HOST)
    assert not looks_like_hwloc_xml(b"<system/>")


def test_what_the_file_holds() -> None:
    assert read_hwloc_xml(HOST).facts == {
        "hosts": 1,
        "cpus": 2,
        "gpus": 2,
        "nics": 1,
        "pcie_switches": 1,
        "nvswitches": 0,
        "nvlinks": 2,
        "other_devices": 2,  # a disk, and what drives the console
    }


def test_gpus_are_numbered_as_nvml_does() -> None:
    assert device("gpu1").pci_address == "0000:11:00.0"
    assert device("gpu0").product == "V100 SXM2 32GB"


def test_cpus_are_packages() -> None:
    assert device("cpu0").product == "GenuineIntel 6 85"
    assert (device("cpu0").numa, device("cpu1").numa) == (0, None)
    assert device("cpu1").product is None
    assert links(LinkKind.HOST_BRIDGE).keys() == {("pcie0", "cpu0"), ("gpu0", "cpu1")}


def test_a_nic_has_the_guid_of_its_port() -> None:
    nic = device("nic0")
    assert nic.logical_names == ("ib0", "mlx5_0")
    assert nic.port_guid == "9c63c00300a1b2c4"
    without = HOST.replace(b"Port1GID0", b"Port1LID")
    assert device("nic0", without).port_guid == "9c63c00300a1b2c0"


def test_rates_are_those_of_pcie_and_idle_ones_are_not_believed() -> None:
    pcie = links(LinkKind.PCIE)
    fast = pcie["gpu1", "pcie0"].rate
    assert fast is not None
    assert fast.bytes_per_second == pytest.approx(PCIE3_X16, rel=1e-12)  # not 15.753846
    assert pcie["nic0", "pcie0"].rate is None
    assert [item.line for item in read_hwloc_xml(HOST).left_out] == [19]
    assert links(LinkKind.HOST_BRIDGE)["gpu0", "cpu1"].rate is None  # 0 is not known


def test_nvlinks_are_counted_by_the_rate_of_the_product() -> None:
    (link,) = links(LinkKind.NVLINK).values()
    assert (link.source, link.target, link.lanes) == ("gpu1", "gpu0", 2)
    assert link.rate is not None
    assert link.rate.bytes_per_second == 50e9


def test_gpus_joined_to_no_gpu_are_on_a_switch() -> None:
    # The disk stands in for an NVSwitch: any object of the matrix that is no GPU.
    content = HOST.replace(b"OSDev:9 OSDev:23", b"OSDev:9 PCIDev:13")
    (link,) = links(LinkKind.NVLINK, content).values()
    assert (link.source, link.target) == ("gpu1", "nvswitch0")


def test_host_bridges_below_no_package_are_told() -> None:
    content = HOST.replace(b'type="Package" os_index="1"', b'type="Group"')
    assert links(LinkKind.HOST_BRIDGE, content).keys() == {
        ("pcie0", "bridge0"),
        ("gpu0", "bridge1"),
    }


def test_host_bridges_are_vertices_where_a_package_has_several() -> None:
    assert not links(LinkKind.ON_CHIP)
    content = HOST.replace(b'type="Package" os_index="1"', b'type="Group"')
    assert links(LinkKind.ON_CHIP, content).keys() == {("bridge0", "cpu0"), ("bridge1", "cpu0")}
    (host,) = read_hwloc_xml(content).hosts
    bridges = [each for each in host.devices if each.kind is VertexKind.HOST_BRIDGE]
    assert [(each.name, each.line) for each in bridges] == [("bridge0", 11), ("bridge1", 32)]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        (b"<topology", b"<topologies", 3, "begins <topologies>"),
        (b'pci_busid="0000:81:00.0"', b'pci_busid="81"', 33, "pci_busid"),
        (b"0302 [10de:ffff] [10de:1249] a1", b"gpu", 13, "pci_type"),
        (b'pci_busid="0000:81:00.0"', b'pci_busid="0000:11:00.0"', 33, "as line 13 has"),
        (b'pci_link_speed="4.000000"', b'pci_link_speed="4 GB/s"', 19, "in GB/s"),
        (b">1000000 50000 <", b">1000000 <", 42, "not whole"),
        (b'nbobjs="2"', b'nbobjs="3"', 42, "not whole"),
        (b">50000 1000000 <", b">50000 much <", 42, "no numbers"),
        (b'pci_type="0', b'pci_type="1', 3, "whole-io"),
    ],
)
def test_faults_are_told_with_their_line(old: bytes, new: bytes, line: int, says: str) -> None:
    count = -1 if old == b'pci_type="0' else 1
    changed = HOST.replace(old, new, count)
    if old == b"<topology":
        changed = changed.replace(b"</topology>", b"</topologies>")
    assert refusals(lambda: read_hwloc_xml(changed)) == [(FaultCode.UNREADABLE, ("line", line))]
    assert says in refusal_text(lambda: read_hwloc_xml(changed))


def test_every_line_matters() -> None:
    # What says nothing of traffic between devices: names of the console, the declaration.
    aside = ("<?xml", "<!DOCTYPE", '<object type="NUMANode"', 'name="cuda1"', 'name="NodeGUID"')
    unread = lines_without_effect(
        read_hwloc_xml, HOST, aside=lambda line: any(mark in line for mark in aside)
    )
    assert unread == []


def test_damage_is_read_or_refused(seed: int) -> None:
    assert 0 < read_damaged(read_hwloc_xml, HOST, seed=seed) < 300
