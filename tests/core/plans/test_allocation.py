"""Allocations: which devices a host list, patterns or ranks stand for."""

import pytest

from service.core.errors import InvalidInput, WorkBudgetExceeded
from service.core.plans.allocation import Allocation, of_devices, of_hosts, of_ranks
from service.core.topology.cluster import Cluster, VertexKind
from service.core.topology.expand import expand
from service.core.topology.spec import ClusterSpec, DeviceSpec, HostSpec


@pytest.fixture
def cluster() -> Cluster:
    switch = DeviceSpec(name="sw", kind=VertexKind.PCIE_SWITCH)
    hosts = (
        HostSpec(name="n", count=3, design="p4d"),
        HostSpec(name="storage", devices=(switch,)),
    )
    return expand(ClusterSpec(hosts=hosts)).cluster


def faults(refused: pytest.ExceptionInfo[InvalidInput]) -> list[tuple[object, str]]:
    return [(fault.path, fault.code.value) for fault in refused.value.faults]


def test_a_host_list_keeps_its_order(cluster: Cluster) -> None:
    found = of_hosts(cluster, "n2,n[0-0]")
    assert found == Allocation(
        (*(f"n2/gpu{number}" for number in range(8)), *(f"n0/gpu{number}" for number in range(8)))
    )


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("n[0-3]", ["unknown_name"]),
        ("n0,n0", ["duplicate_name"]),
        ("storage", ["inconsistent"]),
        ("n9,storage,n1,n1", ["unknown_name", "inconsistent", "duplicate_name"]),
        ("n[0", None),
        ("n[0-99999]", ["out_of_range"]),
    ],
)
def test_host_lists_that_are_refused(cluster: Cluster, text: str, codes: list[str] | None) -> None:
    with pytest.raises(InvalidInput) as refused:
        of_hosts(cluster, text)
    assert {path for path, _ in faults(refused)} == {("hosts",)}
    if codes is not None:
        assert [code for _, code in faults(refused)] == codes


def test_patterns_are_those_of_plans(cluster: Cluster) -> None:
    assert of_devices(cluster, ["n1/gpu[0-1]", "n0/gpu7"]).devices == (
        "n1/gpu0",
        "n1/gpu1",
        "n0/gpu7",
    )
    with pytest.raises(InvalidInput) as refused:
        of_devices(cluster, ["n1/gpu0", "n1/nic0", "x"])
    assert [path for path, _ in faults(refused)] == [("devices", 1), ("devices", 2)]
    with pytest.raises(InvalidInput) as refused:
        of_devices(cluster, ["n[0-99999]/gpu0"])
    assert not isinstance(refused.value, WorkBudgetExceeded)


def test_ranks_take_the_gpus_of_their_host_in_turn(cluster: Cluster) -> None:
    found = of_ranks(cluster, ["n1", "n0", "n1"])
    assert found.devices == ("n1/gpu0", "n0/gpu0", "n1/gpu1")
    assert len(found.assumptions) == 1


def test_more_ranks_than_gpus(cluster: Cluster) -> None:
    with pytest.raises(InvalidInput) as refused:
        of_ranks(cluster, ["n0"] * 9 + ["storage", "nowhere"])
    assert faults(refused) == [
        (("rank_file",), "too_few_devices"),
        (("rank_file",), "too_few_devices"),
        (("rank_file",), "unknown_name"),
    ]
