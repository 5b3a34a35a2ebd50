"""Published closed forms of pipeline schedules, beside plans of equal stages."""

from collections.abc import Iterator, Sequence
from typing import Any

from service.core.estimates.estimate import plan_live_activations
from service.core.schedules.program import PairMode
from service.core.units import PICOSECONDS_PER_SECOND
from validation.priced import UNIT_SECONDS, bubble_of, equal_stages, simulated
from validation.rows import Row, Section, at_most, printed

__all__ = ["SECTIONS"]


def _bubbles() -> Iterator[Row]:
    for ranks, microbatches in ((4, 16), (8, 32)):
        counts = f"P {ranks}, M {microbatches}"
        for name, kind in (("GPipe", "gpipe"), ("1F1B", "1f1b")):
            of = simulated(kind, equal_stages(ranks, (10, 20)), microbatches)
            share = (ranks - 1) / (microbatches + ranks - 1)
            what = f"{name}: (P-1)/(M+P-1) of the makespan, {counts}"
            yield Row(what, f"{share:.6f}", bubble_of(of).idle_fraction)
        for chunks in (2, 4):
            stages = equal_stages(ranks * chunks, (10, 20))
            of = simulated("interleaved_1f1b", stages, microbatches, chunks_per_rank=chunks)
            share = (ranks - 1) / (chunks * microbatches)
            what = f"interleaved 1F1B: (P-1)/(vM) of the ideal time, {counts}, v {chunks}"
            yield Row(what, f"{share:.6f}", bubble_of(of).overhead_ratio)
    for ranks in (4, 8, 16):
        for backward, form, slots in ((10, "2N+D-2", 2.0), (20, "3N/2+D-2", 1.5)):
            of = simulated("chimera", equal_stages(ranks, (10, backward)), ranks)
            share = (ranks - 2) / (slots * ranks + ranks - 2)
            what = (
                f"Chimera: (D-2)/({form}) of the makespan, D = N = {ranks}, B = {backward // 10}F"
            )
            yield Row(what, f"{share:.6f}", bubble_of(of).idle_fraction)


def _idle(kind: str, count: int, microbatches: int, times: Sequence[int], **schedule: Any) -> float:
    """The makespan less what a rank works, in units."""
    of = simulated(kind, equal_stages(count, times), microbatches, **schedule)
    idle = of.timeline.makespan - int(of.timeline.busy.max())
    return idle / (UNIT_SECONDS * PICOSECONDS_PER_SECOND)


_LONGER_INPUT_HALF = (
    "the form is exact for F = I alone: where the input half is longer, fused pairs of the two "
    "directions wait less for each other than it says."
)


