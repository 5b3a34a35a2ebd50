"""What a single stated link can have wrong in itself."""

from service.core.errors import Fault, FaultCode, Path
from service.core.topology.cluster import RateOrigin
from service.core.topology.spec import Duplex, LinkSpec

__all__ = [
    "MAX_BYTES_PER_SECOND",
    "MAX_LATENCY_SECONDS",
    "MIN_BYTES_PER_SECOND",
    "direction_faults",
    "link_faults",
]

MIN_BYTES_PER_SECOND = 1.0
MAX_BYTES_PER_SECOND = 1e15
MAX_LATENCY_SECONDS = 1.0


def link_faults(link: LinkSpec) -> list[Fault]:
    """Every fault of `link` by itself, both ways, with paths relative to it.

    Rates lie in [1, 1e15] bytes per second and latencies in [0, 1] seconds. Effective and measured
    rates are at most the nominal one, and a typical latency is at least the guaranteed floor: else
    a prediction could lie below its bound. A nominal rate that the caller does not simply state
    names its source. The directions of a half-duplex link have one nominal rate.
    """
    faults = direction_faults(link)
    if link.lanes < 1:
        detail = f"a link has at least one lane; got {link.lanes}"
        faults.append(Fault(FaultCode.OUT_OF_RANGE, ("lanes",), detail))
    if link.source == link.target:
        detail = f"a link joins two different ends; both are {link.source!r}"
        faults.append(Fault(FaultCode.INCONSISTENT, ("target",), detail))
    if link.reverse is None:
        return faults
    if link.duplex is Duplex.SIMPLEX:
        detail = "a simplex link has no reverse direction: leave this out, or the duplex"
        faults.append(Fault(FaultCode.INCONSISTENT, ("reverse",), detail))
        return faults
    # What the reverse direction takes over from the other one is told there.
    known = {(fault.path, fault.detail) for fault in faults}
    faults += [
        fault.under("reverse")
        for fault in direction_faults(link.backward())
        if (fault.path, fault.detail) not in known
    ]
    nominal = link.reverse.bandwidth_bytes_per_second
    if link.duplex is Duplex.HALF and nominal not in (None, link.bandwidth_bytes_per_second):
        detail = (
            "the directions of a half-duplex link share one nominal rate"
            f" ({link.bandwidth_bytes_per_second!r}); got {nominal!r}"
        )
        where = ("reverse", "bandwidth_bytes_per_second")
        faults.append(Fault(FaultCode.INCONSISTENT, where, detail))
    return faults


def direction_faults(link: LinkSpec) -> list[Fault]:
    """What the rates and latencies from source to target have wrong; see `link_faults`."""
    faults = []

    def refuse(code: FaultCode, where: str | Path, detail: str) -> None:
        path = (where,) if isinstance(where, str) else where
        faults.append(Fault(code, path, detail))

    nominal = link.bandwidth_bytes_per_second
    measured = None if link.measured is None else link.measured.bytes_per_second
    rates: tuple[tuple[str | Path, float | None, str], ...] = (
        ("bandwidth_bytes_per_second", nominal, "nominal"),
        ("effective_bytes_per_second", link.effective_bytes_per_second, "effective"),
        (("measured_bytes_per_second", "value"), measured, "measured"),
    )
    for where, rate, what in rates:
        if rate is None:
            continue
        if not MIN_BYTES_PER_SECOND <= rate <= MAX_BYTES_PER_SECOND:
            detail = f"a rate lies between 1 and {MAX_BYTES_PER_SECOND:g} bytes per second; got"
            refuse(FaultCode.OUT_OF_RANGE, where, f"{detail} {rate!r}")
        elif rate > nominal:
            detail = f"the {what} rate is at most the nominal one ({nominal!r}); got {rate!r}"
            refuse(FaultCode.INCONSISTENT, where, detail)
    if link.bandwidth_origin is not RateOrigin.STATED and link.bandwidth_source is None:
        detail = f"a rate that is {link.bandwidth_origin.value} names where it comes from"
        refuse(FaultCode.MISSING_FIELD, "bandwidth_source", detail)
    floor, latency = link.latency_floor_seconds, link.latency_seconds
    for field, seconds in (("latency_floor_seconds", floor), ("latency_seconds", latency)):
        if seconds is not None and not 0 <= seconds <= MAX_LATENCY_SECONDS:
            detail = f"a latency lies between 0 and {MAX_LATENCY_SECONDS:g} second; got {seconds!r}"
            refuse(FaultCode.OUT_OF_RANGE, field, detail)
    if latency is not None and latency < floor:
        detail = f"a typical latency is at least the guaranteed floor ({floor!r}); got {latency!r}"
        refuse(FaultCode.INCONSISTENT, "latency_seconds", detail)
    return faults
