"""Which hosts a cluster of several readings has, and what is taken to be inside each."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode
from service.core.topology.cluster import RateOrigin, VertexKind
from service.core.topology.expand import MAX_HOSTS
from service.core.topology.join import Stated, join
from service.core.topology.readings import Cable, FoundHost, Rate, Reading
from tests.core.refusals import refusal_text, refusals
from tests.core.topology.found import (
    H100,
    NDR,
    at_host,
    at_switch,
    cluster_of,
    device,
    host,
    inside,
    rail_fabric,
    stated,
    tree,
)


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


def test_a_host_whose_adapters_do_not_fit_gets_no_inside() -> None:
    cables = (
        Cable(source=at_host("ufm", "mlx5_0", port_number=1), target=at_switch("S0", 60), line=1),
    )
    adapters = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")
    fabric = rail_fabric(4, adapters)
    fabric = replace(fabric, cables=(*fabric.cables, *(replace(c, rate=NDR) for c in cables)))
    joined = join([fabric], Stated(design="dgx-h100"))
    cluster = cluster_of(joined)
    assert {vertex.host for vertex in cluster.devices} == {f"node{k}" for k in range(4)}
    assert [v.name for v in cluster.vertices.values() if v.host == "ufm"] == ["ufm/nic0"]
    (told,) = (text for text in joined.warnings if "no compute hosts" in text)
    assert told.startswith("1 (ufm) hosts")
    assert "at most 1 adapters" in told
    assert "most hosts have 4 in the fabric" in told
    # The inside of a file that names no host is not that of such a server either.
    devices = cluster_of(join([inside(host(gpus=4)), fabric], H100)).devices
    assert {vertex.host for vertex in devices} == {f"node{k}" for k in range(4)}
    # Who names the hosts is believed.
    named = join([fabric], Stated(design="dgx-h100", hosts=("ufm", "node0")))
    assert {vertex.host for vertex in cluster_of(named).devices} == {"ufm", "node0"}


def test_adapters_that_are_too_slow_for_a_design_are_none_of_its() -> None:
    slow = Rate(12.5e9, RateOrigin.READ, "4x EDR")
    fabric = rail_fabric(4, ("a", "b"))
    extra = tuple(
        Cable(source=at_host("ufm", name, port_number=1), target=at_switch("S0", 60 + n), line=1)
        for n, name in enumerate(("a", "b"))
    )
    fabric = replace(fabric, cables=(*fabric.cables, *(replace(c, rate=slow) for c in extra)))
    joined = join([fabric], Stated(design="dgx-h100"))
    assert {vertex.host for vertex in cluster_of(joined).devices} == {f"node{k}" for k in range(4)}


def test_hosts_that_no_file_names_are_refused_beside_files_that_name_others() -> None:
    faults = refusals(lambda: join([inside(), rail_fabric()], stated(hosts=("host0", "host1"))))
    assert faults == [(FaultCode.INCONSISTENT, ("hosts",))]
    text = refusal_text(lambda: join([inside(), rail_fabric()], stated(hosts=("host0",))))
    assert "the files name 2 (node0, node1) hosts, of which the request names none" in text


# Files of unlike hosts.


def of_files(*lists: tuple[str, ...], **fields: object) -> Stated:
    by_place = {place: hosts for place, hosts in enumerate(lists) if hosts}
    return stated(hosts_of_file=by_place, **fields)


def test_each_file_is_of_the_hosts_that_are_stated_for_it() -> None:
    joined = join([inside(), inside(host(gpus=3))], of_files(("a", "b"), ("c",)))
    cluster = cluster_of(joined)
    count = {name: sum(v.host == name for v in cluster.devices) for name in cluster.hosts}
    assert count == {"a": 2, "b": 2, "c": 3}
    # One without a list is of all others that are named.
    fabric = rail_fabric(3)
    joined = join([fabric, inside(), inside(host(gpus=3))], of_files((), (), ("node1",)))
    cluster = cluster_of(joined)
    count = {name: sum(v.host == name for v in cluster.devices) for name in cluster.hosts}
    assert count == {"node0": 2, "node1": 3, "node2": 2}
    assert ("node1/nic1", "l1") in cluster.links


def test_files_with_the_same_list_are_of_the_same_hosts() -> None:
    status = replace(inside(host(gpus=3)), format="hwloc_xml")
    files = [inside(), inside(host(gpus=3)), status]
    joined = join(files, of_files(("a",), ("b", "c"), ("b", "c")))
    assert any("3 gpus of hwloc_xml are those of nccl_xml" in text for text in joined.joined)
    assert joined.conflicts == ()


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ((("a", "b"), ("b", "c")), "1 (b) hosts are those of files 1 and 2"),
        ((("a",), ("a",)), "files 1 and 2 (nccl_xml) each describe a host of 1 (a) hosts"),
        ((("a",), (), ("b",)), "file 3 (ibnetdiscover) describes no host without naming it"),
    ],
)
def test_lists_that_can_not_be_are_refused(lists: tuple[tuple[str, ...], ...], said: str) -> None:
    files = [inside(), inside(host(gpus=3)), rail_fabric()][: max(2, len(lists))]
    fields = {"hosts": ("node0", "c")} if len(lists) == 3 else {}
    assert said in refusal_text(lambda: join(files, of_files(*lists, **fields)))


def test_a_host_that_a_file_names_is_in_no_list() -> None:
    files = [inside(host("a")), inside(host(gpus=3), format_="hwloc_xml")]
    text = refusal_text(lambda: join(files, of_files((), ("a",))))
    assert "1 (a) hosts are those of files 1 and 2" in text
