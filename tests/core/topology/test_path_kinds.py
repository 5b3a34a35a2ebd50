"""What paths are called, on every reference design and on hosts made for one kind."""

import pytest

from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.designs import DESIGNS
from service.core.topology.expand import expand
from service.core.topology.path_kinds import PathKind, nic_reaches, path_kind
from service.core.topology.paths import PathFinder
from service.core.topology.sharing import ShareLevel, level_of
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    FabricSpec,
    HostSpec,
    LeafSpine,
    LinkSpec,
    RailOptimised,
    SwitchSpec,
)


def cluster_of(design: str, count: int = 1, fabric: FabricSpec | None = None) -> Cluster:
    host = HostSpec(name="h", count=count, design=design)
    return expand(ClusterSpec(hosts=(host,), fabric=fabric)).cluster


def kind(cluster: Cluster, source: str, target: str) -> str:
    path = PathFinder(cluster).path(source, target)
    assert path is not None
    return path_kind(cluster, path.links).value


# Each row as `nvidia-smi topo -m` has it: from gpu0 to the other GPUs, then to the NICs.
ROWS = [
    ("dgx-h100", "nvlink " * 7, "pix phb phb phb sys sys sys sys"),
    ("hgx-a100", "nvlink " * 7, "pix pix phb phb sys sys sys sys"),
    ("p4d", "nvlink " * 7, "pix phb sys sys"),
    ("dgx-1-v100", "nvlink nvlink nvlink nvlink sys sys sys", "pix phb sys sys"),
    ("dgx-h200", "nvlink " * 7, "pix phb phb phb sys sys sys sys"),
    ("azure-nd-v4", "nvlink " * 7, "pix pix phb phb sys sys sys sys"),
    ("dgx-2", "nvlink " * 15, "pix pxb phb phb sys sys sys sys"),
    ("mi300x", "nvlink " * 7, "pix phb phb phb sys sys sys sys"),
    # Each GCD has links to some of the others; its neighbour under the switch is one hop away.
    (
        "mi250x",
        "nvlink nvlink pix nvlink phb phb phb sys sys sys sys sys sys sys sys",
        "pix pix phb phb sys sys sys sys",
    ),
    # Without an NVLink domain GPUs meet at the CPUs.
    ("gb200-nvl72", "phb sys sys", "phb phb sys sys"),
    ("pcie-gen4-8gpu", "pix pix pix sys sys sys sys", "pix sys"),
]


@pytest.mark.parametrize(("design", "gpus", "nics"), ROWS)
def test_the_row_of_the_first_gpu(design: str, gpus: str, nics: str) -> None:
    cluster = cluster_of(design)
    found = [
        kind(cluster, "h0/gpu0", f"h0/gpu{number}") for number in range(1, 1 + len(gpus.split()))
    ]
    assert found == gpus.split()
    found = [kind(cluster, "h0/gpu0", f"h0/nic{number}") for number, _ in enumerate(nics.split())]
    assert found == nics.split()


def test_every_design_has_its_row() -> None:
    assert {row[0] for row in ROWS} == set(DESIGNS)


def test_an_end_alone_is_local() -> None:
    assert kind(cluster_of("p4d"), "h0/gpu0", "h0/gpu0") == "local"


def host(devices: dict[str, VertexKind], links: list[tuple[str, str, LinkKind]]) -> HostSpec:
    return HostSpec(
        name="h",
        devices=tuple(DeviceSpec(name=name, kind=what) for name, what in devices.items()),
        links=tuple(
            LinkSpec(source=one, target=other, kind=what, bandwidth_bytes_per_second=1e9)
            for one, other, what in links
        ),
    )


GPU, NIC, CPU, BRIDGE = (
    VertexKind.GPU,
    VertexKind.NIC,
    VertexKind.CPU,
    VertexKind.PCIE_SWITCH,
)
PCIE, INTO_CPU, SOCKET, OTHER = (
    LinkKind.PCIE,
    LinkKind.HOST_BRIDGE,
    LinkKind.SOCKET,
    LinkKind.OTHER,
)
ENDS = {"gpu0": GPU, "nic0": NIC}


@pytest.mark.parametrize(
    ("expected", "between", "links"),
    [
        ("pix", {}, [("gpu0", "nic0", PCIE)]),
        ("pix", {"a": BRIDGE}, [("gpu0", "a", PCIE), ("a", "nic0", PCIE)]),
        (
            "pxb",
            {"a": BRIDGE, "b": BRIDGE},
            [("gpu0", "a", PCIE), ("a", "b", PCIE), ("b", "nic0", PCIE)],
        ),
        ("phb", {"c": CPU}, [("gpu0", "c", INTO_CPU), ("c", "nic0", INTO_CPU)]),
        (
            "node",
            {"c": CPU, "d": CPU},
            [("gpu0", "c", INTO_CPU), ("c", "d", OTHER), ("d", "nic0", INTO_CPU)],
        ),
        (
            "sys",
            {"c": CPU, "d": CPU},
            [("gpu0", "c", INTO_CPU), ("c", "d", SOCKET), ("d", "nic0", INTO_CPU)],
        ),
        ("other", {}, [("gpu0", "nic0", OTHER)]),
    ],
)
def test_kinds_inside_a_host(
    expected: str, between: dict[str, VertexKind], links: list[tuple[str, str, LinkKind]]
) -> None:
    cluster = expand(ClusterSpec(hosts=(host({**ENDS, **between}, links),))).cluster
    assert kind(cluster, "h/gpu0", "h/nic0") == expected
    assert kind(cluster, "h/nic0", "h/gpu0") == expected


