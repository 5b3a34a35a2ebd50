"""Pinned paths checked by hand on the reference designs, and the rule's own corners."""

from itertools import pairwise

import pytest

from service.core.errors import FaultCode, InvalidInput
from service.core.topology.bounds import transfer_lower_bound_seconds
from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.paths import PathFinder, PhysicalPath
from service.core.topology.routing import MAX_COUNTED_PATHS
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    Duplex,
    FabricSpec,
    HostSpec,
    LeafSpine,
    LinkSpec,
    RailOptimised,
    SwitchSpec,
)


def expanded(design: str, count: int, fabric: FabricSpec | None = None) -> Cluster:
    spec = ClusterSpec(hosts=(HostSpec(name="host", count=count, design=design),), fabric=fabric)
    return expand(spec).cluster


def hosts(design: str, count: int, fabric: FabricSpec | None = None) -> PathFinder:
    return PathFinder(expanded(design, count, fabric))


def found(finder: PathFinder, source: str, target: str) -> PhysicalPath:
    path = finder.path(source, target)
    assert path is not None
    return path


def switched(edges: list[tuple[str, str, float]], **kinds: LinkKind) -> Cluster:
    """Hosts `a` and `b` of one GPU each, and whatever switches the edges name."""
    gpu = DeviceSpec(name="gpu0", kind=VertexKind.GPU)
    ends = dict.fromkeys(end for edge in edges for end in edge[:2] if "/" not in end)
    return expand(
        ClusterSpec(
            hosts=tuple(HostSpec(name=name, devices=(gpu,)) for name in "ab"),
            switches=tuple(SwitchSpec(end) for end in ends),
            links=tuple(
                LinkSpec(
                    source=source,
                    target=target,
                    kind=kinds.get(source, LinkKind.OTHER),
                    bandwidth_bytes_per_second=rate,
                )
                for source, target, rate in edges
            ),
        )
    ).cluster


def test_one_host_with_nvswitch() -> None:
    path = found(hosts("dgx-h100", 1), "host0/gpu0", "host0/gpu5")
    assert path.vertices == ("host0/gpu0", "host0/nvswitch0", "host0/gpu5")
    assert path.bandwidth_bytes_per_second == 450e9
    assert path.effective_bytes_per_second == 396e9
    assert path.latency_seconds == pytest.approx(2 * 936.25e-9)
    assert path.latency_floor_seconds == 0
    assert (path.links_without_latency, path.links_without_effective) == (0, 0)
    assert path.equal_cost_alternatives == 0
    assert not path.has_assumed_bandwidth


def test_nvlink_wins_over_an_equally_near_pcie_switch_by_its_width() -> None:
    path = found(hosts("hgx-a100", 1), "host0/gpu0", "host0/gpu1")
    assert path.vertices == ("host0/gpu0", "host0/nvswitch0", "host0/gpu1")


def test_across_hosts_on_one_rail() -> None:
    path = found(hosts("dgx-h100", 2, RailOptimised(spines=2)), "host0/gpu3", "host1/gpu3")
    assert path.vertices == (
        *("host0/gpu3", "host0/pcie3", "host0/nic3"),
        "rail3",
        *("host1/nic3", "host1/pcie3", "host1/gpu3"),
    )
    assert path.distance == 6
    assert path.bottleneck is not None
    assert path.bottleneck.name == "host0/nic3->rail3"
    assert path.bandwidth_bytes_per_second == 50e9
    # Two links of the network are known to take 500 ns; nothing is known of the four in PCIe.
    assert path.latency_seconds == pytest.approx(1e-6)
    assert path.links_without_latency == 4


def test_across_rails_over_a_spine() -> None:
    path = found(hosts("dgx-h100", 2, RailOptimised(spines=2)), "host0/gpu3", "host1/gpu6")
    # Two NICs at each rail switch: host1/nic6 is number 13, and 13 mod 2 is 1.
    assert path.vertices == (
        *("host0/gpu3", "host0/pcie3", "host0/nic3"),
        *("rail3", "spine1", "rail6"),
        *("host1/nic6", "host1/pcie6", "host1/gpu6"),
    )
    assert path.equal_cost_alternatives == 1


def test_across_rails_without_spines_a_host_is_crossed_inside() -> None:
    """No GPU forwards, so the way to the other rail leads over both sockets of one host."""
    path = found(hosts("dgx-h100", 2, RailOptimised()), "host0/gpu3", "host1/gpu6")
    assert path.vertices == (
        *("host0/gpu3", "host0/pcie3", "host0/cpu0", "host0/cpu1", "host0/pcie6", "host0/nic6"),
        "rail6",
        *("host1/nic6", "host1/pcie6", "host1/gpu6"),
    )
    assert path.distance == 1 + 16 + 64 + 16 + 1 + 1 + 1 + 1 + 1
    assert path.effective_bytes_per_second == 22e9
    assert path.has_assumed_bandwidth
    # The mirror image crosses the target's host instead.
    assert path.equal_cost_alternatives == 1


