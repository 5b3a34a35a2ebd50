"""Slurm's files and what `scontrol` prints: fixtures of our own with every trap in them."""

from functools import partial
from pathlib import Path

import pytest

from service.core.errors import FaultCode
from service.core.topology.readings import Cable, Reading
from service.formats.nvlink_clusters import looks_like_nvlink_clusters, read_nvlink_clusters
from service.formats.scontrol_topology import (
    looks_like_scontrol_topology,
    read_scontrol_topology,
)
from service.formats.slurm_conf import looks_like_slurm_conf, read_slurm_conf
from service.formats.slurm_records import MAX_RECORDS
from service.formats.slurm_yaml import looks_like_slurm_yaml, read_slurm_yaml
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

FIXTURES = Path(__file__).parent / "fixtures" / "slurm"
READERS = {
    "tree.conf": read_slurm_conf,
    "blocks.conf": read_slurm_conf,
    "rings.conf": read_slurm_conf,
    "tree_and_blocks.conf": read_slurm_conf,
    "scontrol.txt": read_scontrol_topology,
    "scontrol_blocks.txt": read_scontrol_topology,
    "clusters.txt": read_nvlink_clusters,
}
RECOGNISERS = {
    read_slurm_conf: looks_like_slurm_conf,
    read_scontrol_topology: looks_like_scontrol_topology,
    read_slurm_yaml: looks_like_slurm_yaml,
    read_nvlink_clusters: looks_like_nvlink_clusters,
}
YAML = (FIXTURES / "all.yaml").read_bytes()


def fixture(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def read(name: str) -> Reading:
    return READERS[name](fixture(name))


def with_default(name: str) -> bytes:
    """The YAML file with one of its topologies as the default."""
    line = f"- topology: {name}\n"
    text = YAML.decode().replace("  cluster_default: false\n", "")
    return text.replace(line, f"{line}  cluster_default: true\n").encode()


def pairs(cables: tuple[Cable, ...]) -> set[frozenset[str | None]]:
    return {
        frozenset((c.source.switch or c.source.host, c.target.switch or c.target.host))
        for c in cables
    }


def test_a_tree_with_a_part_that_stands_apart() -> None:
    found = read("tree.conf")
    assert dict(found.facts) == {"switches": 5, "hosts": 9, "levels": 2, "roots": 3}
    assert [(s.name, s.level, s.line) for s in found.switches] == [
        ("root", 1, 2),
        ("leaf1", 0, 3),
        ("leaf2", 0, 4),
        ("apart", 0, 6),
        ("spare", 0, 7),
    ]
    assert [each.host for each in found.attached if each.switch == "leaf1"] == [
        "c-n001",
        "c-n002",
        "c-n003",
        "x1",
    ]
    assert pairs(found.cables) == {frozenset(("root", "leaf1")), frozenset(("root", "leaf2"))}
    assert found.tree_only
    assert any("3 switches have none above (root, apart, spare)" in note for note in found.notes)
    assert any("1 switches have nothing below them (spare)" in note for note in found.notes)


def test_lines_beyond_what_is_read_end_the_reading() -> None:
    lines = [f"SwitchName=s{number}" for number in range(MAX_RECORDS)]
    beyond = "\n".join([*lines, "# a comment is no record", "SwitchName=a", "what is this"])
    faults = refusals(lambda: read_slurm_conf(beyond.encode()))
    assert faults == [(FaultCode.OUT_OF_RANGE, ("line", MAX_RECORDS + 2))]
    assert len(read_slurm_conf("\n".join(lines).encode()).switches) == MAX_RECORDS


def test_link_speed_is_never_a_rate() -> None:
    found = read("tree.conf")
    assert all(cable.rate is None for cable in found.cables)
    assert [(item.line, "LinkSpeed" in item.detail) for item in found.left_out] == [(3, True)]


def test_blocks_are_nvlink_domains_that_are_assumed() -> None:
    found = read("blocks.conf")
    assert dict(found.facts) == {"hosts": 8, "blocks": 2, "block_sizes": 2, "largest_block_size": 8}
    assert [(d.name, d.hosts) for d in found.domains] == [
        ("b1", ("n01", "n02", "n03", "n04")),
        ("b3", ("n09", "n10", "n11", "n12")),
    ]
    assert any("NVLink domain" in text for text in found.assumptions)
    assert all(each.switch is None for each in found.attached)


def test_one_file_may_hold_a_tree_and_blocks() -> None:
    found = read("tree_and_blocks.conf")
    assert (found.facts["switches"], found.facts["blocks"], found.facts["hosts"]) == (1, 1, 3)
    assert [(each.host, each.switch) for each in found.attached] == [
        ("n1", "leaf"),
        ("n2", "leaf"),
        ("n3", None),
    ]


def test_rings_join_hosts_to_their_neighbours() -> None:
    found = read("rings.conf")
    assert dict(found.facts) == {"rings": 2, "hosts": 6, "host_cables": 5}
    wanted = ["n1 n2", "n2 n3", "n3 n4", "n4 n1", "m1 m2"]
    assert pairs(found.cables) == {frozenset(pair.split()) for pair in wanted}


def test_scontrol_lists_descendants_again() -> None:
    found = read("scontrol.txt")
    assert dict(found.facts) == {"switches": 5, "hosts": 4, "levels": 3, "roots": 1}
    assert {each.host: each.switch for each in found.attached} == {
        "n1": "leaf1",
        "n2": "leaf1",
        "n3": "leaf2",
        "n4": "leaf3",
    }
    levels = {switch.name: switch.level for switch in found.switches}
    assert levels == {"leaf1": 0, "leaf2": 0, "leaf3": 0, "spine": 1, "core": 2}


def test_scontrol_prints_blocks_of_blocks() -> None:
    found = read("scontrol_blocks.txt")
    assert dict(found.facts) == {"hosts": 4, "blocks": 2, "block_sizes": 2, "largest_block_size": 4}
    assert [domain.hosts for domain in found.domains] == [("n1", "n2"), ("n3", "n4")]


def test_hosts_of_one_uuid_are_one_domain() -> None:
    found = read("clusters.txt")
    assert dict(found.facts) == {"hosts": 4, "domains": 2}
    assert [domain.hosts for domain in found.domains] == [("n1", "n2"), ("n3",)]
    assert [item.line for item in found.left_out] == [5]


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("first", {"switches": 3, "hosts": 5, "levels": 2, "roots": 1}),
        ("second", {"hosts": 4, "blocks": 2, "block_sizes": 2, "largest_block_size": 4}),
        ("fourth", {"rings": 1, "hosts": 5, "host_cables": 5}),
        ("fifth", {"tori": 1, "hosts": 6, "host_cables": 9}),
        ("sixth", {"tori": 1, "hosts": 5, "host_cables": 6}),
    ],
)
def test_the_default_of_a_yaml_file_is_read(name: str, facts: dict[str, int]) -> None:
    found = read_slurm_yaml(with_default(name))
    assert dict(found.facts) == facts
    others = [
        item.detail.split("'")[1] for item in found.left_out if "is the default" in item.detail
    ]
    assert len(others) == 5
    assert name not in others


