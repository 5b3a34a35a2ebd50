"""Topology documents written from the core, and read back."""

from dataclasses import replace
from functools import partial

import msgspec

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    Duplex,
    FailedHost,
    HostSpec,
    LinkSpec,
    MeasuredRate,
    NvlinkDomain,
    RailOptimised,
    ReverseSpec,
    SwitchSpec,
)
from service.formats.documents.canonical import canonical_bytes
from service.formats.documents.topology import TopologyDocument, to_core
from service.formats.documents.topology_from_core import MAX_ENTRIES, from_core
from tests.core.refusals import refusals

FULL = ClusterSpec(
    hosts=(
        HostSpec(
            name="a",
            count=2,
            devices=(
                DeviceSpec(
                    name="gpu0",
                    kind=VertexKind.GPU,
                    product="H100",
                    rail=1,
                    memory_bytes=80,
                    memory_bytes_per_second=3e12,
                    peak_flops={"bf16": 1e15},
                ),
                DeviceSpec(
                    name="nic0",
                    kind=VertexKind.NIC,
                    port_bytes_per_second=50e9,
                    port_effective_bytes_per_second=48e9,
                    port_origin=RateOrigin.READ,
                    port_source="400000 Mb/s",
                    port_lanes=2,
                    port="port0",
                    card="card0",
                    slot="slot0",
                ),
            ),
            links=(
                LinkSpec(
                    source="gpu0",
                    target="nic0",
                    kind=LinkKind.PCIE,
                    bandwidth_bytes_per_second=63e9,
                    effective_bytes_per_second=55e9,
                    measured=MeasuredRate(54e9, "someone", "2026-01-02"),
                    latency_floor_seconds=1e-9,
                    latency_seconds=1e-6,
                    lanes=2,
                    duplex=Duplex.HALF,
                    bandwidth_origin=RateOrigin.ASSUMED,
                    bandwidth_source="a guess",
                    reverse=ReverseSpec(
                        effective_bytes_per_second=50e9,
                        measured=MeasuredRate(49e9, "someone", "2026-01-03"),
                    ),
                ),
            ),
        ),
        HostSpec(name="b", alike=("c", "d"), design="dgx-h100"),
    ),
    switches=(SwitchSpec("leaf", VertexKind.LEAF, 3), SwitchSpec("other")),
    links=(
        LinkSpec(
            source="a0/nic0",
            target="leaf",
            kind=LinkKind.NETWORK,
            bandwidth_bytes_per_second=50e9,
        ),
    ),
)


def test_what_is_written_means_the_same() -> None:
    document = from_core(FULL)
    assert to_core(document) == FULL
    again = msgspec.json.decode(canonical_bytes(document), type=TopologyDocument)
    assert to_core(again) == FULL


def test_what_has_its_default_is_not_written() -> None:
    assert msgspec.json.decode(canonical_bytes(from_core(FULL)))["links"] == [
        {
            "source": "a0/nic0",
            "target": "leaf",
            "kind": "network",
            "bandwidth_bytes_per_second": 50e9,
        }
    ]


def test_what_is_made_from_a_few_numbers_is_not_written_out() -> None:
    for made in (
        replace(FULL, fabric=RailOptimised()),
        replace(FULL, device_network=NvlinkDomain()),
        replace(FULL, edits=(FailedHost("a0"),)),
    ):
        assert refusals(partial(from_core, made)) == [(FaultCode.NOT_SUPPORTED, ())]


def test_what_no_document_may_hold_is_refused() -> None:
    bad = ClusterSpec(hosts=(HostSpec(name="Not_legal", design="dgx-h100"),))
    assert refusals(lambda: from_core(bad)) == [(FaultCode.OUT_OF_RANGE, ())]
    device = DeviceSpec(name="gpu0", kind=VertexKind.GPU)
    devices = (device,) * 1000
    hosts = tuple(HostSpec(name=f"h{n}", devices=devices) for n in range(MAX_ENTRIES // 1000 + 1))
    assert refusals(lambda: from_core(ClusterSpec(hosts=hosts))) == [(FaultCode.OUT_OF_RANGE, ())]


def test_assumptions_are_kept_on_a_line_each_up_to_a_number() -> None:
    spec = replace(FULL, assumptions=("one\ntwo", "x" * 900))
    assert from_core(spec).assumptions == ("one two", "x" * 500)
    many = from_core(replace(FULL, assumptions=tuple(f"a{n}" for n in range(100)))).assumptions
    assert len(many) == 64
    assert many[-1] == "and 37 more, which the answer to the import listed"
    assert from_core(FULL).assumptions == ()


def test_what_files_tell_of_a_host_can_be_written() -> None:
    """Every kind of vertex that stands inside a host, and every kind of link."""
    inside = [
        kind
        for kind in VertexKind
        if kind not in (VertexKind.LEAF, VertexKind.SPINE, VertexKind.CORE, VertexKind.ROUTER)
    ]
    devices = tuple(DeviceSpec(name=f"d{n}", kind=kind) for n, kind in enumerate(inside))
    links = tuple(
        LinkSpec(source="d0", target=f"d{1 + n % 5}", kind=kind, bandwidth_bytes_per_second=1e9 + n)
        for n, kind in enumerate(LinkKind)
    )
    spec = ClusterSpec(hosts=(HostSpec(name="a", devices=devices, links=links),))
    written = canonical_bytes(from_core(spec))
    assert to_core(msgspec.json.decode(written, type=TopologyDocument)) == spec
