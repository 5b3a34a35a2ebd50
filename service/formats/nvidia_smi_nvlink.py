"""What `nvidia-smi nvlink -s` (`--status`) prints: the links of each GPU that are up.

`GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-...)`, then a line for each link: `Link 3: 26.562 GB/s` or
`Link 3: <inactive>`. What is at the other end it does not say. Rates are those of the signal; the
data rate is a thirty-second or a sixteenth less from NVLink 2 on.
"""

import re
from dataclasses import dataclass, field

from service.core.topology.cluster import VertexKind
from service.core.topology.gpu_products import find_product
from service.core.topology.readings import FoundDevice, FoundHost, Rate, RateOrigin, Reading
from service.formats.pasted_text import Findings, lines_of, refuse_file, shown

__all__ = ["looks_like_nvidia_smi_nvlink", "read_nvidia_smi_nvlink"]

_GPU = re.compile(r"GPU ([0-9]{1,3}): (.{1,120}?) \(UUID: [A-Za-z0-9-]{1,80}\)")
_LINK = re.compile(r"Link ([0-9]{1,2}): (?:([0-9]{1,4}(?:\.[0-9]{1,3})?) GB/s|<?[Ii]nactive>?)")
_MAX_GPUS = 256
# Signalling rate as it is printed, and the data rate of the link, GB/s.
_DATA_RATES = {"25.781": 25.0, "26.562": 25.0, "53.125": 50.0, "14.062": 14.0625}


def looks_like_nvidia_smi_nvlink(content: bytes) -> bool:
    """Whether a link's line follows a GPU's among the first ones."""
    text = content[:16_384].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines()[:60]]
    return any(_GPU.fullmatch(line) for line in lines) and any(
        _LINK.fullmatch(line) or line.startswith("NVML: ") for line in lines
    )


@dataclass(slots=True)
class _Gpu:
    number: int
    product: str
    line: int
    # GB/s as printed, None for a link that is down.
    links: list[str | None] = field(default_factory=list)


def read_nvidia_smi_nvlink(content: bytes) -> Reading:
    """Read the status into GPUs with their product, the links that are up, and the rate of one.

    Raises `InvalidInput` with every fault, each with path `("line", n)`.
    """
    findings = Findings()
    gpus: list[_Gpu] = []
    last = 1
    for line, text in lines_of(content, findings):
        stripped = text.strip()
        if stripped:
            last = line
            _take(findings, gpus, line, stripped)
    findings.raise_faults()
    if not gpus:
        refuse_file(last, "ends a file that names no GPU")
    devices = tuple(_device(findings, gpu) for gpu in gpus)
    counts = [len(gpu.links) for gpu in gpus]
    if len(set(counts)) > 1:
        findings.note(f"GPUs have unlike numbers of links: {', '.join(map(str, counts))}")
    return Reading(
        format="nvidia_smi_nvlink",
        facts={
            "hosts": 1,
            "gpus": len(gpus),
            "nvlinks_up": sum(device.nvlinks or 0 for device in devices),
            "nvlinks_down": sum(link is None for gpu in gpus for link in gpu.links),
        },
        hosts=(FoundHost(name=None, line=gpus[0].line, devices=devices, links=()),),
        assumptions=tuple(findings.assumptions),
        notes=findings.notes(),
        left_out=findings.left_out(),
    )


def _take(findings: Findings, gpus: list[_Gpu], line: int, text: str) -> None:
    if found := _GPU.fullmatch(text):
        number = int(found[1])
        if number != len(gpus):
            # NVML numbers them without gaps, so one is missing or stands twice.
            findings.refuse(line, f"is of GPU {number}, and GPU {len(gpus)} comes next")
        elif number >= _MAX_GPUS:
            refuse_file(line, f"is beyond the {_MAX_GPUS} GPUs that are read")
        gpus.append(_Gpu(number, found[2], line))
    elif found := _LINK.fullmatch(text):
        if not gpus:
            findings.refuse(line, "is of a link before any GPU")
        elif int(found[1]) != len(gpus[-1].links):
            next_ = len(gpus[-1].links)
            findings.refuse(line, f"is of link {int(found[1])}, and link {next_} comes next")
        else:
            gpus[-1].links.append(found[2])
    elif text.startswith(("GPU ", "Link ")):
        findings.refuse(line, f"is {shown(text)}, which is neither a GPU nor the status of a link")
    else:
        findings.leave_out(line, f"{shown(text)} is neither a GPU nor a link")


def _device(findings: Findings, gpu: _Gpu) -> FoundDevice:
    up = [link for link in gpu.links if link is not None]
    if len(up) < len(gpu.links):
        findings.note(f"gpu{gpu.number}: {len(gpu.links) - len(up)} of its links are down")
    product = find_product(gpu.product)
    if product is not None and product.links and 0 < len(gpu.links) < product.links:
        findings.note(
            f"gpu{gpu.number}: {len(gpu.links)} links are listed, and {product.name} has"
            f" {product.links}"
        )
    return FoundDevice(
        name=f"gpu{gpu.number}",
        kind=VertexKind.GPU,
        line=gpu.line,
        product=gpu.product,
        nvlinks=len(up),
        nvlink_rate=_rate(findings, gpu, up),
    )


def _rate(findings: Findings, gpu: _Gpu, up: list[str]) -> Rate | None:
    """Of one link on average, after line coding."""
    if not up:
        return None
    if len(set(up)) > 1:
        findings.note(f"gpu{gpu.number}: its links have unlike rates; their mean is taken")
    unknown = {link for link in up if link not in _DATA_RATES and float(link) not in {20.0, 25.0}}
    if unknown:
        findings.assume(f"{', '.join(sorted(unknown))} GB/s is the data rate of a link, as shown")
    total = sum(_DATA_RATES.get(link, float(link)) for link in up)
    return Rate(total * 1e9 / len(up), RateOrigin.READ, f"nvidia-smi shows {up[0]} GB/s a link")
