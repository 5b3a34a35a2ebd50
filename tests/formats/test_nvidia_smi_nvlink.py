"""What `nvidia-smi nvlink -s` prints: links that are up, their rates, and damaged pastes."""

from pathlib import Path

import pytest

from service.core.errors import FaultCode
from service.core.topology.readings import RateOrigin
from service.formats.nvidia_smi_nvlink import (
    looks_like_nvidia_smi_nvlink,
    read_nvidia_smi_nvlink,
)
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

STATUS = (Path(__file__).parent / "fixtures" / "hosts" / "status.nvlink.txt").read_bytes()
GPU = b"GPU 0: NVIDIA B200 (UUID: GPU-1)\n"


def test_files_are_recognised_by_gpus_with_links() -> None:
    assert looks_like_nvidia_smi_nvlink(STATUS)
    assert not looks_like_nvidia_smi_nvlink(GPU)  # nvidia-smi -L prints the same
    assert not looks_like_nvidia_smi_nvlink(b"")


def test_links_that_are_down_are_not_counted() -> None:
    reading = read_nvidia_smi_nvlink(STATUS)
    assert reading.facts == {"hosts": 1, "gpus": 3, "nvlinks_up": 5, "nvlinks_down": 1}
    (host,) = reading.hosts
    assert [(gpu.name, gpu.product, gpu.nvlinks) for gpu in host.devices] == [
        ("gpu0", "NVIDIA H100 80GB HBM3", 2),
        ("gpu1", "NVIDIA H100 80GB HBM3", 3),
        ("gpu2", "NVIDIA L4", 0),
    ]
    assert "gpu0: 1 of its links are down" in reading.notes
    assert "gpu1: 3 links are listed, and H100 SXM5 has 18" in reading.notes


@pytest.mark.parametrize(
    ("shown", "data"),
    [("26.562", 25e9), ("53.125", 50e9), ("25.781", 25e9), ("20", 20e9), ("14.062", 14.0625e9)],
)
def test_the_rate_of_the_signal_is_more_than_that_of_data(shown: str, data: float) -> None:
    (host,) = read_nvidia_smi_nvlink(GPU + f"\t Link 0: {shown} GB/s\n".encode()).hosts
    rate = host.devices[0].nvlink_rate
    assert rate is not None
    assert (rate.bytes_per_second, rate.origin) == (data, RateOrigin.READ)


def test_an_unknown_rate_is_taken_as_shown_and_told() -> None:
    reading = read_nvidia_smi_nvlink(GPU + b"\t Link 0: 31 GB/s\n")
    assert reading.assumptions == ("31 GB/s is the data rate of a link, as shown",)


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (GPU + b" Link 1: 25 GB/s\n", 2, "link 0 comes next"),
        (b" Link 0: 25 GB/s\n" + GPU, 1, "before any GPU"),
        (GPU.replace(b"GPU 0", b"GPU 1"), 1, "GPU 0 comes next"),
        (GPU + b" Link 0: fast\n", 2, "neither a GPU nor the status"),
        (b"nothing", 1, "names no GPU"),
        (b"", 1, "names no GPU"),
    ],
)
def test_what_is_no_status_is_refused_with_its_line(content: bytes, line: int, says: str) -> None:
    faults = refusals(lambda: read_nvidia_smi_nvlink(content))
    assert faults == [(FaultCode.UNREADABLE, ("line", line))]
    assert says in refusal_text(lambda: read_nvidia_smi_nvlink(content))


def test_every_line_matters() -> None:
    assert lines_without_effect(read_nvidia_smi_nvlink, STATUS) == []


def test_damage_is_read_or_refused(seed: int) -> None:
    assert 0 < read_damaged(read_nvidia_smi_nvlink, STATUS, seed=seed) < 300
