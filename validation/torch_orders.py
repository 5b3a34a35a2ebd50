"""The orders in which torch runs the operations of each rank, beside ours."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from service.core.schedules.build import build_program
from service.core.schedules.program import PairMode, Program
from validation.rows import Row, Section, printed

__all__ = ["NAMES", "SECTIONS", "same_order"]

_ORDERS = Path(__file__).parents[1] / "tests" / "golden" / "schedules" / "torch_orders.json"

# Of the schedules in the tables, ours by theirs.
NAMES = {
    "gpipe": "gpipe",
    "1f1b": "1f1b",
    "interleaved1f1b": "interleaved_1f1b",
    "loopedbfs": "looped_bfs",
    "interleavedzb": "interleaved_zero_bubble",
    "zbv": "zb_v",
    "dualpipev": "dualpipe_v",
}
_PAIR = re.compile(r"\((\w+);(\w+)\)OVERLAP_F_B")


def same_order(program: Program, ranks: list[str]) -> bool:
    """Whether each rank runs what the table says, one word an operation, pairs in theirs."""
    offsets = program.rank_offsets.tolist()
    ours = [
        " ".join(program.label(i) for i in range(first, last)) for first, last in pairwise(offsets)
    ]
    return ours == [_PAIR.sub(r"\1&\2", order) for order in ranks]


def _rows() -> Iterator[Row]:
    by_schedule: dict[str, list[dict[str, Any]]] = {}
    for cell in json.loads(_ORDERS.read_text(encoding="utf-8"))["orders"]:
        by_schedule.setdefault(cell["schedule"], []).append(cell)
    for name, cells in by_schedule.items():
        same = 0
        for cell in cells:
            ranks, microbatches, chunks = cell["P"], cell["M"], cell["v"]
            program = build_program(
                NAMES[name],
                ranks,
                microbatches,
                chunks_per_rank=chunks,
                pair_mode=PairMode.FUSED,
            )
            same += same_order(program, cell["ranks"])
        yield Row(
            f"{NAMES[name]}: combinations of ranks, microbatches and chunks", str(len(cells)), same
        )


SECTIONS = (
    Section(
        name="torch_orders",
        title="Orders of operations in torch",
        source="torch 2.13's own generators of orders, written out in `tests/golden/schedules`.",
        text="For every combination that torch was asked for, the order of each rank's operations. "
        "Ours is the number of combinations in which all ranks have the same order, operation by "
        "operation. (Of 1f1b torch's raw table names the last rank's microbatches from 1 on; what "
        "it runs is written out.)",
        what="schedule",
        unit="combinations",
        rule=printed("an order is the same or it is not."),
        rows=lambda: tuple(_rows()),
    ),
)
