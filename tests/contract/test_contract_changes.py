"""The comparison with the last release finds what breaks clients, and nothing else."""

import json
import re
import tomllib
from copy import deepcopy
from typing import Any

import pytest

from tests.architecture.repository import ROOT
from tests.contract.seeded_edits import BREAKING, HARMLESS
from tools.contract_changes import RELEASED, breaking_changes, main, may_break
from tools.contract_schemas import Comparison

CONTRACT: dict[str, Any] = json.loads((ROOT / "openapi" / "openapi.json").read_bytes())


def test_the_present_contract_breaks_nothing_of_itself() -> None:
    assert breaking_changes(CONTRACT, CONTRACT) == []


@pytest.mark.parametrize("name", BREAKING)
def test_a_breaking_edit_is_found_where_it_is(name: str) -> None:
    edit, told = BREAKING[name]
    edited = deepcopy(CONTRACT)
    edit(edited)
    assert edited != CONTRACT
    found = breaking_changes(CONTRACT, edited)
    assert found, "nothing was found"
    assert any(told in line for line in found), found


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_edit_passes(name: str) -> None:
    edited = deepcopy(CONTRACT)
    HARMLESS[name](edited)
    assert edited != CONTRACT
    assert breaking_changes(CONTRACT, edited) == []


def test_recursive_schemas_are_compared_once() -> None:
    def tree(leaf: dict[str, Any]) -> dict[str, Any]:
        children = {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}
        properties = {"leaf": leaf, "children": children}
        return {"components": {"schemas": {"Tree": {"type": "object", "properties": properties}}}}

    reference = {"$ref": "#/components/schemas/Tree"}
    wide, narrow = tree({"type": "number"}), tree({"type": "integer"})
    narrowed = Comparison(wide, narrow, sends_new=False).excess(reference, reference, "tree")
    assert list(narrowed) == ["tree.leaf: type number -> integer"]
    widened = Comparison(narrow, wide, sends_new=False).excess(reference, reference, "tree")
    assert list(widened) == []


def test_a_union_takes_what_one_of_its_branches_takes() -> None:
    def excess(sent: Any, taken: Any) -> list[str]:
        return list(Comparison({}, {}, sends_new=False).excess(sent, taken, "it"))

    number, text = {"type": "number", "minimum": 0}, {"type": "string", "maxLength": 5}
    assert excess(number, {"anyOf": [text, number]}) == []
    assert excess({"anyOf": [text, number]}, {"anyOf": [number, text]}) == []
    assert excess({"anyOf": [text, number]}, number) == ["it: type string -> number"]
    assert excess({"type": "integer", "minimum": -1}, {"anyOf": [text, number]}) == [
        "it: lower bound -1 -> 0"
    ]


@pytest.mark.parametrize(
    ("released", "present", "allowed"),
    [
        ("0.1.0", "0.1.0", False),
        ("0.1.0", "0.1.7", False),
        ("0.1.0", "0.2.0", True),
        ("0.9.0", "0.10.0", True),
        ("0.9.0", "1.0.0", True),
        ("1.0.0", "1.1.0", False),
        ("1.9.0", "2.0.0", True),
        ("0.2.0", "0.1.0", False),
    ],
)
def test_only_a_version_that_says_so_may_break(released: str, present: str, allowed: bool) -> None:
    assert may_break(released, present) is allowed


def released_versions() -> list[str]:
    """Those that the changelog gives a day, newest first."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.findall(r"^## \[([0-9.]+)\] - [0-9-]{10}$", text, re.MULTILINE)


def test_every_release_keeps_its_contract() -> None:
    versions = released_versions()
    assert {f"{version}.json" for version in versions} == {p.name for p in RELEASED.iterdir()}, (
        "run tools/release_contract.py"
    )
    for version in versions:
        kept = json.loads((RELEASED / f"{version}.json").read_bytes())
        assert kept["info"]["version"] == version


def test_the_present_version_is_the_last_release_or_comes_after_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    present, last = (
        tuple(map(int, version.split(".")))
        for version in (project["version"], released_versions()[0])
    )
    assert present >= last


def test_a_break_is_told_and_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main() == 0
    last = json.loads((RELEASED / f"{released_versions()[0]}.json").read_bytes())
    edited = deepcopy(last)
    BREAKING["path removed"][0](edited)
    broken = tmp_path / "openapi.json"
    broken.write_text(json.dumps(edited), encoding="utf-8")
    monkeypatch.setattr("tools.contract_changes.GENERATED", broken)
    assert main() == 1
    assert "POST /v1/queues/backlog: the operation is gone" in capsys.readouterr().out
