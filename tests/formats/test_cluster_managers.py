"""topograph, NetQ and Kubernetes: fixtures of our own with every trap in them."""

from functools import partial
from pathlib import Path

import pytest

from service.core.topology.readings import Reading
from service.formats.kubernetes import looks_like_kubernetes, read_kubernetes
from service.formats.netq import looks_like_netq, read_netq
from service.formats.topograph import looks_like_topograph, read_topograph
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

FIXTURES = Path(__file__).parent / "fixtures"
READERS = {
    "topograph/model.yaml": read_topograph,
    "topograph/model_of_lists.yaml": read_topograph,
    "topograph/model_of_nodes.yaml": read_topograph,
    "topograph/instances.json": read_topograph,
    "topograph/netq.json": read_netq,
    "topograph/netq_computes.json": read_netq,
    "kubernetes/nodes.yaml": read_kubernetes,
    "kubernetes/topology_and_nodes.yaml": read_kubernetes,
    "kubernetes/kind.yaml": read_kubernetes,
}
RECOGNISERS = {
    read_topograph: looks_like_topograph,
    read_netq: looks_like_netq,
    read_kubernetes: looks_like_kubernetes,
}


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def read(name: str) -> Reading:
    return READERS[name](fixture(name).encode())


def edited(name: str, old: str, new: str) -> partial[Reading]:
    content = fixture(name)
    assert old in content
    return partial(READERS[name], content.replace(old, new, 1).encode())


def places(reading: Reading) -> dict[str, str | None]:
    return {each.host: each.switch for each in reading.attached}


def domains(reading: Reading) -> dict[str, tuple[str, ...]]:
    return {each.name: each.hosts for each in reading.domains}


@pytest.mark.parametrize("name", READERS)
def test_each_file_is_recognised_by_its_own_importer(name: str) -> None:
    content = fixture(name).encode()
    fits = [reader for reader, recognises in RECOGNISERS.items() if recognises(content)]
    assert fits == [READERS[name]]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"- topology: x\n", b"kind: Cluster\n"])
def test_what_only_looks_alike_is_not_recognised(content: bytes) -> None:
    assert not any(recognises(content) for recognises in RECOGNISERS.values())
    for reader in RECOGNISERS:
        assert refusals(partial(reader, content))


def test_a_model_of_today() -> None:
    found = read("topograph/model.yaml")
    assert dict(found.facts) == {"switches": 4, "hosts": 7, "levels": 2, "roots": 1, "domains": 1}
    assert places(found) == {
        "n01": "rack-1",
        "n02": "rack-1",
        "n03": "rack-1",
        "m1": "rack-1",
        "1101": "rack-2",
        "1102": "rack-2",
        "alone": None,
    }
    assert domains(found) == {"nvl-1": ("n01", "n02", "n03", "m1", "1101", "1102")}
    assert [item.line for item in found.left_out] == [4, 15]
    assert any("rack-3" in note for note in found.notes)


def test_a_model_of_lists() -> None:
    found = read("topograph/model_of_lists.yaml")
    assert places(found) == {"n1-1": "leaf1", "n1-2": "leaf1", "n2-1": "leaf2", "n3-1": None}
    assert domains(found) == {"nv1": ("n1-1", "n1-2", "n3-1")}


def test_a_model_that_says_things_piece_by_piece() -> None:
    found = read("topograph/model_of_nodes.yaml")
    assert places(found) == {"I1": "S2", "I2": "S2", "I3": "S3", "I4": None}
    assert domains(found) == {"nv1": ("I1",)}


def test_instances_name_the_switches_above_them_nearest_first() -> None:
    found = read("topograph/instances.json")
    assert places(found) == {"n1": "leaf1", "n2": "leaf2", "n3": None}
    levels = {switch.name: switch.level for switch in found.switches}
    assert levels == {"leaf1": 0, "leaf2": 0, "spine": 1}
    assert domains(found) == {"nvl1": ("n1",)}


