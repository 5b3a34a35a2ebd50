"""An estimate as tables for a terminal: what a person looks at first."""

from collections.abc import Callable, Sequence
from io import StringIO
from textwrap import fill

from rich.console import Console
from rich.table import Table

from service.core.amounts import Amount, largest, smallest
from service.core.estimates.estimate import Estimate
from service.core.estimates.iteration import throughput
from service.core.estimates.memory import PlanMemory
from service.core.memory.terms import RankMemory, Relief
from service.core.plans.plan import Boundary, RankPair, Statement
from service.core.schedules.transfers import TransferMode
from service.core.topology.paths import PhysicalPath
from service.formats.time_units import readable_time

__all__ = ["WIDTH", "estimate_report"]

WIDTH = 100
# A person looks at the ends and at the slowest; machines read the answer itself.
MAX_ROWS = 64

_BYTE_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def estimate_report(
    estimate: Estimate, title: str, assumptions: Sequence[Statement], left_out: Sequence[Statement]
) -> str:
    """Stages, ranks, boundaries, memory and the iteration as plain text, `WIDTH` columns wide.

    Bounds and predictions stand in columns of their own. At most `MAX_ROWS` rows a table.
    """
    console = Console(file=StringIO(), width=WIDTH, color_system=None, highlight=False)
    console.print(title, markup=False)
    console.print()
    console.print(_stages(estimate))
    console.print(_ranks(estimate))
    if estimate.simulated.resolved.boundaries:
        console.print(_boundaries(estimate))
        for line in _paths(estimate):
            console.print(line, markup=False)
    if estimate.memory is not None:
        console.print(_memory(estimate.memory))
    console.print(_iteration(estimate))
    for heading, statements in (("Assumed", assumptions), ("Not represented", left_out)):
        if statements:
            console.print()
            console.print(f"{heading}:", markup=False)
            for statement in statements:
                console.print(_hanging(statement.detail), markup=False)
    file = console.file
    text = file.getvalue() if isinstance(file, StringIO) else ""
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _table(title: str, *columns: str, left: int = 1) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="",
        box=None,
        pad_edge=False,
        show_header=any(columns),
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", no_wrap=True)
    return table


def _stages(estimate: Estimate) -> Table:
    cadence = estimate.cadence
    table = _table(
        "Cadence: work of one microbatch"
        + ", mean" * (estimate.simulated.resolved.sizes.count > 1),
        "stage",
        "layers",
        "forward",
        "backward",
        "recompute",
        "work",
        "",
        left=2,
    )
    stages = estimate.simulated.resolved.stages
    for stage, priced in list(zip(cadence.stages, stages, strict=True))[:MAX_ROWS]:
        table.add_row(
            str(stage.stage),
            _layers(priced.layers),
            readable_time(stage.forward),
            readable_time(stage.backward),
            readable_time(stage.recompute),
            readable_time(stage.work),
            "<- slowest" if stage.stage == cadence.slowest_stage else "",
        )
    return table


def _layers(layers: Sequence[str]) -> str:
    if not layers:
        return "given"
    if len(layers) == 1:
        return layers[0]
    return f"{layers[0]} .. {layers[-1]} ({len(layers)})"


# What a rank's time has besides, where transfers are charged for more than their latency.
_EXTRA_WAITS = {TransferMode.BLOCKING: "send", TransferMode.LINK: "contention\nwait"}


def _ranks(estimate: Estimate) -> Table:
    mode = estimate.simulated.timeline.mode
    table = _table(
        "\nBubble and peak live activations: where each rank's time goes",
        "rank",
        "busy",
        "fill",
        "drain",
        "dependency\nwait",
        "transfer\nwait",
        *([_EXTRA_WAITS[mode]] if mode in _EXTRA_WAITS else []),
        "utilisation",
        "peak",
        "peak bytes",
    )
    for rank, live in list(zip(estimate.bubble.ranks, estimate.live, strict=True))[:MAX_ROWS]:
        table.add_row(
            str(rank.rank),
            readable_time(rank.busy),
            readable_time(rank.fill),
            readable_time(rank.drain),
            readable_time(rank.dependency_wait),
            readable_time(rank.transfer_wait),
            *([readable_time(rank.send or rank.contention_wait)] if mode in _EXTRA_WAITS else []),
            f"{rank.utilisation:.2%}",
            str(live.peak_activations),
            "unknown" if live.peak_bytes is None else _readable_bytes(live.peak_bytes),
        )
    return table


