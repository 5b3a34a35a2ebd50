"""Every route of the application as anybody, without its scope, and as another team.

The routes come from the application itself, so a new one is walked as soon as it is there.
"""

import json
import re
from typing import Any

import httpx
import pytest
from litestar import Litestar

from service.app.ports import Scope
from service.store.database import SqlDatabase
from tests.api.clients import client_of
from tests.api.route_calls import (
    ABSENT,
    ABSENT_PLAN,
    EXAMPLE_PLAN,
    INLINE_PLAN,
    OWNED,
    Teams,
    calls_of,
    replaced,
)


@pytest.fixture
def teams(app: Litestar, database: SqlDatabase) -> Teams:
    return Teams(app, database)


IDS = {
    "name": OWNED,
    "digest": f"sha256:{'0' * 64}",
    "id": "0" * 20,
    "slug": "not-found",
    "design": "dgx-h100",
}


async def test_anonymous_callers_reach_open_routes_only(app: Litestar, teams: Teams) -> None:
    async with await teams.client("crew"):
        pass  # from here on there is a token
    walked = 0
    async with client_of(app) as nobody, client_of(app, "stagefare_x") as stranger:
        for call in calls_of(app):
            for http in (nobody, stranger):
                response = await call.send(http, IDS)
                if call.scope is None:
                    assert response.status_code == 200, call
                    continue
                assert response.status_code == 401, call
                assert response.headers["www-authenticate"].startswith("Bearer"), call
                assert response.headers["content-type"] == "application/problem+json"
                walked += 1
    assert walked >= 2 * 40


async def test_a_token_without_the_scope_of_a_route_is_refused(app: Litestar, teams: Teams) -> None:
    others = {
        scope: await teams.client("crew", *(other for other in Scope if other is not scope))
        for scope in Scope
    }
    for call in calls_of(app):
        if call.scope is not None:
            response = await call.send(others[call.scope], IDS)
            assert response.status_code == 403, call
            assert f'scope="{call.scope.value}"' in response.headers["www-authenticate"], call
            if call.method != "HEAD":
                assert response.json()["type"] == "/problems/insufficient-scope", call
    for http in others.values():
        await http.aclose()


async def test_another_teams_objects_are_as_if_they_were_not(app: Litestar, teams: Teams) -> None:
    """One stranger asks for what the owner has, the other for what nobody has."""
    owner = await teams.client("owner")
    ids = await teams.fill(owner)
    calls = calls_of(app)
    assert ids.keys() == {name for call in calls for name in re.findall(r"\{(\w+)\}", call.path)}
    for call in calls:  # the owner's own ids are right
        if call.method in {"GET", "HEAD"}:
            assert (await call.send(owner, ids)).status_code == 200, call
    before = await state(owner)

    nothing = {**IDS, "name": ABSENT}
    renamed = {OWNED: ABSENT, EXAMPLE_PLAN: ABSENT_PLAN}
    back = {nothing[key]: ids[key] for key in ids} | {ABSENT_PLAN: EXAMPLE_PLAN}
    curious, other = await teams.client("curious"), await teams.client("other")
    for call in calls:
        seen = await call.send(curious, ids)
        expected = await call.send(other, nothing, renamed)
        if call.path == "/metrics":  # the same for all teams, from one moment to the next another
            assert seen.status_code == 200
            assert not [value for value in ids.values() if value in seen.text]
            continue
        assert comparable(seen) == comparable(expected, back), call
        of_team = "{" in call.path and "{design}" not in call.path and call.scope is not None
        if call.method in {"GET", "HEAD", "DELETE"} and of_team:
            assert seen.status_code == 404, call
    assert await state(owner) == before
    for http in (owner, curious, other):
        await http.aclose()


def comparable(response: httpx.Response, back: dict[str, str] | None = None) -> tuple[Any, ...]:
    """All of an answer but what differs from one request, moment or token to the next."""

    def plain(text: str) -> str:
        text = replaced(text, back or {})
        text = re.sub(r'"request_id":"[0-9a-f]{32}"', '"request_id":""', text)
        text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "(moment)", text)
        text = re.sub(r"stagefare_[0-9a-f]{20}_[0-9a-f]{64}", "(token)", text)
        return re.sub(r'"id":"[0-9a-f]{20}"', '"id":""', text)

    # The length goes with the body; a moment has no digits for microseconds that are zero; what is
    # left of the caller's own share depends on the moment.
    skipped = {"x-request-id", "content-length", "ratelimit"}
    headers = {k: plain(v) for k, v in response.headers.items() if k not in skipped}
    return response.status_code, headers, plain(response.text)


