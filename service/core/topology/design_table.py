"""Reference designs of hosts as a table: what hangs where, in few numbers each.

The figures are those of `design_facts`. Where a design's wiring was read from a published file, or
is common knowledge of the product, a comment says so.
"""

from dataclasses import dataclass

from service.core.topology.design_facts import (
    A100_SXM_40,
    A100_SXM_80,
    B200_SXM,
    GB,
    H100_SXM,
    H200_SXM,
    MI250X_GCD,
    MI300X,
    NIC_100G,
    NIC_200G,
    NIC_400G,
    NVLINK4_SWITCH_PORT,
    PCIE3_X16,
    PCIE4_X16,
    PCIE5_X16,
    PCIE5_X16_EFFECTIVE,
    SOCKET_BROADWELL,
    SOCKET_CASCADE_LAKE,
    SOCKET_EPYC,
    SOCKET_GRACE,
    SOCKET_SAPPHIRE_RAPIDS,
    V100_SXM_32,
    GpuFacts,
    SocketFacts,
    Wire,
)

__all__ = ["FACTS", "HostFacts", "Mesh"]


@dataclass(frozen=True, slots=True)
class Mesh:
    """Accelerators joined in pairs: one link, and (one, other, number of links) for each pair."""

    link: Wire
    pairs: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """A two-socket host whose GPUs and NICs hang in equal shares under the PCIe switches.

    `gpu_pcie` is the connection of a GPU where it is not that of NICs and switches (`pcie`).
    With `switches_per_upper` so many of these switches hang under an upper one. Instead of PCIe
    switches a host may have `chip_to_chip`: each share of GPUs and NICs then hangs under a CPU of
    its own, GPUs by that wire. `domain_port` is what a GPU has to NVSwitches outside the host, to
    which a device network may join it. `nvswitch_planes` share the GPUs and are joined by
    `nvswitch_trunk`.
    """

    name: str
    title: str
    gpu: GpuFacts | None
    shares: int
    gpus_per_share: int
    nics_per_share: int
    pcie: Wire
    nic: Wire
    socket: SocketFacts
    gpu_pcie: Wire | None = None
    switches_per_upper: int | None = None
    chip_to_chip: Wire | None = None
    domain_port: Wire | None = None
    nvswitch_port: Wire | None = None
    nvswitch_planes: int = 1
    nvswitch_trunk: Wire | None = None
    mesh: Mesh | None = None
    assumptions: tuple[str, ...] = ()


_PCIE3 = Wire(bandwidth=PCIE3_X16, source="PCIe 3 x16")
_PCIE4 = Wire(bandwidth=PCIE4_X16, source="PCIe 4 x16")
_PCIE5 = Wire(bandwidth=PCIE5_X16, source="PCIe 5 x16", effective=PCIE5_X16_EFFECTIVE)
_NVLINK3_SWITCH_PORT = Wire(bandwidth=300 * GB, source="12 x NVLink 3", lanes=12)

# As `nvidia-smi topo -m` prints it for such a host.
_HYBRID_CUBE_MESH = (
    *((0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2)),
    *((2, 3, 2), (2, 6, 1), (3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2)),
    *((5, 7, 1), (6, 7, 2)),
)
# As RCCL's model of a host with 16 dies has it (tools/topo_expl, 16p1h): four links between the
# dies of a module, one or two to others, seven of each die in all.
_MI250X_LINKS = (
    *((0, 1, 4), (2, 3, 4), (4, 5, 4), (6, 7, 4), (8, 9, 4), (10, 11, 4), (12, 13, 4)),
    *((14, 15, 4), (0, 4, 2), (3, 7, 2), (8, 12, 2), (11, 15, 2), (0, 2, 1), (1, 2, 1)),
    *((1, 3, 1), (1, 5, 1), (2, 6, 1), (4, 12, 1), (5, 13, 1), (5, 14, 1), (6, 13, 1)),
    *((6, 14, 1), (7, 15, 1), (8, 10, 1), (9, 10, 1), (9, 11, 1), (9, 13, 1), (10, 14, 1)),
)
_ALL_PAIRS_OF_8 = tuple((one, other, 1) for one in range(8) for other in range(one + 1, 8))


def _dgx_of_8_hopper(name: str, product: str, gpu: GpuFacts) -> HostFacts:
    return HostFacts(
        name=name,
        title=f"8 {product} on one NVSwitch plane, one 400 Gb/s NIC beside each GPU, PCIe 5",
        gpu=gpu,
        shares=8,
        gpus_per_share=1,
        nics_per_share=1,
        pcie=_PCIE5,
        nic=NIC_400G,
        socket=SOCKET_SAPPHIRE_RAPIDS,
        nvswitch_port=NVLINK4_SWITCH_PORT,
        assumptions=(
            f"{name}: 936.25 ns from GPU to NVSwitch is the figure of ASTRA-sim's HGX H100 input",
        ),
    )


def _of_8_a100(name: str, title: str, gpu: GpuFacts) -> HostFacts:
    return HostFacts(
        name=name,
        title=title,
        gpu=gpu,
        shares=4,
        gpus_per_share=2,
        nics_per_share=2,
        pcie=_PCIE4,
        nic=NIC_200G,
        socket=SOCKET_EPYC,
        nvswitch_port=_NVLINK3_SWITCH_PORT,
    )


