"""Rates that people have measured with public tools, and the machines they had.

GB/s as nccl-tests prints them: algorithm bandwidth, or bus bandwidth (algorithm bandwidth times
2 (n - 1) / n for an all-reduce, (n - 1) / n for the others; a message as it is).
"""

from collections.abc import Callable
from dataclasses import dataclass

from service.core.topology.cluster import Cluster, LinkKind
from service.core.topology.expand import expand
from service.core.topology.flows.demands import CollectiveKind
from service.core.topology.spec import ClusterSpec, FabricSpec, HostSpec, LeafSpine, RailOptimised
from validation.small_clusters import between_devices, cluster_of, nvswitch_hosts, shared_nic_hosts

__all__ = ["BOTH_WAYS", "EXEMPT", "MEASURED", "SEND", "Exempt", "Measured", "design"]

SEND, BOTH_WAYS = "send", "send_both_ways"
ALL_TO_ALL, ALL_REDUCE = CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_REDUCE


# What DeepEP prints counts bytes of tokens as if each went over the link that it names, those for
# devices of the same host included, and each time a token has several experts on a device.
LOGICAL = (
    "logical bytes: those for devices of the same host are counted as if they had crossed the "
    "link, so the figure is no rate of it (58 GB/s through a NIC whose line carries 50)."
)


@dataclass(frozen=True)
class Measured:
    """`rate` in GB/s on `cluster`; a message goes from the first device to the last one, or one
    each way, whose rates are added up.
    """

    what: str
    cluster: Callable[[], Cluster]
    kind: str
    rate: float
    source: str
    is_algorithm_rate: bool = False
    in_network_reduction: bool = False


@dataclass(frozen=True)
class Exempt:
    """Published figures in GB/s that name a link of `cluster` and are no rates of it, and why."""

    what: str
    cluster: Callable[[], Cluster]
    rates: tuple[float, ...]
    source: str
    reason: str = LOGICAL


def design(name: str, count: int = 1, fabric: FabricSpec | None = None) -> Callable[[], Cluster]:
    return lambda: (
        expand(
            ClusterSpec(hosts=(HostSpec(name="h", count=count, design=name),), fabric=fabric)
        ).cluster
    )


def pcie_switch(gpus: int, rate: float) -> Callable[[], Cluster]:
    names = [f"a/gpu{number}" for number in range(gpus)]
    return lambda: cluster_of(names, [(n, "a/pcie", rate) for n in names], kind=LinkKind.PCIE)


def bridged_pair(rate: float) -> Callable[[], Cluster]:
    return lambda: cluster_of(["a/gpu0", "a/gpu1"], [("a/gpu0", "a/gpu1", rate)])


def switched(
    hosts: int, gpus: int, nvlink: float, nic: float | None = None
) -> Callable[[], Cluster]:
    return lambda: nvswitch_hosts(hosts, gpus, nvlink, nic)


def two_nics(*, first_is_near: bool) -> Callable[[], Cluster]:
    """Two hosts with a GPU and two NICs of 400 Gb/s: over the CPU, or the first on its switch."""
    joined: list[tuple[str, str, float]] = []
    kinds: dict[frozenset[str], LinkKind] = {}
    for host in "ab":
        gpu, pcie, cpu = f"{host}/gpu0", f"{host}/pcie", f"{host}/cpu"
        inner = [(gpu, pcie), (pcie, cpu), (f"{host}/nic0", pcie if first_is_near else cpu)]
        inner.append((f"{host}/nic1", cpu))
        joined += [(one, other, 63e9) for one, other in inner]
        kinds |= {frozenset(ends): LinkKind.PCIE for ends in inner}
        joined += [(f"{host}/nic{place}", "switch", 50e9) for place in range(2)]
    return lambda: cluster_of(["a/gpu0", "b/gpu0"], joined, kinds=kinds)


H100 = design("dgx-h100")
TWO_H100 = design("dgx-h100", 2, RailOptimised())
FOUR_H100 = design("dgx-h100", 4, RailOptimised())
EIGHT_H100 = design("dgx-h100", 8, LeafSpine(hosts_per_leaf=4, spines=4))