def test_x_runs_first_in_a_torus() -> None:
    found = read_slurm_yaml(with_default("fifth"))
    along_x = ["n0 n1", "n1 n2", "n2 n0", "n3 n4", "n4 n5", "n5 n3"]
    along_y = ["n0 n3", "n1 n4", "n2 n5"]
    assert pairs(found.cables) == {frozenset(pair.split()) for pair in (*along_x, *along_y)}
    assert any("placements" in item.detail for item in found.left_out)


def test_regions_of_a_torus_may_leave_places_empty() -> None:
    found = read_slurm_yaml(with_default("sixth"))
    wanted = ["a0 a1", "b0 b1", "b1 b2", "b2 b0", "a0 b0", "a1 b1"]
    assert pairs(found.cables) == {frozenset(pair.split()) for pair in wanted}


def test_a_flat_topology_tells_nothing() -> None:
    assert "is flat" in refusal_text(lambda: read_slurm_yaml(with_default("third")))


def test_several_topologies_need_a_default() -> None:
    assert refusals(lambda: read_slurm_yaml(YAML)) == [(FaultCode.UNREADABLE, ("line", 2))]
    assert read_slurm_yaml(YAML[: YAML.index(b"- topology: second")]).facts["switches"] == 3


@pytest.mark.parametrize("name", READERS)
def test_each_file_is_recognised_by_one_importer(name: str) -> None:
    reader = READERS[name]
    fits = [read for read, recognises in RECOGNISERS.items() if recognises(fixture(name))]
    assert fits == [reader]


