"""Topologies of simulators: ASTRA-sim, ns-3 and SimAI, and what TACCL lacks."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.readings import Reading
from service.formats.astra_sim import looks_like_astra_sim, read_astra_sim
from service.formats.ns3_links import looks_like_ns3_links, read_ns3_links
from service.formats.simai import looks_like_simai, read_simai
from service.formats.taccl import looks_like_taccl, read_taccl
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

FIXTURES = Path(__file__).parent / "fixtures" / "link_lists"
READERS = {"simai.txt": read_simai, "ns3.txt": read_ns3_links, "astra.yml": read_astra_sim}
RECOGNISERS = {
    "simai.txt": looks_like_simai,
    "ns3.txt": looks_like_ns3_links,
    "astra.yml": looks_like_astra_sim,
}


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def read(name: str) -> Reading:
    return READERS[name](fixture(name).encode())


def astra(shapes: str, counts: str, bandwidth: str = "", latency: str = "") -> Reading:
    ones = ", ".join("1" for _ in counts.split(","))
    lines = [
        f"topology: [{shapes}]",
        f"npus_count: [{counts}]",
        f"bandwidth: [{bandwidth or ones}]",
        f"latency: [{latency or ones}]",
    ]
    return read_astra_sim("\n".join(lines).encode())


@pytest.mark.parametrize("name", READERS)
def test_each_file_is_recognised_by_its_own_importer(name: str) -> None:
    content = fixture(name).encode()
    assert [each for each, fits in RECOGNISERS.items() if fits(content)] == [name]


@pytest.mark.parametrize("content", [b"", b"1 2\n3\n", b"- a\n", b"\xff\xfe"])
def test_what_only_looks_alike_is_not_recognised(content: bytes) -> None:
    assert not any(fits(content) for fits in (*RECOGNISERS.values(), looks_like_taccl))
    for each in READERS.values():
        assert refusals(partial(each, content))


def test_simai_has_gpus_nvswitches_and_switches() -> None:
    found = read("simai.txt")
    assert dict(found.facts) == {
        "gpus": 4,
        "hosts": 2,
        "nvswitches": 2,
        "switches": 3,
        "cables": 8,
        "switch_cables": 4,
        "links": 12,
    }
    first, second = found.hosts
    kinds = Counter(device.kind for device in second.devices)
    assert kinds == {VertexKind.GPU: 2, VertexKind.NVSWITCH: 1}
    assert {device.product for device in first.devices} == {"H100", None}
    (link, _other) = second.links
    assert (link.source, link.target, link.kind) == ("gpu0", "nvswitch0", LinkKind.NVLINK)
    assert link.rate is not None
    assert link.rate.bytes_per_second == 360e9
    assert link.latency_seconds == pytest.approx(2.5e-8)
    end = found.cables[2].source
    assert (end.host, end.adapter) == ("host1", "gpu0")
    assert [(s.name, s.level) for s in found.switches] == [
        ("switch6", 0),
        ("switch7", 0),
        ("switch8", 1),
    ]


def test_ns3_has_hosts_and_switches() -> None:
    found = read("ns3.txt")
    assert dict(found.facts) == {"switches": 2, "hosts": 4, "cables": 6, "switch_cables": 2}
    ends = [(c.source.host, c.source.adapter) for c in found.cables if c.source.host == "host2"]
    assert ends == [("host2", "nic0"), ("host2", "nic1")]
    assert {c.rate.bytes_per_second for c in found.cables if c.rate} == {12.5e9}
    assert [c.latency_seconds for c in found.cables] == [pytest.approx(1e-6)] * 6
    assert [each.host for each in found.attached] == ["host3"]
    assert [item.line for item in found.left_out] == [5]


def test_dimensions_of_astra_sim() -> None:
    found = read("astra.yml")
    # Three switches of four NPUs each; four rings of three.
    assert dict(found.facts) == {
        "gpus": 12,
        "dimensions": 2,
        "hosts": 3,
        "switches": 3,
        "links": 24,
    }
    rates = Counter(cable.rate.bytes_per_second for cable in found.cables if cable.rate)
    assert rates == {400e9: 12, 50.5e9: 12, 501e9: 12}
    delays = Counter(round((cable.latency_seconds or 0) * 1e9, 3) for cable in found.cables)
    assert delays == {936.25: 12, 1000.0: 12, 0.0: 12}
    joined = {(c.source.switch, c.target.switch) for c in found.cables if c.source.switch}
    assert ("router0", "router4") in joined
    assert ("router8", "router0") in joined
    assert ("router3", "switch0-0") in joined
    assert ("router4", "switch0-1") in joined
    end = found.cables[5].source
    assert (end.host, end.adapter) == ("host1", "gpu1")


@pytest.mark.parametrize(
    ("shapes", "counts", "gpus", "links"),
    [
        ("Ring", "4", 4, 4),
        ("Ring", "2", 2, 1),
        ("Ring, Ring", "4, 8", 32, 64),
        ("Ring, Ring, Ring", "2, 2, 2", 8, 12),
        ("FullyConnected, Ring", "4, 2", 8, 16),
        ("Ring, FullyConnected, Switch", "2, 8, 4", 64, 320),
    ],
)
def test_links_of_shapes(shapes: str, counts: str, gpus: int, links: int) -> None:
    found = astra(shapes, counts)
    assert (found.facts["gpus"], found.facts["links"]) == (gpus, links)
    assert len(found.cables) == links + gpus


def test_one_dimension_without_a_ring_is_a_host() -> None:
    switch = astra("Switch", "8", "400", "936.25")
    (host,) = switch.hosts
    assert [link.target for link in host.links] == ["switch0"] * 8
    assert (switch.cables, switch.switches) == ((), ())
    assert len(astra("FullyConnected", "4").hosts[0].links) == 6


def test_what_is_to_be_determined_stays_unknown() -> None:
    found = astra("Ring, Ring", "2, 2", "tbd, 5", "tbd, tbd")
    assert Counter(c.rate is None for c in found.cables) == {True: 6, False: 2}
    assert [(item.line, item.detail) for item in found.left_out] == [
        (3, "bandwidth of 1 of 2 dimensions is no number yet ('tbd'): it stays unknown"),
        (4, "latency of 2 of 2 dimensions is no number yet ('tbd'): it stays unknown"),
    ]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("topology: [Ring]\nnpus_count: [4]\nbandwidth: [1]\n", "a list latency"),
        (
            "topology: [Ring]\nnpus_count: [4, 2]\nbandwidth: [1]\nlatency: [1]\n",
            "different lengths",
        ),
        ("topology: [Mesh]\nnpus_count: [4]\nbandwidth: [1]\nlatency: [1]\n", "'Mesh', not Ring"),
        ("topology: [Ring]\nnpus_count: [0]\nbandwidth: [1]\nlatency: [1]\n", "no count"),
        ("topology: [Ring]\nnpus_count: [4]\nbandwidth: [0]\nlatency: [1]\n", "a bandwidth of 0"),
        ("topology: [Ring]\nnpus_count: [4]\nbandwidth: [1]\nlatency: [fast]\n", "is no number"),
        ("- topology: [Ring]\n", "one configuration"),
    ],
)
def test_what_is_wrong_with_dimensions_is_told(lines: str, reason: str) -> None:
    assert reason in refusal_text(partial(read_astra_sim, lines.encode()))


@pytest.mark.parametrize(("shapes", "counts"), [("Ring", "20001"), ("FullyConnected", "1001")])
def test_networks_beyond_the_limits_are_refused_before_they_are_built(
    shapes: str, counts: str
) -> None:
    assert refusals(partial(astra, shapes, counts)) == [(FaultCode.OUT_OF_RANGE, ())]


@pytest.mark.parametrize("name", READERS)
def test_no_line_is_without_effect(name: str) -> None:
    assert lines_without_effect(READERS[name], fixture(name).encode()) == []


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(name: str) -> None:
    assert read_damaged(READERS[name], fixture(name).encode(), seed=7) < 300


@pytest.mark.parametrize(
    ("name", "old", "new", "line", "reason"),
    [
        ("simai.txt", "9 2 2 3 12", "9 3 2 3 12", 1, "no whole servers of 3"),
        ("simai.txt", "9 2 2 3 12", "9 2 2 3 13", 1, "counts 13 links, and 12 follow"),
        ("simai.txt", "9 2 2 3 12", "9 2 2 12", 1, "has 6 entries, 5 of them counts"),
        ("simai.txt", "4 5 6 7 8", "4 5 6 7", 2, "other switches than nodes 4 to 8"),
        ("simai.txt", "4 5 6 7 8", "4 5 6 7 7", 2, "names switch 7 twice"),
        ("simai.txt", "4 5 6 7 8", "4 5 6 7 9", 2, "no node below 9"),
        ("simai.txt", "1 4 2880", "2 4 2880", 4, "an NVSwitch is in one host"),
        ("simai.txt", "1 4 2880", "1 2 2880", 4, "hosts are joined by switches"),
        ("simai.txt", "1 4 2880", "5 4 2880", 4, "links to GPUs only"),
        ("simai.txt", "6 8 400", "5 8 400", 11, "joins NVSwitch 5 to a switch"),
        ("simai.txt", "0 6 400", "0 0 400", 7, "to itself"),
        ("simai.txt", "0 6 400", "0 9 400", 7, "not both below 9"),
        ("simai.txt", "0 6 400Gbps", "0 6 0Gbps", 7, "none like 400Gbps"),
        ("simai.txt", "0 6 400Gbps 0.0005ms", "0 6 400Gbps 5", 7, "none like 0.0005ms"),
        ("simai.txt", "0 6 400Gbps 0.0005ms 0", "0 6 400Gbps 0.0005ms", 7, "is no link"),
        ("simai.txt", "0 6 400Gbps 0.0005ms 0", "0 6 400Gbps 0.0005ms 2", 7, "is no share"),
        ("ns3.txt", "6 2 6", "6 3 6", 2, "names 2 switches; 3 are counted"),
        ("ns3.txt", "6 2 6", "6 2 5", 8, "beyond the 5 that line 1 counts"),
        ("ns3.txt", "6 2 6", "9000000 2 6", 1, "at most"),
    ],
)
def test_what_is_wrong_with_links_is_told(
    name: str, old: str, new: str, line: int, reason: str
) -> None:
    content = fixture(name)
    assert old in content
    call = partial(READERS[name], content.replace(old, new, 1).encode())
    assert ("line", line) in [path for _code, path in refusals(call)]
    assert reason in refusal_text(call)


def test_taccl_is_refused_for_what_it_lacks() -> None:
    content = b'{\n"name": "x",\n"gpus_per_node": 8,\n"node_betas_list": [23, 46]\n}\n'
    assert looks_like_taccl(content)
    assert refusals(partial(read_taccl, content)) == [(FaultCode.UNREADABLE, ("line", 4))]
    assert "which GPUs a class joins" in refusal_text(partial(read_taccl, content))
    assert refusals(partial(read_taccl, b"")) == [(FaultCode.UNREADABLE, ())]
