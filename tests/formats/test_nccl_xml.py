"""NCCL's and RCCL's topology XML: small files of our own with every trap, and damaged ones."""

from pathlib import Path

import pytest

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.readings import FoundDevice, FoundHost, FoundLink
from service.formats.nccl_xml import MAX_CPUS, looks_like_nccl_xml, read_nccl_xml
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

FIXTURES = Path(__file__).parent / "fixtures" / "hosts"
NVSWITCH = (FIXTURES / "nvswitch-dual-port.nccl.xml").read_bytes()
STUB = (FIXTURES / "stub.nccl.xml").read_bytes()
XGMI = (FIXTURES / "xgmi-ring.rccl.xml").read_bytes()
ALL = pytest.mark.parametrize("content", [NVSWITCH, STUB, XGMI], ids=["nvswitch", "stub", "xgmi"])

PCIE5_X16 = 16 * 32e9 / 8 * 128 / 130
PCIE4_X8 = 8 * 16e9 / 8 * 128 / 130


def host(content: bytes) -> FoundHost:
    (found,) = read_nccl_xml(content).hosts
    return found


def device(content: bytes, name: str) -> FoundDevice:
    return next(device for device in host(content).devices if device.name == name)


def links(content: bytes, kind: LinkKind) -> dict[tuple[str, str], FoundLink]:
    return {(link.source, link.target): link for link in host(content).links if link.kind is kind}


def notes(content: bytes) -> dict[int, str]:
    return {item.line: item.detail for item in read_nccl_xml(content).left_out}


@ALL
def test_files_are_recognised_by_their_root(content: bytes) -> None:
    assert looks_like_nccl_xml(content)
    assert looks_like_nccl_xml(b"<graphs version='1'>")  # to be refused by name
    assert not looks_like_nccl_xml(b"<topology>")
    assert not looks_like_nccl_xml(b"\xff\0<system>")
    assert not looks_like_nccl_xml(b"")


def test_what_each_file_holds() -> None:
    assert read_nccl_xml(NVSWITCH).facts == {
        "hosts": 1,
        "cpus": 2,
        "gpus": 2,
        "nics": 4,
        "pcie_switches": 1,
        "nvswitches": 1,
        "nvlinks": 35,
    }
    assert read_nccl_xml(STUB).facts == {
        "hosts": 1,
        "cpus": 1,
        "gpus": 3,
        "nics": 3,
        "pcie_switches": 2,
        "nvswitches": 0,
        "nvlinks": 0,
    }
    assert read_nccl_xml(XGMI).facts["nvlinks"] == 6
    assert read_nccl_xml(XGMI).facts["pcie_switches"] == 0


def test_links_to_nvswitches_are_one_port_and_those_to_itself_none() -> None:
    nvlinks = links(NVSWITCH, LinkKind.NVLINK)
    assert {pair: link.lanes for pair, link in nvlinks.items()} == {
        ("gpu1", "nvswitch0"): 18,
        ("gpu0", "nvswitch0"): 17,  # the target is hidden from a virtual machine; one is broken
    }
    rate = nvlinks["gpu1", "nvswitch0"].rate
    assert rate is not None
    assert (rate.bytes_per_second, rate.origin) == (18 * 25e9, RateOrigin.PRODUCT)
    assert device(NVSWITCH, "gpu0").nvlinks == 17
    assert "gpu0 names itself as the end of 1 links" in notes(NVSWITCH).values()


def test_numbers_of_gpus_are_those_of_nvml_and_not_ranks() -> None:
    assert device(NVSWITCH, "gpu1").pci_address == "0000:0f:00.0"
    assert device(NVSWITCH, "gpu0").product == "H100 SXM5"


def test_the_second_level_of_a_broadcom_switch_is_the_switch_itself() -> None:
    pcie = links(NVSWITCH, LinkKind.PCIE)
    assert set(pcie) == {(name, "pcie0") for name in ("gpu0", "gpu1", "nic0", "nic1")}


def test_an_idle_speed_is_not_believed() -> None:
    assert "not believed" in notes(NVSWITCH)[3]
    up = links(NVSWITCH, LinkKind.HOST_BRIDGE)["pcie0", "cpu0"].rate
    assert up is not None
    assert up.bytes_per_second == pytest.approx(PCIE5_X16)
    assert up.origin is RateOrigin.ASSUMED


