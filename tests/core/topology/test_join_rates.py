"""Where the rate of each link of a joined cluster comes from."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.gpu_products import find_product
from service.core.topology.join import Stated, join
from service.core.topology.readings import FoundHost, Reading
from tests.core.refusals import refusal_text, refusals
from tests.core.topology.found import H100, cluster_of, device, host, inside, link, rate, stated

GPU = VertexKind.GPU
PCIE5_X16 = 4 * 16 * 8e9 / 8 * 128 / 130


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


def test_a_product_that_a_file_contradicts_is_told() -> None:
    def of_file(product: str) -> Reading:
        gpus = (replace(each, product=product) for each in host().devices if each.kind is GPU)
        rest = (each for each in host().devices if each.kind is not GPU)
        return inside(replace(host(), devices=(*gpus, *rest)))

    (conflict,) = join([of_file("H100 SXM5")], Stated(gpu="H800 SXM5")).conflicts
    assert conflict == (
        "a file says that its GPUs are H100 SXM5, and gpu names H800 SXM5: the one that is named is"
        " taken"
    )
    sizes = join([of_file("A100 SXM4 40GB")], Stated(gpu="A100 SXM4 80GB")).conflicts
    assert "its GPUs are A100 SXM4 40GB" in sizes[0]
    # A name without the size of the memory contradicts none with it.
    assert not join([of_file("H100 SXM5")], H100).conflicts
    named = join([of_file("A100 SXM4 40GB")], Stated(gpu="A100 SXM4")).conflicts
    assert not [each for each in named if "gpu names" in each]


def test_a_port_on_a_switch_of_another_width_than_the_product_has_is_told() -> None:
    def matrix(*lanes: int) -> Reading:
        gpus = tuple(device(f"gpu{k}", GPU) for k in range(len(lanes)))
        switch = device("nvswitch0", VertexKind.NVSWITCH)
        links = tuple(
            link(f"gpu{k}", "nvswitch0", LinkKind.NVLINK, lanes=n) for k, n in enumerate(lanes)
        )
        return inside(FoundHost(name=None, line=1, devices=(*gpus, switch), links=links))

    (wide,) = join([matrix(18, 18)], Stated(gpu="V100 SXM2")).conflicts
    assert wide == (
        "a file says 18 NVLinks between gpu0 and NVSwitches, and V100 SXM2 has 6: the file is taken"
    )
    (narrow,) = join([matrix(8, 8)], H100).conflicts
    assert "8 NVLinks between gpu0 and NVSwitches, and H100 SXM5 has 18" in narrow
    # One GPU that has lost links is still of that product.
    assert not join([matrix(17, 18)], H100).conflicts


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


def test_a_host_bridge_is_as_wide_as_what_is_below_it() -> None:
    one = host()
    bridge = device("bridge0", VertexKind.HOST_BRIDGE)
    bridged = replace(
        one,
        devices=(*one.devices, bridge),
        links=(
            *(
                replace(each, target="bridge0") if each.target == "cpu0" else each
                for each in one.links
            ),
            link("bridge0", "cpu0", LinkKind.ON_CHIP),
        ),
    )
    joined = join([inside(bridged)], H100)
    assert rate(cluster_of(joined), "host/bridge0", "host/cpu0") == (126e9, RateOrigin.ASSUMED)
    assert any("how fast it reaches its CPU" in sentence for sentence in joined.assumptions)
    told = join([inside(bridged)], stated(rates={LinkKind.ON_CHIP: 90e9}))
    assert rate(cluster_of(told), "host/bridge0", "host/cpu0") == (90e9, RateOrigin.STATED)


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