FACTS = (
    _dgx_of_8_hopper("dgx-h100", "H100", H100_SXM),
    _dgx_of_8_hopper("dgx-h200", "H200", H200_SXM),
    _of_8_a100(
        "hgx-a100",
        "8 A100 on one NVSwitch plane, two GPUs and two 200 Gb/s NICs a PCIe 4 switch",
        A100_SXM_80,
    ),
    _of_8_a100(
        "azure-nd-v4",
        "8 A100 40GB on one NVSwitch plane, two GPUs and two 200 Gb/s NICs a PCIe 4 switch",
        A100_SXM_40,
    ),
    HostFacts(
        name="p4d",
        title="8 A100 on one NVSwitch plane, four 100 Gb/s NICs, each shared by two GPUs",
        gpu=A100_SXM_40,
        shares=4,
        gpus_per_share=2,
        nics_per_share=1,
        pcie=_PCIE4,
        nic=NIC_100G,
        socket=SOCKET_CASCADE_LAKE,
        nvswitch_port=_NVLINK3_SWITCH_PORT,
        assumptions=(
            "p4d: PCIe is taken as generation 4; the 8 GT/s that its virtual machine shows are not",
        ),
    ),
    HostFacts(
        name="dgx-1-v100",
        title="8 V100 in a hybrid cube mesh of private NVLinks, four NICs shared by two GPUs each",
        gpu=V100_SXM_32,
        shares=4,
        gpus_per_share=2,
        nics_per_share=1,
        pcie=_PCIE3,
        nic=NIC_100G,
        socket=SOCKET_BROADWELL,
        # Latency: TACCL's profile of an 8 x V100 host of this mesh.
        mesh=Mesh(
            Wire(bandwidth=25 * GB, source="NVLink 2", latency_seconds=0.3e-6), _HYBRID_CUBE_MESH
        ),
        assumptions=(
            "dgx-1-v100: 300 ns for each NVLink is the figure of TACCL's profile of a like machine",
        ),
    ),
    HostFacts(
        name="dgx-2",
        title="16 V100 on two NVSwitch planes of eight, eight 100 Gb/s NICs shared by two GPUs"
        " each, PCIe 3 in two tiers",
        gpu=V100_SXM_32,
        shares=8,
        gpus_per_share=2,
        nics_per_share=1,
        pcie=_PCIE3,
        nic=NIC_100G,
        socket=SOCKET_CASCADE_LAKE,
        # Two tiers, as an hwloc listing of such a host shows. A GPU has one link to each of the
        # six chips of its plane, and each chip has eight to its counterpart on the other plane.
        switches_per_upper=2,
        nvswitch_port=Wire(bandwidth=150 * GB, source="6 x NVLink 2", lanes=6),
        nvswitch_planes=2,
        nvswitch_trunk=Wire(bandwidth=1200 * GB, source="48 x NVLink 2", lanes=48),
    ),
    HostFacts(
        name="gb200-nvl72",
        title="4 B200 and two Grace CPUs, four 400 Gb/s NICs: one of the 18 hosts of an NVLink"
        " domain, whose NVSwitches are outside",
        gpu=B200_SXM,
        shares=2,
        gpus_per_share=2,
        nics_per_share=2,
        pcie=_PCIE5,
        nic=NIC_400G,
        socket=SOCKET_GRACE,
        chip_to_chip=Wire(bandwidth=450 * GB, source="NVLink-C2C"),
        domain_port=Wire(bandwidth=900 * GB, source="18 x NVLink 5", lanes=18),
        assumptions=(
            "gb200-nvl72: 450 GB/s each way are taken between each GPU and its Grace CPU",
        ),
    ),
    HostFacts(
        name="mi300x",
        title="8 MI300X, each joined to every other by xGMI, one 400 Gb/s NIC beside each, PCIe 5",
        gpu=MI300X,
        shares=8,
        gpus_per_share=1,
        nics_per_share=1,
        pcie=_PCIE5,
        nic=NIC_400G,
        socket=SOCKET_SAPPHIRE_RAPIDS,
        # Effective: all-reduce of two (stas00/ml-engineering), where all goes over their one link.
        mesh=Mesh(
            Wire(bandwidth=64 * GB, source="xGMI of MI300", effective=47.7 * GB), _ALL_PAIRS_OF_8
        ),
    ),
    HostFacts(
        name="mi250x",
        title="16 dies of 8 MI250X, irregularly joined by xGMI, four dies and two 200 Gb/s NICs a"
        " PCIe 4 switch",
        gpu=MI250X_GCD,
        shares=4,
        gpus_per_share=4,
        nics_per_share=2,
        pcie=_PCIE4,
        gpu_pcie=Wire(bandwidth=PCIE4_X16 / 2, source="PCIe 4 x8"),
        nic=NIC_200G,
        socket=SOCKET_EPYC,
        mesh=Mesh(Wire(bandwidth=50 * GB, source="xGMI of MI200"), _MI250X_LINKS),
        assumptions=("mi250x: the wiring is that of RCCL's model of a host with 16 dies",),
    ),
    HostFacts(
        name="pcie-gen4-8gpu",
        title="8 GPUs without NVLink, four and one 200 Gb/s NIC under each socket's PCIe 4 switch",
        gpu=None,
        shares=2,
        gpus_per_share=4,
        nics_per_share=1,
        pcie=_PCIE4,
        nic=NIC_200G,
        socket=SOCKET_EPYC,
        assumptions=("pcie-gen4-8gpu: the GPU's product, memory and peak rates are not given",),
    ),
)