def test_two_gpus_share_a_nic_in_p4d() -> None:
    finder = hosts("p4d", 2, LeafSpine(hosts_per_leaf=2, spines=0))
    paths = [found(finder, f"host0/gpu{i}", f"host1/gpu{i}") for i in (4, 5, 6)]
    nics = [[name for name in path.vertices if "nic" in name] for path in paths]
    assert nics[0] == nics[1] == ["host0/nic2", "host1/nic2"]
    assert nics[2] == ["host0/nic3", "host1/nic3"]
    assert [path.bandwidth_bytes_per_second for path in paths] == [12.5e9] * 3


def test_each_gpu_uses_the_nic_it_is_paired_with() -> None:
    """Both NICs of a PCIe switch are equally near and wide; the pairing decides, not the name."""
    finder = hosts("hgx-a100", 2, RailOptimised())
    for number in range(8):
        path = found(finder, f"host0/gpu{number}", f"host1/gpu{number}")
        assert path.vertices[2:5] == (f"host0/nic{number}", f"rail{number}", f"host1/nic{number}")
        assert path.equal_cost_alternatives == 1


def test_pcie_host_across_sockets() -> None:
    path = found(hosts("pcie-gen4-8gpu", 1), "host0/gpu1", "host0/gpu7")
    assert path.vertices == tuple(
        f"host0/{name}" for name in ("gpu1", "pcie0", "cpu0", "cpu1", "pcie1", "gpu7")
    )
    assert path.distance == 1 + 16 + 64 + 16 + 1
    assert path.bandwidth_bytes_per_second == pytest.approx(16 * 16e9 / 8 * 128 / 130)
    assert path.effective_bytes_per_second == 16e9


def test_no_gpu_forwards_in_the_hybrid_cube_mesh() -> None:
    """GPUs 0 and 5 share two NVLink neighbours, and still talk over PCIe and both sockets."""
    finder = hosts("dgx-1-v100", 1)
    assert found(finder, "host0/gpu0", "host0/gpu4").bandwidth_bytes_per_second == 50e9
    path = found(finder, "host0/gpu0", "host0/gpu5")
    assert [link.kind for link in path.links] == [
        LinkKind.PCIE,
        LinkKind.HOST_BRIDGE,
        LinkKind.SOCKET,
        LinkKind.HOST_BRIDGE,
        LinkKind.PCIE,
    ]


def test_moving_a_neighbouring_stage_to_another_host_changes_path_and_bound() -> None:
    finder = hosts("dgx-h100", 2, RailOptimised(spines=1))
    boundary_bytes = 64 * 2**20
    inside = found(finder, "host0/gpu0", "host0/gpu1")
    between = found(finder, "host0/gpu0", "host1/gpu0")
    assert inside.vertices != between.vertices
    assert transfer_lower_bound_seconds(inside, boundary_bytes) == boundary_bytes / 450e9
    assert transfer_lower_bound_seconds(between, boundary_bytes) == boundary_bytes / 50e9


def test_a_path_stays_in_its_host_even_where_the_network_is_nearer() -> None:
    finder = hosts("pcie-gen4-8gpu", 1, RailOptimised(spines=1))
    path = found(finder, "host0/gpu0", "host0/gpu7")
    assert all(name.startswith("host0/") for name in path.vertices)
    assert path.distance > 9


def test_a_path_leaves_its_host_when_it_must() -> None:
    devices = tuple(DeviceSpec(name=f"gpu{i}", kind=VertexKind.GPU) for i in range(2))
    spec = ClusterSpec(
        hosts=(HostSpec(name="a", devices=devices),),
        switches=(SwitchSpec("s"),),
        links=tuple(
            LinkSpec(
                source=f"a/gpu{i}",
                target="s",
                kind=LinkKind.OTHER,
                bandwidth_bytes_per_second=1e9,
            )
            for i in range(2)
        ),
    )
    path = found(PathFinder(expand(spec).cluster), "a/gpu0", "a/gpu1")
    assert path.vertices == ("a/gpu0", "s", "a/gpu1")


def test_no_other_host_is_entered() -> None:
    """Host c's NIC would join the two networks, but it is nobody's switch."""
    gpu = DeviceSpec(name="gpu0", kind=VertexKind.GPU)
    nic = DeviceSpec(name="nic0", kind=VertexKind.NIC)
    spec = ClusterSpec(
        hosts=(
            HostSpec(name="a", devices=(gpu,)),
            HostSpec(name="b", devices=(gpu,)),
            HostSpec(name="c", devices=(nic,)),
        ),
        switches=(SwitchSpec("s"), SwitchSpec("t")),
        links=tuple(
            LinkSpec(source=one, target=other, kind=LinkKind.OTHER, bandwidth_bytes_per_second=1e9)
            for one, other in (
                ("a/gpu0", "s"),
                ("s", "c/nic0"),
                ("c/nic0", "t"),
                ("t", "b/gpu0"),
            )
        ),
    )
    assert PathFinder(expand(spec).cluster).path("a/gpu0", "b/gpu0") is None