async def state(http: httpx.AsyncClient) -> list[Any]:
    """All that a team has."""
    answers = [await http.get(f"/v1/{kind}/{OWNED}/revisions") for kind in KINDS]
    answers += [await http.get(f"/v1/{kind}") for kind in (*KINDS, "measurements", "tokens")]
    assert all(answer.status_code == 200 for answer in answers)
    return [answer.json() for answer in answers]


KINDS = ("topologies", "models", "profiles", "routings", "plans")
BODIES = [
    pytest.param("/v1/cadence", {"plan": OWNED}, id="a plan"),
    pytest.param("/v1/cadence", {"plan": f"{OWNED}@1"}, id="a revision"),
    pytest.param("/v1/estimates", {"plan": OWNED, "patch": {"workload": None}}, id="an estimate"),
    pytest.param("/v1/bubble", {"plan": {**INLINE_PLAN, "topology": OWNED}}, id="a topology"),
    pytest.param(
        "/v1/bubble",
        {"plan": {**INLINE_PLAN, "costs": {"model": OWNED, "profile": f"{OWNED}@1"}}},
        id="costs",
    ),
]


@pytest.mark.parametrize(("url", "body"), BODIES)
async def test_references_do_not_reach_another_team(
    teams: Teams, url: str, body: dict[str, Any]
) -> None:
    owner, curious = await teams.client("owner"), await teams.client("curious")
    await teams.fill(owner)
    seen = await curious.post(url, json=body)
    absent = json.loads(json.dumps(body).replace(OWNED, ABSENT))
    expected = await curious.post(url, json=absent)
    assert comparable(seen) == comparable(expected, {ABSENT: OWNED})
    assert seen.status_code == 422
    assert "unknown_reference" in seen.text
    stored = await curious.put("/v1/plans/mine", json={**INLINE_PLAN, "topology": f"{OWNED}@1"})
    assert (stored.status_code, "unknown_reference" in stored.text) == (422, True)
    # Only its own team is told that a document is archived.
    for kind in KINDS:
        await owner.delete(f"/v1/{kind}/{OWNED}", headers={"If-Match": "*"})
    assert "is archived" in (await owner.post("/v1/cadence", json={"plan": OWNED})).text
    seen = await curious.post(url, json=body)
    assert comparable(seen) == comparable(expected, {ABSENT: OWNED})
    await owner.aclose()
    await curious.aclose()


async def test_a_cursor_is_no_way_into_another_team(teams: Teams) -> None:
    owner, curious = await teams.client("owner"), await teams.client("curious")
    await teams.fill(owner)
    for name in ("aa", "zz"):
        await owner.put(f"/v1/plans/{name}", json=INLINE_PLAN)
        await owner.post("/v1/tokens", json={"scopes": ["read"]})
    await curious.put("/v1/plans/own", json=INLINE_PLAN)
    cursor = (await owner.get("/v1/plans?limit=1")).json()["next"]
    assert [item["name"] for item in (await curious.get(cursor)).json()["items"]] == ["own"]
    cursor = (await owner.get("/v1/tokens?limit=1")).json()["next"]
    own = (await curious.get("/v1/tokens")).json()["items"]
    assert len(own) == 1
    assert all(item in own for item in (await curious.get(cursor)).json()["items"])
    await owner.aclose()
    await curious.aclose()


async def test_an_equal_estimate_is_computed_for_each_team(teams: Teams) -> None:
    owner, curious = await teams.client("owner"), await teams.client("curious")
    first = await owner.post("/v1/estimates", json={"plan": INLINE_PLAN})
    location = first.headers["location"]
    assert (await curious.get(location)).status_code == 404
    assert (await curious.get(f"{location}/timeline.svg")).status_code == 404
    again = await curious.post("/v1/estimates", json={"plan": INLINE_PLAN})
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["location"] == location
    await owner.aclose()
    await curious.aclose()


def test_what_each_operation_needs(app: Litestar) -> None:
    """Reading is the rule. Whatever needs more, or nothing at all, is listed here."""
    needed: dict[Scope | None, set[str]] = {}
    for call in calls_of(app):
        if call.handler.resolve_include_in_schema():
            needed.setdefault(call.scope, set()).add(str(call.handler.operation_id))
        else:  # what a browser loads for people
            assert (call.scope, call.path.split("/")[1]) == (None, "reference")
    nouns = ("topology", "model", "profile", "routing", "plan")
    assert needed[None] == {
        "get_front_page",
        "get_liveness",
        "get_openapi",
        "get_problem_page",
        "get_readiness",
    }
    assert needed[Scope.WRITE] == {
        "import_model",
        "import_profile",
        "import_routing",
        "import_topology",
        *(f"put_{noun}" for noun in nouns),
        *(f"archive_{noun}" for noun in nouns),
    }
    assert needed[Scope.ADMIN] == {"create_token", "list_tokens", "revoke_token"}
