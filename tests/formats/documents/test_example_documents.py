"""The stored examples are documents of their kind, and say what the worked examples need."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.core.topology.expand import expand
from service.formats.documents import model, plan, profile, routing, topology
from service.formats.documents.canonical import canonical_bytes
from service.formats.documents.fields import Reference
from service.resources import resource_folder

EXAMPLES = resource_folder("examples")

KINDS: dict[str, tuple[type[msgspec.Struct], Any]] = {
    "models": (model.ModelDocument, model.to_core),
    "plans": (plan.PlanDocument, plan.to_core),
    "profiles": (profile.ProfileDocument, profile.to_core),
    "routings": (routing.RoutingDocument, routing.to_core),
    "topologies": (topology.TopologyDocument, topology.to_core),
}

FILES = sorted(EXAMPLES.glob("*/*.json"))


def read(kind: str, name: str) -> Any:
    content = (EXAMPLES / kind / f"{name}.json").read_bytes()
    return msgspec.json.decode(content, type=KINDS[kind][0])


def test_there_is_nothing_but_documents() -> None:
    assert {path.parent.name for path in FILES} == set(KINDS)
    assert [path for path in EXAMPLES.rglob("*") if path.is_file() and path not in FILES] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_example_is_a_valid_document_with_a_storable_name(path: Path) -> None:
    struct, to_core = KINDS[path.parent.name]
    document = msgspec.json.decode(path.read_bytes(), type=struct)
    assert to_core(document) is not None
    assert msgspec.json.decode(canonical_bytes(document), type=struct) == document
    assert msgspec.convert(path.stem, Reference) == path.stem


@pytest.mark.parametrize("name", [path.stem for path in FILES if path.parent.name == "plans"])
def test_what_a_plan_names_is_among_the_examples(name: str) -> None:
    core = plan.to_core(read("plans", name))
    named = {"topologies": core.topology, "models": core.model, "profiles": core.profile}
    missing = [
        f"{kind}/{reference}"
        for kind, reference in named.items()
        if reference is not None and not (EXAMPLES / kind / f"{reference}.json").is_file()
    ]
    assert not missing


@pytest.mark.parametrize(
    ("name", "hosts", "devices"),
    [("two-dgx-h100", 2, 16), ("two-p4d", 2, 16), ("two-pcie-hosts", 2, 16)],
)
def test_a_topology_expands(name: str, hosts: int, devices: int) -> None:
    cluster = expand(topology.to_core(read("topologies", name))).cluster
    assert len(cluster.hosts) == hosts
    assert len(cluster.devices) == devices


@pytest.mark.parametrize(
    ("name", "cadences"),
    [
        ("four-stages-before", [0.018, 0.018, 0.025, 0.018]),
        ("four-stages-after", [0.018, 0.021, 0.020, 0.018]),
    ],
)
def test_the_moved_plans_have_the_stated_cadences(name: str, cadences: list[float]) -> None:
    stages = plan.to_core(read("plans", name)).stages or ()
    for stage, cadence in zip(stages, cadences, strict=True):
        assert isinstance(stage.forward_seconds, float)
        assert isinstance(stage.backward_seconds, float)
        assert stage.forward_seconds + stage.backward_seconds == pytest.approx(cadence, rel=1e-15)
        assert stage.forward_seconds == pytest.approx(cadence / 3, rel=1e-9)


def test_the_profile_says_that_it_was_measured_nowhere() -> None:
    assert "invented" in read("profiles", "gpt-24-blocks-h100").description


def test_the_profile_has_two_microbatch_sizes_for_every_layer() -> None:
    measured = profile.to_core(read("profiles", "gpt-24-blocks-h100"))
    assert {m.point.microbatch_size for m in measured.measurements} == {1, 2}
    layers = model.to_core(read("models", "gpt-24-blocks")).layers
    assert len(layers) == 26