MEASURED = (
    Measured("8 H100, ring", H100, ALL_REDUCE, 370, "nccl-tests#212"),
    Measured(
        *("8 H100, NVLS", H100, ALL_REDUCE, 480, "nccl-tests#212, #272, #290"),
        in_network_reduction=True,
    ),
    Measured(
        *("8 H100, NVLS", H100, ALL_REDUCE, 275, "nccl-tests#290"),
        is_algorithm_rate=True,
        in_network_reduction=True,
    ),
    Measured("4 H100", switched(1, 4, 450e9), ALL_TO_ALL, 338, "nccl#2169"),
    Measured("8 A100", design("hgx-a100"), ALL_REDUCE, 235, "stas00; nccl-tests#149"),
    Measured("2 A100 PCIe, 12 links", bridged_pair(300e9), ALL_REDUCE, 208, "nccl-tests#178"),
    Measured("3 A100 over PCIe 4", pcie_switch(3, 31.5e9), ALL_REDUCE, 20, "nccl-tests#178"),
    Measured("2 H100 PCIe, bridge", bridged_pair(300e9), ALL_REDUCE, 116, "nccl#1161"),
    Measured("2 A100, 4 links", bridged_pair(100e9), SEND, 73, "nccl-tests#331"),
    Measured("8 H200, one way", switched(1, 8, 450e9), SEND, 396, "stas00"),
    Measured("8 H200, both ways", switched(1, 8, 450e9), BOTH_WAYS, 784, "stas00"),
    Measured(
        *("8 H800, NVLS", switched(1, 8, 200e9), ALL_REDUCE, 215, "nccl#1374"),
        in_network_reduction=True,
    ),
    Measured("4 L40S, one PCIe 4 switch", pcie_switch(4, 31.5e9), ALL_REDUCE, 22, "nccl#1202"),
    Measured(
        *("2 of 8 MI300X", lambda: mi300x(2), ALL_REDUCE, 47.7, "stas00"),
    ),
    Measured("8 MI300X", lambda: mi300x(8), ALL_REDUCE, 312.9, "stas00"),
    Measured("a 400 Gb/s NIC", switched(2, 1, 450e9, 50e9), SEND, 49, "nccl-tests#267, #290, #319"),
    Measured(
        "3 x 8 A100, 4 HDR", lambda: shared_nic_hosts(3), ALL_REDUCE, 96, "nccl-tests#119, #152"
    ),
    Measured(
        *("8 x 8 H100, SHARP", EIGHT_H100, ALL_REDUCE, 387, "coreweave/nccl-tests"),
        in_network_reduction=True,
    ),
    Measured(
        *("2 x 8 H100, NVLS tree", TWO_H100, ALL_REDUCE, 470, "nccl-tests#309"),
        in_network_reduction=True,
    ),
    Measured(
        *("4 x 8 H100, NVLS tree", FOUR_H100, ALL_REDUCE, 366, "nccl-tests#309"),
        in_network_reduction=True,
    ),
    Measured("2 x 8 H100, RoCE", TWO_H100, ALL_REDUCE, 231, "nccl#2409"),
    Measured("2 x 8 H100, RoCE", TWO_H100, ALL_TO_ALL, 25, "nccl#2409"),
    Measured("2 x 8 H100, RoCE", TWO_H100, SEND, 13, "nccl#2409"),
    Measured(
        *("GB200, one rack", switched(1, 72, 900e9), ALL_REDUCE, 847, "coreweave/nccl-tests"),
        in_network_reduction=True,
    ),
    Measured(
        *(
            "GB200, two racks",
            switched(2, 72, 900e9, 50e9),
            ALL_REDUCE,
            820,
            "coreweave/nccl-tests",
        ),
        in_network_reduction=True,
    ),
    Measured(
        "GB200, 20 racks", switched(20, 72, 900e9, 50e9), ALL_REDUCE, 405, "coreweave/nccl-tests"
    ),
    Measured("H100, NIC on its switch", switched(2, 1, 450e9, 50e9), SEND, 50, "nccl#2310"),
    Measured("H100, NIC over a CPU", switched(2, 1, 450e9, 50e9), SEND, 29.25, "nccl#2310"),
    Measured("H100, two NICs over a CPU", two_nics(first_is_near=False), SEND, 29.25, "nccl#2310"),
    Measured(
        *("H100, one NIC of each", two_nics(first_is_near=True), SEND, 17.5, "nccl#2310"),
    ),
)

NIC = switched(2, 1, 450e9, 50e9)
EXEMPT = (
    Exempt("DeepEP v1, H800, EP8, NVLink", switched(1, 8, 200e9), (153, 158), "docs/legacy.md"),
    Exempt("DeepEP v1, EP16, 32, 64, RDMA", NIC, (43, 58, 51), "docs/legacy.md"),
    Exempt("DeepEP v1, low latency", NIC, (98, 63, 48, 43, 39, 39), "docs/legacy.md"),
    Exempt("DeepEP v2, SM90, RDMA", NIC, (90, 61), "README"),
    Exempt("DeepEP v2, SM100, EP8, NVLink", switched(1, 8, 900e9), (726, 740), "README"),
)


def mi300x(devices: int) -> Cluster:
    """The xGMI links between the first few of eight."""
    return between_devices(design("mi300x")(), devices)