def test_ports_of_one_card_are_told_apart_and_together() -> None:
    one, other = device(NVSWITCH, "nic0"), device(NVSWITCH, "nic1")
    assert (one.port_number, other.port_number) == (1, 2)
    assert one.card == other.card == "0000:0c:00"
    assert one.port_guid == "a1b2c30300a1b200"
    assert one.port_rate is not None
    assert one.port_rate.bytes_per_second == 25e9


def test_what_is_not_known_of_a_nic_is_absent() -> None:
    nic = device(NVSWITCH, "nic4")
    assert (nic.port_rate, nic.rail) == (None, 7)
    assert nic.port_guid == "01b2c30300a1b200"  # a leading zero is not written
    assert links(NVSWITCH, LinkKind.HOST_BRIDGE)["nic4", "cpu1"].rate is None
    assert device(NVSWITCH, "nic2").logical_names == ("eth0",)
    assert device(NVSWITCH, "nic2").port_guid is None
    assert "'virbr0' is no NIC but a bridge inside the system" in notes(NVSWITCH).values()


def test_sockets_have_no_rate_and_the_family_is_kept() -> None:
    assert links(NVSWITCH, LinkKind.SOCKET)["cpu0", "cpu1"].rate is None
    assert device(NVSWITCH, "cpu0").product == "GenuineIntel 6 143"


def test_a_stub_is_read_by_classes() -> None:
    devices = host(STUB).devices
    assert [d.name for d in devices if d.kind is VertexKind.GPU] == ["gpu0", "gpu1", "gpu2"]
    assert device(STUB, "gpu2").pci_address == "0004:00:00.0"
    rate = links(STUB, LinkKind.PCIE)["gpu1", "pcie0"].rate
    assert rate is not None  # width 0 is 16 lanes, as NCCL has it
    assert rate.bytes_per_second == pytest.approx(PCIE5_X16 / 2)
    assert rate.origin is RateOrigin.ASSUMED
    assert "neither an accelerator" in notes(STUB)[8]


def test_host_bridges_can_not_be_told_apart() -> None:
    said = "what is phb here may be node"
    assert any(said in sentence for sentence in read_nccl_xml(STUB).assumptions)
    below_one = b"""<system version="1"><cpu numaid="0"><pci busid="0:1:0.0" class="0x060400">
      <pci busid="0:2:0.0" class="0x030200"><gpu dev="0" sm="90"/></pci>
      <pci busid="0:3:0.0" class="0x030200"><gpu dev="1" sm="90"/></pci></pci></cpu></system>"""
    assert not any(said in sentence for sentence in read_nccl_xml(below_one).assumptions)


def test_a_stub_does_not_say_that_there_is_no_nvlink() -> None:
    said = "joined by PCIe alone unless another file says more"
    assert any(said in sentence for sentence in read_nccl_xml(STUB).assumptions)
    one_gpu = b"\n".join(
        line for line in STUB.splitlines() if b"0x030200" not in line or b"0001:00:00.0" in line
    )
    assert not any(said in sentence for sentence in read_nccl_xml(one_gpu).assumptions)
    # A dump lists what there is, so without a link there is none.
    dump = b"\n".join(line for line in XGMI.splitlines() if b"<xgmi" not in line)
    assert not links(dump, LinkKind.NVLINK)
    for content in (NVSWITCH, XGMI, dump):
        assert not any("PCIe alone" in each for each in read_nccl_xml(content).assumptions)


def test_a_rate_that_no_link_has_is_not_assumed() -> None:
    vega = XGMI.replace(b'"gfx90a"', b'"906"').replace(b'"910"', b'"906"')
    (rate,) = {link.rate for link in links(vega, LinkKind.NVLINK).values() if link.lanes == 4}
    assert rate is not None
    assert (rate.bytes_per_second, rate.origin) == (4 * 46e9, RateOrigin.ASSUMED)
    without = b"\n".join(line for line in vega.splitlines() if b"<xgmi" not in line)
    assert not any("46 GB/s" in each for each in read_nccl_xml(without).assumptions)


def test_a_bridge_that_stands_twice_is_one_switch() -> None:
    below = {one for one, switch in links(STUB, LinkKind.PCIE) if switch == "pcie1"}
    assert below == {"nic1", "nic2", "gpu2"}
    assert "joined to the one at line 10" in notes(STUB)[14]