def test_netq_lists_every_cable() -> None:
    found = read("topograph/netq.json")
    assert dict(found.facts) == {"switches": 2, "hosts": 2, "cables": 3, "switch_cables": 1}
    assert [(s.name, s.level) for s in found.switches] == [("leaf", 0), ("spine", 1)]
    ends = [(c.target.host, c.target.adapter) for c in found.cables if c.target.host]
    assert ends == [("host-1", "ens1"), ("host-1", "ens2")]
    assert all(cable.rate is None for cable in found.cables)
    assert not found.tree_only
    assert places(found) == {"host-2": None}


def test_netq_tells_domains_of_compute_nodes() -> None:
    found = read("topograph/netq_computes.json")
    assert dict(found.facts) == {"hosts": 2, "domains": 1, "gpus": 3}
    assert domains(found) == {"3fbf": ("n1", "n2")}
    assert found.notes == ("n2 is DEGRADED",)


def test_labels_of_nodes_under_old_and_new_names() -> None:
    found = read("kubernetes/nodes.yaml")
    assert places(found) == {"gpu-1": "l1", "gpu-2": "l2", "bare": None}
    levels = {switch.name: switch.level for switch in found.switches}
    assert levels == {"c1": 2, "s1": 1, "l1": 0, "l2": 0}
    assert domains(found) == {"aaaa.1": ("gpu-1",), "nvl-2": ("gpu-2",)}
    assert found.facts["gpus"] == 8
    assert any("H100" in note for note in found.notes)
    assert any("1 nodes have none of the labels (bare)" in note for note in found.notes)
    assert [item.line for item in found.left_out] == [28]


def test_a_kueue_topology_says_which_labels_are_levels() -> None:
    found = read("kubernetes/topology_and_nodes.yaml")
    # Both racks are called r1, in two halls: they are two.
    assert places(found) == {"n1": "h1-r1", "n2": "h2-r1"}
    assert [(s.name, s.title, s.level) for s in found.switches] == [
        ("h1", "h1", 1),
        ("h1-r1", "r1", 0),
        ("h2", "h2", 1),
        ("h2-r1", "r1", 0),
    ]
    assert any("Topology racks" in text for text in found.assumptions)


def test_a_kind_cluster_names_its_workers() -> None:
    found = read("kubernetes/kind.yaml")
    assert places(found) == {"test-worker": "leaf-1", "test-worker2": "leaf-2"}
    assert domains(found) == {"nvl": ("test-worker2",)}
    assert {switch.name: switch.level for switch in found.switches}["spine"] == 1


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0"),
        ("network.topology.nvidia.com/spine", "network.topology.nvidia.com/block"),
        ("network.topology.kubernetes.io/spine", "network.topology.kubernetes.io/block"),
        ("oci.oraclecloud.com/rdma.hpc_island_id", "oci.oraclecloud.com/rdma.local_block_id"),
        ("topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/network-node-layer-3"),
        ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    ],
)
def test_label_families_know_which_level_is_the_outer(outer: str, inner: str) -> None:
    node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  labels:\n"
    found = read_kubernetes(f"{node}    {inner}: in\n    {outer}: out\n".encode())
    assert places(found) == {"n": "in"}
    assert {switch.name: switch.level for switch in found.switches} == {"in": 0, "out": 1}


def test_a_clique_that_other_labels_part_is_told() -> None:
    node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: {0}\n  labels:\n"
    node += "    nvidia.com/gpu.clique: c\n"
    other = "    accelerator.topograph.run/domain: {0}\n"
    both = "---\n".join((node + other).format(name) for name in ("n1", "n2"))
    found = read_kubernetes(both.encode())
    assert domains(found) == {"c": ("n1", "n2")}
    assert any("the clique counts" in note for note in found.notes)


