"""What GPUs share on their way out: by hand on the designs, and the oddities one by one."""

from random import Random

import pytest

from service.core.errors import WorkBudgetExceeded
from service.core.topology import nic_sharing
from service.core.topology.cluster import Cluster, LinkKind, VertexKind
from service.core.topology.expand import expand
from service.core.topology.nic_sharing import (
    HostSharing,
    check_sharing_work,
    host_sharing,
    like_hosts,
)
from service.core.topology.spec import (
    ClusterSpec,
    DeviceSpec,
    FabricRates,
    FabricSpec,
    HostSpec,
    LeafSpine,
    LinkSpec,
    RailOptimised,
    SwitchSpec,
)
from service.core.topology.uplinks import uplinks_by_likeness
from tests.core.topology.random_clusters import random_cluster

RATE = 10e9
SHORT = {"p": VertexKind.PCIE_SWITCH, "c": VertexKind.CPU, "g": VertexKind.GPU, "n": VertexKind.NIC}


def cluster_of(design: str, count: int = 1, fabric: FabricSpec | None = None) -> Cluster:
    host = HostSpec(name="h", count=count, design=design)
    return expand(ClusterSpec(hosts=(host,), fabric=fabric)).cluster


def wired(*links: str, rates: dict[str, float] | None = None) -> HostSharing:
    """One host from links such as `g0-p0`; CPUs meet over sockets, all else over PCIe."""
    names = dict.fromkeys(name for link in links for name in link.split("-"))

    def kind(link: str) -> LinkKind:
        cpus = sum(name.startswith("c") for name in link.split("-"))
        return (LinkKind.PCIE, LinkKind.HOST_BRIDGE, LinkKind.SOCKET)[cpus]

    host = HostSpec(
        name="h",
        devices=tuple(DeviceSpec(name=name, kind=SHORT[name[0]]) for name in names),
        links=tuple(
            LinkSpec(
                source=link.split("-")[0],
                target=link.split("-")[1],
                kind=kind(link),
                bandwidth_bytes_per_second=(rates or {}).get(link, RATE),
            )
            for link in links
        ),
    )
    return host_sharing(expand(ClusterSpec(hosts=(host,))).cluster, "h")


def told(sharing: HostSharing) -> list[tuple[str, str, str]]:
    return [
        (
            one.level.value,
            one.link.name.replace("h/", ""),
            " ".join(gpu.removeprefix("h/") for gpu in one.gpus),
        )
        for one in sharing.common
    ]


def oddities(sharing: HostSharing) -> dict[str, str]:
    return {
        one.code.value: " ".join(name.removeprefix("h/") for name in one.devices)
        for one in sharing.oddities
    }


