"""Pictures of hosts: well formed, complete, nothing on top of another, bounded."""

import xml.etree.ElementTree as ET
from random import Random

import pytest

from service.core.errors import InvalidInput
from service.core.topology.bounds import Transfer, link_loads
from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.designs import DESIGNS
from service.core.topology.expand import expand
from service.core.topology.index import index_of
from service.core.topology.join import Stated, join
from service.core.topology.nic_sharing import host_sharing
from service.core.topology.path_kinds import path_kind
from service.core.topology.paths import PathFinder
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    FabricSpec,
    HostSpec,
    LinkSpec,
    RailOptimised,
)
from service.formats.cluster_looks import load_colour, readable_rate, stroke_width
from service.formats.cluster_overlay import load_overlay, path_overlay
from service.formats.host_layout import HostLayout, lay_out_host
from service.formats.host_svg import MAX_DRAWN_DEVICES, host_svg
from service.formats.nvidia_smi_topo import read_nvidia_smi_topo
from tests.core.topology.random_clusters import random_cluster

SVG = "{http://www.w3.org/2000/svg}"
RED = load_colour(None)


def cluster_of(design: str, count: int = 1, fabric: FabricSpec | None = None) -> Cluster:
    host = HostSpec(name="h", count=count, design=design)
    return expand(ClusterSpec(hosts=(host,), fabric=fabric)).cluster


def titles(svg: str) -> list[str]:
    return [str(title.text) for title in ET.fromstring(svg).iter(f"{SVG}title")]


def words(svg: str) -> list[str]:
    return ["".join(one.itertext()) for one in ET.fromstring(svg).iter(f"{SVG}text")]


def coloured(svg: str, colour: str) -> list[str]:
    """The titles of the lines drawn in a colour."""
    lines = ET.fromstring(svg).iter(f"{SVG}path")
    return [
        str(one.findtext(f"{SVG}title"))
        for one in lines
        if one.get("stroke") == colour and one.find(f"{SVG}title") is not None
    ]


def check_layout(cluster: Cluster, host: str) -> HostLayout:
    """Every device has a box, every link one line, and no box lies on another."""
    layout = lay_out_host(cluster, host)
    members = {vertex.name for vertex in index_of(cluster).members[host]}
    placed = [place.vertex.name for place in layout.places]
    assert [name for name in placed if name in members] == list(
        dict.fromkeys(name for name in placed if name in members)
    )
    assert members <= set(placed)
    expected = {
        frozenset((link.source, link.target))
        for link in cluster.links.values()
        if link.source in members or link.target in members
    }
    drawn = [frozenset((wire.links[0].source, wire.links[0].target)) for wire in layout.wires]
    assert set(drawn) == expected
    assert len(drawn) == len(expected)
    for number, one in enumerate(layout.places):
        assert one.left >= 0
        assert one.width > 0
        assert one.left + one.width <= layout.width
        assert one.bottom <= layout.bottom
        for other in layout.places[:number]:
            apart = (
                one.left + one.width <= other.left + 1e-6
                or other.left + other.width <= one.left + 1e-6
                or one.bottom <= other.top
                or other.bottom <= one.top
            )
            assert apart, (one, other)
    return layout


@pytest.mark.parametrize("design", sorted(DESIGNS))
def test_every_design_is_drawn_whole(design: str) -> None:
    cluster = cluster_of(design, 2, RailOptimised())
    for host in cluster.hosts[:2]:
        layout = check_layout(cluster, host)
        svg = host_svg(cluster, host, title="x@1", sharing=host_sharing(cluster, host))
        assert "script" not in svg
        assert "href" not in svg
        found = titles(svg)
        for place in layout.places:
            assert any(title.startswith(f"{place.vertex.name} (") for title in found)


@pytest.mark.parametrize("number", range(60))
def test_any_host_is_drawn_whole(number: int, seed: int) -> None:
    cluster = random_cluster(Random(f"{seed}-{number}"))
    for host in cluster.hosts:
        check_layout(cluster, host)
        ET.fromstring(host_svg(cluster, host, title="x", sharing=host_sharing(cluster, host)))


