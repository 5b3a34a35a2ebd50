"""Copies of tokens and what they weigh, beside what users and authors of DeepEP printed."""

from service.core.models.dtypes import DType
from service.core.moe.buffers import low_latency_buffer_bytes
from service.core.moe.distinct import distinct_groups
from service.core.moe.settings import Payload
from validation.rows import Row, Section, printed, within

__all__ = ["SECTIONS"]

_DEEPEP = "https://github.com/deepseek-ai/DeepEP"
HIDDEN = 7168
# GB/s over NVLink and over the NIC, of one run each.
PRINTED = (("145.16", "44.37"), ("133.78", "40.89"), ("124.92", "38.19"), ("79.12", "24.19"))


def ratios() -> list[Row]:
    """Copies by rank over copies by host, beside the ratio of the rates that both were told by."""
    ours = float(distinct_groups(256, 8, 16) / distinct_groups(256, 8, 2))
    return [
        Row(f"{inside} / {between} GB/s", f"{float(inside) / float(between):.4f}", ours)
        for inside, between in PRINTED
    ]


def weights() -> list[Row]:
    """Bytes of messages and of the buffer that holds them."""
    quantised = Payload(DType.FP8, scale_block=128)
    low_latency = Payload(DType.FP8, scale_block=128, metadata_bytes=16)
    message = Payload(DType.BF16, metadata_bytes=16).bytes_of(HIDDEN)
    return [
        Row("a token in fp8 with its scales", "7392", quantised.bytes_of(HIDDEN)),
        Row("the same with 16 bytes of metadata", "7408", low_latency.bytes_of(HIDDEN)),
        Row("a token in bf16", "14336", Payload(DType.BF16).bytes_of(HIDDEN)),
        Row(
            "low-latency buffer, 288 experts, 128 tokens",
            "2116290816",
            low_latency_buffer_bytes(288, 128, message),
        ),
    ]


SECTIONS = (
    Section(
        name="expert_copies",
        title="Copies of tokens by rank and by host",
        source=f"{_DEEPEP}/issues/155 and /493: rates that users printed",
        text="Of 256 experts on 16 ranks in 2 hosts a token has 8. Kernels that send one copy to a "
        "host and from there one to a rank print both rates of the same time, so that their ratio "
        "is that of the copies. Ours is that of tokens that choose evenly and independently.",
        what="printed rates",
        unit="ratio",
        rule=within(0.001, "rates are printed to four digits, and choices are not quite even"),
        rows=ratios,
    ),
    Section(
        name="expert_messages",
        title="What messages with tokens weigh",
        source=f"{_DEEPEP}: tests of its low-latency kernels, and buffer sizes in /issues/28",
        text="A hidden size of 7,168. In fp8 each block of 128 elements has a scale of 4 bytes. "
        "The buffer is that of the printed 2116.291072 MB, before it is aligned.",
        what="message",
        unit="bytes",
        rule=printed("sizes follow from the layout alone"),
        rows=weights,
    ),
)
