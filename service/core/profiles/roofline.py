"""Times that nobody measured: the longer of computing and of moving bytes.

The roofline of Williams, Waterman and Patterson (2009).
"""

from dataclasses import dataclass

from service.core.units import MAX_SECONDS, PICOSECONDS_PER_SECOND

__all__ = ["COMPUTE_EFFICIENCY", "MEMORY_EFFICIENCY", "Roofline"]

# Of the peak of its matrix units a device reaches about half in training: 44 to 52 % of an A100
# over whole iterations (Narayanan et al. 2021, table 1).
COMPUTE_EFFICIENCY = 0.5

# Of its nominal bandwidth a device's memory gives about nine tenths to plain copies: 790 of 900
# GB/s on a V100 (Warburton 2018, "Rough-n-Ready Roofline: NVIDIA V100 edition").
MEMORY_EFFICIENCY = 790 / 900


@dataclass(frozen=True, slots=True)
class Roofline:
    """What a device sustains: FLOPs and bytes of its memory, per second."""

    flops_per_second: float
    bytes_per_second: float

    def picoseconds(self, flops: int, moved_bytes: int) -> int:
        """The longer of both; at least 1 where there is anything to do.

        Raises `OverflowError` for more than a time may be.
        """
        if not flops and not moved_bytes:
            return 0
        seconds = max(flops / self.flops_per_second, moved_bytes / self.bytes_per_second)
        if not seconds <= MAX_SECONDS:
            raise OverflowError(f"{seconds:g} s is more than {MAX_SECONDS:g} s")
        return max(1, round(seconds * PICOSECONDS_PER_SECOND))
