"""Pictures of tori: every router in its place, whatever is cut short."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from math import prod

import pytest

from service.core.topology.bounds import Transfer, link_loads
from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.path_kinds import path_kind
from service.core.topology.paths import PathFinder
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    HostSpec,
    LinkSpec,
    SwitchSpec,
    Torus,
)
from service.formats.cluster_looks import LINES, load_colour
from service.formats.cluster_overlay import load_overlay, path_overlay
from service.formats.fabric_svg import fabric_svg
from tests.formats.test_fabric_svg import check_inside_the_page
from tests.formats.test_host_svg import coloured, titles, words

RED = load_colour(None)
PLAIN = LINES[LinkKind.FABRIC].colour


def torus(*dimensions: int, wraparound: bool = True) -> Cluster:
    """Four accelerators a host."""
    chips = tuple(DeviceSpec(name=f"gpu{number}", kind=VertexKind.GPU) for number in range(4))
    network = Torus(dimensions=dimensions, link_bytes_per_second=80e9, wraparound=wraparound)
    own = HostSpec(name="h", count=prod(dimensions) // 4, devices=chips)
    return expand(ClusterSpec(hosts=(own,), device_network=network)).cluster


def strokes(svg: str) -> int:
    """How many lines and stubs between routers there are."""
    root = ET.fromstring(svg)
    paths = [one.attrib for one in root.iter("{http://www.w3.org/2000/svg}path")]
    in_torus = [one["d"] for one in paths if one["stroke-width"] == "1.4"]
    return sum(d.count("M") for d in in_torus)


@pytest.mark.parametrize(
    ("dimensions", "lines", "stubs"),
    [
        # A row of n in a plane has n - 1 lines, and where it closes a stub at each end.
        ((4, 8), 4 * 7 + 8 * 3, 2 * (4 + 8)),
        ((4, 4, 4), 4 * 2 * 4 * 3, 4 * 2 * (4 + 4)),
        ((16,), 15, 2),
    ],
)
def test_every_router_and_link_in_a_plane_is_drawn(
    dimensions: tuple[int, ...], lines: int, stubs: int
) -> None:
    svg = fabric_svg(torus(*dimensions), title="x")
    routers = [title for title in titles(svg) if title.startswith("router")]
    assert len(routers) == len(set(routers)) == prod(dimensions)
    assert strokes(svg) == lines + stubs
    assert strokes(fabric_svg(torus(*dimensions, wraparound=False), title="x")) == lines
    size = " x ".join(map(str, dimensions))
    assert f"accelerators' own network: torus of {size} routers" in words(svg)
    assert "fabric 80 GB/s" in words(svg)
    assert not [word for word in words(svg) if word.startswith("Not drawn")]
    assert ("4 planes" in svg) == (len(dimensions) == 3)
    assert "Lines that end at an edge lead round" in svg
    check_inside_the_page(svg)


def test_a_router_tells_whose_it_is() -> None:
    assert "router1-2, beside h2/gpu0" in titles(fabric_svg(torus(4, 6), title="x"))


def test_a_path_goes_over_the_routers() -> None:
    """From router 0-0-0 to 1-1-1: in two of three steps within a plane, in one to the next."""
    cluster = torus(4, 4, 4)
    ends = "h0/gpu0", "h5/gpu1"  # the accelerators number 0 and 21 = 16 + 4 + 1
    path = PathFinder(cluster).path(*ends)
    assert path is not None
    assert len(path.links) == 5
    svg = fabric_svg(
        cluster, title="x", overlay=path_overlay(path, *ends, path_kind(cluster, path.links))
    )
    assert len({re.sub(r"(.*)->(.*):.*", r"\1", title) for title in coloured(svg, RED)}) >= 2
    on_to = [title for title in titles(svg) if "; on to router" in title]
    assert len(on_to) == 2  # both ends of the step to the next plane
    check_inside_the_page(svg)


def test_a_load_is_laid_over_the_torus() -> None:
    cluster = torus(4, 8)
    finder = PathFinder(cluster)
    near, far = finder.path("h0/gpu0", "h0/gpu1"), finder.path("h0/gpu2", "h0/gpu3")
    assert near is not None
    assert far is not None
    loads = link_loads([Transfer(near, 4_000_000), Transfer(far, 1_000_000)])
    svg = fabric_svg(cluster, title="x", overlay=load_overlay(loads, 2, [], equal=False))
    (note,) = [word for word in words(svg) if word.startswith("load of")]
    assert note.startswith("load of 2 transfers on their pinned paths")
    assert {"router0-0", "router0-1"} <= {
        end for title in coloured(svg, load_colour(1.0)) for end in re.split("->|:", title)
    }
    assert any("load 25% of the greatest" in title for title in titles(svg))


@pytest.mark.parametrize("dimensions", [(4096,), (64, 64), (16, 16, 16), (2, 8, 256)])
def test_a_large_torus_is_cut_short_and_says_so(dimensions: tuple[int, ...]) -> None:
    svg = fabric_svg(torus(*dimensions), title="x")
    routers = [title for title in titles(svg) if title.startswith("router")]
    assert 0 < len(routers) <= 1024
    assert "are drawn" in svg or "not drawn" in svg
    assert len(svg) < 400_000
    check_inside_the_page(svg)


def test_routers_that_are_no_torus_are_told() -> None:
    gpu = DeviceSpec(name="gpu0", kind=VertexKind.GPU)
    spec = ClusterSpec(
        hosts=(HostSpec(name="h", devices=(gpu,)),),
        switches=(SwitchSpec("mine", VertexKind.ROUTER),),
        links=(
            LinkSpec(
                source="h/gpu0",
                target="mine",
                kind=LinkKind.OTHER,
                bandwidth_bytes_per_second=1e9,
            ),
        ),
    )
    svg = fabric_svg(expand(spec).cluster, title="x")
    assert "Not drawn: 1 routers of the accelerators' own network, and their links." in words(svg)
    holed = torus(4, 4)
    vertices = {name: one for name, one in holed.vertices.items() if name != "router3-3"}
    links = {ends: one for ends, one in holed.links.items() if "router3-3" not in ends}
    svg = fabric_svg(replace(holed, vertices=vertices, links=links), title="x")
    assert any(word.startswith("Not drawn: 15 routers") for word in words(svg))