def _dual_pipe() -> Iterator[Row]:
    for stages in (8, 16):
        for f, i, w in ((10, 10, 5), (10, 12, 7)):
            given = f"PP {stages}, F {f}, I {i}, W {w}"
            b, pair, times = i + w, f + i + w, (f, i, w)
            exempt = "" if f == i else _LONGER_INPUT_HALF
            for name, form, published, kind, schedule in (
                ("1F1B", "(PP-1)(F+B)", (stages - 1) * (f + b), "1f1b", {}),
                ("ZB1P", "(PP-1)(F+B-2W)", (stages - 1) * (f + b - 2 * w), "zb_h1", {}),
                (
                    "DualPipe",
                    "(PP/2-1)(F&B+B-3W)",
                    (stages // 2 - 1) * (pair + b - 3 * w),
                    "dualpipe",
                    {"pair_mode": PairMode.FUSED},
                ),
                (
                    "DualPipeV",
                    "(PP/2-1)(F&B+B-3W)",
                    (stages // 2 - 1) * (pair + b - 3 * w),
                    "dualpipe_v",
                    {"pair_mode": PairMode.FUSED, "chunks_per_rank": 2},
                ),
            ):
                yield Row(
                    f"{name}: {form}, {given}",
                    f"{published}",
                    _idle(kind, stages, 4 * stages, times, **schedule),
                    exempt if name.startswith("Dual") else "",
                )


def _largest_peak(kind: str, count: int, microbatches: int, **schedule: Any) -> int:
    """Activations of one microbatch on one stage, on the rank that keeps most."""
    of = simulated(kind, equal_stages(count, (1, 1, 1)), microbatches, **schedule)
    live = plan_live_activations(of.resolved, of.timeline.program)
    return max(rank.peak_activations for rank in live)


def _peaks() -> Iterator[Row]:
    chunks: dict[str, Any] = {"chunks_per_rank": 2}
    for ranks in (4, 8):
        many = 4 * ranks
        for what, published, kind, schedule in (
            ("GPipe: M", many, "gpipe", {}),
            ("1F1B: P", ranks, "1f1b", {}),
            ("interleaved 1F1B, v 2: (v+1)P-1 chunks", 3 * ranks - 1, "interleaved_1f1b", chunks),
            ("ZB-H1: P", ranks, "zb_h1", {}),
            ("ZB-H2: 2P-1", 2 * ranks - 1, "zb_h2", {}),
            ("ZB-V: 2P chunks", 2 * ranks, "zb_v", chunks),
            ("DualPipe: PP+1", ranks + 1, "dualpipe", {}),
            ("DualPipeV: 2P+1 chunks", 2 * ranks + 1, "dualpipe_v", chunks),
        ):
            count = ranks * schedule.get("chunks_per_rank", 1)
            ours = _largest_peak(kind, count, many, **schedule)
            yield Row(f"{what}, P {ranks}, M {many}", f"{published}", ours)


def _v_shapes() -> Iterator[Row]:
    for name, kind, ranks, bubble, peak in (
        ("V-Half", "v_half", 8, 85, 10),
        ("V-Half", "v_half", 16, 205, 18),
        ("V-Min", "v_min", 8, 135, 8),
        ("V-Min", "v_min", 16, 295, 12),
    ):
        given = f"P {ranks}, M {8 * ranks}"
        chunks = {"chunks_per_rank": 2}
        ours = _idle(kind, 2 * ranks, 8 * ranks, (5, 5, 5), **chunks)
        yield Row(f"{name}: bubble, {given}", f"{bubble}", ours)
        most = _largest_peak(kind, 2 * ranks, 8 * ranks, **chunks)
        yield Row(f"{name}: peak, chunks, {given}", f"{peak}", most)


SECTIONS = (
    Section(
        name="bubble_forms",
        title="Closed forms of the bubble",
        source=(
            "GPipe and PipeDream-flush; Narayanan et al. (arXiv 2104.04473) for interleaving, a "
            "ratio to the ideal time and not to the makespan; Chimera (arXiv 2107.06925) for "
            "N = D."
        ),
        text="Plans of equal stages whose hops take no time. F is 10 ms, B 20 ms unless it says "
        "otherwise.",
        what="form and inputs",
        unit="share",
        rule=printed("the forms are exact under equal stages and free hops."),
        rows=lambda: tuple(_bubbles()),
    ),
    Section(
        name="dual_pipe",
        title="Bubbles of DualPipe",
        source="README of deepseek-ai/DualPipe, table of bubbles.",
        text="""
PP equal stages and 4 PP microbatches; times in ms. F&B is one operation that lasts F + B, with both
inputs needed at its start and both outputs there at its end. DualPipe runs on PP ranks, DualPipeV
on PP/2.
""",
        what="form and inputs",
        unit="ms",
        rule=printed("whole milliseconds, without rounding."),
        rows=lambda: tuple(_dual_pipe()),
    ),
    Section(
        name="peak_activations",
        title="Peaks of live activations",
        source=(
            "README of deepseek-ai/DualPipe (P, P, P+1, P+1); Narayanan et al. (arXiv 2104.04473); "
            "Zero Bubble (arXiv 2401.10241); README of sail-sg/zero-bubble-pipeline-parallelism."
        ),
        text="The rank that keeps most, in activations of one microbatch on one stage (a chunk "
        "where a rank holds several), all of it freed by the weight half of the backward.",
        what="published form and inputs",
        unit="activations",
        rule=printed("counts follow from the order alone."),
        rows=lambda: tuple(_peaks()),
    ),
    Section(
        name="v_shapes",
        title="V-shaped schedules under a limit of memory",
        source=(
            "Runs of the heuristic in sail-sg/zero-bubble-pipeline-parallelism with F = I = W; its "
            "README gives what they tend to (B/2 and 2B/3 of 1F1B's bubble, 1/2 and 1/3 of its "
            "memory)."
        ),
        text="Two chunks on each rank; F, I and W of a chunk take 5 ms each. The bubble is in ms.",
        what="what and inputs",
        unit="ms or chunks",
        rule=at_most("orders are made by trying: no worse than theirs, and better is no error."),
        rows=lambda: tuple(_v_shapes()),
    ),
)
