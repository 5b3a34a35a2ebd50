"""The figures behind the reference designs of hosts: accelerators, wires, links of sockets.

Rates are nominal bytes per second in one direction: the data rate of the wire after line coding.
Effective rates are published measurements of like links and latencies are those of published
simulator inputs and profiles; each source stands beside its number. What is not known is absent.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "A100_SXM_40",
    "A100_SXM_80",
    "B200_SXM",
    "GB",
    "H100_SXM",
    "H200_SXM",
    "MI250X_GCD",
    "MI300X",
    "NIC_100G",
    "NIC_200G",
    "NIC_400G",
    "NVLINK4_SWITCH_PORT",
    "PCIE3_X16",
    "PCIE4_X16",
    "PCIE5_X16",
    "PCIE5_X16_EFFECTIVE",
    "SOCKET_BROADWELL",
    "SOCKET_CASCADE_LAKE",
    "SOCKET_EPYC",
    "SOCKET_GRACE",
    "SOCKET_SAPPHIRE_RAPIDS",
    "V100_SXM_32",
    "GpuFacts",
    "SocketFacts",
    "Wire",
]

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
    effective: float | None
    words: str


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
H200_SXM = GpuFacts(
    product="NVIDIA H200 SXM5 141GB",
    memory_bytes=141 * 10**9,
    memory_bytes_per_second=4.8e12,
    peak_flops=H100_SXM.peak_flops,
)
# The accelerators of GB200 NVL72, per GPU.
B200_SXM = GpuFacts(
    product="NVIDIA B200 186GB (GB200)",
    memory_bytes=186 * 10**9,
    memory_bytes_per_second=8e12,
    peak_flops={
        "fp4": 10e15,
        "fp8": 5e15,
        "bf16": 2.5e15,
        "fp16": 2.5e15,
        "tf32": 1.25e15,
        "fp32": 80e12,
    },
)
MI300X = GpuFacts(
    product="AMD Instinct MI300X 192GB",
    memory_bytes=192 * 10**9,
    memory_bytes_per_second=5.3e12,
    peak_flops={
        "fp8": 2614.9e12,
        "bf16": 1307.4e12,
        "fp16": 1307.4e12,
        "tf32": 653.7e12,
        "fp32": 163.4e12,
    },
)
# A module is two dies, each a device of its own with half of the module's figures.
MI250X_GCD = GpuFacts(
    product="AMD Instinct MI250X, one GCD 64GB",
    memory_bytes=64 * 10**9,
    memory_bytes_per_second=1.6384e12,
    peak_flops={"bf16": 191.5e12, "fp16": 191.5e12, "fp32": 23.95e12, "fp64": 23.95e12},
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
# Two Grace CPUs; what their link carries in practice is not published.
SOCKET_GRACE = SocketFacts(links=1, link_rate=450 * GB, effective=None, words="NVLink-C2C")

# Effective: pair copy on H200, whose links are those of H100 (stas00/ml-engineering).
# Latency: GPU to switch in ASTRA-sim's HGX H100 input, fitted to measurements.
NVLINK4_SWITCH_PORT = Wire(
    bandwidth=450 * GB,
    source="18 x NVLink 4",
    effective=396 * GB,
    latency_seconds=936.25e-9,
    lanes=18,
)
