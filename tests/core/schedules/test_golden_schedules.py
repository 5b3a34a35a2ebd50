"""Orders, makespans, waits and peaks against tables made by others."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.core.errors import InvalidInput
from service.core.memory.live import ActivationDeltas, live_activations
from service.core.schedules.bubble import measure_bubble
from service.core.schedules.build import build_program
from service.core.schedules.program import PairMode, Program
from tests.core.schedules.plans import timeline
from validation.torch_orders import NAMES, same_order

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "schedules"
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "schedules"

ORDERS: dict[str, Any] = json.loads((GOLDEN / "torch_orders.json").read_text())
MAKESPANS: dict[str, Any] = json.loads((GOLDEN / "makespan_oracle.json").read_text())


def cell(row: dict[str, Any]) -> str:
    """A readable test name."""
    return f"{row['schedule']}-{row['P']}x{row['M']}x{row['v']}"


def program_of(row: dict[str, Any], pair_mode: PairMode = PairMode.FUSED) -> Program:
    return build_program(
        NAMES[row["schedule"]],
        row["P"],
        row["M"],
        chunks_per_rank=row["v"],
        pair_mode=pair_mode,
    )


@pytest.mark.parametrize("row", ORDERS["orders"], ids=cell)
def test_orders_are_those_of_the_frameworks(row: dict[str, Any]) -> None:
    assert same_order(program_of(row), row["ranks"])


@pytest.mark.parametrize("row", ORDERS["rejected_by_torch"], ids=cell)
def test_what_the_frameworks_refuse(row: dict[str, Any]) -> None:
    if row["schedule"] == "1f1b":
        assert program_of(row).microbatches < row["P"]  # legal elsewhere, and here
        return
    with pytest.raises(InvalidInput) as refused:
        program_of(row)
    assert [fault.path for fault in refused.value.faults] == [("workload", "microbatches")]


@pytest.mark.parametrize("row", MAKESPANS["rows"], ids=cell)
def test_makespan_ends_and_waits_are_those_of_the_oracle(row: dict[str, Any]) -> None:
    backward = [i + w for i, w in zip(row["i"], row["w"], strict=True)]
    partner = backward[::-1]  # of a stage in a V: the other one on its rank
    longer = [max(f, b) for f, b in zip(row["f"], partner, strict=True)]
    for case in row["cases"]:
        overlap = case.get("overlap", "serial")
        line = timeline(
            NAMES[row["schedule"]],
            row["M"],
            row["f"],
            latency=case["c"],
            chunks=row["v"],
            halves=(row["i"], row["w"]),
            pair=longer if overlap == "max" else None,
            pair_mode=PairMode.SERIAL if overlap == "serial" else PairMode.FUSED,
        )
        ranks = measure_bubble(line).ranks
        found = {
            "makespan": line.makespan,
            "first": line.first_start.tolist(),
            "last": line.last_end.tolist(),
            "transfer_wait": [rank.transfer_wait for rank in ranks],
            "dep_wait": [rank.dependency_wait for rank in ranks],
            "busy": [rank.busy for rank in ranks],
        }
        assert found == {key: case[key] if key in case else row[key] for key in found}


@pytest.mark.parametrize("row", MAKESPANS["rows"], ids=cell)
def test_peaks_are_those_of_the_oracle(row: dict[str, Any]) -> None:
    ones, zeros = (1,) * len(row["f"]), (0,) * len(row["f"])
    minus_ones = tuple(-one for one in ones)
    for mode in PairMode:
        program = program_of(row, mode)
        at_weight = live_activations(program, row["act"])
        assert [rank.peak_activations for rank in at_weight] == row["peak_W"]
        assert [rank.peak_bytes for rank in at_weight] == row["peak_weighted"]
        at_input = live_activations(program, ActivationDeltas.of(ones, minus_ones, zeros))
        assert [rank.peak_activations for rank in at_input] == row["peak_I"]
        assert [rank.peak_bytes for rank in at_input] == row["peak_I"]


@pytest.mark.parametrize("name", ["torch_orders.json", "makespan_oracle.json"])
def test_golden_tables_agree_with_their_source(name: str) -> None:
    if not SHARED.is_dir():
        pytest.skip("the source tables are not beside the project")
    assert json.loads((GOLDEN / name).read_text()) == json.loads((SHARED / name).read_text())