def test_host_bridges_stand_between_switches_and_their_cpu() -> None:
    rows = ("GPU0 GPU1 NIC0", "GPU0 X NODE PIX", "GPU1 NODE X NODE", "NIC0 PIX NODE X")
    matrix = "\n".join("\t".join(row.split()) for row in rows).encode()
    joined = join([read_nvidia_smi_topo(matrix)], Stated(gpu="H100 SXM5"))
    cluster = expand(joined.spec).cluster
    layout = check_layout(cluster, "host")
    tops = {place.vertex.name: place.top for place in layout.places}
    assert tops["host/cpu0"] < tops["host/bridge0"] == tops["host/bridge1"] < tops["host/pcie0"]
    assert not any(wire.is_odd for wire in layout.wires)


def test_what_is_said() -> None:
    cluster = cluster_of("p4d", 2, RailOptimised())
    svg = host_svg(cluster, "h0", title="mine@3", sharing=host_sharing(cluster, "h0"))
    found = words(svg)
    for expected in (
        "mine@3 · h0",
        "8 GPUs · 4 NICs · 1 NVSwitch · 4 PCIe switches · 2 CPUs · NVIDIA A100 SXM4 40GB",
        "gpu7",
        "nvswitch0",
        "rail3",
        "NVLink 300 GB/s",
        "PCIe 31.5 GB/s",
        "socket 62.4 GB/s (assumed)",
        "network 12.5 GB/s",
        "GPUs that leave the host through this link, each by its nearest NIC",
    ):
        assert expected in found
    assert "NVLink h0/gpu0 - h0/nvswitch0: 300 GB/s (12 lanes)" in titles(svg)


def test_shared_links_are_marked() -> None:
    """Four NICs, each with its slot and its port for two GPUs."""
    cluster = cluster_of("p4d", 2, RailOptimised())
    svg = host_svg(cluster, "h0", title="x", sharing=host_sharing(cluster, "h0"))
    marks = [title for title in titles(svg) if "leave through this" in title]
    assert len(marks) == 8
    assert "2 GPUs leave through this (h0/gpu0, h0/gpu1): 6.25 GB/s each" in marks
    plain = host_svg(cluster, "h0", title="x")
    assert not [title for title in titles(plain) if "leave through this" in title]


def test_a_path_is_laid_over_it() -> None:
    cluster = cluster_of("dgx-h100", 2, RailOptimised())
    path = PathFinder(cluster).path("h0/gpu0", "h1/gpu3")
    assert path is not None
    over = path_overlay(path, "h0/gpu0", "h1/gpu3", path_kind(cluster, path.links))
    first, second = (host_svg(cluster, host, title="x", overlay=over) for host in ("h0", "h1"))
    assert sorted(title.partition(":")[0] for title in coloured(first, RED)) == [
        "PCIe h0/gpu0 - h0/pcie0",
        "PCIe h0/nic3 - h0/pcie3",
        "host bridge h0/pcie0 - h0/cpu0",
        "host bridge h0/pcie3 - h0/cpu0",
        "network h0/nic3 - rail3",
    ]
    assert len(coloured(second, RED)) == 3
    note = "path from h0/gpu0 to h1/gpu3 (rail): at most 50 GB/s nominal, at h0/nic3->rail3"
    assert note in words(first)
    assert note in str(ET.fromstring(first).findtext(f"{SVG}desc"))


def test_no_path_is_said() -> None:
    cluster = cluster_of("dgx-h100", 2)
    over = path_overlay(None, "h0/gpu0", "h1/gpu3", path_kind(cluster, ()))
    svg = host_svg(cluster, "h0", title="x", overlay=over)
    assert "h0/gpu0 can't reach h1/gpu3" in words(svg)
    assert coloured(svg, RED) == []


