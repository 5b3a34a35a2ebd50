"""Several readings joined into one cluster: hosts, adapters, rails, rates, names, conflicts."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode
from service.core.topology.cluster import Cluster, LinkKind, RateOrigin, VertexKind
from service.core.topology.expand import MAX_HOSTS, expand
from service.core.topology.gpu_products import find_product
from service.core.topology.join import Joined, Stated, join
from service.core.topology.join_names import Names
from service.core.topology.readings import (
    AttachedHost,
    Cable,
    FoundHost,
    FoundSwitch,
    LeftOut,
    NvlinkDomain,
    Rate,
    Reading,
)
from tests.core.refusals import refusal_text, refusals
from tests.core.topology.found import (
    NDR,
    at_host,
    at_switch,
    device,
    host,
    inside,
    link,
    rail_fabric,
)

PCIE5_X16 = 4 * 16 * 8e9 / 8 * 128 / 130
H100 = Stated(gpu="H100 SXM5")


def cluster_of(joined: Joined) -> Cluster:
    return expand(joined.spec).cluster


def stated(**fields: object) -> Stated:
    return Stated(**{"gpu": "H100 SXM5", **fields})  # type: ignore[arg-type]


def tree(*attached: tuple[str, str | None], above: tuple[tuple[str, str], ...] = ()) -> Reading:
    names = dict.fromkeys([s for _, s in attached if s] + [name for pair in above for name in pair])
    return Reading(
        format="slurm_conf",
        facts={},
        switches=tuple(FoundSwitch(name=name, line=1) for name in names),
        cables=tuple(
            Cable(source=at_switch(one), target=at_switch(other), line=1) for one, other in above
        ),
        attached=tuple(AttachedHost(host=h, switch=s, line=1) for h, s in attached),
        tree_only=True,
    )


# Hosts.


def test_one_inside_stands_for_as_many_hosts_as_are_stated() -> None:
    joined = join([inside()], stated(hosts=("host0", "host1", "host2")))
    (spec,) = joined.spec.hosts
    assert (spec.name, spec.count) == ("host", 3)
    cluster = cluster_of(joined)
    assert cluster.hosts == ("host0", "host1", "host2")
    assert len(cluster.devices) == 6


def test_an_inside_alone_is_one_host() -> None:
    assert [spec.name for spec in join([inside()], H100).spec.hosts] == ["host"]


def test_an_inside_is_taken_for_all_hosts_a_fabric_names() -> None:
    joined = join([rail_fabric(3), inside()], H100)
    assert cluster_of(joined).hosts == ("node0", "node1", "node2")
    assert any("inside as the one" in sentence for sentence in joined.assumptions)


def test_hosts_that_are_stated_are_the_only_ones_with_the_inside() -> None:
    joined = join([rail_fabric(3), inside()], stated(hosts=("node0", "node1")))
    kinds = {
        name: {v.kind for v in cluster_of(joined).vertices.values() if v.host == name}
        for name in ("node0", "node2")
    }
    assert VertexKind.GPU in kinds["node0"]
    assert kinds["node2"] == {VertexKind.NIC}
    assert any("only NICs are known" in warning for warning in joined.warnings)
    assert any("the request does not name 1 (node2)" in warning for warning in joined.warnings)


def test_a_design_is_the_inside_of_hosts_that_no_file_shows() -> None:
    adapters = tuple(f"mlx5_{n}" for n in (0, 3, 4, 5, 6, 9, 10, 11))
    joined = join([rail_fabric(2, adapters)], Stated(design="dgx-h100"))
    cluster = cluster_of(joined)
    assert len(cluster.devices) == 16
    assert {link.target for link in cluster.links.values() if link.source == "node1/nic2"} == {
        "l2",
        "node1/pcie2",
    }
    assert any("mlx5_4 port 1 is nic2" in sentence for sentence in joined.assumptions)


def test_an_adapter_that_some_host_lacks_leaves_a_gap_there() -> None:
    fabric = rail_fabric(2, ("a", "b", "c", "d", "e", "f", "g", "h"))
    gone = at_host("node1", "c", port_number=1)
    cables = tuple(cable for cable in fabric.cables if cable.source != gone)
    joined = join([replace(fabric, cables=cables)], Stated(design="dgx-h100"))
    cluster = cluster_of(joined)
    assert ("node0/nic2", "l2") in cluster.links
    assert ("node1/nic2", "l2") not in cluster.links
    assert ("node1/nic3", "l3") in cluster.links
    (told,) = (warning for warning in joined.warnings if "ports of their NICs" in warning)
    assert told.startswith("1 (node1) hosts are joined by 7 of the 8 ports")


def test_like_hosts_are_written_once_whatever_their_names() -> None:
    joined = join([inside()], stated(hosts=("login", "gpu-b", "gpu-a")))
    (spec,) = joined.spec.hosts
    assert (spec.name, spec.alike, spec.count) == ("login", ("gpu-b", "gpu-a"), None)
    assert cluster_of(joined).hosts == ("login", "gpu-b", "gpu-a")


def test_adapters_that_hosts_name_differently_are_ordered_apart() -> None:
    fabric = rail_fabric(2, ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5"))
    other = {"mlx5_0": "HCA-1", "mlx5_3": "HCA-2", "mlx5_4": "HCA-5", "mlx5_5": "HCA-6"}
    cables = tuple(
        replace(cable, source=replace(cable.source, adapter=other[cable.source.adapter]))
        if cable.source.host == "node1" and cable.source.adapter is not None
        else cable
        for cable in fabric.cables
    )
    cluster = cluster_of(join([replace(fabric, cables=cables)], Stated(design="dgx-1-v100")))
    for host_ in ("node0", "node1"):
        assert [(f"{host_}/nic{k}", f"l{k}") in cluster.links for k in range(4)] == [True] * 4


def test_hosts_with_names_in_the_file_are_themselves() -> None:
    joined = join([inside(host("a"), host("b", gpus=3))], H100)
    assert [(spec.name, len(spec.devices)) for spec in joined.spec.hosts] == [("a", 7), ("b", 10)]


def test_hosts_with_names_in_a_file_are_not_also_those_without() -> None:
    joined = join(
        [inside(host("a")), inside(host(gpus=3), format_="hwloc_xml")], stated(hosts=("a", "b"))
    )
    assert [(spec.name, len(spec.devices)) for spec in joined.spec.hosts] == [("a", 7), ("b", 10)]


def test_hosts_that_are_stated_and_nothing_is_known_of_are_refused() -> None:
    names = tree(("a", "s0"), ("b", "s0"))
    assert refusals(lambda: join([names], Stated(hosts=("a",)))) == [
        (FaultCode.MISSING_FIELD, ("design",))
    ]


def test_a_design_is_that_of_the_hosts_that_are_stated() -> None:
    names = tree(("a", "s0"), ("b", "s0"), ("c", "s0"))
    joined = join([names], Stated(design="p4d", hosts=("a", "c")))
    assert cluster_of(joined).hosts == ("a", "c")
    assert any("1 (b) hosts that the request does not name" in text for text in joined.warnings)


def test_more_hosts_than_a_topology_has_are_refused() -> None:
    names = tree(*((f"n{k}", "s0") for k in range(MAX_HOSTS + 1)))
    assert refusals(lambda: join([names], Stated(design="p4d"))) == [
        (FaultCode.OUT_OF_RANGE, ("hosts",))
    ]


def test_hosts_without_any_nic_are_told_once() -> None:
    bare = FoundHost(name=None, line=1, devices=(device("gpu0", VertexKind.GPU),), links=())
    joined = join([inside(bare)], stated(hosts=("a", "b")))
    assert "2 (a, b) hosts have no NIC" in joined.warnings


def test_what_nothing_is_known_of_is_refused() -> None:
    assert refusals(lambda: join([tree(("a", "s0"))], Stated())) == [
        (FaultCode.MISSING_FIELD, ("design",))
    ]
    empty = Reading(format="nccl_tests", facts={})
    assert refusals(lambda: join([empty], Stated())) == [(FaultCode.MISSING_FIELD, ("hosts",))]


def test_two_files_of_unlike_hosts_without_names_are_refused() -> None:
    text = refusal_text(lambda: join([inside(), inside(host(gpus=3))], H100))
    assert "files 1 and 2 (nccl_xml) each describe a host without naming it" in text


# Rates.


def rate(cluster: Cluster, source: str, target: str) -> tuple[float, RateOrigin]:
    found = cluster.links[source, target]
    return found.bandwidth_bytes_per_second, found.bandwidth_origin


def test_nvlink_is_as_fast_as_the_product_says() -> None:
    cluster = cluster_of(join([inside()], H100))
    assert rate(cluster, "host/gpu0", "host/gpu1") == (6 * 25e9, RateOrigin.PRODUCT)
    assert cluster.vertices["host/gpu0"].memory_bytes == 80 * 10**9


def test_stated_rates_are_of_one_nvlink_and_fill_gaps_only() -> None:
    rates = {LinkKind.NVLINK: 20e9, LinkKind.PCIE: 1e9}
    cluster = cluster_of(join([inside()], Stated(rates=rates)))
    assert rate(cluster, "host/gpu0", "host/gpu1") == (6 * 20e9, RateOrigin.STATED)
    assert rate(cluster, "host/gpu0", "host/pcie0") == (63e9, RateOrigin.READ)


def test_bandwidth_never_appears_from_nowhere() -> None:
    bare = inside(host(rate=None))
    faults = refusals(lambda: join([bare], Stated()))
    assert faults == [
        (FaultCode.MISSING_FIELD, (f"{kind}_bytes_per_second",))
        for kind in ("nvlink", "pcie", "host_bridge")
    ]
    text = refusal_text(lambda: join([bare], Stated()))
    assert "name the GPU's product in gpu, or state nvlink_bytes_per_second" in text
    assert "4 (gpu0 to pcie0, nic0 to pcie0, gpu1 to pcie1, nic1 to pcie1)" in text


def test_pcie_of_a_product_is_its_own_and_an_assumption_for_others() -> None:
    joined = join([inside(host(rate=None))], H100)
    cluster = cluster_of(joined)
    fast = PCIE5_X16
    assert rate(cluster, "host/gpu0", "host/pcie0") == (fast, RateOrigin.PRODUCT)
    assert rate(cluster, "host/nic0", "host/pcie0") == (fast, RateOrigin.ASSUMED)
    assert rate(cluster, "host/pcie0", "host/cpu0") == (fast, RateOrigin.ASSUMED)
    assert [s for s in joined.assumptions if s.startswith("pcie links")] == [
        "pcie links of 63.0154 GB/s: as fast as the PCIe connection of the host's H100 SXM5"
    ]


def test_what_is_stated_of_links_is_nearer_than_a_product() -> None:
    joined = join([inside(host(rate=None))], stated(rates={LinkKind.PCIE: 30e9}))
    cluster = cluster_of(joined)
    assert rate(cluster, "host/gpu0", "host/pcie0") == (30e9, RateOrigin.STATED)
    assert rate(cluster, "host/pcie0", "host/cpu0") == (30e9, RateOrigin.STATED)


def test_a_connection_that_the_product_does_not_have_is_told() -> None:
    assert join([inside()], H100).conflicts == ()
    joined = join([inside()], Stated(gpu="A100 SXM4"))
    (conflict,) = joined.conflicts
    assert "a file says 63 GB/s (32 GT/s x16), and A100 SXM4 has 31.51" in conflict
    assert rate(cluster_of(joined), "host/gpu0", "host/pcie0") == (63e9, RateOrigin.READ)


def test_a_socket_link_is_assumed_by_the_family_of_the_cpu() -> None:
    def with_sockets(product: str | None) -> Reading:
        one = host()
        devices = tuple(
            replace(d, product=product) if d.kind is VertexKind.CPU else d for d in one.devices
        )
        other = device("cpu1", VertexKind.CPU, product=product)
        socket = link("cpu0", "cpu1", LinkKind.SOCKET)
        return inside(replace(one, devices=(*devices, other), links=(*one.links, socket)))

    known = join([with_sockets("GenuineIntel 6 143")], H100)
    assert rate(cluster_of(known), "host/cpu0", "host/cpu1") == (192e9, RateOrigin.ASSUMED)
    assert cluster_of(known).links["host/cpu0", "host/cpu1"].effective_bytes_per_second == 22e9
    unknown = join([with_sockets(None)], H100)
    assert rate(cluster_of(unknown), "host/cpu0", "host/cpu1") == (256e9, RateOrigin.ASSUMED)
    assert any("since the CPU's own is not" in sentence for sentence in unknown.assumptions)
    told = join([with_sockets(None)], stated(rates={LinkKind.SOCKET: 100e9}))
    assert rate(cluster_of(told), "host/cpu0", "host/cpu1") == (100e9, RateOrigin.STATED)


def test_unknown_products_and_designs_are_refused_together() -> None:
    faults = refusals(lambda: join([inside()], Stated(gpu="H1000", design="dgx-9")))
    assert faults == [
        (FaultCode.UNKNOWN_NAME, ("gpu",)),
        (FaultCode.UNKNOWN_NAME, ("design",)),
    ]
    assert "H100 SXM5" in refusal_text(lambda: join([inside()], Stated(gpu="H1000")))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("h100-sxm5", "H100 SXM5"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe"),
        ("NVIDIA H20", "H20"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA GB200", "GB200"),
        ("H100", None),  # SXM or PCIe: it decides how many links there are
        ("", None),
    ],
)
def test_products_are_found_by_the_words_of_their_names(text: str, name: str | None) -> None:
    found = find_product(text)
    assert (None if found is None else found.name) == name


# Fabrics.


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
    # A host's end has no GUID here, so only the cables between switches are known again.
    assert cluster_of(joined).links["l0", "s0"].lanes == 2
    assert "3 switches are told by several files, by their GUID" in joined.joined
    assert "4 cables are told by several files and count once" in joined.joined


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


# Trees of names.


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


# Names, and what is told.


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


def domain(name: str, *hosts: str, line: int = 3) -> Reading:
    return Reading(
        format="slurm_conf", facts={}, domains=(NvlinkDomain(name=name, hosts=hosts, line=line),)
    )


def trays() -> Reading:
    """A tray of two GPUs with a switch, as NCCL shows one of GB200."""
    devices = (
        *(device(f"gpu{k}", VertexKind.GPU) for k in range(2)),
        device("nvswitch0", VertexKind.NVSWITCH),
    )
    ports = tuple(link(f"gpu{k}", "nvswitch0", LinkKind.NVLINK, lanes=18) for k in range(2))
    return inside(FoundHost(name=None, line=1, devices=devices, links=ports))


def test_accelerators_of_a_domain_have_a_port_on_its_switches() -> None:
    racks = [domain("r1", "a", "b"), domain("r2", "c")]
    joined = join([trays(), *racks], Stated(gpu="GB200", hosts=("a", "b", "c")))
    cluster = cluster_of(joined)
    ports = {(one, other): rate(cluster, one, other) for one, other in cluster.links if "/" in one}
    assert ports == {
        (f"{host_}/gpu{k}", rack): (900e9, RateOrigin.PRODUCT)
        for host_, rack in (("a", "nvlink-r1"), ("b", "nvlink-r1"), ("c", "nvlink-r2"))
        for k in range(2)
    }
    assert cluster.vertices["nvlink-r1"].kind is VertexKind.NVSWITCH
    assert any("3 hosts are in 2 NVLink domains" in text for text in joined.joined)
    assert joined.left_out == ()


def test_a_block_of_other_accelerators_is_no_domain() -> None:
    joined = join([inside(), domain("b1", "a", "b")], stated(hosts=("a", "b")))
    assert joined.spec.switches == ()
    assert [(item.file, item.line) for item in joined.left_out] == [(1, 3)]
    assert "neither product nor design" in joined.left_out[0].detail


def test_a_domain_of_a_design_has_the_ports_of_the_design() -> None:
    joined = join([domain("r1", "a", "b")], Stated(design="gb200-nvl72", hosts=("a", "b")))
    cluster = cluster_of(joined)
    assert rate(cluster, "b/gpu3", "nvlink-r1") == (900e9, RateOrigin.PRODUCT)


def test_a_host_in_two_domains_is_told_and_one_with_only_some_of_its_kind() -> None:
    both = [domain("r1", "a", "b"), domain("r2", "b")]
    joined = join([trays(), *both], Stated(gpu="GB200", hosts=("a", "b", "c")))
    assert joined.conflicts == (
        "1 (b) hosts are in NVLink domain r2 and in another, which is taken",
    )
    assert any("others that are inside alike are not" in text for text in joined.warnings)


def test_many_names_that_become_one_are_numbered() -> None:
    names = Names("host")
    legal = names.all_of(f"A{'_' * k}" for k in range(5000))
    assert len(set(legal.values())) == 5000
    assert legal["A____"] == "a-5"


def test_what_is_left_out_beyond_a_thousand_lines_is_counted() -> None:
    told = replace(rail_fabric(), left_out=tuple(LeftOut(k + 1, "odd") for k in range(1500)))
    left_out = join([inside(), told], H100).left_out
    assert len(left_out) == 1001
    assert left_out[-1].detail.startswith("and 500 more such lines")


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


# Several files of one host.


def smi(gpus: int = 2, lanes: int = 6, **facts: object) -> Reading:
    devices = [device(f"gpu{k}", VertexKind.GPU, **facts) for k in range(gpus)]
    found = FoundHost(
        name=None,
        line=1,
        devices=tuple(devices),
        links=(link("gpu0", "gpu1", LinkKind.NVLINK, lanes=lanes),),
    )
    return Reading(format="nvidia_smi_topo", facts={}, hosts=(found,))


def test_a_product_and_a_rate_come_from_another_file_of_the_host() -> None:
    one = Rate(26e9, RateOrigin.READ, "26 GB/s")
    joined = join([smi(product="NVIDIA H100 80GB HBM3", nvlink_rate=one), inside()], Stated())
    cluster = cluster_of(joined)
    assert cluster.vertices["host/gpu0"].product == "H100 SXM5"
    assert rate(cluster, "host/gpu0", "host/gpu1") == (6 * 26e9, RateOrigin.READ)
    assert "2 gpus of nvidia_smi_topo are those of nccl_xml, by number or PCI address" in (
        joined.joined
    )


def test_nvlinks_come_from_the_file_that_has_any() -> None:
    one = host()
    bare = replace(one, links=tuple(each for each in one.links if each.kind is not LinkKind.NVLINK))
    joined = join([inside(bare), smi(lanes=4)], H100)
    assert rate(cluster_of(joined), "host/gpu0", "host/gpu1") == (100e9, RateOrigin.PRODUCT)


def test_more_private_links_than_the_product_has_are_a_port_on_a_switch() -> None:
    # Three of the GPUs of a DGX-2: NV6 to each other, and six links each.
    devices = tuple(device(f"gpu{k}", VertexKind.GPU) for k in range(3))
    pairs = tuple(
        link(f"gpu{one}", f"gpu{other}", LinkKind.NVLINK, lanes=6)
        for one, other in ((0, 1), (0, 2), (1, 2))
    )
    found = FoundHost(name=None, line=1, devices=devices, links=pairs)
    reading = Reading(format="nvidia_smi_topo", facts={}, hosts=(found,))
    cluster = cluster_of(join([reading], Stated(gpu="V100 SXM3 32GB")))
    ports = {link.name: link.lanes for link in cluster.links.values() if "nvsw" in link.target}
    assert ports == {f"host/gpu{k}->host/nvswitch0": 6 for k in range(3)}
    assert rate(cluster, "host/gpu0", "host/nvswitch0") == (150e9, RateOrigin.PRODUCT)
    # Of a product with enough links the same matrix is of private ones.
    private = cluster_of(join([reading], Stated(gpu="A100 SXM4")))
    assert ("host/gpu0", "host/gpu1") in private.links
    # One that has none contradicts the file.
    odd = join([reading], stated(gpu="L4", rates={LinkKind.NVLINK: 25e9}))
    assert odd.conflicts == (
        "a file says 6 NVLinks between gpu0 and one other GPU, and L4 has none: the file is taken",
    )


def test_both_sides_of_a_conflict_are_told() -> None:
    joined = join([inside(), smi(gpus=3, lanes=4, numa=1)], H100)
    assert joined.conflicts == (
        "nccl_xml says 2 GPUs, nvidia_smi_topo says 3 GPUs",
        "nccl_xml says 6 NVLinks of gpu0, nvidia_smi_topo says 4",
        "nccl_xml says 6 NVLinks of gpu1, nvidia_smi_topo says 4",
    )
    assert rate(cluster_of(joined), "host/gpu0", "host/gpu1")[0] == 150e9
    assert [item.detail for item in joined.left_out] == ["gpu2 is none of nccl_xml's devices"]


def test_a_port_on_a_switch_is_as_wide_as_the_fewer_links() -> None:
    one = host()
    switch = device("nvswitch0", VertexKind.NVSWITCH)
    ports = tuple(link(f"gpu{k}", "nvswitch0", LinkKind.NVLINK, lanes=18) for k in range(2))
    kept = tuple(each for each in one.links if each.kind is not LinkKind.NVLINK)
    whole = replace(one, devices=(*one.devices, switch), links=(*ports, *kept))
    gpus = tuple(
        device(f"gpu{k}", VertexKind.GPU, nvlinks=count) for k, count in enumerate((18, 17))
    )
    status = Reading(
        format="nvidia_smi_nvlink",
        facts={},
        hosts=(FoundHost(name=None, line=1, devices=gpus, links=()),),
    )
    joined = join([inside(whole), status], H100)
    cluster = cluster_of(joined)
    assert rate(cluster, "host/gpu0", "host/nvswitch0")[0] == 450e9
    assert rate(cluster, "host/gpu1", "host/nvswitch0")[0] == 425e9
    assert joined.conflicts == ("nccl_xml says 18 NVLinks of gpu1, nvidia_smi_nvlink says 17",)


def test_ports_of_one_card_share_its_connection() -> None:
    one = host()
    devices = tuple(
        replace(d, card="card-a") if d.kind is VertexKind.NIC else d for d in one.devices
    )
    links = tuple(
        replace(each, target="pcie0") if each.source == "nic1" else each for each in one.links
    )
    cluster = cluster_of(join([inside(replace(one, devices=devices, links=links))], H100))
    up = [cluster.links[f"host/nic{k}", "host/pcie0"] for k in range(2)]
    assert [link.resource for link in up] == ["host/card0->host/pcie0"] * 2
    assert [link.bandwidth_bytes_per_second for link in up] == [63e9, 63e9]
