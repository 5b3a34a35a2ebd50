"""Pictures of fabrics: bounded whatever the cluster, counted where they are cut short."""

import re
import xml.etree.ElementTree as ET
from random import Random

import pytest

from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.path_kinds import path_kind
from service.core.topology.paths import PathFinder
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    FabricRates,
    FabricSpec,
    FatTree,
    HostSpec,
    LeafSpine,
    LinkSpec,
    RailOptimised,
    SwitchSpec,
)
from service.core.topology.tiers import switch_tiers
from service.formats.cluster_looks import load_colour
from service.formats.cluster_overlay import Overlay, path_overlay
from service.formats.fabric_svg import fabric_svg
from service.formats.fabric_view import view_fabric
from tests.core.topology.random_clusters import random_cluster
from tests.formats.test_host_svg import coloured, titles, words

SVG = "{http://www.w3.org/2000/svg}"
RED = load_colour(None)


def cluster_of(count: int, fabric: FabricSpec | None = None, design: str = "dgx-h100") -> Cluster:
    host = HostSpec(name="host", count=count, design=design)
    return expand(ClusterSpec(hosts=(host,), fabric=fabric)).cluster


def over_path(cluster: Cluster, source: str, target: str) -> Overlay:
    path = PathFinder(cluster).path(source, target)
    assert path is not None
    return path_overlay(path, source, target, path_kind(cluster, path.links))


def check_inside_the_page(svg: str) -> None:
    root = ET.fromstring(svg)
    wide, high = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = [
        tuple(float(one.attrib[name]) for name in ("x", "y", "width", "height"))
        for one in root.iter(f"{SVG}rect")
    ]
    assert boxes
    for left, top, width, height in boxes:
        assert left >= 0
        assert width > 0
        assert left + width <= wide + 0.1
        assert top + height <= high


def test_two_hosts_and_their_rails() -> None:
    svg = fabric_svg(cluster_of(2, RailOptimised()), title="two@1")
    found = words(svg)
    for expected in ("two@1", "2 hosts · 16 GPUs · 8 leaves", "rail0", "rail7", "host1"):
        assert expected in found
    assert found.count("8 GPUs, 8 NICs") == 2
    lines = [title for title in titles(svg) if re.match(r".* - .*: 50 GB/s$", title)]
    assert len(lines) == 16
    check_inside_the_page(svg)


def test_spines_stand_above_leaves_and_these_above_hosts() -> None:
    fabric = LeafSpine(hosts_per_leaf=2, spines=4, rates=FabricRates(oversubscription_ratio=2.0))
    svg = fabric_svg(cluster_of(8, fabric), title="x")
    heights = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        name = str(group.findtext(f"{SVG}title")).split(" ")[0].rstrip(":")
        rectangle = group.find(f"{SVG}rect")
        assert rectangle is not None
        heights[name] = float(rectangle.attrib["y"])
    assert len({heights[f"spine{number}"] for number in range(4)}) == 1
    assert heights["spine0"] < heights["leaf3"] == heights["leaf0"] < heights["host7"]
    assert words(svg).count("2:1") == 4
    assert "2:1 oversubscribed: 4 switches (leaf0, ...), 800 GB/s below, 400 GB/s above" in words(
        svg
    )


def test_a_thousand_hosts_are_a_small_picture() -> None:
    cluster = cluster_of(1024, RailOptimised(hosts_per_leaf=32, spines=64))
    svg = fabric_svg(cluster, title="x")
    assert len(svg) < 80_000
    check_inside_the_page(svg)
    found = words(svg)
    assert "1,024 hosts · 8,192 GPUs · 256 leaves · 64 spines" in found
    # Six groups have room for their 48 leaves; the others are counted.
    assert [word for word in found if word.startswith("32 hosts")] == ["32 hosts, 8 GPUs each"] * 6
    assert {"+48", "+208", f"+{1024 - 6 * 32:,}"} <= set(found)


def test_the_ends_of_a_path_are_shown_whatever_is_cut_short() -> None:
    cluster = cluster_of(256, RailOptimised(hosts_per_leaf=32, spines=64))
    over = over_path(cluster, "host3/gpu0", "host250/gpu5")
    svg = fabric_svg(cluster, title="x", overlay=over)
    assert len(coloured(svg, RED)) == 4  # up two, down two; inside hosts nothing is drawn
    assert {"host3", "host250"} <= set(words(svg))
    assert over.note in words(svg)
    check_inside_the_page(svg)


