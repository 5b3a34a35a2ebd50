"""Spans of requests and of pricing, with the extra and without it."""

import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from service.main import create_app
from service.settings import read_settings
from service.web.tracing import OpenTelemetryTracing, open_tracing
from tests.api.clients import client_of
from tests.app.fakes import FakeDatabase

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "the-name-of-a-plan"  # noqa: S105
PLAN = {
    "costs": {"stages": [{"forward_seconds": 0.006, "backward_seconds": 0.012}] * 2},
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 8},
}


async def spans_of(
    tmp_path: Path, *requests: tuple[str, str], headers: dict[str, str] | None = None
) -> list[ReadableSpan]:
    """The spans of some requests, in the order in which they ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = read_settings({"STAGEFARE_DATA_DIR": str(tmp_path)})
    tracing = OpenTelemetryTracing(provider)
    app = create_app(settings, database=FakeDatabase(), tracing=tracing)
    async with app.lifespan(), client_of(app) as http:
        for method, path in requests:
            body = {"plan": PLAN} if method == "POST" else None
            await http.request(method, path, json=body, headers=headers)
    tracing.close()
    return list(exporter.get_finished_spans())


@pytest.mark.parametrize("path", ["/v1/estimates", "/v1/cadence"])
async def test_pricing_is_a_span_inside_that_of_its_request(tmp_path: Path, path: str) -> None:
    flags = f"00-{TRACE}-{PARENT}-01"
    price, request = await spans_of(tmp_path, ("POST", path), headers={"traceparent": flags})
    assert (price.name, request.name) == ("price", f"POST {path}")
    assert request.kind is SpanKind.SERVER
    assert request.context is not None
    assert f"{request.context.trace_id:032x}" == TRACE
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == PARENT
    assert request.parent.is_remote
    assert price.parent == request.context
    assert dict(request.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": path,
        "http.response.status_code": 201 if path == "/v1/estimates" else 200,
    }
    assert request.status.status_code is StatusCode.UNSET


async def test_spans_hold_nothing_that_the_caller_wrote(tmp_path: Path) -> None:
    read, unknown, failed = await spans_of(
        tmp_path,
        ("GET", f"/v1/plans/{SECRET}?limit={SECRET}"),
        ("GET", f"/{SECRET}"),
        ("GET", "/v1/plans"),
        headers={"X-Request-ID": SECRET, "Authorization": f"Bearer {SECRET}"},
    )
    assert (read.name, unknown.name) == ("GET /v1/plans/{name}", "GET unmatched")
    assert read.context is not None
    assert failed.context is not None
    assert read.context.trace_id != failed.context.trace_id
    for span in (read, unknown, failed):
        assert SECRET not in span.to_json()


async def test_what_the_caller_does_not_record_is_not_recorded(tmp_path: Path) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    assert await spans_of(tmp_path, ("GET", "/healthz"), headers=headers) == []


def test_the_exporter_is_built_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    tracing = open_tracing()
    attributes = tracing._provider.resource.attributes
    assert attributes["service.name"] == "stagefare"
    assert attributes["deployment.environment.name"] == "test"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "pricing")
    named = open_tracing()
    assert named._provider.resource.attributes["service.name"] == "pricing"
    for opened in (tracing, named):
        opened.close()


# A service in a process of its own, in which the extra can be as absent as it would be.
_SERVICE = """
import asyncio, logging, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)

if {absent}:
    sys.meta_path.insert(0, Absent())

from service.main import create_app
from service.settings import read_settings
from service.store import migrate
from tests.api.clients import client_of

async def main():
    settings = read_settings()
    await migrate.upgrade(settings.database_url)
    app = create_app(settings)
    async with app.lifespan(), client_of(app) as http:
        ready = await http.get("/readyz")
        priced = await http.post("/v1/estimates", json={{"plan": {plan}}})
    print([ready.status_code, priced.status_code])
    print("opentelemetry.sdk" in sys.modules)  # the framework imports the interface if it is there

asyncio.run(main())
"""


@pytest.mark.parametrize(("is_absent", "is_wanted"), [(True, True), (True, False), (False, False)])
def test_without_the_extra_or_the_wish_nothing_of_it_is_needed(
    tmp_path: Path, is_absent: bool, is_wanted: bool
) -> None:
    environment = {"STAGEFARE_DATA_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    if is_wanted:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
    result = subprocess.run(
        [sys.executable, "-c", _SERVICE.format(absent=is_absent, plan=PLAN)],
        env=environment,
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["[200, 201]", "False"]
    assert ("the extra `otel` is not installed" in result.stderr) is is_wanted
