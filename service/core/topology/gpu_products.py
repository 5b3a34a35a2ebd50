"""What an accelerator's product says of its links, for files that name a GPU and no rate.

Rates are nominal bytes per second in one direction. Links per GPU and rates of NVLink are the
vendor's figures; PCIe is that of the product's own x16 connection. Figures that no vendor table
backs are marked, and whoever uses them says so.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from service.core.topology.design_facts import (
    A100_SXM_40,
    A100_SXM_80,
    B200_SXM,
    GB,
    H100_SXM,
    H200_SXM,
    MI250X_GCD,
    MI300X,
    PCIE3_X16,
    PCIE4_X16,
    PCIE5_X16,
    V100_SXM_32,
    GpuFacts,
)

__all__ = [
    "GPU_PRODUCTS",
    "GpuProduct",
    "LinkGeneration",
    "find_product",
    "generation_of_gcn",
    "generation_of_sm",
    "product_of_pci_id",
]


@dataclass(frozen=True, slots=True)
class LinkGeneration:
    """One generation of the links between accelerators, and what one such link carries."""

    name: str
    link_bytes_per_second: float
    assumed: bool = False

    @property
    def source(self) -> str:
        """The figure in words."""
        figure = f"{self.name}, {self.link_bytes_per_second / GB:g} GB/s a link"
        return f"{figure}, which no vendor table backs" if self.assumed else figure


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProduct:
    """An accelerator: how many links it has, of which generation, and its PCIe connection.

    `words` are what its name in a file or a request must hold, each choice by itself; `pci_ids`
    are vendor and device. `facts` has memory and peak rates where they are in the tables.
    `in_domains_of_hosts` marks those whose NVSwitches are outside the host and shared by several.
    """

    name: str
    pcie_bytes_per_second: float
    generation: LinkGeneration | None = None
    links: int = 0
    words: tuple[frozenset[str], ...] = ()
    pci_ids: frozenset[tuple[int, int]] = frozenset()
    facts: GpuFacts | None = None
    in_domains_of_hosts: bool = False


NVLINK1 = LinkGeneration("NVLink 1", 20 * GB)
NVLINK2 = LinkGeneration("NVLink 2", 25 * GB)
NVLINK3 = LinkGeneration("NVLink 3", 25 * GB)
NVLINK3_GA10X = LinkGeneration("NVLink 3 of GA10x", 14.0625 * GB)
NVLINK4 = LinkGeneration("NVLink 4", 25 * GB)
NVLINK5 = LinkGeneration("NVLink 5", 50 * GB)
XGMI_VEGA = LinkGeneration("xGMI of Vega 20 and MI100", 46 * GB, assumed=True)
XGMI_MI200 = LinkGeneration("xGMI of MI200", 50 * GB)
XGMI_MI300 = LinkGeneration("xGMI of MI300", 64 * GB)
XGMI_MI350 = LinkGeneration("xGMI of MI350", 76.5 * GB)

_NVIDIA = 0x10DE
_AMD = 0x1002


def _words(*choices: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(choice.split()) for choice in choices)


def _ids(vendor: int, *devices: int) -> frozenset[tuple[int, int]]:
    return frozenset((vendor, device) for device in devices)


def _nvidia(
    name: str,
    pcie: float,
    generation: LinkGeneration | None,
    links: int,
    words: tuple[frozenset[str], ...],
    devices: Iterable[int] = (),
    facts: GpuFacts | None = None,
) -> GpuProduct:
    return GpuProduct(
        name=name,
        pcie_bytes_per_second=pcie,
        generation=generation,
        links=links,
        words=words,
        pci_ids=_ids(_NVIDIA, *devices),
        facts=facts,
    )


def _amd(
    name: str,
    pcie: float,
    generation: LinkGeneration,
    links: int,
    *devices: int,
    facts: GpuFacts | None = None,
) -> GpuProduct:
    return GpuProduct(
        name=name,
        pcie_bytes_per_second=pcie,
        generation=generation,
        links=links,
        words=_words(name.lower()),
        pci_ids=_ids(_AMD, *devices),
        facts=facts,
    )


# Device numbers are those of the public list of PCI ids.
GPU_PRODUCTS: tuple[GpuProduct, ...] = (
    _nvidia("P40", PCIE3_X16, None, 0, _words("p40"), (0x1B38,)),
    _nvidia("P100 SXM2", PCIE3_X16, NVLINK1, 4, _words("p100 sxm2"), (0x15F9,)),
    _nvidia("V100 SXM2 16GB", PCIE3_X16, NVLINK2, 6, _words("v100 sxm2 16gb"), (0x1DB1,)),
    _nvidia(
        *("V100 SXM2 32GB", PCIE3_X16, NVLINK2, 6),
        *(_words("v100 sxm2 32gb"), (0x1DB5,), V100_SXM_32),
    ),
    _nvidia("V100 SXM2", PCIE3_X16, NVLINK2, 6, _words("v100 sxm2")),
    _nvidia("V100 SXM3 32GB", PCIE3_X16, NVLINK2, 6, _words("v100 sxm3"), (0x1DB8,)),
    _nvidia(
        *("A100 SXM4 40GB", PCIE4_X16, NVLINK3, 12),
        *(_words("a100 sxm4 40gb"), (0x20B0,), A100_SXM_40),
    ),
    _nvidia(
        *("A100 SXM4 80GB", PCIE4_X16, NVLINK3, 12),
        *(_words("a100 sxm4 80gb"), (0x20B2,), A100_SXM_80),
    ),
    _nvidia("A100 SXM4", PCIE4_X16, NVLINK3, 12, _words("a100 sxm4", "a100 sxm")),
    _nvidia("A100 PCIe", PCIE4_X16, NVLINK3, 12, _words("a100 pcie"), (0x20B5, 0x20F1)),
    _nvidia("A800 SXM4", PCIE4_X16, NVLINK3, 8, _words("a800 sxm4", "a800 sxm")),
    _nvidia("A30", PCIE4_X16, NVLINK3, 4, _words("a30"), (0x20B7,)),
    _nvidia("A40", PCIE4_X16, NVLINK3_GA10X, 4, _words("a40"), (0x2235,)),
    _nvidia("RTX A6000", PCIE4_X16, NVLINK3_GA10X, 4, _words("rtx a6000"), (0x2230,)),
    _nvidia("A10", PCIE4_X16, None, 0, _words("a10"), (0x2236,)),
    _nvidia("A10G", PCIE4_X16, None, 0, _words("a10g"), (0x2237,)),
    _nvidia("L4", PCIE4_X16, None, 0, _words("l4"), (0x27B8,)),
    _nvidia("L40", PCIE4_X16, None, 0, _words("l40"), (0x26B5,)),
    _nvidia("L40S", PCIE4_X16, None, 0, _words("l40s"), (0x26B9,)),
    _nvidia("RTX 6000 Ada", PCIE4_X16, None, 0, _words("rtx 6000 ada"), (0x26B1,)),
    _nvidia(
        *("H100 SXM5", PCIE5_X16, NVLINK4, 18),
        *(_words("h100 sxm5", "h100 sxm", "h100 hbm3"), (0x2330,), H100_SXM),
    ),
    _nvidia("H100 PCIe", PCIE5_X16, NVLINK4, 12, _words("h100 pcie"), (0x2331,)),
    _nvidia("H100 NVL", PCIE5_X16, NVLINK4, 12, _words("h100 nvl"), (0x2321,)),
    _nvidia("H800 SXM5", PCIE5_X16, NVLINK4, 8, _words("h800 sxm5", "h800 sxm"), (0x2324,)),
    _nvidia("H20", PCIE5_X16, NVLINK4, 18, _words("h20"), (0x2329,)),
    _nvidia(
        *("H200 SXM5", PCIE5_X16, NVLINK4, 18),
        *(_words("h200 sxm5", "h200"), (0x2335,), H200_SXM),
    ),
    _nvidia("GH200", PCIE5_X16, NVLINK4, 18, _words("gh200"), (0x2342, 0x2348)),
    _nvidia("B200 SXM", PCIE5_X16, NVLINK5, 18, _words("b200 sxm", "b200"), (0x2901,)),
    replace(
        _nvidia("GB200", PCIE5_X16, NVLINK5, 18, _words("gb200"), (0x2941,), B200_SXM),
        in_domains_of_hosts=True,
    ),
    _amd("MI50", PCIE4_X16, XGMI_VEGA, 2, 0x66A0, 0x66A1),
    _amd("MI100", PCIE4_X16, XGMI_VEGA, 3, 0x738C),
    _amd("MI210", PCIE4_X16, XGMI_MI200, 3, 0x740F),
    _amd("MI250", PCIE4_X16, XGMI_MI200, 8, 0x740C),
    _amd("MI250X", PCIE4_X16, XGMI_MI200, 8, 0x7408, facts=MI250X_GCD),
    _amd("MI300X", PCIE5_X16, XGMI_MI300, 7, 0x74A1, facts=MI300X),
    _amd("MI325X", PCIE5_X16, XGMI_MI300, 7, 0x74A5),
    _amd("MI355X", PCIE5_X16, XGMI_MI350, 7, 0x75A3),
)

_BY_PCI_ID = {key: product for product in GPU_PRODUCTS for key in product.pci_ids}
_BY_SM = {
    60: NVLINK1,
    70: NVLINK2,
    80: NVLINK3,
    86: NVLINK3_GA10X,
    90: NVLINK4,
    100: NVLINK5,
    103: NVLINK5,
}
_BY_GCN = {
    "906": XGMI_VEGA,
    "908": XGMI_VEGA,
    "910": XGMI_MI200,
    "90a": XGMI_MI200,
    "942": XGMI_MI300,
    "950": XGMI_MI350,
}


def find_product(text: str) -> GpuProduct | None:
    """The product a name stands for ("NVIDIA H100 80GB HBM3", "a100-sxm4-40gb"), if it is known.

    The name holds all words of one choice of the product; the product with the most words wins.
    """
    words = set(re.findall(r"[a-z0-9]+", text.lower()))
    best, most = None, 0
    for product in GPU_PRODUCTS:
        for choice in product.words:
            if len(choice) > most and choice <= words:
                best, most = product, len(choice)
    return best


def product_of_pci_id(vendor: int, device: int) -> GpuProduct | None:
    """The product with these numbers on the PCI bus, if it is known."""
    return _BY_PCI_ID.get((vendor, device))


def generation_of_sm(compute_capability: int) -> LinkGeneration | None:
    """The NVLink of GPUs of a compute capability (90 is 9.0)."""
    return _BY_SM.get(compute_capability)


def generation_of_gcn(architecture: str) -> LinkGeneration | None:
    """The xGMI of accelerators of an architecture (`gfx942`, or `910` as older files say)."""
    return _BY_GCN.get(architecture.removeprefix("gfx"))
