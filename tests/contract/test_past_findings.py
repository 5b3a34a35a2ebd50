"""What made requests have found once, replayed for good: a request, and how it is answered.

A finding of tests/contract/test_schemathesis.py gets a row here when it is put right.
"""

from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.contract.conftest import LiveService

STAGES = {"stages": [{"forward_seconds": 0.006, "backward_seconds": 0.012}] * 2}
PLAN: dict[str, Any] = {
    "costs": STAGES,
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 8},
}
CURSOR = "0" * 1000


@dataclass(frozen=True)
class Finding:
    """A request, the status it is answered with, and what was wrong."""

    was: str
    status: int
    method: str
    url: str
    json: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)


FINDINGS = [
    Finding(
        was="8.0 was no integer, which it is to JSON Schema",
        status=201,
        method="PUT",
        url="/v1/plans/whole",
        json={**PLAN, "workload": {"microbatches": 8.0}},
    ),
    Finding(
        was="(the same: an equal plan is the same revision)",
        status=200,
        method="PUT",
        url="/v1/plans/whole",
        json=PLAN,
        answers={"revision": 1},
    ),
    Finding(
        was="8.0 was no integer in a patch",
        status=200,
        method="POST",
        url="/v1/cadence",
        json={"plan": PLAN, "patch": {"workload": {"microbatches": 4.0}}},
    ),
    Finding(
        was="(but 8.5 is none)",
        status=400,
        method="PUT",
        url="/v1/plans/whole",
        json={**PLAN, "workload": {"microbatches": 8.5}},
    ),
    Finding(
        was="1033.0 was no number of seconds for a token",
        status=201,
        method="POST",
        url="/v1/tokens",
        json={"scopes": ["read"], "expires_in_seconds": 1033.0},
    ),
    *(
        Finding(
            was="the schema took any text for a cursor, the service called it malformed",
            status=status,
            method="GET",
            url=f"/v1/{kind}?cursor={cursor}",
        )
        for kind in (
            "topologies",
            "models",
            "profiles",
            "routings",
            "plans",
            "measurements",
            "tokens",
        )
        for cursor, status in ((CURSOR, 422), ("!", 400), (CURSOR + "0", 400))
    ),
    Finding(
        was="a patch that makes a plan of another shape was called a malformed body",
        status=422,
        method="POST",
        url="/v1/estimates",
        json={"plan": PLAN, "patch": {"£": 1}},
    ),
    Finding(
        was="(the same, for a value of another type)",
        status=422,
        method="POST",
        url="/v1/cadence",
        json={"plan": PLAN, "patch": {"workload": {"microbatches": "many"}}},
    ),
    Finding(
        was="a condition that is no entity tag",
        status=400,
        method="DELETE",
        url="/v1/plans/whole",
        headers={"If-Match": "0"},
    ),
    Finding(
        was="the schema took the name of a neighbouring route for a digest",
        status=405,
        method="GET",
        url="/v1/estimates/batches",
    ),
    Finding(
        was="a list a thousand times too long is also too large",
        status=413,
        method="PUT",
        url="/v1/models/long",
        json={"layers": [{"name": "a" * 1000, "kind": "attention"}] * 20_000, "tensors": []},
    ),
]


def test_each_is_answered_as_it_was_put_right(live_service: LiveService) -> None:
    wrong = []
    with httpx.Client(base_url=live_service.url, headers=live_service.headers) as http:
        for case in FINDINGS:
            answer = http.request(case.method, case.url, json=case.json, headers=case.headers)
            told = {name: answer.json()[name] for name in case.answers}
            if (answer.status_code, told) != (case.status, case.answers):
                wrong.append((case.was, case.method, case.url, answer.status_code, answer.text))
    assert wrong == []
