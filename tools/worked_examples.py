"""docs/worked-examples.md and its pictures, computed from the stored example plans."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import msgspec

from service.core.estimates.estimate import Estimate, estimate_plan
from service.core.estimates.simulation import simulate_plan
from service.core.plans.resolve import resolve
from service.core.queues import fluid_backlog
from service.core.units import PICOSECONDS_PER_SECOND
from service.formats.documents.plan import PlanDocument, to_core
from service.formats.timeline_svg import timeline_svg
from service.formats.timeline_text import timeline_text
from service.resources import resource_folder
from tools.tables import table
from tools.worked_comparison import moved_mlp
from tools.worked_experts import mixture

__all__ = ["generated_files"]

PAGE = Path("docs/worked-examples.md")
PICTURES = Path("docs/images/worked-examples")

MICROBATCHES = (4, 8, 16)
MOVE_MICROBATCHES = (8, 16, 32)

# initial backlog, arrivals and services per second
QUEUES = ((4, 4, 3), (4, 4, 5), (4, 2, 3), (1, 0, 4))
QUEUE_STEP_SECONDS = 0.5
QUEUE_STEPS = 2


def generated_files() -> dict[Path, bytes]:
    """The page and its pictures, by their path relative to the root."""
    pictures: dict[str, str] = {}
    sections = (
        _opening(),
        _forward_only(pictures),
        _forward_and_backward(pictures),
        _move(pictures),
        moved_mlp(),
        mixture(),
        _queues(),
    )
    page = "\n\n".join(section.strip() for section in sections) + "\n"
    files = {PICTURES / name: picture.encode() for name, picture in pictures.items()}
    return {PAGE: page.encode(), **files}


def _opening() -> str:
    return """
# Worked examples

Small enough to be checked by hand. Every number and picture on this page is computed from a plan in
`examples/plans` by `python tools/generate.py`, and `scripts/check` fails when one has moved.

P is the number of stages, each on a rank of its own, M the number of microbatches. Stages hand over
in no time here, and the size of a microbatch is the same whatever M is.
"""


def _forward_only(pictures: dict[str, str]) -> str:
    name = "equal-stages-forward-only"
    estimates = {m: _estimate(name, m) for m in MICROBATCHES}
    ranks = estimates[MICROBATCHES[0]].simulated.timeline.program.ranks
    rows = [
        (
            f"{m}",
            f"{m} + {ranks} - 1 = {_slots(estimate)}",
            f"{m}/{m + ranks - 1} = {1 - estimate.bubble.idle_fraction:.4f}",
            _ms(estimate.bubble.makespan),
        )
        for m, estimate in estimates.items()
    ]
    return f"""
## Forward only

Plan: [`{name}`](../examples/plans/{name}.json).

Each of the P = {ranks} stages takes one slot for a microbatch. The last stage starts P - 1 slots
late, and then every slot brings one microbatch to its end. So M microbatches take M + P - 1 slots,
of which each rank works in M.

{table(("M", "slots", "utilisation", "makespan"), rows)}

{_diagrams(name, estimates, pictures)}
"""


def _forward_and_backward(pictures: dict[str, str]) -> str:
    parts = [
        """
## Forward and backward

The backward of a stage takes twice its forward. Both schedules need (M + P - 1) x (F + B), and so
have the same bubble. They differ in what they keep: `gpipe` starts no backward before the last
forward and keeps all M microbatches alive, while on rank r of `1f1b` at most P - r are.

Fill is the time before a rank's first operation and drain the time after its last. On the ranks
between, the rest of the bubble is waiting in the middle.
"""
    ]
    for schedule in ("gpipe", "1f1b"):
        name = f"equal-stages-{schedule}"
        estimates = {m: _estimate(name, m) for m in MICROBATCHES}
        rows = [
            (
                f"{m}",
                _ms(estimate.bubble.makespan),
                f"{1 - estimate.bubble.idle_fraction:.4f}",
                _per_rank(_ms(rank.fill, unit=False) for rank in estimate.bubble.ranks),
                _per_rank(_ms(rank.drain, unit=False) for rank in estimate.bubble.ranks),
                _per_rank(str(live.peak_activations) for live in estimate.live),
                _ms(estimate.cadence.bound),
            )
            for m, estimate in estimates.items()
        ]
        heading = (
            "M",
            "makespan",
            "utilisation",
            "fill by rank, ms",
            "drain by rank, ms",
            "peak live activations by rank",
            "slowest cadence",
        )
        parts.append(
            f"""
### {schedule}

Plan: [`{name}`](../examples/plans/{name}.json).

{table(heading, rows)}