def test_cores_stand_above_spines() -> None:
    tree = FatTree(hosts_per_leaf=1, leaves_per_pod=2, spines_per_pod=2, cores_per_spine=2)
    svg = fabric_svg(cluster_of(4, tree), title="x")
    assert "core1-1 (core)" in titles(svg)
    assert any("4 leaves · 4 spines · 4 core switches" in one for one in words(svg))


def test_links_within_a_tier_are_drawn() -> None:
    gpus = [DeviceSpec(name="gpu0", kind=VertexKind.GPU)]
    links = [("h0/gpu0", "a"), ("h1/gpu0", "b"), ("a", "b"), ("b", "c"), ("h1/gpu0", "c")]
    spec = ClusterSpec(
        hosts=tuple(HostSpec(name=f"h{number}", devices=tuple(gpus)) for number in range(2)),
        switches=tuple(SwitchSpec(name, VertexKind.LEAF) for name in "abc"),
        links=tuple(
            LinkSpec(
                source=one, target=other, kind=LinkKind.FABRIC, bandwidth_bytes_per_second=25e9
            )
            for one, other in links
        ),
    )
    svg = fabric_svg(expand(spec).cluster, title="x")
    drawn = {title.partition(":")[0] for title in titles(svg)}
    assert {"a - b", "b - c"} <= drawn
    assert not [word for word in words(svg) if word.startswith("Not drawn")]
    check_inside_the_page(svg)


def test_hosts_that_nothing_joins() -> None:
    svg = fabric_svg(cluster_of(3), title="x")
    assert "No fabric joins the hosts." in words(svg)
    assert {"host0", "host1", "host2"} <= set(words(svg))


def test_an_nvlink_domain_stands_below_its_hosts() -> None:
    gpu = DeviceSpec(name="gpu0", kind=VertexKind.GPU)
    spec = ClusterSpec(
        hosts=(HostSpec(name="h", count=3, devices=(gpu,)),),
        switches=(SwitchSpec("nvs", VertexKind.NVSWITCH), SwitchSpec("apart")),
        links=(
            *(
                LinkSpec(
                    source=f"h{number}/gpu0",
                    target="nvs",
                    kind=LinkKind.NVLINK,
                    bandwidth_bytes_per_second=900e9,
                )
                for number in range(2)
            ),
            LinkSpec(
                source="h1/gpu0",
                target="h2/gpu0",
                kind=LinkKind.OTHER,
                bandwidth_bytes_per_second=1e9,
            ),
        ),
    )
    svg = fabric_svg(expand(spec).cluster, title="x")
    assert "NVLink 900 GB/s" in words(svg)
    assert "nvs" in words(svg)
    note = (
        "Not drawn: 2 directed links straight from host to host; 1 switches that no device is"
        " joined to."
    )
    assert note in words(svg)


@pytest.mark.parametrize("number", range(60))
def test_any_cluster_is_drawn_and_counted(number: int, seed: int) -> None:
    random = Random(f"{seed}-{number}")
    cluster = random_cluster(random)
    gpus = [device.name for device in cluster.devices]
    view = view_fabric(cluster)
    shown = [host for item in view.items for host in item.hosts]
    assert len(shown) == len(set(shown)) == len(cluster.hosts) - view.hidden_hosts
    tiers = switch_tiers(cluster)
    assert sum(len(row.shown) + row.hidden for row in view.rows) == len(tiers)
    check_inside_the_page(fabric_svg(cluster, title="x"))
    path = PathFinder(cluster).path(gpus[0], gpus[-1])
    kind = path_kind(cluster, () if path is None else path.links)
    over = path_overlay(path, gpus[0], gpus[-1], kind)
    ET.fromstring(fabric_svg(cluster, title="x", overlay=over))


def test_hosts_are_alike_only_at_the_same_switches() -> None:
    cluster = cluster_of(32, LeafSpine(hosts_per_leaf=8, spines=2))
    items = view_fabric(cluster).items
    assert [(item.hosts[0], len(item.hosts)) for item in items] == [
        ("host0", 8),
        ("host8", 8),
        ("host16", 8),
        ("host24", 8),
    ]
    # 8 hosts x 8 NICs x both directions
    assert [len(item.plugs[f"leaf{number}"]) for number, item in enumerate(items)] == [128] * 4


def test_is_accessible_and_escaped() -> None:
    svg = fabric_svg(cluster_of(2, RailOptimised()), title="a <b> & c")
    root = ET.fromstring(svg)
    assert root.attrib["role"] == "img"
    named = {one.attrib["id"]: one.text for one in root if "id" in one.attrib}
    assert root.attrib["aria-labelledby"].split() == list(named)
    assert named["fabric-title"] == "a <b> & c"
    assert "2 hosts" in str(named["fabric-desc"])
    assert "script" not in svg
    assert "href" not in svg