@pytest.mark.parametrize(
    ("design", "gpus_a_nic", "share"),
    [
        ("dgx-h100", 1, 50e9),
        ("hgx-a100", 1, 25e9),
        ("p4d", 2, 12.5e9 / 2),
        ("dgx-1-v100", 2, 12.5e9 / 2),
        ("pcie-gen4-8gpu", 4, 25e9 / 4),
    ],
)
def test_the_designs(design: str, gpus_a_nic: int, share: float) -> None:
    """Every GPU has a NIC under its own switch; what it gets is its part of the port."""
    sharing = host_sharing(cluster_of(design, 2, RailOptimised()), "h1")
    assert [one.nics[0].nic for one in sharing.gpus] == [
        f"h1/nic{number // gpus_a_nic}" for number in range(8)
    ]
    assert {one.nics[0].kind.value for one in sharing.gpus} == {"pix"}
    assert {one.equal_share_bytes_per_second for one in sharing.gpus} == {share}
    assert {len(one.gpus) for one in sharing.common} == ({gpus_a_nic} - {1})
    levels = [one.level.value for one in sharing.common]
    assert levels == ["slot", "port"] * (8 // gpus_a_nic if gpus_a_nic > 1 else 0)
    assert sharing.oddities == ()


def test_one_nic_for_two_sockets() -> None:
    """g1 crosses the sockets to n0, and shares its slot with g0."""
    sharing = wired("g0-p0", "n0-p0", "p0-c0", "g1-p1", "p1-c1", "c0-c1", rates={"c0-c1": 4e9})
    assert told(sharing) == [("slot", "p0->n0", "g0 g1")]
    assert [one.equal_share_bytes_per_second for one in sharing.gpus] == [5e9, 4e9]
    assert oddities(sharing) == {"crosses_sockets": "g1", "mixed_distances": "g0 g1"}


def test_gpus_that_meet_on_the_host_bridge() -> None:
    """Two GPUs under one switch, the NIC at the CPU: the bridge is theirs together."""
    sharing = wired("g0-p0", "g1-p0", "p0-c0", "n0-c0", rates={"p0-c0": 6e9})
    assert told(sharing) == [("host_bridge", "p0->c0", "g0 g1"), ("host_bridge", "c0->n0", "g0 g1")]
    assert [one.equal_share_bytes_per_second for one in sharing.gpus] == [3e9, 3e9]
    assert [one.nics[0].kind.value for one in sharing.gpus] == ["phb", "phb"]
    assert oddities(sharing) == {}


def test_gpus_that_meet_on_an_uplink() -> None:
    sharing = wired("g0-p0", "g1-p0", "p0-p1", "n0-p1")
    assert told(sharing)[0] == ("uplink", "p0->p1", "g0 g1")
    assert [one.nics[0].kind.value for one in sharing.gpus] == ["pxb", "pxb"]


def test_mixed_distances() -> None:
    sharing = wired("g0-p0", "n0-p0", "p0-c0", "g1-c0", "n1-c0")
    assert [one.nics[0].kind.value for one in sharing.gpus] == ["pix", "phb"]
    assert oddities(sharing) == {"mixed_distances": "g0 g1"}


def test_equally_near_nics_are_ambiguous() -> None:
    """Without rails nothing says which of both is used; the first is counted, and all listed."""
    sharing = wired("g0-p0", "n0-p0", "n1-p0", "g1-p0")
    assert [[way.nic for way in one.nics] for one in sharing.gpus] == [["h/n0", "h/n1"]] * 2
    assert oddities(sharing) == {"ambiguous_nic": "g0 g1"}
    # A NIC that one GPU may use is not idle.
    assert told(sharing) == [("slot", "p0->n0", "g0 g1")]


def test_the_wider_way_is_no_tie() -> None:
    sharing = wired("g0-p0", "n0-p0", "n1-p0", rates={"n0-p0": 5e9})
    assert [way.nic for way in sharing.gpus[0].nics] == ["h/n1"]
    assert oddities(sharing) == {"idle_nic": "n0"}


def test_idle_nics_and_gpus_without_any() -> None:
    sharing = wired("g0-p0", "n0-p0", "p0-c0", "n1-c0", "g1-p9")
    assert sharing.gpus[1].nics == ()
    assert sharing.gpus[1].equal_share_bytes_per_second is None
    assert oddities(sharing) == {"no_nic": "g1", "idle_nic": "n1"}


def test_only_some_gpus_send() -> None:
    cluster = cluster_of("p4d", 2, RailOptimised())
    sharing = host_sharing(cluster, "h0", {"h0/gpu0", "h0/gpu2", "h0/gpu3"})
    assert [one.gpu for one in sharing.gpus] == ["h0/gpu0", "h0/gpu2", "h0/gpu3"]
    assert [one.equal_share_bytes_per_second for one in sharing.gpus] == [12.5e9, 6.25e9, 6.25e9]


def test_hosts_that_are_alike() -> None:
    hosts = (
        HostSpec(name="a", count=2, design="p4d"),
        HostSpec(name="b", design="dgx-h100"),
        HostSpec(name="c", design="p4d"),
    )
    rails = expand(ClusterSpec(hosts=hosts, fabric=RailOptimised())).cluster
    assert like_hosts(rails) == (("a0", "a1", "c"), ("b",))
    slow = LinkSpec(
        source="c/nic0",
        target="rail9",
        kind=LinkKind.NETWORK,
        bandwidth_bytes_per_second=1e9,
    )

    odd = ClusterSpec(hosts=hosts, switches=(SwitchSpec("rail9"),), links=(slow,))
    assert like_hosts(expand(odd).cluster) == (("a0", "a1"), ("b",), ("c",))
    assert like_hosts(rails, {"a0/gpu0", "a1/gpu0", "c/gpu1"}) == (("a0", "a1"), ("c",))


def test_alike_hosts_share_alike(seed: int) -> None:
    """Whatever is told of the first of a group holds for the others, names aside."""
    several = 0
    for number in range(200):
        cluster = random_cluster(Random(f"{seed}-{number}"))
        for names in like_hosts(cluster):
            shapes = {shape(host_sharing(cluster, name)) for name in names}
            assert len(shapes) == 1, f"seed {seed}-{number}: {names}"
            several += len(names) > 1
    assert several > 5


def shape(sharing: HostSharing) -> object:
    def within(name: str) -> str:
        return name.replace(f"{sharing.host}/", "")

    return (
        tuple(
            (
                within(one.gpu),
                tuple((within(way.nic), way.kind) for way in one.nics),
                one.equal_share_bytes_per_second,
            )
            for one in sharing.gpus
        ),
        tuple((one.level, within(one.link.source), len(one.gpus)) for one in sharing.common),
    )


def test_work_is_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of("p4d", 3)
    monkeypatch.setattr(nic_sharing, "MAX_COMPARED_NICS", 2 * 8 * 4)
    check_sharing_work(cluster, ["h0", "h1"])
    with pytest.raises(WorkBudgetExceeded) as refused:
        check_sharing_work(cluster, cluster.hosts)
    assert refused.value.faults[0].path == ("host",)


def test_uplinks_of_an_oversubscribed_leaf() -> None:
    """Four hosts of 400 GB/s a leaf, 2:1, over four spines; the last leaf has two hosts only."""
    rates = FabricRates(oversubscription_ratio=2.0)
    fabric = LeafSpine(hosts_per_leaf=4, spines=4, rates=rates)
    full, last = uplinks_by_likeness(cluster_of("dgx-h100", 10, fabric))
    assert (full.switches, full.tier, full.cables_below) == (("leaf0", "leaf1"), 1, 32)
    assert (full.below_bytes_per_second, full.above_bytes_per_second) == (1600e9, 800e9)
    assert (full.oversubscription_ratio, full.equal_share_bytes_per_second) == (2.0, 25e9)
    assert (last.switches, last.oversubscription_ratio) == (("leaf2",), 1.0)


def test_there_are_no_uplinks_without_a_tier_above() -> None:
    assert uplinks_by_likeness(cluster_of("dgx-h100", 2, RailOptimised())) == ()
    assert uplinks_by_likeness(cluster_of("dgx-h100", 2)) == ()


def test_uplinks_of_some_hosts() -> None:
    fabric = LeafSpine(hosts_per_leaf=2, spines=2)
    cluster = cluster_of("dgx-h100", 6, fabric)
    one, two = uplinks_by_likeness(cluster, {"h0", "h2", "h3"})
    assert (one.switches, one.below_bytes_per_second) == (("leaf0",), 400e9)
    assert (two.switches, two.below_bytes_per_second) == (("leaf1",), 800e9)
