"""The topology document: what it accepts, what it refuses, and how it reaches the core."""

import json
from typing import Any

import msgspec
import pytest

from service.core.errors import InvalidInput
from service.core.topology import spec
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.expand import expand
from service.formats.documents.topology import TopologyDocument, to_core

SMALLEST: dict[str, Any] = {"hosts": [{"name": "host", "design": "dgx-h100"}]}

WHOLE: dict[str, Any] = {
    "hosts": [
        {"name": "host", "count": 2, "design": "p4d"},
        {
            "name": "box",
            "devices": [
                {
                    "name": "gpu0",
                    "kind": "gpu",
                    "product": "Some GPU",
                    "rail": 0,
                    "memory_bytes": 80_000_000_000,
                    "memory_bytes_per_second": 2e12,
                    "peak_flops": {"bf16": 3e14},
                },
                {
                    "name": "nic0",
                    "kind": "nic",
                    "port_bytes_per_second": 2.5e10,
                    "port_effective_bytes_per_second": 2.4e10,
                    "port_origin": "product",
                    "port_source": "200 Gb/s port",
                    "port_lanes": 4,
                    "port": "port0",
                    "card": "card0",
                    "slot": "slot0",
                },
            ],
            "links": [
                {
                    "source": "gpu0",
                    "target": "nic0",
                    "kind": "pcie",
                    "bandwidth_bytes_per_second": 3.15e10,
                }
            ],
        },
    ],
    "switches": [{"name": "core-a", "kind": "spine", "rail": 1}],
    "links": [
        {
            "source": "leaf0",
            "target": "core-a",
            "kind": "fabric",
            "bandwidth_bytes_per_second": 1e11,
            "bandwidth_origin": "read",
            "bandwidth_source": "a list of cables",
            "effective_bytes_per_second": 9e10,
            "measured_bytes_per_second": {"value": 8.5e10, "source": "us", "date": "2025-02-28"},
            "latency_floor_seconds": 1e-7,
            "latency_seconds": 6e-7,
            "lanes": 2,
            "duplex": "half",
            "reverse": {
                "bandwidth_bytes_per_second": 1e11,
                "bandwidth_origin": "product",
                "bandwidth_source": "a data sheet",
                "effective_bytes_per_second": 8e10,
                "measured_bytes_per_second": {
                    "value": 7.5e10,
                    "source": "them",
                    "date": "2025-03-01",
                },
                "latency_floor_seconds": 2e-7,
                "latency_seconds": 7e-7,
            },
        }
    ],
    "edits": [
        {"kind": "failed_host", "name": "host0"},
        {"kind": "failed_device", "name": "spine1"},
        {"kind": "failed_link", "source": "host1/nic0", "target": "leaf0", "one_way": True},
        {
            "kind": "changed_link",
            "source": "leaf0",
            "target": "spine0",
            "bandwidth_bytes_per_second": 1e10,
            "bandwidth_origin": "read",
            "bandwidth_source": "a switch",
            "effective_bytes_per_second": 9e9,
            "measured_bytes_per_second": {"value": 8e9, "source": "us", "date": "2025-03-02"},
            "latency_floor_seconds": 1e-7,
            "latency_seconds": 2e-7,
        },
        {
            "kind": "changed_link",
            "source": "host1/gpu0",
            "target": "host1/nvswitch0",
            "one_way": True,
            "lanes": 11,
        },
    ],
    "fabric": {
        "kind": "leaf_spine",
        "hosts_per_leaf": 2,
        "spines": 2,
        "oversubscription_ratio": 2.0,
        "link_bytes_per_second": 1.25e10,
        "link_effective_bytes_per_second": 1.2e10,
        "latency_seconds": 5e-7,
    },
}


def decode(document: object) -> TopologyDocument:
    return msgspec.json.decode(json.dumps(document).encode(), type=TopologyDocument)


def at(document: dict[str, Any], *path: str | int) -> Any:
    for step in path[:-1]:
        document = document[step]  # type: ignore[index]
    return document


