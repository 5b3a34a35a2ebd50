"""The PCI functions of a host as a tree, and the switches, devices and links it stands for.

Operating systems show each port of a PCIe switch as a bridge. What matters for traffic is which
links are shared, so

- a bridge with one thing below it is a part of that thing's link (a port, or the switch inside an
  accelerator's package);
- the second level that Broadcom's switches show is taken into the first: they carry all of their
  ports at full rate (nccl#439, nccl#820, and NCCL itself does so);
- every other bridge is a switch.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.readings import FoundDevice, FoundLink, Rate, RateOrigin

__all__ = [
    "PciFunction",
    "PciWiring",
    "card_of",
    "connection_of_rate",
    "lead_to_devices",
    "normal_address",
    "pcie_rate",
    "wire",
]

# Switches of Broadcom that show a second level of themselves: PCIe generations 4 and 5.
_TWO_LEVELS = {(0x1000, 0xC010), (0x1000, 0xC030)}
_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-9a-f])")
# Share of the transfers that is data: 8 of 10 bits, 128 of 130, 242 of 256 bytes of a flit.
_CODING = ((5.5, 8 / 10), (33.0, 128 / 130), (65.0, 242 / 256))
_GENERATIONS = (2.5, 5.0, 8.0, 16.0, 32.0, 64.0)
_WIDTHS = {1, 2, 4, 8, 12, 16, 32}


@dataclass(slots=True)
class PciFunction:
    """One function: a bridge with functions below it, or a device with what the system calls it.

    `rate` is that of its connection upwards, None when it is not known or not believed.
    `identity` is vendor and device. `endpoints` are the accelerator or the ports of the NIC.
    """

    address: str
    line: int
    identity: tuple[int, int] | None = None
    rate: Rate | None = None
    children: list["PciFunction"] = field(default_factory=list)
    endpoints: list[FoundDevice] = field(default_factory=list)


@dataclass(slots=True)
class PciWiring:
    """Switches and links made from the functions below all CPUs."""

    switches: list[FoundDevice] = field(default_factory=list)
    links: list[FoundLink] = field(default_factory=list)
    # Vertex of each bridge that became a switch, for links that name bridges.
    vertex_of: dict[str, str] = field(default_factory=dict)


def normal_address(text: str) -> str | None:
    """`1:0F:00.0` as `0001:0f:00.0`; None for what is no address."""
    found = _ADDRESS.fullmatch(text.strip().lower())
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def card_of(address: str) -> str:
    """The card that functions of one device number belong to: the address without its function."""
    return address.rpartition(".")[0]


def pcie_rate(gigatransfers_per_second: float, lanes: int) -> float | None:
    """Bytes per second in one direction after line coding; None for what PCIe has no word for."""
    if lanes not in _WIDTHS or not 2 <= gigatransfers_per_second <= _CODING[-1][0]:
        return None
    coding = next(share for most, share in _CODING if gigatransfers_per_second <= most)
    return gigatransfers_per_second * 1e9 * lanes / 8 * coding


def connection_of_rate(bytes_per_second: float) -> tuple[float, int, float] | None:
    """GT/s, lanes and exact rate of the PCIe connection with this rate, to five digits.

    Of several the slowest transfers with the most lanes; None when no connection has it.
    """
    for gigatransfers in _GENERATIONS:
        for lanes in sorted(_WIDTHS, reverse=True):
            exact = pcie_rate(gigatransfers, lanes)
            if exact is not None and abs(exact - bytes_per_second) <= 1e-5 * exact:
                return gigatransfers, lanes, exact
    return None


def lead_to_devices(functions: Sequence[PciFunction]) -> bool:
    """Whether an accelerator or a NIC is among the functions or below them."""
    return any(map(_has_endpoints, functions))


def wire(wiring: PciWiring, cpu: str, functions: Sequence[PciFunction]) -> None:
    """Add to `wiring` what hangs below one CPU."""
    for function in functions:
        _place(wiring, cpu, function, (), above=None)


def _place(
    wiring: PciWiring,
    parent: str,
    function: PciFunction,
    before: tuple[Rate | None, ...],
    above: PciFunction | None,
) -> None:
    """Join one function to the vertex above it; `above` is the switch's own, None below a CPU.

    `before` are the rates of bridges passed on the way down that are part of the same link.
    """
    if not _has_endpoints(function):
        return
    rates = (*before, function.rate)
    if not function.endpoints:
        below = [child for child in function.children if _has_endpoints(child)]
        if len(below) == 1:
            _place(wiring, parent, below[0], rates, above)
            return
        if (
            above is not None
            and function.identity in _TWO_LEVELS
            and function.identity == above.identity
        ):
            for child in below:
                _place(wiring, parent, child, (), above)
            return
        name = f"pcie{len(wiring.switches)}"
        wiring.switches.append(
            FoundDevice(
                name=name,
                kind=VertexKind.PCIE_SWITCH,
                line=function.line,
                pci_address=function.address,
            )
        )
        wiring.vertex_of[function.address] = name
        rate = _slowest(rates) or _fastest_below(function)
        wiring.links.append(_link(name, parent, above is None, function.line, rate))
        for child in below:
            _place(wiring, name, child, (), function)
        return
    for device in function.endpoints:
        wiring.links.append(
            _link(device.name, parent, above is None, function.line, _slowest(rates))
        )


def _link(source: str, parent: str, is_cpu: bool, line: int, rate: Rate | None) -> FoundLink:
    kind = LinkKind.HOST_BRIDGE if is_cpu else LinkKind.PCIE
    return FoundLink(source=source, target=parent, kind=kind, line=line, rate=rate)


def _has_endpoints(function: PciFunction) -> bool:
    return bool(function.endpoints) or any(_has_endpoints(child) for child in function.children)


def _slowest(rates: Sequence[Rate | None]) -> Rate | None:
    known = [rate for rate in rates if rate is not None]
    return min(known, key=lambda rate: rate.bytes_per_second, default=None)


def _fastest_below(function: PciFunction) -> Rate | None:
    """What a switch that does not say it is taken to have upwards: as much as one device below."""
    known = [below.rate for below in _below(function) if below.rate is not None]
    fastest = max(known, key=lambda rate: rate.bytes_per_second, default=None)
    if fastest is None:
        return None
    return Rate(
        fastest.bytes_per_second,
        RateOrigin.ASSUMED,
        "the rate of the fastest connection below the switch",
    )


def _below(function: PciFunction) -> Iterator[PciFunction]:
    for child in function.children:
        yield child
        yield from _below(child)