def _boundaries(estimate: Estimate) -> Table:
    table = _table(
        "\nBoundaries: one microbatch, forward, slowest pair of ranks",
        "stages",
        "bytes",
        "bottleneck",
        "lower bound",
        "predicted",
        "delays per iteration",
    )
    exposed = {
        exposure.edge: exposure.exposed_picoseconds
        for exposure in estimate.transfers
        if exposure.forward
    }
    for boundary in _crossed(estimate)[:MAX_ROWS]:
        pair = _slowest(boundary)
        path = pair.forward_path
        bound, size = pair.forward_bound_picoseconds, boundary.forward_bytes
        table.add_row(
            _name(boundary),
            "unknown" if size is None else _ends(size, _readable_bytes),
            "no topology" if path is None else _bottleneck(path),
            "unknown" if bound is None else _ends(bound, readable_time),
            _ends(boundary.forward_picoseconds, readable_time),
            readable_time(exposed.get(boundary.edge, 0)),
        )
    return table


def _crossed(estimate: Estimate) -> list[Boundary]:
    """Boundaries between stages of different ranks."""
    return [boundary for boundary in estimate.simulated.resolved.boundaries if boundary.pairs]


def _name(boundary: Boundary) -> str:
    turned = " (from the last rank)" if boundary.direction else ""
    return f"{boundary.source} -> {boundary.target}{turned}"


def _slowest(boundary: Boundary) -> RankPair:
    return max(
        boundary.pairs,
        key=lambda pair: (
            largest(pair.forward_picoseconds or 0),
            largest(pair.forward_bound_picoseconds or 0),
        ),
    )


def _ends(amount: Amount, readable: Callable[[int], str]) -> str:
    """The amount, or the least and the most where microbatches differ."""
    if isinstance(amount, int):
        return readable(amount)
    return f"{readable(smallest(amount))} .. {readable(largest(amount))}"


def _bottleneck(path: PhysicalPath) -> str:
    rate = path.bandwidth_bytes_per_second
    return "same device" if rate is None else f"{_readable_bytes(rate)}/s"


def _paths(estimate: Estimate) -> list[str]:
    """The hops of each boundary's slowest pair, and what kind of link each is."""
    lines = []
    for boundary in _crossed(estimate)[:MAX_ROWS]:
        path = _slowest(boundary).forward_path
        if path is not None:
            hops = [f"-{link.kind.value}-> {link.target}" for link in path.links]
            start = f"{_name(boundary)}: {path.source}"
            lines.append(_hanging(" ".join([start, *hops]), first="", indent="        "))
    return lines


def _memory(memory: PlanMemory) -> Table:
    table = _table(
        "\nMemory: each rank at its fullest instant",
        "rank",
        "fullest at",
        "held",
        "usable",
        "headroom",
        "verdict",
        left=2,
    )
    verdicts = table.columns[-1]
    verdicts.justify, verdicts.no_wrap = "left", False  # words give way, numbers do not
    for rank in memory.ranks[:MAX_ROWS]:
        verdict = rank.verdict
        known = [
            "unknown" if size is None else _readable_bytes(size)
            for size in (verdict.usable, verdict.headroom)
        ]
        held = _readable_bytes(verdict.total)
        table.add_row(str(rank.rank), rank.peak.name, held, *known, _fits(rank))
    return table


# What is said of the term to blame.
_RELIEF = {
    Relief.HALVED: "half of {} would fit",
    Relief.REMOVED: "without {} it would fit",
    Relief.NOT_ALONE: "{} take most, and are not all",
}


