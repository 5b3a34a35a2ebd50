"""What the event loop does for a request does not grow with the request.

The Python calls that the loop's thread makes inside the package are counted while a small and a
large request are served: long work belongs to other threads.
"""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

import service

PACKAGE = str(Path(service.__file__).parent)
STAGE = {"forward_seconds": 0.006, "backward_seconds": 0.012}


@contextmanager
def calls_counted() -> Iterator[Counter[str]]:
    """Counts the calls of this thread, the event loop's, by the function that was called."""
    counted = Counter[str]()

    def count(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            name = code.co_filename.removeprefix(PACKAGE)
            counted[f"{name} {code.co_qualname}"] += 1

    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(None)


def plan(stages: int, microbatches: int = 8) -> dict[str, Any]:
    return {
        "costs": {"stages": [STAGE] * stages},
        "schedule": {"kind": "1f1b"},
        "workload": {"microbatches": microbatches},
    }


def written_out(microbatches: int) -> dict[str, Any]:
    each = (f"0F{number} 0B{number}" for number in range(microbatches))
    schedule = {"kind": "explicit", "order": [" ".join(each)]}
    return {**plan(1, microbatches), "schedule": schedule}


def model(layers: int) -> dict[str, Any]:
    return {
        "layers": [{"name": f"layer-{number}", "kind": "block"} for number in range(layers)],
        "tensors": [],
    }


def profile(layers: int) -> dict[str, Any]:
    """Only the last time is no number."""
    times = [0.001] * (layers - 1) + ["x"]
    return {
        "measurements": [
            {"layer": f"layer-{number}", "microbatch_size": 1, "forward_seconds": times[number]}
            for number in range(layers)
        ]
    }


def topology(hosts: int) -> dict[str, Any]:
    return {
        "hosts": [{"name": "host", "count": hosts, "design": "dgx-h100"}],
        "fabric": {"kind": "rail_optimised", "spines": 2},
    }


def steps(count: int) -> dict[str, Any]:
    return {
        "initial_backlog": 4.0,
        "arrival_rate": 4.0,
        "service_rate": 3.0,
        "step_seconds": 0.5,
        "steps": count,
    }


PATCH = {"workload": {"microbatches": 9}}
FINE, STORED, WRONG = {200}, {200, 201}, {400}
# (method, path, statuses of the answers, small body, large body)
CASES: dict[str, tuple[str, str, set[int], Any, Any]] = {
    "more stages": ("POST", "/v1/cadence", FINE, {"plan": plan(2)}, {"plan": plan(256)}),
    "more microbatches": ("POST", "/v1/bubble", FINE, {"plan": plan(4)}, {"plan": plan(4, 4000)}),
    "an order written out": (
        "POST",
        "/v1/live-activations",
        FINE,
        {"plan": written_out(8)},
        {"plan": written_out(2000)},
    ),
    "a patched plan": (
        "POST",
        "/v1/boundary-transfers",
        FINE,
        {"plan": plan(2), "patch": PATCH},
        {"plan": plan(256), "patch": PATCH},
    ),
    "an estimate": ("POST", "/v1/estimates", STORED, {"plan": plan(2)}, {"plan": plan(256, 64)}),
    "a plan over the budget": (
        "POST",
        "/v1/bubble",
        {200, 422},
        {"plan": plan(64, 9)},
        {"plan": plan(4096)},
    ),
    "a document": ("PUT", "/v1/models/mine", STORED, model(1), model(2000)),
    "a document that is wrong": ("PUT", "/v1/profiles/mine", WRONG, profile(1), profile(500)),
    "a backlog": ("POST", "/v1/queues/backlog", FINE, steps(2), steps(10_000)),
}


@pytest.mark.parametrize(
    ("method", "path", "statuses", "small", "large"), CASES.values(), ids=CASES
)
async def test_a_larger_request_is_no_more_work_for_the_event_loop(
    client: httpx.AsyncClient, method: str, path: str, statuses: set[int], small: Any, large: Any
) -> None:
    rounds: dict[bool, list[Counter[str]]] = {False: [], True: []}
    for _ in range(3):
        for is_large, body in ((False, small), (True, large)):
            with calls_counted() as counted:
                answer = await client.request(method, path, json=body)
            rounds[is_large].append(counted)
            assert answer.status_code in statuses, answer.text
    # The first fills caches, and once a second one asks anew whether there are tokens.
    of_small, of_large = (min(rounds[each], key=Counter.total) for each in (False, True))
    grown = of_large - of_small
    assert of_small.total() > 0
    assert grown.total() < 60, grown.most_common(5)


@pytest.mark.parametrize("part", ["devices", "links"])
async def test_a_larger_cluster_is_no_more_work_for_the_event_loop(
    client: httpx.AsyncClient, part: str
) -> None:
    counts = []
    for hosts in (1, 200):
        name = f"of-{hosts}"
        assert (await client.put(f"/v1/topologies/{name}", json=topology(hosts))).status_code == 201
        rounds = []
        for _ in range(4):
            with calls_counted() as counted:
                url = f"/v1/topologies/{name}/{part}?host=nowhere&limit=1"
                assert (await client.get(url)).status_code == 200
            rounds.append(counted)
        # The first fills caches, and once a second one asks anew whether there are tokens.
        counts.append(min(rounds, key=Counter.total))
    of_small, of_large = counts
    assert (of_large - of_small).total() < 60, (of_large - of_small).most_common(5)


def messages(count: int) -> dict[str, Any]:
    ends = {"source": "host0/gpu0", "target": "host1/gpu0"}
    return {"flows": [{**ends, "message_bytes": 1 + number} for number in range(count)]}


def beside(count: int) -> dict[str, Any]:
    pair = {"source": "host0/gpu0", "target": "host1/gpu0"}
    return {**pair, "message_bytes": 1, "concurrent": [pair] * count}


def link_list(links: int) -> list[tuple[str, tuple[str, bytes]]]:
    """Devices at one switch, as ns-3 lists them."""
    cables = "".join(f"{number} {links} 400Gbps 0.0005ms 0\n" for number in range(links))
    return [("files", ("links.txt", f"{links + 1} 1 {links}\n{links}\n{cables}".encode()))]


@pytest.mark.parametrize(
    ("path", "small", "large"),
    [
        ("flows", {"json": messages(1)}, {"json": messages(1000)}),
        ("paths", {"json": beside(0)}, {"json": beside(500)}),
        ("imports", {"files": link_list(4)}, {"files": link_list(2000)}),
    ],
    ids=["flows", "paths", "imports"],
)
async def test_a_larger_question_about_a_cluster_is_no_more_work_for_the_event_loop(
    client: httpx.AsyncClient, path: str, small: Any, large: Any
) -> None:
    assert (await client.put("/v1/topologies/mine", json=topology(2))).status_code == 201
    at = f"/v1/topologies/{'other' if path == 'imports' else 'mine'}/{path}"
    rounds: dict[bool, list[Counter[str]]] = {False: [], True: []}
    for _ in range(3):
        for is_large, asked in ((False, small), (True, large)):
            with calls_counted() as counted:
                answer = await client.post(at, **asked)
            rounds[is_large].append(counted)
            assert answer.status_code in {200, 201}, answer.text
    of_small, of_large = (min(rounds[each], key=Counter.total) for each in (False, True))
    grown = of_large - of_small
    assert grown.total() < 60, grown.most_common(5)


async def test_every_simulation_runs_on_a_thread_for_it(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from service.app import pricing
    from service.core.estimates.simulation import simulate_plans

    threads: list[str] = []

    def simulate(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return simulate_plans(*arguments, **options)

    monkeypatch.setattr(pricing, "simulate_plans", simulate)
    question = {"plan": plan(4)}
    for path in ("cadence", "bubble", "boundary-transfers", "live-activations", "sensitivities"):
        more: dict[str, Any] = {"changes": []} if path == "sensitivities" else {}
        assert (await client.post(f"/v1/{path}", json={**question, **more})).status_code == 200
    estimate = await client.post("/v1/estimates", json=question)
    for suffix in ("timeline", "timeline.csv", "timeline.svg", "timeline.txt", "trace.json"):
        answer = await client.get(f"{estimate.headers['location']}/{suffix}")
        assert answer.status_code == 200
    assert len(threads) == 5 + 1 + 5
    assert all(name.startswith("kernel") for name in threads)
