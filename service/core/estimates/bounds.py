"""Lower bounds of a plan's iteration, each in its own mode, with its witness and assumptions."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.amounts import Amount
from service.core.estimates.drained import is_drained
from service.core.estimates.exchange_links import exchanged_bytes
from service.core.estimates.least_times import exchanges_assumed, least_times
from service.core.estimates.link_times import link_picoseconds
from service.core.estimates.simulation import SimulatedPlan
from service.core.plans.plan import TransferOrigin
from service.core.schedules.bounds import LinkWork, LowerBound, makespan_lower_bounds
from service.core.schedules.program import OpKind
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.transfers import TransferMode
from service.core.topology.bounds import LinkLoad, LinkLoads, Transfer, link_loads
from service.core.topology.paths import PhysicalPath
from service.core.units import to_seconds

__all__ = [
    "IterationBound",
    "PinnedTransfer",
    "boundary_transfers",
    "cadence_link_bound",
    "iteration_lower_bounds",
    "plan_link_loads",
]

_ON_LINKS = (
    "every transfer keeps to its pinned path",
    "transfers whose time the plan states occupy no link",
)

# Through fused pairs a chain goes from microbatch to microbatch, and can be very long.
_SHOWN_STEPS = 40


@dataclass(frozen=True, slots=True)
class IterationBound:
    """A time no iteration of this plan can beat, under what `assumes` names.

    `mode` says whose predictions it bounds: `latency` bounds hold in every mode, `link` bounds
    only where links have a capacity. `routing` is `pinned` when it rests on the stated paths, and
    `any` when it does not depend on routes.
    """

    name: str
    picoseconds: int
    mode: str
    routing: str
    witness: str
    assumes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PinnedTransfer:
    """What one rank sends another for a microbatch, over their pinned path.

    `ranks` names sender and receiver, `3->4`; gradients go the other way, `4->3`. `direction` is
    that of the microbatches in a schedule of two. `given` says that the plan states its time.
    """

    ranks: str
    path: PhysicalPath
    message_bytes: Amount
    direction: int
    given: bool


def iteration_lower_bounds(
    simulated: SimulatedPlan, loads: LinkLoads | None = None, least: StageTimes | None = None
) -> tuple[IterationBound, ...]:
    """All lower bounds of the iteration: those of the schedule, and the busiest link if known.

    Where the pipeline is never drained the work of a device is all of them: no iteration has to
    wait for its first microbatch to come or its last one to leave. `loads` are those of
    `plan_link_loads` and `least` those of `least_times`, for who has them.
    """
    boundaries, sizes = simulated.resolved.boundaries, simulated.resolved.sizes
    loads = plan_link_loads(simulated) if loads is None else loads
    experts = exchanges_assumed(simulated)
    on_links = (*_ON_LINKS, *experts)
    of_schedule = makespan_lower_bounds(
        simulated.timeline.program,
        least_times(simulated) if least is None else least,
        sizes.table([boundary.forward_bound_picoseconds for boundary in boundaries]),
        sizes.table([boundary.backward_bound_picoseconds for boundary in boundaries]),
        links=_link_work(simulated, loads),
    )
    on_paths = any(pair.forward_path for boundary in boundaries for pair in boundary.pairs)
    bounds = [
        IterationBound(
            name=bound.name,
            picoseconds=bound.picoseconds,
            mode="latency" if bound.link is None else "link",
            routing="any" if bound.name == "busiest_device" or not on_paths else "pinned",
            witness=_witness(bound, simulated),
            assumes=(*bound.assumes, *(on_links if bound.link is not None else experts)),
        )
        for bound in of_schedule
        if is_drained(simulated) or bound.name == "busiest_device"
    ]
    if loads.binding is not None:
        bounds.append(
            IterationBound(
                name="busiest_link",
                picoseconds=_least(loads.binding),
                mode="link",
                routing="pinned",
                witness=(
                    f"{loads.binding.name} carries {loads.binding.total_bytes} "
                    f"bytes at {loads.binding.link.bandwidth_bytes_per_second:g} bytes/s"
                ),
                assumes=(
                    "a link carries no more than its nominal bandwidth in each direction",
                    *on_links,
                ),
            )
        )
    return tuple(bounds)


def cadence_link_bound(
    simulated: SimulatedPlan, loads: LinkLoads | None = None
) -> tuple[Fraction, str] | None:
    """What the busiest link is occupied for one microbatch at least (ps), and its name.

    Only in link mode, and only where any link is used. `loads` as in `iteration_lower_bounds`.
    """
    if simulated.timeline.mode is not TransferMode.LINK:
        return None
    binding = (plan_link_loads(simulated) if loads is None else loads).binding
    if binding is None:
        return None
    rate = binding.link.bandwidth_bytes_per_second
    whole = link_picoseconds(binding.total_bytes, rate)
    return whole / simulated.timeline.program.microbatches, binding.name


def plan_link_loads(simulated: SimulatedPlan) -> LinkLoads:
    """What each link carries over the iteration, but for transfers whose time the plan states.

    With all that experts exchange, the fewest bytes of it where copies are only expected.
    """
    sizes, directions = simulated.resolved.sizes, simulated.timeline.program.directions
    loads = link_loads(
        [
            Transfer(sent.path, sizes.spread(sent.message_bytes, sent.direction, directions).total)
            for sent in boundary_transfers(simulated)
            if not sent.given
        ]
    )
    exchanged = exchanged_bytes(simulated.resolved, simulated.timeline.program)
    return loads.plus(exchanged) if exchanged else loads


def _least(load: LinkLoad) -> int:
    """Whole picoseconds that the link is occupied at least; rounded down."""
    return int(link_picoseconds(load.total_bytes, load.link.bandwidth_bytes_per_second))


def _link_work(simulated: SimulatedPlan, loads: LinkLoads) -> LinkWork | None:
    carried = simulated.timeline.links
    if carried is None:
        return None
    numbers = {link.resource: number for number, link in enumerate(simulated.links)}
    picoseconds = np.zeros(len(simulated.links), dtype=np.int64)
    for load in loads.loads:
        picoseconds[numbers[load.name]] = _least(load)
    return LinkWork(picoseconds, carried)


def boundary_transfers(simulated: SimulatedPlan) -> list[PinnedTransfer]:
    """Every transfer with known bytes and path, of every replica and direction."""
    transfers = []
    for boundary in simulated.resolved.boundaries:
        for pair in boundary.pairs:
            ways = [(pair.source_rank, pair.target_rank, pair.forward_path, boundary.forward_bytes)]
            if simulated.has_backward:
                ways.append(
                    (
                        pair.target_rank,
                        pair.source_rank,
                        pair.backward_path,
                        boundary.backward_bytes,
                    )
                )
            transfers += [
                PinnedTransfer(
                    f"{sender}->{receiver}",
                    path,
                    size,
                    boundary.direction,
                    given=boundary.origin is TransferOrigin.GIVEN,
                )
                for sender, receiver, path, size in ways
                if path is not None and size
            ]
    return transfers


def _witness(bound: LowerBound, simulated: SimulatedPlan) -> str:
    if bound.chain:
        return _chain(bound, alike=simulated.resolved.sizes.count == 1)
    microbatches = simulated.resolved.plan.workload.microbatches
    if bound.link is None:
        text, what = f"rank {bound.rank} works on {microbatches} microbatches", "operation"
    else:
        text, what = (
            f"{simulated.links[bound.link].resource} carries all of its messages",
            "message",
        )
    if bound.head or bound.tail:
        text += (
            f", after at least {to_seconds(bound.head)!r} s before its first {what} and with at "
            f"least {to_seconds(bound.tail)!r} s after its last"
        )
    return text


def _chain(bound: LowerBound, *, alike: bool) -> str:
    if any(step.kind is OpKind.FORWARD_BACKWARD for step in bound.chain):
        shown = " ".join(step.label for step in bound.chain[:_SHOWN_STEPS])
        more = len(bound.chain) - _SHOWN_STEPS
        return f"each waits for the one before: {shown}" + (f" and {more} more" * (more > 0))
    steps = " ".join(f"{step.stage}{step.kind.letter}" for step in bound.chain)
    which = "one microbatch" if alike else f"microbatch {bound.chain[0].microbatch}"
    return f"{which} alone: {steps}"
