"""Several files that tell of the inside of one host."""

from dataclasses import replace

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.join import Stated, join
from service.core.topology.readings import FoundHost, Rate, Reading
from tests.core.topology.found import H100, cluster_of, device, host, inside, link, rate, stated


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
    assert [item.detail for item in joined.left_out] == ["1 (gpu2) are none of nccl_xml's devices"]


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
