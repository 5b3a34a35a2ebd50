"""What an InfiniBand link of some width and speed carries.

Rates are data rates after line coding (8b/10b up to QDR, 64b/66b from FDR10 on) and before packet
overhead: what a lower bound on time may use.
"""

from service.core.topology.readings import Rate, RateOrigin

__all__ = ["SPEEDS", "WIDTHS", "infiniband_rate"]

WIDTHS = (1, 2, 4, 8, 12)

# Signalling of one lane (bits per second) and the share of it that is data. HDR and faster send two
# bits a symbol, and their error correction is inside the signalling rate: 50, 100, 200 Gb/s remain.
SPEEDS = {
    "SDR": 2.5e9 * 8 / 10,
    "DDR": 5e9 * 8 / 10,
    "QDR": 10e9 * 8 / 10,
    "FDR10": 10.3125e9 * 64 / 66,
    "FDR": 14.0625e9 * 64 / 66,
    "EDR": 25.78125e9 * 64 / 66,
    "HDR": 50e9,
    "NDR": 100e9,
    "XDR": 200e9,
}


def infiniband_rate(width: int, speed: str) -> Rate | None:
    """The rate of `width` lanes in one direction; None for a width or a speed that is none.

    InfiniBand Architecture Specification, volume 2, link widths and speeds.
    """
    if width not in WIDTHS or speed not in SPEEDS:
        return None
    return Rate(width * SPEEDS[speed] / 8, RateOrigin.READ, f"InfiniBand {width}x {speed}")
