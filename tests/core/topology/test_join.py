"""What a person should know of a joined cluster: names, and what was read over."""

from dataclasses import replace

from service.core.errors import LeftOut
from service.core.topology.join import Stated, join
from service.core.topology.join_names import Names
from service.core.topology.readings import NvlinkDomain
from tests.core.topology.found import H100, cluster_of, host, inside, rail_fabric, tree


def test_names_that_are_not_legal_are_rewritten_and_listed() -> None:
    names = tree(("GPU_01", "Leaf:1"), ("gpu-01", "Leaf:1"), ("7", "Leaf 1"))
    joined = join([names], Stated(design="p4d"))
    assert {(item.old, item.new) for item in joined.renamed} == {
        ("GPU_01", "gpu-01-2"),
        ("7", "host-7"),
        ("Leaf:1", "leaf-1"),
        ("Leaf 1", "leaf-1-2"),
    }
    assert set(cluster_of(joined).hosts) == {"gpu-01", "gpu-01-2", "host-7"}


def test_many_names_that_become_one_are_numbered() -> None:
    names = Names("host")
    legal = names.all_of(f"A{'_' * k}" for k in range(5000))
    assert len(set(legal.values())) == 5000
    assert legal["A____"] == "a-5"


def test_what_is_left_out_beyond_a_thousand_lines_is_counted() -> None:
    told = replace(rail_fabric(), left_out=tuple(LeftOut(k + 1, f"odd {k}") for k in range(1500)))
    left_out = join([inside(), told], H100).left_out
    assert len(left_out) == 1001
    assert left_out[-1].detail.startswith("and 500 more such lines")


def test_what_many_lines_are_left_out_for_is_told_once() -> None:
    told = replace(rail_fabric(), left_out=tuple(LeftOut(7 * k + 1, "odd") for k in range(10)))
    (item,) = join([inside(), told], H100).left_out
    assert (item.file, item.line) == (1, 1)
    assert item.detail == "odd (10 lines: 1, 8, 15, 22, 29, 36, 43, 50, ...)"


def test_what_is_alike_in_many_hosts_is_told_once() -> None:
    joined = join([inside(host("node0"), host("node1", gpus=3)), rail_fabric()], H100)
    assert [text for text in joined.joined if text.startswith("adapters of")] == [
        "adapters of 2 (node0, node1) hosts are found in their inside: 4 by name"
    ]


def test_what_importers_told_is_kept_with_its_file() -> None:
    told = replace(
        rail_fabric(),
        left_out=(LeftOut(5, "a SHARP node"),),
        assumptions=("assumed",),
        notes=("noted",),
        domains=(NvlinkDomain(name="rack1", hosts=("node0",), line=8),),
    )
    joined = join([inside(), told], H100)
    assert [(item.file, item.line) for item in joined.left_out] == [(1, 5), (1, 8)]
    assert "assumed" in joined.assumptions
    assert "noted" in joined.warnings