{_diagrams(name, estimates, pictures)}
"""
        )
    return "\n\n".join(part.strip() for part in parts)


def _move(pictures: dict[str, str]) -> str:
    before, after = "four-stages-before", "four-stages-after"
    estimates = {
        name: {m: _estimate(name, m) for m in MOVE_MICROBATCHES} for name in (before, after)
    }
    rows = [
        (
            f"{m}",
            *(_ms(estimates[name][m].bubble.makespan) for name in (before, after)),
            _share(estimates[before][m], estimates[after][m]),
            *(f"{estimates[name][m].bubble.idle_fraction:.4f}" for name in (before, after)),
        )
        for m in MOVE_MICROBATCHES
    ]
    stored = {name: _estimate(name) for name in (before, after)}
    stages = [
        (
            name.removeprefix("four-stages-"),
            _per_rank(_ms(stage.work, unit=False) for stage in estimate.cadence.stages),
            f"stage {estimate.cadence.slowest_stage}, {_ms(estimate.cadence.bound)}",
            _per_rank(str(live.peak_activations) for live in estimate.live),
        )
        for name, estimate in stored.items()
    ]
    for name, estimate in stored.items():
        pictures[f"{name}.svg"] = _picture(name, estimate)
    heading = ("M", "makespan before", "after", "shorter by", "idle fraction before", "after")
    return f"""
## Moving one block

Plans, both under `1f1b`:

- [`{before}`](../examples/plans/{before}.json)
- [`{after}`](../examples/plans/{after}.json)

Stage 2 of the first is the slowest, and no order of operations gets more than one microbatch
through the pipeline in one of its cadences. One block moves to stage 1. It costs less there than it
freed, and stage 1 becomes the slowest.

{table(("plan", "cadence by stage, ms", "slowest", "peak live activations by rank"), stages)}

{table(heading, rows)}

The longer the iteration, the more of it runs at the slowest cadence, and the more the move saves.
How many activations are alive does not change: that follows from the order alone.

![Timeline before the move](images/worked-examples/{before}.svg)

![Timeline after the move](images/worked-examples/{after}.svg)
"""


def _queues() -> str:
    rows = []
    for initial, arrivals, services in QUEUES:
        levels = fluid_backlog(initial, arrivals, services, QUEUE_STEP_SECONDS, QUEUE_STEPS).levels
        after = (f"{level:g}" for level in levels)
        rows.append((f"{initial}", f"{arrivals}", f"{services}", *after))
    heading = ("backlog at 0 s", "arrivals / s", "services / s")
    times = (f"after {QUEUE_STEP_SECONDS * step:g} s" for step in range(1, QUEUE_STEPS + 1))
    return f"""
## The fluid backlog

Work arrives and is served at constant rates. Each of the {QUEUE_STEPS} steps adds
(arrivals - services) x {QUEUE_STEP_SECONDS:g} s, and the backlog never falls below 0.

{table((*heading, *times), rows)}
"""


def _estimate(name: str, microbatches: int | None = None) -> Estimate:
    """The estimate of a stored plan, with another number of microbatches if asked for."""
    content = (_plans() / f"{name}.json").read_bytes()
    document = msgspec.json.decode(content, type=PlanDocument)
    if microbatches is not None:
        workload = msgspec.structs.replace(document.workload, microbatches=microbatches)
        document = msgspec.structs.replace(document, workload=workload)
    return estimate_plan(simulate_plan(resolve(to_core(document))))


def _plans() -> Path:
    return resource_folder("examples") / "plans"


def _diagrams(name: str, estimates: dict[int, Estimate], pictures: dict[str, str]) -> str:
    """A picture and a table of slots for each number of microbatches."""
    parts = []
    for microbatches, estimate in estimates.items():
        file = f"{name}-{microbatches}.svg"
        pictures[file] = _picture(name, estimate)
        table = timeline_text(
            estimate.simulated.timeline, bubble=estimate.bubble, live=estimate.live
        )
        parts.append(
            f"![{name} with {microbatches} microbatches](images/worked-examples/{file})\n\n"
            f"```text\n{table}```"
        )
    return "\n\n".join(parts)


def _picture(name: str, estimate: Estimate) -> str:
    timeline = estimate.simulated.timeline
    return timeline_svg(
        timeline,
        title=f"{name}, {timeline.program.microbatches} microbatches",
        bubble=estimate.bubble,
        live=estimate.live,
        cadence=estimate.cadence,
        effects=estimate.other_microbatch_counts or (),
    )


def _slots(estimate: Estimate) -> int:
    """The makespan in slots of one forward."""
    timeline = estimate.simulated.timeline
    slots = Fraction(timeline.makespan, int(timeline.times.forward[0, 0]))
    if slots.denominator != 1:
        raise ValueError(f"the makespan is no whole number of slots: {slots}")
    return slots.numerator


def _share(before: Estimate, after: Estimate) -> str:
    return f"{1 - after.bubble.makespan / before.bubble.makespan:.1%}"


def _ms(picoseconds: int | Fraction, *, unit: bool = True) -> str:
    text = f"{float(picoseconds / PICOSECONDS_PER_SECOND) * 1000:.6g}"
    return f"{text} ms" if unit else text


def _per_rank(values: Iterable[str]) -> str:
    return ", ".join(values)
