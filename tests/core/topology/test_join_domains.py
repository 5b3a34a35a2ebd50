"""NVLink domains of several hosts, from blocks and labels to ports on their switches."""

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.join import Stated, join
from service.core.topology.readings import FoundHost, Reading
from tests.core.topology.found import H100, cluster_of, device, domain, inside, link, rate, stated


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


def test_a_host_in_two_domains_is_told() -> None:
    both = [domain("r1", "a", "b"), domain("r2", "b", "c")]
    joined = join([trays(), *both], Stated(gpu="GB200", hosts=("a", "b", "c")))
    assert joined.conflicts == (
        "1 (b) hosts are in NVLink domain r2 and in another, which is taken",
    )
    cluster = cluster_of(joined)
    assert ("b/gpu0", "nvlink-r1") in cluster.links
    assert ("c/gpu0", "nvlink-r2") in cluster.links


def test_hosts_in_no_domain_keep_what_is_inside_and_are_told() -> None:
    stated = Stated(gpu="GB200", hosts=("a", "b", "c"))
    joined = join([trays(), domain("r1", "a", "b")], stated)
    cluster = cluster_of(joined)
    of_gpu = {(one, other) for one, other in cluster.links if one.endswith("/gpu0")}
    assert of_gpu == {
        ("a/gpu0", "nvlink-r1"),
        ("b/gpu0", "nvlink-r1"),
        ("c/gpu0", "c/nvswitch0"),
    }
    (told,) = (text for text in joined.assumptions if "no NVLink domain" in text)
    assert told.startswith("1 (c) hosts")
    assert not any("no NVLink domain" in s for s in join([inside()], H100).assumptions)


def test_private_links_of_a_tray_are_a_part_of_its_domain() -> None:
    devices = tuple(device(f"gpu{k}", VertexKind.GPU) for k in range(2))
    pair = (link("gpu0", "gpu1", LinkKind.NVLINK, lanes=18),)
    matrix = inside(FoundHost(name=None, line=1, devices=devices, links=pair))
    joined = join([matrix, domain("r1", "a", "b")], Stated(gpu="GB200", hosts=("a", "b")))
    assert {ends for ends in cluster_of(joined).links if ends[0] == "a/gpu0"} == {
        ("a/gpu0", "nvlink-r1")
    }


def test_one_domain_under_two_names_is_one() -> None:
    files = [trays(), domain("block1", "a", "b"), domain("5e79-uuid", "b", "a")]
    joined = join(files, Stated(gpu="GB200", hosts=("a", "b")))
    assert [switch.name for switch in joined.spec.switches] == ["nvlink-block1"]
    assert any("block1 and 5e79-uuid are one" in text for text in joined.joined)
    assert (joined.conflicts, joined.left_out, joined.renamed) == ((), (), ())