def test_yaml_is_recognised() -> None:
    fits = [read for read, recognises in RECOGNISERS.items() if recognises(YAML)]
    assert fits == [read_slurm_yaml]


def test_slurm_conf_is_recognised_and_refused_by_its_first_key() -> None:
    content = b"ClusterName=c\nNodeName=n[1-4] CPUs=8\n"
    assert looks_like_slurm_conf(content)
    assert "begins with 'NodeName'; a line here begins with SwitchName=" in refusal_text(
        partial(read_slurm_conf, content)
    )


@pytest.mark.parametrize("name", READERS)
def test_no_line_is_without_effect(name: str) -> None:
    assert lines_without_effect(READERS[name], fixture(name)) == []


@pytest.mark.parametrize("name", ["first", "second", "fourth", "fifth", "sixth"])
def test_no_line_of_the_default_is_without_effect(name: str) -> None:
    content = with_default(name)
    lines = content.decode().split("\n")
    start = next(n for n, line in enumerate(lines, 1) if line == f"- topology: {name}")
    following = (n for n, line in enumerate(lines, 1) if n > start and line.startswith("- "))
    end = next(following, len(lines) + 1)
    found = lines_without_effect(read_slurm_yaml, content, aside=lambda line: line == "---")
    inside = [number for number in found if start <= number < end]
    placements = [
        number for number in inside if "x: 1" in lines[number - 1] or "- dims" in lines[number - 1]
    ]
    assert inside == placements


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(name: str) -> None:
    assert read_damaged(READERS[name], fixture(name), seed=11) < 300


