"""Orders, makespans, waits and peaks of gpipe and 1f1b against tables made by others."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.core.memory.live import live_activations
from service.core.schedules.bubble import measure_bubble
from service.core.schedules.build import build_program
from tests.core.schedules.plans import timeline, write_order

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "schedules"
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "schedules"

ORDERS: list[dict[str, Any]] = json.loads((GOLDEN / "orders.json").read_text())
MAKESPANS: list[dict[str, Any]] = json.loads((GOLDEN / "makespans.json").read_text())


def cell(row: dict[str, Any]) -> str:
    """A readable test name."""
    return f"{row['schedule']}-{row['ranks']}x{row['microbatches']}"


@pytest.mark.parametrize("row", ORDERS, ids=cell)
def test_orders_are_those_of_the_frameworks(row: dict[str, Any]) -> None:
    program = build_program(row["schedule"], row["ranks"], row["microbatches"])
    assert [write_order(program, r) for r in range(row["ranks"])] == row["orders"]


@pytest.mark.parametrize("row", MAKESPANS, ids=cell)
def test_makespan_ends_and_waits_are_those_of_the_oracle(row: dict[str, Any]) -> None:
    for case in row["cases"]:
        line = timeline(
            row["schedule"], row["microbatches"], row["forward"], row["backward"], case["c"]
        )
        ranks = measure_bubble(line).ranks
        assert {
            "c": case["c"],
            "makespan": line.makespan,
            "first": line.first_start.tolist(),
            "last": line.last_end.tolist(),
            "transfer_wait": [rank.transfer_wait for rank in ranks],
            "dep_wait": [rank.dependency_wait for rank in ranks],
        } == case
        assert [rank.busy for rank in ranks] == row["busy"]


@pytest.mark.parametrize("row", MAKESPANS, ids=cell)
def test_peaks_are_those_of_the_oracle(row: dict[str, Any]) -> None:
    program = build_program(row["schedule"], row["ranks"], row["microbatches"])
    live = live_activations(program, row["activation"])
    assert [rank.peak_activations for rank in live] == row["peak"]
    assert [rank.peak_bytes for rank in live] == row["peak_weighted"]


def test_golden_tables_agree_with_their_source() -> None:
    if not SHARED.is_dir():
        pytest.skip("the source tables are not beside the project")
    orders = json.loads((SHARED / "torch_orders.json").read_text())["orders"]
    assert [row["orders"] for row in ORDERS] == [
        row["ranks"] for row in orders if row["schedule"] in ("gpipe", "1f1b")
    ]
    rows = json.loads((SHARED / "makespan_oracle.json").read_text())["rows"]
    assert [row["cases"] for row in MAKESPANS] == [
        row["cases"] for row in rows if row["schedule"] in ("gpipe", "1f1b")
    ]
