"""Inputs of dnn-partitioning and Piper: layers, costs and tensors by hand, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.core.errors import FaultCode
from service.core.models.graph import RecordedSize
from service.core.profiles.profile import Recompute
from service.formats import json_graph, piper
from service.formats.dnn_partitioning import looks_like_dnn_partitioning, read_dnn_partitioning
from service.formats.documents import model as models
from service.formats.documents import profile as profiles
from service.formats.piper import looks_like_piper, read_piper
from service.formats.profile_reading import ProfileReading, Stated
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

FIXTURES = Path(__file__).parent / "fixtures" / "profiles"
TIED = (FIXTURES / "tied.dnn-partitioning.json").read_bytes()
BRANCHES = (FIXTURES / "branches.piper.json").read_bytes()

Change = Callable[[Any], object]


def read_tied(content: bytes = TIED) -> ProfileReading:
    return read_dnn_partitioning(content, Stated(microbatch_size=8, device="GPU"))


def read_branches(content: bytes = BRANCHES) -> ProfileReading:
    return read_piper(content, Stated(microbatch_size=4, backward_ratio=2.0, precision="fp32"))


def changed(content: bytes, change: Change) -> bytes:
    document = json.loads(content)
    change(document)
    return json.dumps(document, indent=1).encode()


def test_dnn_partitioning_by_hand() -> None:
    """Nodes 1 and 2 share a colour: one layer, whose backward is node 5. Node 2 hands the same
    tensor to 3 and 4. Node 3 has no backward node: it takes no time there.
    """
    reading = read_tied()
    assert reading.model is not None
    model, profile = models.to_core(reading.model), profiles.to_core(reading.profile)
    assert [layer.name for layer in model.layers] == ["node1", "node3", "node4"]
    assert [layer.description for layer in reading.model.layers] == [
        "weight, MatMul1, MatMul1_grad",
        "node3",
        "MatMul2, MatMul2_grad",
    ]
    costs = [profile.lookup(layer.name, 8) for layer in model.layers]
    assert [(c.forward_picoseconds, c.backward_picoseconds) for c in costs] == [
        (1_000_000_000, 2_000_000_000),
        (500_000_000, 0),
        (3_000_000_000, 6_250_000_000),
    ]
    assert [(t.name, t.producer, t.consumers, t.recorded) for t in model.tensors] == [
        ("node2.output", "node1", ("node3", "node4"), RecordedSize(64, 8)),
        ("node3.output", "node3", ("node4",), RecordedSize(1, 8)),
    ]
    assert all(tensor.has_gradient for tensor in model.tensors)
    passed = [(t.name, t.source, t.targets, t.backward, t.picoseconds) for t in profile.transfers]
    assert passed == [
        ("node2.output", "node1", ("node3", "node4"), False, 50_000_000),
        ("node3.output", "node3", ("node4",), False, 1_000_000),
        ("node6.output", "node4", ("node1",), True, 50_000_000),
    ]
    assert reading.facts == {
        "layers": 3,
        "nodes": 6,
        "backward_nodes": 2,
        "edges": 6,
        "tensors": 2,
        "forward_seconds": 0.0045,
        "backward_seconds": 0.00825,
        "memory_bytes": 528.0,
    }
    assert [item.line for item in reading.left_out] == [2, 3, 4]


def test_without_backward_nodes_the_backward_stays_unknown() -> None:
    def forward_only(document: Any) -> None:
        del document["nodes"][4:]
        del document["edges"][4:]

    reading = read_tied(changed(TIED, forward_only))
    assert reading.model is not None
    profile = profiles.to_core(reading.profile)
    assert profile.lookup("node1", 8).backward_picoseconds is None
    assert not any(tensor.requires_gradient for tensor in reading.model.tensors)
    assert "backward times stay unknown" in " ".join(reading.assumptions)


def test_backward_nodes_without_forward_nodes_are_layers_of_their_own() -> None:
    """A loss of two nodes behind the last layer, and a sum of gradients between the first two."""

    def with_a_loss(document: Any) -> None:
        nodes, edges = document["nodes"], document["edges"]
        for number, color, time in ((7, 20, 0.5), (8, 20, 0.25), (9, None, 2.0)):
            node = {**nodes[5], "id": number, "name": f"b{number}", "fpgaLatency": time}
            node.pop("colorClass")
            nodes.append(node if color is None else {**node, "colorClass": color})
        edges.append({"sourceId": 4, "destId": 7, "size": 16.0, "cost": 0.5})
        edges.append({"sourceId": 7, "destId": 8, "cost": 0.5})
        edges.append({"sourceId": 8, "destId": 6, "cost": 0.5})
        edges[5] = {"sourceId": 6, "destId": 9, "cost": 0.125}
        edges.append({"sourceId": 9, "destId": 5, "cost": 0.25})

    reading = read_tied(changed(TIED, with_a_loss))
    assert reading.model is not None
    model, profile = models.to_core(reading.model), profiles.to_core(reading.profile)
    assert [layer.name for layer in model.layers] == ["node1", "node3", "node9", "node4", "node7"]
    costs = [profile.lookup(layer, 8) for layer in ("node9", "node7")]
    assert [(c.forward_picoseconds, c.backward_picoseconds) for c in costs] == [
        (0, 2_000_000_000),
        (0, 750_000_000),
    ]
    assert {tensor.name: tensor.consumers for tensor in model.tensors} == {
        "node2.output": ("node3", "node4"),
        "node3.output": ("node4",),
        "node4.output": ("node7",),
    }
    backward = [(t.source, t.targets) for t in profile.transfers if t.backward]
    assert backward == [("node4", ("node9",)), ("node7", ("node4",)), ("node9", ("node1",))]
    assert "2 layers hold backward nodes alone" in " ".join(reading.assumptions)


def test_what_a_backward_alone_takes_is_carried_to_its_layer() -> None:
    def used_by_the_gradient(document: Any) -> None:
        document["edges"][4] = {"sourceId": 3, "destId": 7, "size": 0.125, "cost": 0.001}
        document["nodes"].append({**document["nodes"][5], "id": 7, "colorClass": 30})

    reading = read_tied(changed(TIED, used_by_the_gradient))
    assert reading.model is not None
    taken = {tensor.name: tensor.consumers for tensor in reading.model.tensors}
    assert taken["node3.output"] == ["node4", "node7"]


def test_what_lies_between_nodes_of_one_colour_is_in_their_layer() -> None:
    def all_of_one_colour(document: Any) -> None:
        for place in (1, 5):
            document["nodes"][place]["colorClass"] = 7

    reading = read_tied(changed(TIED, all_of_one_colour))
    assert reading.model is not None
    assert [layer.name for layer in reading.model.layers] == ["node1"]
    assert reading.model.tensors == []


def test_piper_by_hand() -> None:
    """The mask costs nothing and needs nothing: an input, with tensors of two sizes. Attention
    takes 30 ms, of which 10 forward; its recompute 12 ms more.
    """
    reading = read_branches()
    assert reading.model is not None
    model, profile = models.to_core(reading.model), profiles.to_core(reading.profile)
    assert [(layer.name, layer.kind) for layer in model.layers] == [
        ("node10", "input"),
        ("node12", "layer"),
        ("node11", "layer"),
        ("node13", "layer"),
    ]
    assert reading.model.layers[0].description == "mask"
    assert [p.count for layer in model.layers for p in layer.parameters] == [1000, 100]
    attention = profile.lookup("node12", 4)
    assert attention.forward_picoseconds == 10_000_000_000
    assert attention.backward_picoseconds == 20_000_000_000
    assert attention.saved_activation_bytes == 800
    again = profile.lookup("node12", 4, recompute=Recompute.FULL)
    assert again.forward_picoseconds == 10_000_000_000
    assert again.recompute_picoseconds == 12_000_000_000
    assert again.saved_activation_bytes == 100
    split = profile.lookup("node12", 4, tensor_parallel=2)
    assert split.forward_picoseconds == 6_000_000_000
    assert not split.communication_known
    assert profile.points("node10") == ()
    assert [(t.name, t.consumers, t.recorded, t.has_gradient) for t in model.tensors] == [
        ("node10.output.0", ("node12",), RecordedSize(64, 4), False),
        ("node10.output.1", ("node13",), RecordedSize(32, 4), False),
        ("node12.output.0", ("node11", "node13"), RecordedSize(512, 4), True),
        ("node11.output.0", ("node13",), RecordedSize(256, 4), True),
    ]
    assert reading.facts["measurements"] == 5
    assert reading.facts["tensor_parallel"] == [1, 2]
    assert reading.facts["seconds"] == 0.036
    assert [item.line for item in reading.left_out] == [2, 3, 4, 5]


def test_both_are_recognised_by_their_content() -> None:
    assert looks_like_dnn_partitioning(TIED)
    assert not looks_like_dnn_partitioning(BRANCHES)
    assert looks_like_piper(BRANCHES)
    assert not looks_like_piper(TIED)
    for looks in (looks_like_dnn_partitioning, looks_like_piper):
        assert not looks(b"[]")


def at(*path: str | int) -> Callable[[Any], Any]:
    def find(document: Any) -> Any:
        for part in path:
            document = document[part]
        return document

    return find


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (lambda d: d.pop("maxCPUs"), 1, "has no 'maxCPUs'"),
        (lambda d: d.update(maxFPGAs=-1), 2, "number from 0"),
        (lambda d: d.update(nodes={}), 5, "is a list of nodes"),
        (lambda d: d.update(nodes=[], edges=[]), 5, "holds no node"),
        (lambda d: d.pop("edges"), 1, "is a list of edges"),
        (lambda d: d["nodes"].append(3), None, "is an object; got 3"),
        (lambda d: d["nodes"][0].pop("id"), 6, "has no 'id'"),
        (lambda d: d["nodes"][1].update(id=1), 17, "is 1 again, as nodes/0 is"),
        (lambda d: d["nodes"][0].update(id="1"), 7, "whole number"),
        (lambda d: d["nodes"][0].update(name=1), 8, "is a text"),
        (lambda d: d["nodes"][0].pop("fpgaLatency"), 6, "has no 'fpgaLatency'"),
        (lambda d: d["nodes"][0].update(fpgaLatency=None), 11, "number from 0"),
        (lambda d: d["nodes"][0].update(supportedOnFpga=0), 9, "runs on no accelerator"),
        (lambda d: d["nodes"][0].update(isBackwardNode="no"), 12, "true or false"),
        (lambda d: d["nodes"][0].update(colorClass=0.5), 13, "whole number"),
        (lambda d: [n.update(isBackwardNode=1) for n in d["nodes"]], None, "backward nodes alone"),
        (
            lambda d: (d["nodes"][5].update(colorClass=70), d["edges"][4].update(sourceId=4)),
            None,
            "how many bytes pass is unknown",
        ),
        (lambda d: d["edges"][0].pop("sourceId"), None, "has no 'sourceId'"),
        (lambda d: d["edges"][0].update(destId=99), None, "is 99, which no node is"),
        (lambda d: d["edges"][0].update(destId=1), None, "from a node to itself"),
        (lambda d: d["edges"].append(d["edges"][0]), None, "joins the nodes of edges/0 again"),
        (lambda d: d["edges"][0].pop("size"), None, "how many bytes pass is unknown"),
        (lambda d: d["edges"][0].pop("cost"), None, "has no 'cost'"),
        (lambda d: d["edges"][2].update(size=65.0), None, "differs from the 64 bytes"),
        (lambda d: d["edges"][5].update(destId=3), None, "from a backward node to a forward one"),
    ],
)
def test_what_is_wrong_with_dnn_partitioning(change: Change, line: int | None, words: str) -> None:
    content = changed(TIED, change)
    found = refusals(lambda: read_tied(content))
    assert words in refusal_text(lambda: read_tied(content))
    assert {code for code, _ in found} == {FaultCode.UNREADABLE}
    if line is not None:
        assert ("line", line) in [path for _, path in found]


RUN = at("nodes", 1, "TMPCs", "1", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("bandwidth"), "has no 'bandwidth'"),
        (lambda d: d.pop("mbsInBatch"), "has no 'mbsInBatch'"),
        (lambda d: d.update(mbsInBatch=0), "whole number from 1"),
        (lambda d: d["nodes"][0].pop("TMPCs"), "has no 'TMPCs'"),
        (lambda d: d["nodes"][0]["TMPCs"].update(x=[]), "is a degree from 1"),
        (lambda d: d["nodes"][0]["TMPCs"].update({"0": []}), "is a degree from 1"),
        (lambda d: d["nodes"][0]["TMPCs"].update({"2": {}}), "is a list of vanilla"),
        (lambda d: d["nodes"][0]["TMPCs"].pop("1"), "has no 'TMPCs'"),
        (lambda d: d["nodes"][1]["TMPCs"].pop("1"), "no plain run at degree 1"),
        (lambda d: RUN(d).update(id="offload"), "is 'vanilla' or 'activation recomp'"),
        (lambda d: RUN(d).update(id="activation recomp"), "stands twice"),
        (lambda d: RUN(d).pop("syncTimeFw"), "has no 'syncTimeFw'"),
        (lambda d: RUN(d).update(syncTimeFw=0), "is an object"),
        (lambda d: RUN(d).update(timePerSample=-1), "number from 0"),
        (lambda d: RUN(d).update(timePerSample=0.05), "less time than the plain one"),
        (lambda d: RUN(d).update(parameterSize=4002), "no whole number of fp32"),
        (lambda d: RUN(d).update(memoryUsageA=0.5), "whole number"),
        (lambda d: d["edges"][0].pop("communicationCost"), "has no 'communicationCost'"),
        (lambda d: d["edges"][0].update(sourceId=13, destId=12), "part of a cycle of edges"),
        (lambda d: (d["nodes"].__delitem__(slice(1, None)), d["edges"].clear()), "inputs only"),
    ],
)
def test_what_is_wrong_with_piper(change: Change, words: str) -> None:
    content = changed(BRANCHES, change)
    assert words in refusal_text(lambda: read_branches(content))


def test_runs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piper, "MAX_LAYERS", 4)
    assert "more than 4 runs" in refusal_text(read_branches)


def test_edges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_graph, "MAX_EDGES", 3)
    assert "holds 5 edges; at most 3" in refusal_text(read_branches)


@pytest.mark.parametrize(
    ("read", "content"),
    [pytest.param(read_tied, TIED, id="tied"), pytest.param(read_branches, BRANCHES, id="piper")],
)
def test_no_line_is_without_effect_and_damage_is_survived(
    read: Callable[[bytes], ProfileReading], content: bytes
) -> None:
    assert lines_without_effect(read, content) == []
    assert 0 < read_damaged(read, content, seed=2) < 300