@pytest.mark.parametrize(
    ("fabric", "same", "cross"),
    [
        (RailOptimised(), "rail", "rail"),
        (RailOptimised(spines=2), "rail", "spine"),
        (RailOptimised(hosts_per_leaf=1, spines=2), "spine", "spine"),
        (LeafSpine(hosts_per_leaf=2, spines=0), "leaf", "leaf"),
        (LeafSpine(hosts_per_leaf=1, spines=2), "spine", "spine"),
    ],
)
def test_kinds_between_hosts(fabric: FabricSpec, same: str, cross: str) -> None:
    """To the GPU of the same rail, and to the one of another rail."""
    cluster = cluster_of("dgx-h100", 2, fabric)
    assert kind(cluster, "h0/gpu0", "h1/gpu0") == same
    assert kind(cluster, "h0/gpu0", "h1/gpu3") == cross


def test_a_switch_without_a_rail_is_a_leaf_whatever_the_nics_say() -> None:
    design = HostSpec(name="h", count=2, design="p4d")
    links = tuple(
        LinkSpec(
            source=f"h{number}/nic0",
            target="sw",
            kind=LinkKind.NETWORK,
            bandwidth_bytes_per_second=12.5e9,
        )
        for number in range(2)
    )
    spec = ClusterSpec(hosts=(design,), switches=(SwitchSpec("sw"),), links=links)
    assert kind(expand(spec).cluster, "h0/gpu0", "h1/gpu0") == "leaf"


def test_an_nvswitch_of_several_hosts_is_no_fabric() -> None:
    gpu = DeviceSpec(name="gpu0", kind=GPU)
    spec = ClusterSpec(
        hosts=(HostSpec(name="h", count=2, devices=(gpu,)),),
        switches=(SwitchSpec("nvs", VertexKind.NVSWITCH),),
        links=tuple(
            LinkSpec(
                source=f"h{number}/gpu0",
                target="nvs",
                kind=LinkKind.NVLINK,
                bandwidth_bytes_per_second=900e9,
            )
            for number in range(2)
        ),
    )
    cluster = expand(spec).cluster
    assert kind(cluster, "h0/gpu0", "h1/gpu0") == "nvlink"
    path = PathFinder(cluster).path("h0/gpu0", "h1/gpu0")
    assert path is not None
    assert nic_reaches(cluster, path.links) == (None, None)


def test_host_bridges_of_one_cpu_are_passed_by_node() -> None:
    pcie, chip = LinkKind.HOST_BRIDGE, LinkKind.ON_CHIP
    ends = [
        *(("g0", "b0", pcie), ("g1", "b0", pcie), ("g2", "b1", pcie), ("g3", "c1", pcie)),
        *(("b0", "c0", chip), ("b1", "c0", chip), ("c0", "c1", LinkKind.SOCKET)),
    ]
    kinds = {"g": VertexKind.GPU, "b": VertexKind.HOST_BRIDGE, "c": VertexKind.CPU}
    host = HostSpec(
        name="h",
        devices=tuple(
            DeviceSpec(name=name, kind=kinds[name[0]])
            for name in ("g0", "g1", "g2", "g3", "b0", "b1", "c0", "c1")
        ),
        links=tuple(
            LinkSpec(source=one, target=other, kind=kind, bandwidth_bytes_per_second=1e9)
            for one, other, kind in ends
        ),
    )
    cluster = expand(ClusterSpec(hosts=(host,))).cluster
    assert [kind(cluster, "h/g0", f"h/g{k}") for k in (1, 2, 3)] == ["phb", "node", "sys"]
    assert level_of(cluster, cluster.links["h/b0", "h/c0"]) is ShareLevel.ON_CHIP


def test_the_nics_at_the_fabric_and_how_near_they_are() -> None:
    cluster = cluster_of("dgx-h100", 2, RailOptimised())
    path = PathFinder(cluster).path("h0/gpu0", "h1/gpu3")
    assert path is not None
    first, last = nic_reaches(cluster, path.links)
    assert first is not None
    assert last is not None
    assert (first.nic, first.kind, last.nic, last.kind) == (
        "h0/nic3",
        PathKind.PHB,
        "h1/nic3",
        PathKind.PIX,
    )
    from_nic = PathFinder(cluster).path("h0/nic1", "h1/gpu1")
    assert from_nic is not None
    first, _ = nic_reaches(cluster, from_nic.links)
    assert first is not None
    assert (first.nic, first.kind) == ("h0/nic1", PathKind.LOCAL)
