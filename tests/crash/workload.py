"""Writers of every kind against a service that may vanish, and what was acknowledged to them."""

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import httpx

__all__ = ["Acknowledged", "Writers", "check_acknowledged"]

WRITERS = 6
SHARED_NAMES = 3
TIMEOUT_SECONDS = 60

TOPOLOGY: dict[str, Any] = {"hosts": [{"name": "host", "design": "p4d"}]}
GRAPH = (
    "node1 -- Conv2d(3, 64) -- forward_compute_time={milliseconds}, backward_compute_time=4.000, "
    "activation_size=2048.0, parameter_size=400.000\n"
)

Key = tuple[str, str, int]


@dataclass
class Acknowledged:
    """What the service has said that it stored; `doubtful` is what it was asked and never said."""

    revisions: dict[Key, tuple[str, Any]] = field(default_factory=dict)
    estimates: dict[str, bytes] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    replies: dict[str, tuple[dict[str, Any], bytes]] = field(default_factory=dict)
    archived: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        made = len(self.revisions) + len(self.estimates) + len(self.tokens)
        return made + len(self.archived)

    def add(self, other: "Acknowledged") -> None:
        """Take in what another one has. A revision is acknowledged with one content for ever."""
        for key, (digest, _) in other.revisions.items():
            assert self.revisions.setdefault(key, (digest, None))[0] == digest, key
        self.estimates |= other.estimates
        self.tokens |= other.tokens
        self.archived |= other.archived


class Writers:
    """Some clients at once, each doing what its random numbers say until the service is gone."""

    def __init__(self, url: str, token: str, seed: int) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._seed = seed
        self._made = 0
        self.acknowledged = Acknowledged()

    async def run(self, gone: asyncio.Event) -> None:
        """Write until `gone` is set and the last request has come to its end."""
        async with httpx.AsyncClient(
            base_url=self._url, headers=self._headers, timeout=TIMEOUT_SECONDS
        ) as http:
            await asyncio.gather(*(self._write(http, number, gone) for number in range(WRITERS)))

    async def _write(self, http: httpx.AsyncClient, number: int, gone: asyncio.Event) -> None:
        chance = random.Random(self._seed * 1000 + number)
        kinds: list[Callable[[httpx.AsyncClient, random.Random], Coroutine[Any, Any, None]]]
        kinds = [self._put, self._import, self._estimate, self._token, self._archive]
        while not gone.is_set():
            (write,) = chance.choices(kinds, weights=[10, 3, 4, 1, 2])
            try:
                await write(http, chance)
            except httpx.TransportError:
                await asyncio.sleep(0.01)  # it is gone, or about to be

    def _new_plan(self, topology: str | None = None) -> dict[str, Any]:
        self._made += 1
        seconds = 0.001 + self._seed * 1e-3 + self._made * 1e-8
        plan: dict[str, Any] = {
            "costs": {"stages": [{"forward_seconds": seconds, "backward_seconds": 0.002}] * 2},
            "schedule": {"kind": "1f1b"},
            "workload": {"microbatches": 4},
        }
        return plan if topology is None else {**plan, "topology": topology}

    def _new_topology(self) -> dict[str, Any]:
        self._made += 1
        return {"hosts": [{"name": f"host{self._made}x", "design": "p4d"}]}

    def _new_name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._seed}-{self._made}"

    async def _put(self, http: httpx.AsyncClient, chance: random.Random) -> None:
        kind, document = chance.choice(
            [
                ("plans", self._new_plan()),
                ("plans", self._new_plan("cluster")),
                ("topologies", self._new_topology()),
            ]
        )
        own = self._new_name("own")
        name = chance.choice([own, *(f"shared-{n}" for n in range(SHARED_NAMES))])
        answer = await http.put(f"/v1/{kind}/{name}", json=document)
        if answer.status_code in {200, 201}:
            self._note(kind, answer.json(), document)
        else:
            assert_undone(answer)

    def _note(self, kind: str, answer: dict[str, Any], document: Any) -> None:
        key = (kind, answer["name"], answer["revision"])
        known = self.acknowledged.revisions.setdefault(key, (answer["digest"], document))
        assert known[0] == answer["digest"], f"{key} was given twice"

    async def _import(self, http: httpx.AsyncClient, _: random.Random) -> None:
        name, key = self._new_name("graph"), self._new_name("key")
        graph = GRAPH.format(milliseconds=f"{1 + self._made / 1000:.3f}")
        request = {"url": f"/v1/profiles/{name}/imports", "graph": graph}
        answer = await send_import(http, key, request)
        if answer.status_code == 201:
            self.acknowledged.replies[key] = (request, answer.content)
            for kind, noun in (("models", "model"), ("profiles", "profile")):
                self._note(kind, answer.json()[noun], None)
        else:
            assert_undone(answer)

    async def _estimate(self, http: httpx.AsyncClient, _: random.Random) -> None:
        answer = await http.post("/v1/estimates", json={"plan": self._new_plan()})
        if answer.status_code == 201:
            self.acknowledged.estimates[answer.json()["digest"]] = answer.content
        else:
            assert_undone(answer)

    async def _token(self, http: httpx.AsyncClient, _: random.Random) -> None:
        answer = await http.post("/v1/tokens", json={"scopes": ["read"]})
        if answer.status_code == 201:
            made = answer.json()
            self.acknowledged.tokens[made["id"]] = made["token"]
        else:
            assert_undone(answer)

    async def _archive(self, http: httpx.AsyncClient, _: random.Random) -> None:
        name = self._new_name("gone")
        answer = await http.put(f"/v1/plans/{name}", json=self._new_plan())
        if answer.status_code != 201:
            assert_undone(answer)
            return
        self._note("plans", answer.json(), None)
        self.acknowledged.doubtful.add(name)
        answer = await http.delete(f"/v1/plans/{name}", headers={"If-Match": "*"})
        if answer.status_code == 204:
            self.acknowledged.archived.add(name)
        else:
            assert_undone(answer)