def _fits(rank: RankMemory) -> str:
    """Whether it does, the term to blame, and what nobody says the size of."""
    verdict = rank.verdict
    unknown = ", ".join(dict.fromkeys(_words(one.term) for one in rank.unknown))
    if verdict.blame is not None:
        blame = _RELIEF[verdict.blame.relief].format(_words(verdict.blame.term))
        return f"does not fit: {blame}"
    if verdict.feasible:
        return "fits"
    return f"open: {unknown} unknown" if unknown else "open: no device memory is known"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _iteration(estimate: Estimate) -> Table:
    bubble, cadence = estimate.bubble, estimate.cadence
    table = _table("\nIteration", "", "", "", left=3)
    table.columns[2].no_wrap = False  # notes give way, numbers do not
    predicted = f"{bubble.idle_fraction:.2%} idle"
    iteration, parts = estimate.iteration, estimate.iteration_parts
    if iteration == bubble.makespan:
        table.add_row("prediction", readable_time(bubble.makespan), predicted)
    elif iteration is not None and parts.ranks:
        last = max(parts.ranks, key=lambda one: one.end)
        table.add_row("prediction", readable_time(iteration), f"rank {last.rank} is done last")
        table.add_row("  its last operation", readable_time(last.last_operation), "")
        for name, seconds in (
            ("gradient reduction, exposed", last.exposed_reduction),
            ("optimizer step", last.step),
            ("gather of weights, exposed", last.exposed_gather),
        ):
            if seconds:
                table.add_row(f"  {name}", readable_time(seconds), "")
        table.add_row("schedule alone", readable_time(bubble.makespan), predicted)
    elif iteration is None:
        table.add_row("prediction", "unknown", "never drained, and no steady pace was found")
        table.add_row("from empty to drained", readable_time(bubble.makespan), predicted)
    else:
        steady = "in the steady state: the pipeline is never drained"
        table.add_row("prediction", readable_time(iteration), steady)
        table.add_row("from empty to drained", readable_time(bubble.makespan), predicted)
    table.add_row("ideal, no idle time", readable_time(bubble.ideal), "")
    for bound in estimate.lower_bounds:
        of_links = bound.mode == "latency" or estimate.simulated.timeline.mode is TransferMode.LINK
        note = "" if of_links else "only where links have a capacity"
        if iteration is not None and bound.picoseconds > iteration:
            note = "above the prediction: not feasible on these links"
        table.add_row(f"lower bound: {bound.name}", readable_time(bound.picoseconds), note)
    for name, excess in (
        ("structure (fill and drain)", bubble.excess.structural),
        ("unequal stages", bubble.excess.imbalance),
        ("transfers", bubble.excess.transfer),
        ("queues on links", bubble.excess.contention),
    ):
        if excess or name != "queues on links":
            table.add_row(f"above ideal for {name}", readable_time(excess), "")
    table.add_row("cadence, lower bound", readable_time(cadence.bound), "a microbatch")
    if cadence.steady is not None:
        steady = readable_time(cadence.steady.per_microbatch)
        table.add_row("cadence, predicted steady state", steady, "a microbatch")
    samples, tokens = throughput(estimate.simulated, iteration)
    for name, rate in (("samples per second", samples), ("tokens per second", tokens)):
        table.add_row(name, "unknown" if rate is None else _rate(rate), "")
    efficiency = estimate.efficiency
    if efficiency.tokens_per_second_per_device is not None:
        per_device = _rate(efficiency.tokens_per_second_per_device)
        table.add_row("tokens per second and device", per_device, "")
    if efficiency.flops is not None:
        used = efficiency.utilisation(efficiency.flops.model)
        if used is not None:
            table.add_row("model FLOPs utilisation", f"{used:.2%}", "")
    if efficiency.run is not None:
        hours = _rate(efficiency.run.device_seconds / 3600)
        iterations = f"{efficiency.run.iterations:,} iterations"
        table.add_row("device-hours for all tokens", hours, iterations)
    return table


def _rate(amount: float) -> str:
    return f"{amount:.4g}" if amount < 10_000 else f"{amount:,.0f}"


def _readable_bytes(amount: float) -> str:
    """Bytes in a decimal unit that fits."""
    for unit, size in _BYTE_UNITS:
        if abs(amount) >= size:
            return f"{amount / size:.4g} {unit}"
    return f"{amount:.4g} B"


def _hanging(text: str, first: str = "  - ", indent: str = "    ") -> str:
    """Text wrapped at blanks, later lines indented."""
    return fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