@pytest.mark.parametrize("name", READERS)
def test_no_line_is_without_effect(name: str) -> None:
    def aside(line: str) -> bool:
        # What wraps the objects of Kubernetes, and what old models say twice.
        return line.startswith(("#", "apiVersion", "kind: List", "---", "capacity_block:"))

    assert lines_without_effect(READERS[name], fixture(name).encode(), aside=aside) == []


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(name: str) -> None:
    assert read_damaged(READERS[name], fixture(name).encode(), seed=13) < 300


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("topograph/model.yaml", "blocks:", "block:", "gives 'block'; known here are"),
        ("topograph/model.yaml", "  - m1", "  - n01\n- nodes: [n02]", "which line 11 has already"),
        ("topograph/model.yaml", "n[01-03]", "n[01-", "broken host list"),
        ("topograph/model.yaml", "    - rack-3", "    - core", "on a circle"),
        ("topograph/model.yaml", "- rack-1\n", "- {a: b}\n", "that are no host list"),
        ("topograph/model_of_lists.yaml", "- name: leaf2", "- names: leaf2", "without a name"),
        ("topograph/model_of_lists.yaml", "[cb1]", "[cb9]", "'cb9' below it, which is not"),
        ("topograph/model_of_lists.yaml", "- name: leaf2", "- name: leaf1", "again (first on line"),
        ("topograph/model_of_lists.yaml", "  - cb2", "  - cb1", "'n1-1' below 'leaf2', but line"),
        (
            "topograph/model_of_lists.yaml",
            "switches: [leaf1,leaf2]",
            "switches: leaf1",
            "a list of",
        ),
        ("topograph/model_of_nodes.yaml", "nvlink: nv1", "nvlink: [nv1]", "which is a text"),
        ("topograph/instances.json", '"id": "n2"', '"id": "n1"', "gives 'n1' again (first on line"),
        ("topograph/instances.json", '"leaf2"', '"spine"', "'spine' below 'spine', line"),
        ("topograph/instances.json", '"id": "n2"', '"ids": "n2"', "has an id, and names of"),
        ("topograph/netq.json", '"size": 2', '"size": 3', "says it is '3' cables and lists 2"),
        ("topograph/netq.json", '"node": "b"', '"node": "c"', "'c', which is no node"),
        ("topograph/netq.json", '"tier": 2', '"tier": "x"', "a tier that is a whole number"),
        ("topograph/netq.json", '"id": "b"', '"id": "a"', "gives 'spine' again"),
        ("topograph/netq.json", '{"interface": "swp9", "node": "a"}', "", "two ends; here 1"),
        ("topograph/netq_computes.json", '"Name": "n2"', '"Name": "n1"', "gives 'n1' again"),
        ("topograph/netq_computes.json", '"Name": "n2"', '"Nam": "n2"', "has a text Name"),
        ("kubernetes/nodes.yaml", "name: gpu-2", "name: gpu-1", "gives node 'gpu-1' again"),
        ("kubernetes/nodes.yaml", "    name: bare\n", "", "without metadata.name"),
        ("kubernetes/topology_and_nodes.yaml", "example.com/rack\n", "\n", "each with a nodeLabel"),
        ("kubernetes/kind.yaml", "role: worker", "role: other", None),
    ],
)
def test_what_is_wrong_is_told(name: str, old: str, new: str, reason: str | None) -> None:
    if reason is None:
        assert edited(name, old, new)().facts["hosts"] == 1
    else:
        assert reason in refusal_text(edited(name, old, new))


def test_a_topology_alone_is_refused_for_what_it_lacks() -> None:
    content = fixture("kubernetes/topology_and_nodes.yaml").split("---")[0]
    assert "it names labels and no node" in refusal_text(partial(read_kubernetes, content.encode()))


def test_nodes_without_any_label_are_refused_with_what_is_known() -> None:
    content = b"apiVersion: v1\nkind: Node\nmetadata:\n  name: n\n"
    assert "fabric.topograph.run/tier-0" in refusal_text(partial(read_kubernetes, content))
    topology = fixture("kubernetes/topology_and_nodes.yaml").split("---")[0].encode()
    together = topology + b"---\n" + content
    assert "labels that no node has" in refusal_text(partial(read_kubernetes, together))
