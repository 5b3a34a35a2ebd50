"""The vendor figures behind the reference designs of hosts, one small table each.

Rates are nominal bytes per second in one direction: the data rate of the wire after line coding.
Effective rates are published measurements of like links and latencies are those of published
simulator inputs and profiles; each source stands beside its number. What is not known is absent.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["FACTS", "GB", "GpuFacts", "HostFacts", "SocketFacts", "Wire"]

GB = 1e9

# x16 slots: lanes x transfer rate x line coding. Tables round them down (15.75, 31.5, 63), which
# would put lower bounds above what the wire can do.
PCIE3_X16 = 16 * 8e9 / 8 * 128 / 130
PCIE4_X16 = 2 * PCIE3_X16
PCIE5_X16 = 4 * PCIE3_X16
# Host to device copy over PCIe 5 x16, stas00/ml-engineering, network.
PCIE5_X16_EFFECTIVE = 55.4 * GB


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """Vendor figures of an accelerator; peak rates are dense, memory is the advertised size."""

    product: str
    memory_bytes: int
    memory_bytes_per_second: float
    peak_flops: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One kind of link of a design; `source` says what its nominal rate follows from."""

    bandwidth: float
    source: str
    effective: float | None = None
    latency_seconds: float | None = None
    lanes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketFacts:
    """The link between two CPUs: its raw rate as an upper figure, and what NCCL reckons with."""

    links: int
    link_rate: float
    effective: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """A two-socket host whose GPUs and NICs hang in equal shares under PCIe switches."""

    name: str
    title: str
    gpu: GpuFacts | None
    pcie_switches: int
    gpus_per_switch: int
    nics_per_switch: int
    pcie: Wire
    nic: Wire
    socket: SocketFacts
    nvswitch_port: Wire | None = None
    # One NVLink of a mesh, and (GPU, GPU, number of NVLinks) for each pair that has any.
    nvlink: Wire | None = None
    mesh: tuple[tuple[int, int, int], ...] = ()
    assumptions: tuple[str, ...] = ()


H100_SXM = GpuFacts(
    product="NVIDIA H100 SXM5 80GB",
    memory_bytes=80 * 10**9,
    memory_bytes_per_second=3.35e12,
    peak_flops={
        "fp8": 1979e12,
        "bf16": 989.5e12,
        "fp16": 989.5e12,
        "tf32": 494.5e12,
        "fp32": 67e12,
    },
)
A100_SXM_80 = GpuFacts(
    product="NVIDIA A100 SXM4 80GB",
    memory_bytes=80 * 10**9,
    memory_bytes_per_second=2.039e12,
    peak_flops={"bf16": 312e12, "fp16": 312e12, "tf32": 156e12, "fp32": 19.5e12},
)
A100_SXM_40 = GpuFacts(
    product="NVIDIA A100 SXM4 40GB",
    memory_bytes=40 * 10**9,
    memory_bytes_per_second=1.555e12,
    peak_flops={"bf16": 312e12, "fp16": 312e12, "tf32": 156e12, "fp32": 19.5e12},
)
V100_SXM_32 = GpuFacts(
    product="NVIDIA V100 SXM2 32GB",
    memory_bytes=32 * 10**9,
    memory_bytes_per_second=900e9,
    peak_flops={"fp16": 125e12, "fp32": 15.7e12, "fp64": 7.8e12},
)

# The effective rates of NICs are the NCCL authors' rule of 12 GB/s per 100 Gb/s (nccl-tests#119;
# 46 to 49 per 400 Gb/s in #267, #290 and #319).
NIC_100G = Wire(bandwidth=12.5 * GB, source="100 Gb/s port", effective=12 * GB)
NIC_200G = Wire(bandwidth=25 * GB, source="200 Gb/s port", effective=24 * GB)
NIC_400G = Wire(bandwidth=50 * GB, source="400 Gb/s port", effective=48 * GB)

# The effective rates of socket links are NCCL's constants for the CPU family (src/graph/topo.h).
SOCKET_BROADWELL = SocketFacts(
    links=2, link_rate=19.2 * GB, effective=6 * GB, words="QPI at 9.6 GT/s"
)
SOCKET_CASCADE_LAKE = SocketFacts(
    links=3, link_rate=20.8 * GB, effective=10 * GB, words="UPI at 10.4 GT/s"
)
SOCKET_SAPPHIRE_RAPIDS = SocketFacts(
    links=4, link_rate=48 * GB, effective=22 * GB, words="UPI at 16 GT/s"
)
SOCKET_EPYC = SocketFacts(links=4, link_rate=36 * GB, effective=16 * GB, words="xGMI at 18 GT/s")

