"""Number formats and how many bytes one element takes."""

from enum import StrEnum

__all__ = ["DType"]


class DType(StrEnum):
    """The element types of tensors and parameters."""

    FP64 = "fp64"
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def bytes_per_element(self) -> int:
        """The size of one element, in bytes."""
        return _BYTES[self]

    @property
    def is_floating(self) -> bool:
        """Whether a tensor of this type can have a gradient."""
        return self in _FLOATING


_BYTES = {
    DType.FP64: 8,
    DType.FP32: 4,
    DType.FP16: 2,
    DType.BF16: 2,
    DType.FP8: 1,
    DType.INT64: 8,
    DType.INT32: 4,
    DType.INT16: 2,
    DType.INT8: 1,
    DType.UINT8: 1,
    DType.BOOL: 1,
}
_FLOATING = frozenset({DType.FP64, DType.FP32, DType.FP16, DType.BF16, DType.FP8})