def test_damaged_yaml_is_read_or_refused() -> None:
    assert 0 < read_damaged(read_slurm_yaml, with_default("fifth"), seed=11) < 300


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("", None, "no switch, no block and no ring"),
        ("# BlockName=b Nodes=n1\n", None, "no switch, no block and no ring"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", 1, "circle"),
        ("SwitchName=a Switches=a\n", 1, "circle"),
        (
            "SwitchName=a Switches=b,c\nSwitchName=b Nodes=n1\n",
            1,
            "'c' below 'a', which is no switch",
        ),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\n", 2, "a host is below one switch"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", 2, "again (first on line 1)"),
        (
            "SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n\n",
            2,
            "a switch has one parent",
        ),
        ("SwitchName=a Switches=b Nodes=n1\nSwitchName=b\n", 1, "both switches and nodes"),
        ("SwitchName=a Nodes=n[1-\n", 1, "broken host list"),
        ("SwitchName=a Nodes=n[1-999999]\n", 1, "makes more than"),
        ("SwitchName=a Ports=3\n", 1, "gives ports; after SwitchName there may be Switches, Nodes"),
        ("SwitchName=a Nodes=n1 Nodes=n2\n", 1, "gives a key twice"),
        ("NodeName=a Nodes=n1\nSwitchName=s\n", 1, "begins with 'NodeName'"),
        ("SwitchName=a, Nodes\n", 1, "is no list of Key=value"),
        ("SwitchName=a \\\n", 1, "goes on with a next line"),
        ("BlockSizes=4\n", 1, "names no block"),
        ("BlockName=a Nodes=n1\nBlockSizes=4,12\n", 2, "times a power of two"),
        ("BlockName=a Nodes=n1\nBlockSizes=4,4\n", 2, "times a power of two"),
        ("BlockName=a Nodes=n1\nBlockSizes=big\n", 2, "no list of whole numbers"),
        ("BlockName=a Nodes=n1\nBlockSizes=1\nBlockSizes=2\n", 2, "one of several"),
        ("BlockName=a Nodes=n1\nBlockName=b Nodes=n1\n", 2, "line 1 has it in 'a'"),
        ("BlockName=a\n", 1, "no nodes"),
        ("RingName=a Nodes=n1\nSwitchName=s Nodes=n1\n", 2, "mixes rings"),
    ],
)
def test_what_is_wrong_with_topology_conf_is_told(
    content: str, line: int | None, reason: str
) -> None:
    call = partial(read_slurm_conf, content.encode())
    assert (() if line is None else ("line", line)) in [path for _code, path in refusals(call)]
    assert reason in refusal_text(call)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n3\n", "\n", 3, "'leaf2' below 'spine'"),
        ("Nodes=n[1-3] ", "Nodes=n[1-2] ", 3, "lists 'n3' of 'spine' below it and not itself"),
        ("Nodes=n[1-4] ", "Nodes=n[1-5] ", 4, "lists 'n5' of 'core' itself and not below it"),
        ("spine Level=1", "spine Level=2", 3, "what is below it makes it 1"),
        ("SwitchName=core", "BlockName=core", 4, "gives level"),
    ],
)
def test_lines_missing_from_scontrol_are_noticed(
    old: str, new: str, line: int, reason: str
) -> None:
    content = fixture("scontrol.txt").decode()
    assert old in content
    call = partial(read_scontrol_topology, content.replace(old, new).encode())
    assert ("line", line) in [path for _code, path in refusals(call)]
    assert reason in refusal_text(call)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("AggregatedBlock=b[0-1] BlockIndex=2 Nodes=n1\n", "'b0', which no line shows"),
        ("BlockName=b BlockIndex=0 Nodes=n1 BlockSize=x\n", "no whole number"),
        (
            "BlockName=b BlockIndex=0 Nodes=n1\nAggregatedBlock=b BlockIndex=1 Nodes=n[1-2]\n",
            "other nodes than its blocks",
        ),
        ("SwitchName=s Level=0\nBlockName=b BlockIndex=0 Nodes=n1\n", "also has blocks"),
        ("\n", "no switch and no block"),
    ],
)
def test_what_is_wrong_with_printed_blocks_is_told(content: str, reason: str) -> None:
    assert reason in refusal_text(partial(read_scontrol_topology, content.encode()))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("- topology: first\n", "- topology:\n", "without a name"),
        ("    switches:", "    switch:", "gives 'switch'; known here are switches"),
        ("nodes: n[01-02]", "nodes: n[01-02]\n        children: leaf2", "both children and nodes"),
        ("children: leaf[1-2]", "children: leaf[1-3]", "'leaf3' below 'root'"),
        ("      - switch: leaf1\n", "      -\n", "has a name (`switch: ...`)"),
        ("  tree:", "  flat: true\n  tree:", "exactly one of"),
        ("cluster_default: true", "cluster_default: perhaps", "neither true nor false"),
        ("nodes: n[01-02]", "nodes: [n01, {}]", "no host list"),
        ("nodes: n[01-02]", "nodes: *x", "an anchor or an alias"),
        ("nodes: n[01-02]", "nodes: &x n[01-02]", "anchor"),
        (
            "nodes: n[01-02]",
            "nodes: n1\n        nodes: n2",
            "gives 'nodes' again (first on line 9)",
        ),
        ("- topology: first\n", "- topology: [\n", "is no YAML"),
    ],
)
def test_what_is_wrong_with_yaml_is_told(old: str, new: str, reason: str) -> None:
    content = with_default("first").decode()
    assert old in content
    call = partial(read_slurm_yaml, content.replace(old, new, 1).encode())
    assert reason in refusal_text(call)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("y: 2", "y: 3", "gives 6 nodes to a shape of 3 x 3 x 1"),
        ("y: 2", "y: two", "no whole number from 1"),
        ("          z: 1\n", "", "no whole number from 1"),
    ],
)
def test_a_torus_has_as_many_nodes_as_places(old: str, new: str, reason: str) -> None:
    content = with_default("fifth").decode().replace(old, new, 1).encode()
    assert reason in refusal_text(partial(read_slurm_yaml, content))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("z: 1}\n            dims: {x: 3", "z: 2}\n            dims: {x: 3", "reaches out of"),
        ("z: 1}\n            dims: {x: 3", "z: 0}\n            dims: {x: 3", "where a0 is"),
        ("        regions:", "        nodes: c1\n        regions:", "both nodes and regions"),
    ],
)
def test_regions_fit_into_the_torus_beside_each_other(old: str, new: str, reason: str) -> None:
    content = with_default("sixth").decode()
    assert old in content
    assert reason in refusal_text(partial(read_slurm_yaml, content.replace(old, new, 1).encode()))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "gives no host"),
        (
            "n1: 5e797fc6-0f46-421a-8724-0e102c0f723c\nn1: 5e797fc6-0f46-421a-8724-0e102c0f723c\n",
            "again",
        ),
        ("n1: 5e797fc6-0f46-421a-8724-0e102c0f723\n", "is no `host: cluster UUID`"),
    ],
)
def test_what_is_wrong_with_a_list_of_uuids_is_told(content: str, reason: str) -> None:
    assert reason in refusal_text(partial(read_nvlink_clusters, content.encode()))