FACTS = (
    HostFacts(
        name="dgx-h100",
        title="8 H100 on one NVSwitch plane, one 400 Gb/s NIC beside each GPU, PCIe 5",
        gpu=H100_SXM,
        pcie_switches=8,
        gpus_per_switch=1,
        nics_per_switch=1,
        pcie=Wire(bandwidth=PCIE5_X16, source="PCIe 5 x16", effective=PCIE5_X16_EFFECTIVE),
        nic=NIC_400G,
        socket=SOCKET_SAPPHIRE_RAPIDS,
        # Effective: pair copy on H200, whose links are the same (stas00/ml-engineering).
        # Latency: GPU to switch in ASTRA-sim's HGX H100 input, fitted to measurements.
        nvswitch_port=Wire(
            bandwidth=450 * GB,
            source="18 x NVLink 4",
            effective=396 * GB,
            latency_seconds=936.25e-9,
            lanes=18,
        ),
        assumptions=(
            "dgx-h100: 936.25 ns from GPU to NVSwitch is the figure of ASTRA-sim's HGX H100 input",
        ),
    ),
    HostFacts(
        name="hgx-a100",
        title="8 A100 on one NVSwitch plane, two GPUs and two 200 Gb/s NICs a PCIe 4 switch",
        gpu=A100_SXM_80,
        pcie_switches=4,
        gpus_per_switch=2,
        nics_per_switch=2,
        pcie=Wire(bandwidth=PCIE4_X16, source="PCIe 4 x16"),
        nic=NIC_200G,
        socket=SOCKET_EPYC,
        nvswitch_port=Wire(bandwidth=300 * GB, source="12 x NVLink 3", lanes=12),
    ),
    HostFacts(
        name="p4d",
        title="8 A100 on one NVSwitch plane, four 100 Gb/s NICs, each shared by two GPUs",
        gpu=A100_SXM_40,
        pcie_switches=4,
        gpus_per_switch=2,
        nics_per_switch=1,
        pcie=Wire(bandwidth=PCIE4_X16, source="PCIe 4 x16"),
        nic=NIC_100G,
        socket=SOCKET_CASCADE_LAKE,
        nvswitch_port=Wire(bandwidth=300 * GB, source="12 x NVLink 3", lanes=12),
        assumptions=(
            "p4d: PCIe is taken as generation 4; the 8 GT/s that its virtual machine shows are not",
        ),
    ),
    HostFacts(
        name="dgx-1-v100",
        title="8 V100 in a hybrid cube mesh of private NVLinks, four NICs shared by two GPUs each",
        gpu=V100_SXM_32,
        pcie_switches=4,
        gpus_per_switch=2,
        nics_per_switch=1,
        pcie=Wire(bandwidth=PCIE3_X16, source="PCIe 3 x16"),
        nic=NIC_100G,
        socket=SOCKET_BROADWELL,
        # Latency: TACCL's profile of an 8 x V100 host of this mesh.
        nvlink=Wire(bandwidth=25 * GB, source="NVLink 2", latency_seconds=0.3e-6),
        mesh=(
            *((0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2)),
            *((2, 3, 2), (2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2)),
            *((5, 7, 1), (6, 7, 2)),
        ),
        assumptions=(
            "dgx-1-v100: 300 ns for each NVLink is the figure of TACCL's profile of a like machine",
        ),
    ),
    HostFacts(
        name="pcie-gen4-8gpu",
        title="8 GPUs without NVLink, four and one 200 Gb/s NIC under each socket's PCIe 4 switch",
        gpu=None,
        pcie_switches=2,
        gpus_per_switch=4,
        nics_per_switch=1,
        pcie=Wire(bandwidth=PCIE4_X16, source="PCIe 4 x16"),
        nic=NIC_200G,
        socket=SOCKET_EPYC,
        assumptions=("pcie-gen4-8gpu: the GPU's product, memory and peak rates are not given",),
    ),
)