def test_a_load_is_laid_over_it() -> None:
    """Both GPUs of a NIC send: slot and port carry two messages, and the port is slowest."""
    cluster = cluster_of("p4d", 2, RailOptimised())
    finder = PathFinder(cluster)
    paths = [finder.path(f"h0/gpu{number}", f"h1/gpu{number}") for number in (0, 1, 2)]
    loads = link_loads([Transfer(path, 10**9) for path in paths if path is not None])
    svg = host_svg(cluster, "h0", title="x", overlay=load_overlay(loads, 3, ["a to b"], equal=True))
    darkest = coloured(svg, load_colour(1.0))
    assert [title.partition(":")[0] for title in darkest] == ["network h0/nic0 - rail0"]
    assert darkest[0].endswith("load 100% of the greatest")
    half = [title for title in titles(svg) if "load 50% of the greatest" in title]
    assert [title.partition(":")[0] for title in half] == ["network h0/nic1 - rail1"]
    (note,) = [word for word in words(svg) if word.startswith("load of")]
    assert note == (
        "load of 3 equal transfers on their pinned paths: h0/nic0->rail0 needs longest, with 2 of"
        " them at 12.5 GB/s; 1 pairs can't reach each other (a to b, ...)"
    )


def test_words_are_escaped() -> None:
    svg = host_svg(cluster_of("p4d"), "h0", title="a <b> & c")
    assert "a <b> & c · h0" in words(svg)


def test_long_names_stay_inside_their_boxes() -> None:
    name = "device-with-a-name-that-nobody-would-want-to-read-" + "x" * 70
    host = HostSpec(
        name="h",
        devices=(
            DeviceSpec(name=f"{name}0", kind=VertexKind.GPU),
            DeviceSpec(name=f"{name}1", kind=VertexKind.GPU),
        ),
        links=(
            LinkSpec(
                source=f"{name}0",
                target=f"{name}1",
                kind=LinkKind.NVLINK,
                bandwidth_bytes_per_second=1e9,
            ),
        ),
    )
    cluster = expand(ClusterSpec(hosts=(host,))).cluster
    svg = host_svg(cluster, "h", title="x")
    labels = [word for word in words(svg) if word.startswith("…")]
    assert [label[-2:] for label in labels] == ["x0", "x1"]
    assert max(map(len, labels)) < 14
    assert f"h/{name}0 (GPU)" in titles(svg)


def test_large_hosts_are_small_pictures_or_refused() -> None:
    def host(count: int) -> Cluster:
        gpus = tuple(
            DeviceSpec(name=f"gpu{number}", kind=VertexKind.GPU) for number in range(count)
        )
        switch = DeviceSpec(name="s", kind=VertexKind.NVSWITCH)
        links = tuple(
            LinkSpec(
                source=f"gpu{number}",
                target="s",
                kind=LinkKind.NVLINK,
                bandwidth_bytes_per_second=1e9,
            )
            for number in range(count)
        )
        spec = HostSpec(name="h", devices=(*gpus, switch), links=links)
        return expand(ClusterSpec(hosts=(spec,))).cluster

    most = host(MAX_DRAWN_DEVICES - 1)
    check_layout(most, "h")
    assert len(host_svg(most, "h", title="x")) < 300_000
    with pytest.raises(InvalidInput) as refused:
        host_svg(host(MAX_DRAWN_DEVICES), "h", title="x")
    assert refused.value.faults[0].path == ("host",)


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (450e9, "450 GB/s"),
        (1.8e12, "1.8 TB/s"),
        (63.015e9, "63 GB/s"),
        (5e6, "5 MB/s"),
        (7.0, "7 B/s"),
    ],
)
def test_rates_are_readable(rate: float, said: str) -> None:
    assert readable_rate(rate) == said


def test_wider_lines_are_faster() -> None:
    widths = [stroke_width(rate) for rate in (12.5e9, 25e9, 50e9, 63e9, 200e9, 450e9, 900e9)]
    assert widths == sorted(widths)
    assert widths[5] / widths[1] == pytest.approx((450 / 25) ** 0.5)
    assert stroke_width(1.0) == 1.0
