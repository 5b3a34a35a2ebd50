"""What one copy of a token weighs, against published messages."""

import pytest

from service.core.models.dtypes import DType
from service.core.moe.buffers import low_latency_buffer_bytes
from service.core.moe.settings import Payload

FP8 = Payload(DType.FP8, scale_block=128)


def test_published_messages() -> None:
    """A hidden size of 7,168: 56 scales of 4 bytes in fp8, 16 bytes of numbers in low latency."""
    assert FP8.bytes_of(7168) == 7392
    assert Payload(DType.FP8, 128, metadata_bytes=16).bytes_of(7168) == 7408
    assert Payload(DType.BF16).bytes_of(7168) == 14336
    assert (128 * 8 - 10) * Payload(DType.FP8, 128, metadata_bytes=16).bytes_of(7168) == 1014 * 7408


def test_fp8_with_scales_is_a_little_more_than_half() -> None:
    half = FP8.bytes_of(7168) / Payload().bytes_of(7168)
    assert half == 0.515625
    assert 1 / half == pytest.approx(1.94, abs=0.005)  # a combine in bf16 over such a dispatch


def test_a_block_that_is_not_full_has_a_scale_too() -> None:
    assert FP8.bytes_of(129) == 129 + 2 * 4
    assert Payload(DType.FP8, 128, scale_bytes=1).bytes_of(128) == 129


def test_published_low_latency_buffers() -> None:
    """128 tokens for 288 experts; later code has 224 bytes of metadata in place of 16."""
    assert low_latency_buffer_bytes(288, 128, 14336 + 16) == 2_116_290_816
    assert low_latency_buffer_bytes(288, 128, 14336 + 224) == 2_146_961_664