def test_xgmi_is_private_and_the_smaller_count_is_taken() -> None:
    xgmi = links(XGMI, LinkKind.NVLINK)
    assert {frozenset(pair): link.lanes for pair, link in xgmi.items()} == {
        frozenset(("gpu0", "gpu1")): 4,
        frozenset(("gpu0", "gpu2")): 1,
        frozenset(("gpu1", "gpu2")): 1,
    }
    assert any(
        "2 links to gpu2, which says 1: 1 are taken" in n or "1 links to gpu1, which says 2" in n
        for n in notes(XGMI).values()
    )
    rate = xgmi["gpu1", "gpu0"].rate if ("gpu1", "gpu0") in xgmi else xgmi["gpu0", "gpu1"].rate
    assert rate is not None
    assert rate.bytes_per_second == 200e9
    assert any("0000:99:00.0" in note for note in notes(XGMI).values())


def test_a_bridge_with_one_device_is_part_of_its_link() -> None:
    up = links(XGMI, LinkKind.HOST_BRIDGE)
    assert set(up) == {(f"gpu{n}", "cpu0") for n in range(3)}
    narrow = up["gpu1", "cpu0"].rate
    assert narrow is not None
    assert narrow.bytes_per_second == pytest.approx(
        PCIE4_X8
    )  # the package's own switch has 8 lanes


def test_several_hosts_in_one_file_have_names() -> None:
    content = NVSWITCH.replace(b'numaid="0"', b'numaid="0" host_hash="0xA1"')
    content = content.replace(b'numaid="1"', b'numaid="0" host_hash="0xb2"')
    reading = read_nccl_xml(content)
    assert [found.name for found in reading.hosts] == ["host-a1", "host-b2"]
    assert reading.facts["hosts"] == 2


def test_c2c_stands_before_pcie() -> None:
    gpu = b'<gpu dev="0" sm="90"><c2c bw="45000" count="10"/></gpu>'
    pci = b'<pci busid="0:1:0.0" link_speed="32.0 GT/s" link_width="16">%b</pci>' % gpu
    content = b'<system version="1"><cpu numaid="0">%b</cpu></system>' % pci
    (link,) = links(content, LinkKind.OTHER).values()
    assert link.rate is not None
    assert (link.source, link.target, link.rate.bytes_per_second) == ("gpu0", "cpu0", 450e9)
    assert not links(content, LinkKind.HOST_BRIDGE)
    assert list(notes(content).values()) == ["a second link between gpu0 and cpu0 (host_bridge)"]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        (b'<system version="1">', b'<system version="3">', 1, "version '3'"),
        (b"<system ", b"<graphs ", 1, "NCCL_TOPO_DUMP_FILE"),
        (b'count="17"', b'count="0"', 22, "how many links"),
        (b'count="17"', b"", 22, "how many links"),
        (b'busid="0000:0d:00.0"', b'busid="0000:0d"', 20, "0000:1b:00.0"),
        (b'busid="0000:0d:00.0"', b'busid="0000:0c:00.0"', 20, "as line 5 has"),
        (b'speed="25000"', b'speed="99999999"', 28, "Mb/s"),
        (b"</nic>", b"", 10, "is no XML"),
    ],
)
def test_faults_are_told_with_their_line(old: bytes, new: bytes, line: int, says: str) -> None:
    changed = NVSWITCH.replace(old, new, 1)
    if old == b"<system ":
        changed = changed.replace(b"</system>", b"</graphs>")
    faults = refusals(lambda: read_nccl_xml(changed))
    assert faults == [(FaultCode.UNREADABLE, ("line", line))]
    assert says in refusal_text(lambda: read_nccl_xml(changed))


def test_functions_without_a_class_tell_nothing() -> None:
    content = b'<system version="1"><cpu numaid="0"><pci busid="0:0:16.0"/></cpu></system>'
    assert "no GPU and no NIC can be told" in refusal_text(lambda: read_nccl_xml(content))


def test_a_host_has_no_more_than_hosts_have() -> None:
    cpus = b'<cpu numaid="0"/>' * (MAX_CPUS + 1)
    content = b'<system version="1">%b</system>' % cpus
    assert "beyond the 64 CPUs" in refusal_text(lambda: read_nccl_xml(content))
    nets = b'<net name="a" speed="1"/>' * 5000
    content = b'<system version="1"><cpu><nic>%b</nic></cpu></system>' % nets
    assert "beyond the 2048" in refusal_text(lambda: read_nccl_xml(content))


@ALL
def test_every_line_matters(content: bytes) -> None:
    unread = lines_without_effect(
        read_nccl_xml, content, aside=lambda line: line.startswith("<!--")
    )
    assert unread == []


@ALL
def test_damage_is_read_or_refused(content: bytes, seed: int) -> None:
    assert 0 < read_damaged(read_nccl_xml, content, seed=seed) < 300
