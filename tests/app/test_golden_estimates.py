"""The numbers of the example plans, which move only together with the version of the cost model."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.api.estimates import render_estimate
from service.app import documents, estimates
from service.app.document_kinds import DOCUMENT_TYPES
from service.app.estimates import EstimateQuestion
from service.app.ports import DocumentKind
from service.app.pricing import PlanQuestion
from service.app.services import Services
from service.core.estimates.version import MODEL_VERSION
from service.resources import resource_folder
from tests.app.fakes import fake_services
from tests.app.plan_documents import decode_plan

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "estimates.json"

# Besides plain numbers: what is left out of the comparison is long and follows from the rest.
LEFT_OUT = {"steps", "series", "alive", "steady_phases", "witness", "assumes", "closed_form_fails"}
TERMS = (
    "iteration_seconds",
    "lower_bounds",
    "cadence",
    "bubble",
    "live_activations",
    "critical_path",
    "slack",
    "sensitivity",
    "other_microbatch_counts",
)


def numbers(value: Any) -> Any:
    """The numbers of an answer, with the names that lead to them."""
    if isinstance(value, dict):
        kept = {k: numbers(v) for k, v in value.items() if k not in LEFT_OUT}
        return {k: v for k, v in kept.items() if v is not None}
    if isinstance(value, list):
        return [numbers(entry) for entry in value]
    return value if isinstance(value, int | float) else None


async def priced_examples(services: Services) -> dict[str, Any]:
    """The numbers of every example plan by its name."""
    folder = resource_folder("examples")
    for kind, document_type in DOCUMENT_TYPES.items():
        for file in sorted((folder / kind.value).glob("*.json")):
            struct = msgspec.json.decode(file.read_bytes(), type=document_type.struct)
            await documents.put(services, kind, file.stem, struct)
    answers = {}
    for file in sorted((folder / DocumentKind.PLAN.value).glob("*.json")):
        question = EstimateQuestion(PlanQuestion(file.stem))
        outcome = await estimates.create(services, question, decode_plan, render_estimate)
        answer = json.loads(outcome.stored.answer)
        boundaries = answer["boundary_transfers"]["boundaries"]
        directions = [[b["forward"], b.get("backward", {})] for b in boundaries]
        answers[file.stem] = {
            **{term: numbers(answer[term]) for term in TERMS if term in answer},
            "boundaries": numbers(directions),
        }
    return answers


async def test_golden_numbers_move_only_with_the_model_version(
    request: pytest.FixtureRequest,
) -> None:
    found: dict[str, Any] = {
        "model_version": MODEL_VERSION,
        "plans": await priced_examples(fake_services()),
    }
    if request.config.getoption("--write-golden"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())
    moved = [
        name
        for name in sorted(golden["plans"].keys() | found["plans"].keys())
        if golden["plans"].get(name) != found["plans"].get(name)
    ]
    if golden["model_version"] == MODEL_VERSION:
        assert not moved, (
            "answers have changed under the same model version: if they should, raise "
            "MODEL_VERSION, say why in CHANGELOG.md, and run with --write-golden"
        )
    assert golden == found, "the model version was raised: run with --write-golden"
