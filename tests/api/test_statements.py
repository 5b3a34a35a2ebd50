"""How many SQL statements each operation sends, the same on both databases, in a file to review.

A statement is a round trip on PostgreSQL, so a number that grows is a route that has become slower.
`pytest tests/api/test_statements.py --write-golden` writes the file anew.
"""

import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar
from sqlalchemy import event

from service.resources import resource_folder
from service.store.database import SqlDatabase
from tests.api.example_documents import store_examples
from tests.api.route_calls import EXAMPLE_PLAN, INLINE_PLAN, OWNED, Call, Teams, calls_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "statements.json"
# In which order the operations follow each other, so that each meets what it is about.
ORDER = ("GET", "PUT", "POST", "DELETE")
NEW = "crews-new"
IMPORTED = "crews-imp"


class Counter:
    """Statements that an engine sends, without what no request chooses.

    Left out are BEGIN, which one of the drivers sends by itself, and the look-up of a token, which
    happens once a second however many requests there are.
    """

    def __init__(self, database: SqlDatabase) -> None:
        self.statements: list[str] = []
        event.listen(database._engine.sync_engine, "before_cursor_execute", self._note)

    def _note(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        is_look_up = statement.startswith("SELECT tokens.team, tokens.secret_hash")
        if not (statement.startswith("BEGIN") or is_look_up):
            self.statements.append(statement)


# Other cases of some operations: (name, method, URL, body, headers).
NAMED = {"plan": "gpt-two-hosts"}
PLAN = {**INLINE_PLAN, "workload": {"microbatches": 5}}
KEY = {"Idempotency-Key": "k"}
VARIANTS: list[tuple[str, str, str, Any, dict[str, str]]] = [
    ("cadence, everything by name", "POST", "/v1/cadence", NAMED, {}),
    ("create_estimate, everything by name", "POST", "/v1/estimates", NAMED, {}),
    ("create_estimate, known already", "POST", "/v1/estimates", NAMED, {}),
    ("create_estimate, with a key", "POST", "/v1/estimates", {"plan": PLAN}, KEY),
    ("create_estimate, with a key again", "POST", "/v1/estimates", {"plan": PLAN}, KEY),
    ("put_plan, the next revision", "PUT", f"/v1/plans/{EXAMPLE_PLAN}", PLAN, {}),
    ("put_plan, the same again", "PUT", f"/v1/plans/{EXAMPLE_PLAN}", PLAN, {}),
]


def name_for(call: Call) -> str:
    """What is written: something new, but archived is what is there.

    What is imported has a name of its own: questions to what was stored are answered after it.
    """
    if call.path.endswith("/imports"):
        return IMPORTED
    return NEW if call.method in {"PUT", "POST"} else OWNED


async def test_statements_of_each_operation(
    app: Litestar, database: SqlDatabase, request: pytest.FixtureRequest
) -> None:
    teams = Teams(app, database)
    calls = [
        call
        for call in calls_of(app)
        if call.method in ORDER and call.handler.resolve_include_in_schema()
    ]
    calls.sort(key=lambda call: ORDER.index(call.method))
    sent: dict[str, list[str]] = {}
    async with await teams.client("crew") as http:
        ids = await teams.fill(http)
        await store_examples(http)
        counter = Counter(database)

        async def count(name: str, answering: Awaitable[httpx.Response]) -> None:
            counter.statements.clear()
            answer = await answering
            assert answer.status_code < 300, (name, answer.text)
            sent[name] = list(counter.statements)

        for call in calls:
            answering = call.send(http, {**ids, "name": name_for(call)})
            await count(str(call.handler.operation_id), answering)
        operations = set(sent)
        for name, method, url, body, headers in VARIANTS:
            await count(name, http.request(method, url, json=body, headers=headers))
    contract = json.loads((resource_folder("openapi") / "openapi.json").read_bytes())
    described = {
        operation["operationId"]
        for operations in contract["paths"].values()
        for operation in operations.values()
    }
    assert operations == described
    found = {name: len(statements) for name, statements in sent.items()}
    if request.config.getoption("--write-golden"):
        GOLDEN.write_text(json.dumps(dict(sorted(found.items())), indent=2) + "\n")
    expected = json.loads(GOLDEN.read_text())
    changed = {
        name: sent.get(name)
        for name in found.keys() | expected.keys()
        if found.get(name) != expected.get(name)
    }
    assert found == expected, json.dumps(changed, indent=2)