def changed(path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """`WHOLE` with one value put in."""
    document: dict[str, Any] = json.loads(json.dumps(WHOLE))
    at(document, *path)[path[-1]] = value
    return document


def test_the_smallest_document() -> None:
    document = decode(SMALLEST)
    assert to_core(document) == spec.ClusterSpec(
        hosts=(spec.HostSpec(name="host", design="dgx-h100"),)
    )
    assert json.loads(msgspec.json.encode(document)) == SMALLEST


def test_a_whole_document_keeps_everything() -> None:
    document = decode(WHOLE)
    assert json.loads(msgspec.json.encode(document)) == WHOLE
    assert to_core(document) == spec.ClusterSpec(
        hosts=(
            spec.HostSpec(name="host", count=2, design="p4d"),
            spec.HostSpec(
                name="box",
                devices=(
                    spec.DeviceSpec(
                        name="gpu0",
                        kind=VertexKind.GPU,
                        product="Some GPU",
                        rail=0,
                        memory_bytes=80_000_000_000,
                        memory_bytes_per_second=2e12,
                        peak_flops={"bf16": 3e14},
                    ),
                    spec.DeviceSpec(
                        name="nic0",
                        kind=VertexKind.NIC,
                        port_bytes_per_second=2.5e10,
                        port_effective_bytes_per_second=2.4e10,
                        port_origin=RateOrigin.PRODUCT,
                        port_source="200 Gb/s port",
                        port_lanes=4,
                        port="port0",
                        card="card0",
                        slot="slot0",
                    ),
                ),
                links=(
                    spec.LinkSpec(
                        source="gpu0",
                        target="nic0",
                        kind=LinkKind.PCIE,
                        bandwidth_bytes_per_second=3.15e10,
                    ),
                ),
            ),
        ),
        switches=(spec.SwitchSpec("core-a", VertexKind.SPINE, 1),),
        links=(
            spec.LinkSpec(
                source="leaf0",
                target="core-a",
                kind=LinkKind.FABRIC,
                bandwidth_bytes_per_second=1e11,
                bandwidth_origin=RateOrigin.READ,
                bandwidth_source="a list of cables",
                effective_bytes_per_second=9e10,
                measured=spec.MeasuredRate(8.5e10, "us", "2025-02-28"),
                latency_floor_seconds=1e-7,
                latency_seconds=6e-7,
                lanes=2,
                duplex=spec.Duplex.HALF,
                reverse=spec.ReverseSpec(
                    bandwidth_bytes_per_second=1e11,
                    bandwidth_origin=RateOrigin.PRODUCT,
                    bandwidth_source="a data sheet",
                    effective_bytes_per_second=8e10,
                    measured=spec.MeasuredRate(7.5e10, "them", "2025-03-01"),
                    latency_floor_seconds=2e-7,
                    latency_seconds=7e-7,
                ),
            ),
        ),
        edits=(
            spec.FailedHost("host0"),
            spec.FailedDevice("spine1"),
            spec.FailedLink(source="host1/nic0", target="leaf0", one_way=True),
            spec.ChangedLink(
                source="leaf0",
                target="spine0",
                bandwidth_bytes_per_second=1e10,
                bandwidth_origin=RateOrigin.READ,
                bandwidth_source="a switch",
                effective_bytes_per_second=9e9,
                measured=spec.MeasuredRate(8e9, "us", "2025-03-02"),
                latency_floor_seconds=1e-7,
                latency_seconds=2e-7,
            ),
            spec.ChangedLink(source="host1/gpu0", target="host1/nvswitch0", one_way=True, lanes=11),
        ),
        fabric=spec.LeafSpine(
            hosts_per_leaf=2,
            spines=2,
            rates=spec.FabricRates(
                oversubscription_ratio=2.0,
                link_bytes_per_second=1.25e10,
                link_effective_bytes_per_second=1.2e10,
                latency_seconds=5e-7,
            ),
        ),
    )
    assert len(expand(to_core(document)).cluster.devices) == 9


def test_a_rail_optimised_fabric() -> None:
    fabric = {"kind": "rail_optimised", "spines": 2, "uplink_bytes_per_second": 1e11}
    core = to_core(decode({**SMALLEST, "fabric": fabric}))
    rates = spec.FabricRates(uplink_bytes_per_second=1e11)
    assert core.fabric == spec.RailOptimised(spines=2, rates=rates)


def test_fat_trees() -> None:
    k_ary = {"kind": "fat_tree", "ports_per_switch": 8, "latency_seconds": 1e-6}
    core = to_core(decode({**SMALLEST, "fabric": k_ary}))
    assert core.fabric == spec.FatTree(
        ports_per_switch=8, rates=spec.FabricRates(latency_seconds=1e-6)
    )
    shape = {
        "kind": "fat_tree",
        "hosts_per_leaf": 1,
        "leaves_per_pod": 2,
        "spines_per_pod": 3,
        "cores_per_spine": 4,
        "core_oversubscription_ratio": 2.0,
        "oversubscription_ratio": 1.5,
    }
    document = decode({**SMALLEST, "fabric": shape})
    assert json.loads(msgspec.json.encode(document))["fabric"] == shape
    assert to_core(document).fabric == spec.FatTree(
        hosts_per_leaf=1,
        leaves_per_pod=2,
        spines_per_pod=3,
        cores_per_spine=4,
        core_oversubscription_ratio=2.0,
        rates=spec.FabricRates(oversubscription_ratio=1.5),
    )


def test_networks_of_the_accelerators() -> None:
    domain = {
        "kind": "nvlink_domain",
        "hosts_per_domain": 18,
        "link_bytes_per_second": 9e11,
        "link_effective_bytes_per_second": 8e11,
        "latency_seconds": 1e-6,
        "lanes": 18,
    }
    document = decode({**SMALLEST, "device_network": domain})
    assert json.loads(msgspec.json.encode(document))["device_network"] == domain
    assert to_core(document).device_network == spec.NvlinkDomain(
        hosts_per_domain=18,
        link_bytes_per_second=9e11,
        link_effective_bytes_per_second=8e11,
        latency_seconds=1e-6,
        lanes=18,
    )
    torus = {
        "kind": "torus",
        "dimensions": [2, 4],
        "link_bytes_per_second": 8e10,
        "link_effective_bytes_per_second": 7e10,
        "latency_seconds": 1e-6,
        "wraparound": False,
    }
    document = decode({**SMALLEST, "device_network": torus})
    assert json.loads(msgspec.json.encode(document))["device_network"] == torus
    assert to_core(document).device_network == spec.Torus(
        dimensions=(2, 4),
        link_bytes_per_second=8e10,
        link_effective_bytes_per_second=7e10,
        latency_seconds=1e-6,
        wraparound=False,
    )
    assert len(expand(to_core(document)).cluster.devices) == 8


@pytest.mark.parametrize(
    "network",
    [
        {"kind": "star"},
        {"kind": "torus", "dimensions": [8]},
        {"kind": "torus", "dimensions": [], "link_bytes_per_second": 8e10},
        {"kind": "torus", "dimensions": [2, 2, 2, 1], "link_bytes_per_second": 8e10},
        {"kind": "torus", "dimensions": [0], "link_bytes_per_second": 8e10},
        {"kind": "nvlink_domain", "hosts_per_domain": 0},
        {"kind": "nvlink_domain", "spines": 2},
    ],
)
def test_what_the_shape_of_a_network_refuses(network: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode({**SMALLEST, "device_network": network})


def test_defaults_are_not_written() -> None:
    said = {"name": "s", "kind": "switch"}
    document = decode({**SMALLEST, "switches": [said], "links": []})
    encoded = json.loads(msgspec.json.encode(document))
    assert encoded == {**SMALLEST, "switches": [{"name": "s"}]}


REFUSED: list[tuple[tuple[str | int, ...], object]] = [
    (("unknown",), 1),
    (("hosts",), []),
    (("hosts",), {}),
    (("hosts", 0, "name"), "Host"),
    (("hosts", 0, "name"), "host\n"),
    (("hosts", 0, "name"), "ho\u0000st"),
    (("hosts", 0, "name"), "h" * 64),
    (("hosts", 0, "name"), ""),
    (("hosts", 0, "count"), 0),
    (("hosts", 0, "count"), 4097),
    (("hosts", 0, "count"), "2"),
    (("hosts", 0, "count"), 2.5),
    (("hosts", 0, "count"), None),
    (("hosts", 0, "count"), True),
    (("hosts", 0, "design"), None),
    (("hosts", 1, "devices", 0, "kind"), "toaster"),
    (("hosts", 1, "devices", 0, "name"), "host0/gpu0"),
    (("hosts", 1, "devices", 0, "product"), "x" * 201),
    (("hosts", 1, "devices", 0, "product"), "GPU\n"),
    (("hosts", 1, "devices", 0, "memory_bytes"), 2**53),
    (("hosts", 1, "devices", 0, "memory_bytes"), 0),
    (("hosts", 1, "devices", 0, "peak_flops"), {"BF16": 1e12}),
    (("hosts", 1, "devices", 0, "peak_flops"), {"bf16": 0}),
    (("hosts", 1, "devices", 0, "peak_flops"), {f"d{i}": 1e12 for i in range(17)}),
    (("links", 0, "kind"), "string"),
    (("links", 0, "source"), "a/b/c"),
    (("links", 0, "source"), "a/"),
    (("links", 0, "bandwidth_bytes_per_second"), 0),
    (("links", 0, "bandwidth_bytes_per_second"), -1e9),
    (("links", 0, "bandwidth_bytes_per_second"), 1e16),
    (("links", 0, "bandwidth_bytes_per_second"), "1e9"),
    (("links", 0, "effective_bytes_per_second"), None),
    (("links", 0, "latency_seconds"), -1e-9),
    (("links", 0, "latency_floor_seconds"), 1.5),
    (("links", 0, "lanes"), 0),
    (("links", 0, "duplex"), "quarter"),
    (("links", 0, "bandwidth_origin"), "guessed"),
    (("links", 0, "bandwidth_source"), ""),
    (("hosts", 1, "devices", 1, "port_origin"), "guessed"),
    (("hosts", 1, "devices", 1, "card"), "a/b"),
    (("links", 0, "reverse", "lanes"), 1),
    (("links", 0, "reverse", "latency_seconds"), None),
    (("links", 0, "measured_bytes_per_second"), 1e9),
    (("links", 0, "measured_bytes_per_second", "date"), "28.2.2025"),
    (("links", 0, "measured_bytes_per_second", "source"), ""),
    (("fabric", "kind"), "star"),
    (("edits", 0, "kind"), "removed_host"),
    (("edits", 0, "source"), "leaf0"),
    (("edits", 1, "name"), "a/b/c"),
    (("edits", 2, "one_way"), "yes"),
    (("edits", 4, "lanes"), 0),
    (("edits", 4, "duplex"), "half"),
    (("fabric", "hosts_per_leaf"), 0),
    (("fabric", "spines"), 1025),
    (("fabric", "oversubscription_ratio"), 0),
    (("fabric", "rails"), 8),
]


@pytest.mark.parametrize(("path", "value"), REFUSED, ids=str)
def test_what_the_shape_refuses(path: tuple[str | int, ...], value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(changed(path, value))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_are_finite(number: str) -> None:
    text = json.dumps(WHOLE).replace("100000000000.0", number)
    assert number in text
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(text.encode(), type=TopologyDocument)


@pytest.mark.parametrize("field", ["hosts_per_leaf", "spines", "kind"])
def test_a_leaf_spine_fabric_says_its_size(field: str) -> None:
    document = json.loads(json.dumps(WHOLE))
    del document["fabric"][field]
    with pytest.raises(msgspec.ValidationError):
        decode(document)


def test_faults_of_the_core_point_into_the_document() -> None:
    """Each path found by `expand` leads to something that was said, or to where it is missing."""
    document = changed(("links", 0, "effective_bytes_per_second"), 2e11)
    document["links"][0]["target"] = "nowhere"
    document["links"][0]["measured_bytes_per_second"]["value"] = 3e11
    document["hosts"][0]["design"] = "dgx-9"
    document["fabric"]["uplink_bytes_per_second"] = 1e9
    with pytest.raises(InvalidInput) as refused:
        expand(to_core(decode(document)))
    found: dict[tuple[str | int, ...], object] = {}
    for fault in refused.value.faults:
        found[fault.path] = at(document, *fault.path)[fault.path[-1]]
    assert found == {
        ("hosts", 0, "design"): "dgx-9",
        ("fabric", "uplink_bytes_per_second"): 1e9,
        ("links", 0, "target"): "nowhere",
        ("links", 0, "effective_bytes_per_second"): 2e11,
        ("links", 0, "measured_bytes_per_second", "value"): 3e11,
    }


def _unbounded(schema: dict[str, Any], where: str) -> list[str]:
    found = []
    kind = schema.get("type")
    if kind in ("integer", "number"):
        lower = "minimum" in schema or "exclusiveMinimum" in schema
        if not (lower and "maximum" in schema):
            found.append(where)
    free_text = kind == "string" and "enum" not in schema and schema.get("format") != "date"
    if free_text and not ("maxLength" in schema and "pattern" in schema):
        found.append(where)
    if kind == "array" and "maxItems" not in schema:
        found.append(where)
    if kind == "object" and "properties" not in schema and "maxProperties" not in schema:
        found.append(where)
    for name, part in schema.get("properties", {}).items():
        found += _unbounded(part, f"{where}/{name}")
    for name in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(name), dict):
            found += _unbounded(schema[name], f"{where}/{name}")
    return found


def test_everything_is_bounded_described_and_closed() -> None:
    _, parts = msgspec.json.schema_components([TopologyDocument])
    structs = {name: part for name, part in parts.items() if part.get("type") == "object"}
    assert "TopologyDocument" in structs
    for name, part in structs.items():
        assert part["description"], name
        assert part["additionalProperties"] is False, name
        assert _unbounded(part, name) == []
        for field, schema in part["properties"].items():
            tagged = "enum" in schema and len(schema["enum"]) == 1
            assert tagged or schema.get("description"), f"{name}/{field}"
