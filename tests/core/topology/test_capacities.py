"""Ports, cards and slots: what links share, and what that does to bounds."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode, InvalidInput, Path
from service.core.topology.bounds import Transfer, link_loads
from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.paths import PathFinder
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    Duplex,
    HostSpec,
    LinkSpec,
    RailOptimised,
)

GB = 1e9
SLOT = 31.5 * GB
PORT = 25 * GB


def pcie(source: str, target: str, rate: float = SLOT, **more: object) -> LinkSpec:
    return LinkSpec(
        source=source,
        target=target,
        kind=LinkKind.PCIE,
        bandwidth_bytes_per_second=rate,
        **more,  # type: ignore[arg-type]
    )


def nic(name: str, **more: object) -> DeviceSpec:
    return DeviceSpec(name=name, kind=VertexKind.NIC, port_bytes_per_second=PORT, **more)  # type: ignore[arg-type]


def gpu(number: int, rail: int) -> DeviceSpec:
    return DeviceSpec(name=f"gpu{number}", kind=VertexKind.GPU, rail=rail)


def host(*nics: DeviceSpec, switches: int = 1) -> HostSpec:
    """Two GPUs and some NICs, all on PCIe switches in turn."""
    gpus = (gpu(0, 0), gpu(1, 1))
    pcies = tuple(DeviceSpec(name=f"pcie{n}", kind=VertexKind.PCIE_SWITCH) for n in range(switches))
    links = [pcie(one.name, f"pcie{n % switches}", 2 * SLOT) for n, one in enumerate(gpus)]
    links += [pcie(one.name, f"pcie{n % switches}") for n, one in enumerate(nics)]
    return HostSpec(name="h", count=2, devices=(*gpus, *nics, *pcies), links=tuple(links))


def seconds(*hosts: HostSpec) -> tuple[float, str]:
    """The bound of 1 GB from each GPU of h0 to its counterpart, and what binds."""
    cluster = expand(ClusterSpec(hosts=hosts, fabric=RailOptimised())).cluster
    finder = PathFinder(cluster)
    paths = [finder.path(f"h0/gpu{n}", f"h1/gpu{n}") for n in (0, 1)]
    loads = link_loads([Transfer(path, 10**9) for path in paths if path is not None])
    assert loads.binding is not None
    return loads.lower_bound_seconds, loads.binding.name


def test_two_ports_of_one_card_share_its_slot() -> None:
    """Ports of 25 GB/s carry a gigabyte in 40 ms; a slot of 31.5 GB/s both of them in 63.5."""
    apart = seconds(host(nic("nic0"), nic("nic1")))
    assert apart == (1 / 25, "h0/nic0->rail0")
    assert seconds(host(nic("nic0", card="card0"), nic("nic1", card="card1")))[0] == 1 / 25
    one_card = host(nic("nic0", card="card0"), nic("nic1", card="card0"))
    assert seconds(one_card) == (2 / 31.5, "h0/pcie0->h0/card0")


def test_a_card_with_two_slots_has_the_capacity_of_both() -> None:
    both = host(
        nic("nic0", card="card0", slot="slot0"), nic("nic1", card="card0", slot="slot1"), switches=2
    )
    assert seconds(both)[0] == 1 / 25
    one = host(nic("nic0", card="card0", slot="slot0"), nic("nic1", card="card1", slot="slot0"))
    assert seconds(one) == (2 / 31.5, "h0/pcie0->h0/slot0")


def test_functions_of_one_port_have_the_line_of_one() -> None:
    """A VF and its PF: two devices on one rail, one line, one connection to the host."""
    functions = host(nic("pf0", port="port0"), nic("vf0", port="port0"))
    cluster = expand(ClusterSpec(hosts=(functions,), fabric=RailOptimised())).cluster
    assert cluster.vertices["h0/pf0"].rail == cluster.vertices["h0/vf0"].rail == 0
    assert "rail1" not in cluster.vertices
    assert cluster.links["h1/vf0", "rail0"].resource == "h1/port0->rail0"
    assert cluster.links["rail0", "h1/pf0"].resource == "rail0->h1/port0"
    assert cluster.links["h1/pf0", "h1/pcie0"].resource == "h1/port0->h1/pcie0"
    # Each GPU through a function of its own, and still one line.
    finder = PathFinder(cluster)
    used = [finder.path(f"h0/{one}", "h1/gpu0") for one in ("pf0", "vf0")]
    loads = link_loads([Transfer(path, 10**9) for path in used if path is not None])
    assert loads.lower_bound_seconds == 2 / 25
    assert {load.name for load in loads.shared} >= {"h0/port0->rail0", "rail0->h1/port0"}


def test_the_devices_of_a_card_share_no_more_than_its_slot() -> None:
    """NVLink of two GPUs on one card is private, and so is a link among the two."""
    nvlink = replace(pcie("gpu0", "gpu1"), kind=LinkKind.NVLINK)
    bare = host(nic("nic0"))
    devices = tuple(
        replace(one, card="card0") if one.kind is VertexKind.GPU else one for one in bare.devices
    )
    spec = replace(bare, devices=devices, links=(*bare.links, nvlink))
    links = expand(ClusterSpec(hosts=(spec,))).cluster.links
    assert links["h0/gpu0", "h0/gpu1"].shared_capacity is None
    assert links["h0/gpu0", "h0/pcie0"].resource == "h0/card0->h0/pcie0"
    assert links["h0/gpu1", "h0/pcie0"].resource == "h0/card0->h0/pcie0"
    among = replace(spec, links=(*bare.links, replace(nvlink, kind=LinkKind.PCIE)))
    links = expand(ClusterSpec(hosts=(among,))).cluster.links
    assert links["h0/gpu1", "h0/gpu0"].shared_capacity is None


def test_the_slot_of_a_card_may_be_half_duplex() -> None:
    half = host(nic("nic0", card="card0"), nic("nic1", card="card0"))
    links = tuple(
        replace(one, duplex=Duplex.HALF) if one.source.startswith("nic") else one
        for one in half.links
    )
    cluster = expand(ClusterSpec(hosts=(replace(half, links=links),))).cluster
    pairs = [(f"h0/nic{n}", "h0/pcie0") for n in (0, 1)]
    names = {cluster.links[ends].resource for pair in pairs for ends in (pair, pair[::-1])}
    assert names == {"h0/card0<->h0/pcie0"}


def faults_of(spec: HostSpec) -> list[tuple[FaultCode, Path]]:
    with pytest.raises(InvalidInput) as refused:
        expand(ClusterSpec(hosts=(spec,), fabric=RailOptimised()))
    return [(fault.code, fault.path) for fault in refused.value.faults]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (
            (nic("nic0", card="gpu0"), nic("nic1", card="pcie0")),
            [(FaultCode.DUPLICATE_NAME, n, "card") for n in (2, 3)],
        ),
        (
            (nic("nic0", card="one"), nic("nic1", slot="one")),
            [(FaultCode.DUPLICATE_NAME, 3, "slot")],
        ),
        (
            (nic("nic0", port="one", card="a"), nic("nic1", port="one", card="b")),
            [(FaultCode.INCONSISTENT, 3, "card")],
        ),
        (
            (nic("nic0", port="one"), replace(nic("nic1", port="one"), port_bytes_per_second=1e9)),
            [(FaultCode.INCONSISTENT, 3, "port_bytes_per_second")],
        ),
        (
            (nic("nic0"), replace(nic("nic1", port="one"), kind=VertexKind.CPU)),
            [(FaultCode.INCONSISTENT, 3, "port")],
        ),
    ],
    ids=["devices", "kinds", "cards", "rates", "no NIC"],
)
def test_ports_cards_and_slots_at_fault(
    devices: tuple[DeviceSpec, ...], expected: list[tuple[FaultCode, int, str]]
) -> None:
    found = faults_of(host(*devices))
    assert found == [(code, ("hosts", 0, "devices", n, field)) for code, n, field in expected]


def test_one_capacity_has_one_rate() -> None:
    spec = host(nic("nic0", card="card0"), nic("nic1", card="card0"))
    other = replace(spec.links[-1], bandwidth_bytes_per_second=SLOT / 2)
    # Told once, although both hosts have it.
    where = ("hosts", 0, "links", 3, "bandwidth_bytes_per_second")
    found = faults_of(replace(spec, links=(*spec.links[:-1], other)))
    assert found == [(FaultCode.INCONSISTENT, where)]
