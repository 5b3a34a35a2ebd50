"""How much later an operation may end without a later makespan.

Every rank's order is held fixed, and so is every link's.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.core.schedules.explain_kernels import least_of_groups
from service.core.schedules.kernels import least_slack
from service.core.schedules.link_kernels import latest_ends_with_links
from service.core.schedules.program import OpKind, Program
from service.core.schedules.stage_times import operation_groups, run_groups
from service.core.schedules.timeline import Timeline

__all__ = ["LeastSlack", "Slack", "measure_slack"]

Int64Array = npt.NDArray[np.int64]

_KINDS = tuple(OpKind)


class LeastSlack(NamedTuple):
    """The operation with the least slack of its stage and kind; of several the rank's first.

    A fused pair belongs to the stage of its forward, as a kind of its own.
    """

    stage: int
    kind: OpKind
    microbatch: int
    operation: int
    picoseconds: int


@dataclass(frozen=True, slots=True, eq=False)
class Slack:
    """Total slack in picoseconds, exact.

    `operations` is (operations,). Each number holds for that operation alone: the operations of
    one chain share the slack of the chain. `least` has one entry for each stage and kind that is
    run, stage after stage, kinds in the order of their numbers.
    """

    operations: Int64Array
    least: tuple[LeastSlack, ...]

    @property
    def by_stage(self) -> tuple[LeastSlack, ...]:
        """The least of each stage, in stage order."""
        stages = groupby(self.least, lambda entry: entry.stage)
        return tuple(min(entries, key=_picoseconds) for _, entries in stages)

    @property
    def by_kind(self) -> tuple[LeastSlack, ...]:
        """The least of each kind that is run, in the order of their numbers."""
        kinds = groupby(sorted(self.least, key=lambda entry: entry.kind), lambda entry: entry.kind)
        return tuple(min(entries, key=_picoseconds) for _, entries in kinds)


def measure_slack(timeline: Timeline) -> Slack:
    """Latest end minus end of every operation, from one pass against the topological order.

    The latest end of an operation is the makespan where nothing follows it, and else the earliest
    that what follows allows: the latest start of the rank's next operation (less the time the rank
    is held), and the latest start of each consumer on another rank less the latency of its
    transfer. An operation without slack lies on a chain that sets the makespan.

    Where links have queues each is taken to serve its messages in the sequence in which it did: the
    latest start of the next one on a link bounds the one before. Operations are taken to wait for
    what they exchange themselves as long as they did.
    """
    program, run = timeline.program, timeline.run
    groups = operation_groups(program)
    slack = np.empty(program.operations, dtype=np.int64)
    least, place = np.empty((2, program.stages * len(_KINDS)), dtype=np.int64)
    links = timeline.links
    if run.queues is not None and links is not None:
        latest_ends_with_links(
            run.queues.sequence,
            program.rank_offsets,
            program.rank,
            program.input_offsets,
            program.inputs,
            run.end - run.start,
            links.input_kinds,
            links.served.offsets,
            links.served.link,
            links.served.occupied,
            links.served.latency,
            links.served.links,
            timeline.makespan,
            slack,
        )
        slack -= run.end
        least_of_groups(groups, slack, least, place)
    else:
        least_slack(
            program.order,
            program.rank,
            program.rank_offsets,
            program.input_offsets,
            program.inputs,
            timeline.durations,
            timeline.latencies,
            timeline.holds if timeline.transfers.holds_senders else timeline.holds[:0],
            timeline.makespan,
            run.end,
            groups,
            slack,
            least,
            place,
        )
    return Slack(slack, _entries(program, least, place))


def _entries(program: Program, least: Int64Array, place: Int64Array) -> tuple[LeastSlack, ...]:
    keys = run_groups(program)
    operations = place[keys.index]
    microbatches, slacks = program.microbatch[operations], least[keys.index]
    columns = (microbatches.tolist(), operations.tolist(), slacks.tolist())
    return tuple(map(LeastSlack._make, zip(keys.stages, keys.kinds, *columns, strict=True)))


def _picoseconds(entry: LeastSlack) -> int:
    return entry.picoseconds
