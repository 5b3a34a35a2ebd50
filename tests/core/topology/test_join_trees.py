"""Trees of names joined to hosts: how wide they are, and what stands before them."""

from service.core.topology.cluster import LinkKind, RateOrigin
from service.core.topology.join import Stated, join
from tests.core.topology.found import H100, cluster_of, inside, rail_fabric, rate, stated, tree


def test_a_tree_is_as_wide_as_what_is_below() -> None:
    names = tree(("a", "s0"), ("b", "s0"), ("c", "s1"), above=(("s0", "top"), ("s1", "top")))
    joined = join([names], Stated(design="p4d"))
    cluster = cluster_of(joined)
    assert rate(cluster, "a/nic0", "s0") == (12.5e9, RateOrigin.PRODUCT)
    assert rate(cluster, "s0", "top") == (8 * 12.5e9, RateOrigin.ASSUMED)
    assert rate(cluster, "s1", "top") == (4 * 12.5e9, RateOrigin.ASSUMED)
    assert any("as wide as all NICs below" in sentence for sentence in joined.assumptions)


def test_a_rate_that_is_stated_for_a_tree_is_of_all_cables_together() -> None:
    names = tree(("a", "s0"), ("b", "s0"), ("c", "s1"), above=(("s0", "top"), ("s1", "top")))
    told = join([names], Stated(design="p4d", rates={LinkKind.FABRIC: 1e9}))
    cluster = cluster_of(told)
    assert rate(cluster, "s0", "top") == (1e9, RateOrigin.STATED)
    assert cluster.links["s0", "top"].bandwidth_source == (
        "stated for all cables between two switches of the tree"
    )
    assert any("of all cables together" in sentence for sentence in told.assumptions)
    # Cables that are counted have the stated rate each, and nothing is said of trees.
    counted = join([inside(), rail_fabric(rate=None)], stated(rates={LinkKind.FABRIC: 40e9}))
    assert rate(cluster_of(counted), "l0", "s0") == (80e9, RateOrigin.STATED)
    assert not any("tree of names" in sentence for sentence in counted.assumptions)


def test_a_tree_says_nothing_of_rails() -> None:
    joined = join([tree(("a", "s0"))], Stated(design="p4d"))
    links = cluster_of(joined).links
    assert {ends for ends in links if ends[1] == "s0"} == {(f"a/nic{n}", "s0") for n in range(4)}
    assert any("neither adapters nor rails" in sentence for sentence in joined.assumptions)
    alone = join([inside()], H100)
    assert not any("rails" in sentence for sentence in alone.assumptions)


def test_switches_above_each_other_end() -> None:
    names = tree(("a", "s0"), above=(("s0", "x"), ("x", "y"), ("y", "x")))
    cluster = cluster_of(join([names], Stated(design="p4d")))
    assert ("x", "y") in cluster.links


def test_cables_stand_before_a_tree_of_names() -> None:
    names = tree(("node0", "s0"), ("node9", "s0"))
    joined = join([inside(), rail_fabric(), names], H100)
    assert [switch.name for switch in joined.spec.switches] == ["l0", "l1", "s0"]
    assert any("is not joined: file 2 (ibnetdiscover)" in item.detail for item in joined.left_out)
    # Of two trees over the same hosts one is taken, and of trees over others both are.
    trees = [tree(("a", "s0")), tree(("b", "s1")), tree(("a", "t0"), ("b", "t0"))]
    joined = join(trees, Stated(design="p4d"))
    assert [switch.name for switch in joined.spec.switches] == ["s0", "s1"]
    assert [item.file for item in joined.left_out] == [2]


def test_hosts_that_only_a_tree_names_are_told_beside_cables() -> None:
    names = tree(("node0", "s0"), ("node9", "s0"))
    joined = join([inside(), rail_fabric(), names], H100)
    assert (
        "file 2 (ibnetdiscover) does not name 1 (node9) hosts that others name" in joined.warnings
    )