async def send_import(http: httpx.AsyncClient, key: str, request: dict[str, Any]) -> httpx.Response:
    """An import under an idempotency key; sent again it has to be answered as the first time."""
    return await http.post(
        request["url"],
        files={"file": ("graph.txt", request["graph"])},
        data={"microbatch_size": "1"},
        headers={"Idempotency-Key": key},
    )


def assert_undone(answer: httpx.Response) -> None:
    """The only thing besides success that these requests may meet: not now, try again."""
    assert answer.status_code in {409, 429, 503}, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["content-type"] == "application/problem+json"


async def check_acknowledged(url: str, token: str, said: Acknowledged) -> None:
    """Read everything back over HTTP, as it was acknowledged."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS) as http:
        for (kind, name, number), (digest, document) in said.revisions.items():
            stored = (await http.get(f"/v1/{kind}/{name}@{number}")).json()
            assert stored["digest"] == digest
            # A plan's reference to a topology stays as it was sent.
            assert document is None or stored["document"] == document
        for digest, content in said.estimates.items():
            assert (await http.get(f"/v1/estimates/{digest}")).content == content
        for name in said.archived:
            assert (await http.get(f"/v1/plans/{name}")).status_code == 404
        for name in said.doubtful - said.archived:
            assert (await http.get(f"/v1/plans/{name}")).status_code in {200, 404}
        for key, (request, content) in said.replies.items():
            again = await send_import(http, key, request)
            assert (again.status_code, json.loads(again.content)) == (201, json.loads(content))
            assert again.headers["idempotency-replayed"] == "true"
        for text in said.tokens.values():
            own = {"Authorization": f"Bearer {text}"}
            assert (await http.get("/v1/plans?limit=1", headers=own)).status_code == 200
