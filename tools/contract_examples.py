"""An example of every operation: its request sent to the service, and what came back.

The contract names a body for each operation that takes one; the rest of a request follows from
what was answered before (the digest of an estimate, the id of a token). `run_examples` sends them
all, in an order in which each finds what it needs; `recorded_examples` does so on a fresh service,
and the answers become part of the contract.
"""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from service.api.contract import build_contract
from service.api.contract import generated_files as contract_files
from service.app.access import create_token
from service.app.ports import Scope
from service.main import create_app, open_services
from service.settings import read_settings
from service.store import migrate
from service.web.openapi_examples import Recorded

__all__ = ["NAMES", "WITHOUT_ANSWER", "generated_files", "recorded_examples", "run_examples"]

# The contract can't hold itself, and what is counted differs from one moment to the next.
WITHOUT_ANSWER = {"get_openapi", "get_metrics"}
TOKEN_ID = "019c1f0a2b3c4d5e6f70"  # noqa: S105 (an id, and shown to everybody)
NAMES = {
    "topologies": "two-dgx-h100",
    "models": "gpt-24-blocks",
    "profiles": "gpt-24-blocks-h100",
    "routings": "four-ranks-eight-experts",
    "plans": "equal-stages-1f1b",
}
IMPORTED = {
    "import_model": "small-decoder",
    "import_profile": "two-layers",
    "import_routing": "two-steps",
    "import_topology": "two-hosts",
}
# What no two services have in common, and what is shown instead.
_VOLATILE = {
    "created_at": "2026-01-02T03:04:05Z",
    "request_id": "0123456789abcdef0123456789abcdef",
}
_VOLATILE_OF_TOKENS = {
    **_VOLATILE,
    "expires_at": "2026-04-02T03:04:05Z",
    "id": TOKEN_ID,
    "token": f"stagefare_{TOKEN_ID}_{'0123456789abcdef' * 4}",
}
_RANKS = {"put": 0, "post": 1, "get": 2, "delete": 3}


@dataclass(frozen=True)
class _Operation:
    path: str
    method: str
    spec: Mapping[str, Any]

    @property
    def rank(self) -> tuple[int, bool, str]:
        """When it is sent: after what stores what it reads, and before that is archived."""
        return _RANKS[self.method], self.path != "/v1/estimates", self.path


def _operations(document: Mapping[str, Any]) -> Iterator[_Operation]:
    found = [
        _Operation(path, method, spec)
        for path, methods in document["paths"].items()
        for method, spec in methods.items()
    ]
    yield from sorted(found, key=lambda operation: operation.rank)


def _settled(value: Any, volatile: Mapping[str, str]) -> Any:
    """An answer with what differs from service to service replaced by what is shown."""
    if isinstance(value, dict):
        return {
            key: volatile[key] if key in volatile else _settled(inner, volatile)
            for key, inner in value.items()
        }
    return [_settled(inner, volatile) for inner in value] if isinstance(value, list) else value


async def run_examples(document: Mapping[str, Any], http: httpx.AsyncClient) -> dict[str, Recorded]:
    """Send the example of every operation of a contract; what was answered, by operation id.

    Raises ValueError when one is missing or refused.
    """
    answered: dict[str, Recorded] = {}
    known = {"slug": "not-found", "design": "dgx-h100"}
    for operation in _operations(document):
        noun = operation.path.split("/")[2] if operation.path.startswith("/v1/") else ""
        name = IMPORTED.get(operation.spec["operationId"]) or NAMES.get(noun, "")
        values = {**known, "name": name}
        given = {
            parameter["name"]: values[parameter["name"]]
            for parameter in operation.spec.get("parameters", ())
            if parameter["in"] == "path"
        }
        response = await http.request(
            operation.method, operation.path.format(**given), **_request(operation)
        )
        recorded = _recorded(operation, response, given)
        answered[operation.spec["operationId"]] = recorded
        if operation.path == "/v1/estimates":
            known["digest"] = response.json()["digest"]
        if operation.spec["operationId"] == "create_token":
            known["id"] = response.json()["id"]
    return answered


def _request(operation: _Operation) -> dict[str, Any]:
    required = {
        parameter["name"]: "*"
        for parameter in operation.spec.get("parameters", ())
        if parameter["in"] == "header" and parameter["required"]
    }
    content = operation.spec.get("requestBody", {}).get("content", {})
    for media_type, body in content.items():
        if "example" not in body:
            raise ValueError(f"{operation.spec['operationId']} has no example of its body")
        if media_type == "multipart/form-data":
            parts = dict(body["example"])
            files = [
                (part, (f"{part}.txt", text.encode()))
                for part in ("file", "files")
                for text in _texts(parts.pop(part, []))
            ]
            fields = {name: str(value) for name, value in parts.items()}
            return {"headers": required, "data": fields, "files": files}
        return {"headers": required, "json": body["example"]}
    return {"headers": required}


def _texts(example: str | list[str]) -> list[str]:
    """The files of an example: one, or several."""
    return [example] if isinstance(example, str) else example


def _recorded(
    operation: _Operation, response: httpx.Response, given: Mapping[str, str]
) -> Recorded:
    operation_id = operation.spec["operationId"]
    if not response.is_success:
        raise ValueError(f"{operation_id}: {response.status_code} {response.text}")
    shown = {name: TOKEN_ID if name == "id" else value for name, value in given.items()}
    if operation_id in WITHOUT_ANSWER or not response.content:
        return Recorded(response.status_code, shown)
    is_json = response.headers["content-type"].partition(";")[0] == "application/json"
    volatile = _VOLATILE_OF_TOKENS if operation.path.startswith("/v1/tokens") else _VOLATILE
    body = _settled(json.loads(response.content), volatile) if is_json else response.text
    return Recorded(response.status_code, shown, body)


def recorded_examples() -> dict[str, Recorded]:
    """The examples of the present contract, answered by the present code."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_record(Path(folder)))


def generated_files() -> dict[Path, bytes]:
    """Every generated file of the contract, by path relative to the checkout."""
    return contract_files(recorded_examples())


async def _record(folder: Path) -> dict[str, Recorded]:
    settings = read_settings({"STAGEFARE_DATA_DIR": str(folder)})
    await migrate.upgrade(settings.database_url)
    async with open_services(settings) as services:
        token = await create_token(services, Scope)
    app: Any = create_app(settings)
    headers = {"Authorization": f"Bearer {token.text}"}
    async with (
        app.lifespan(),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://localhost", headers=headers
        ) as http,
    ):
        return await run_examples(build_contract(), http)