def test_distance_then_width_then_the_destination_decide() -> None:
    direct = [("a/gpu0", "w", 1e9), ("w", "b/gpu0", 1e9)]
    longer = [("a/gpu0", "p", 9e9), ("p", "q", 9e9), ("q", "b/gpu0", 9e9)]
    wider = [("a/gpu0", "x", 3e9), ("x", "b/gpu0", 2e9)]
    same = [("a/gpu0", "v", 2e9), ("v", "b/gpu0", 3e9)]
    choices = [direct, direct + longer, direct + wider, direct + wider + same]
    via = []
    for edges in choices:
        path = found(PathFinder(switched(edges)), "a/gpu0", "b/gpu0")
        via.append((path.vertices[1:-1], path.equal_cost_alternatives))
    # b/gpu0 is destination number 1 (a/gpu0 is number 0), so it takes the second of v and x.
    assert via == [(("w",), 0), (("w",), 0), (("x",), 0), (("x",), 1)]


def test_a_socket_is_far() -> None:
    """Many short links are nearer than one between sockets."""
    chain = ["a/gpu0", *(f"s{i}" for i in range(60)), "b/gpu0"]
    long_way = [(one, other, 1e9) for one, other in pairwise(chain)]
    cluster = switched([("a/gpu0", "z", 1e9), ("z", "b/gpu0", 1e9), *long_way], z=LinkKind.SOCKET)
    assert len(found(PathFinder(cluster), "a/gpu0", "b/gpu0").links) == 61


def test_the_first_of_equally_narrow_links_is_the_bottleneck() -> None:
    path = found(
        PathFinder(switched([("a/gpu0", "s", 2e9), ("s", "t", 1e9), ("t", "b/gpu0", 1e9)])),
        "a/gpu0",
        "b/gpu0",
    )
    assert path.bottleneck is not None
    assert path.bottleneck.name == "s->t"


def test_a_device_reaches_itself_over_nothing() -> None:
    path = found(hosts("p4d", 1), "host0/gpu2", "host0/gpu2")
    assert path.links == ()
    assert path.vertices == ("host0/gpu2",)
    assert path.bottleneck is None
    assert path.bandwidth_bytes_per_second is None
    assert path.effective_bytes_per_second is None
    assert path.latency_seconds == 0


def test_hosts_without_a_fabric_do_not_reach_each_other() -> None:
    finder = hosts("dgx-h100", 2)
    assert finder.path("host0/gpu0", "host1/gpu0") is None
    assert finder.path("host0/gpu0", "host0/gpu1") is not None


def test_a_simplex_link_leads_one_way() -> None:
    spec = ClusterSpec(
        hosts=tuple(
            HostSpec(name=n, devices=(DeviceSpec(name="gpu0", kind=VertexKind.GPU),)) for n in "ab"
        ),
        links=(
            LinkSpec(
                source="a/gpu0",
                target="b/gpu0",
                kind=LinkKind.OTHER,
                bandwidth_bytes_per_second=1e9,
                duplex=Duplex.SIMPLEX,
            ),
        ),
    )
    finder = PathFinder(expand(spec).cluster)
    assert finder.path("a/gpu0", "b/gpu0") is not None
    assert finder.path("b/gpu0", "a/gpu0") is None


def test_unknown_ends_are_both_named() -> None:
    with pytest.raises(InvalidInput) as refused:
        hosts("p4d", 1).path("host0/gpu8", "host9/gpu0")
    assert [(fault.code, fault.path) for fault in refused.value.faults] == [
        (FaultCode.UNKNOWN_NAME, ("source",)),
        (FaultCode.UNKNOWN_NAME, ("target",)),
    ]


def test_counting_alternatives_stops_at_a_limit() -> None:
    """Thirty layers of two switches make 2^30 equal paths; listing them would not end."""
    layers = [[f"s{layer}-{i}" for i in range(2)] for layer in range(10, 40)]
    edges = [("a/gpu0", end, 1e9) for end in layers[0]]
    edges += [(one, other, 1e9) for near, far in pairwise(layers) for one in near for other in far]
    edges += [(end, "b/gpu0", 1e9) for end in layers[-1]]
    path = found(PathFinder(switched(edges)), "a/gpu0", "b/gpu0")
    assert path.equal_cost_alternatives == MAX_COUNTED_PATHS
    # b/gpu0 is destination number 1: in binary one 1, at the first choice, and then zeros.
    first, *others = layers
    assert path.vertices[1:-1] == (first[1], *(layer[0] for layer in others))


def test_asking_again_gives_the_same_path() -> None:
    finder = hosts("p4d", 1)
    assert finder.path("host0/gpu0", "host0/gpu1") is finder.path("host0/gpu0", "host0/gpu1")
