"""Times that no run of the schedule's operations can beat, each with the reason why.

In latency mode links have no capacity: what is assumed is that a rank does one operation at a time
and that values reach another rank no sooner than the given transfer times.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.dependencies import Dependencies, program_dependencies
from service.core.schedules.kernels import longest_ways
from service.core.schedules.program import OpKind, Program, kept_with_program
from service.core.schedules.program_links import ProgramLinks
from service.core.schedules.stage_times import StageTimes, operation_durations, take_places

__all__ = ["BoundStep", "LinkWork", "LowerBound", "makespan_lower_bounds"]

Int64Array = npt.NDArray[np.int64]

_RANK = "a rank runs one operation at a time"
_DATA = "an operation starts after what it needs"
_LINK = "a link carries no more than its nominal bandwidth in each direction"
_TRANSFER = "a value crosses between ranks in no less than the stated transfer time"


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One operation of the chain that a bound rests on; `label` as in order tables."""

    stage: int
    kind: OpKind
    microbatch: int
    label: str


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A lower bound of the makespan in picoseconds.

    `rank` or `link` is what it rests on, if it is one; `chain` operations that wait for one
    another, if it is that; `head` and `tail` what comes at least before the first operation of the
    rank, or message of the link, and after its last, in picoseconds. `assumes` names the resources.
    """

    name: str
    picoseconds: int
    assumes: tuple[str, ...]
    rank: int | None = None
    link: int | None = None
    chain: tuple[BoundStep, ...] = ()
    head: int = 0
    tail: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class LinkWork:
    """What links carry over the iteration, at nominal capacity.

    `picoseconds` is (links,); of `carried` only who uses which link counts here.
    """

    picoseconds: Int64Array
    carried: ProgramLinks


def makespan_lower_bounds(
    program: Program,
    times: StageTimes,
    forward_transfers: npt.ArrayLike,
    backward_transfers: npt.ArrayLike,
    *,
    links: LinkWork | None = None,
) -> tuple[LowerBound, ...]:
    """Lower bounds of the makespan, whatever the order of the operations on each rank.

    `forward_transfers` and `backward_transfers` are (edges,) or (edges, microbatches or 1), a row
    for each of `program.stage_edges`: the least time (ps) in which a value can cross, so floors of
    latency and nominal capacity. They are at most the latencies that a prediction uses. Which
    forwards and backwards are fused pairs is part of what is run.

    - `dependency_path`: the longest chain of operations that need one another; without pairs, one
      microbatch alone.
    - `busiest_device`: all work of the rank that has most.
    - `busiest_device_with_path`: for a rank, the least that comes before its first operation, its
      work, and the least that comes after whichever operation is its last; the greatest over ranks.
    - `busiest_link_with_path`, given `links`: for a link, the least that comes before the first
      value it carries is made, or an operation that uses it itself starts, all it carries, and the
      least that comes after whichever value is its last has crossed, or such an operation has
      ended; the greatest over links. Latencies are no part of it.
    """
    ways = _ways(program, times, forward_transfers, backward_transfers)
    starts = program.rank_offsets[:-1]
    work = np.add.reduceat(ways.durations, starts)
    heads = np.minimum.reduceat(ways.start, starts)
    tails = np.minimum.reduceat(ways.after, starts)
    busiest = int(work.argmax())
    between = int((heads + work + tails).argmax())
    last = int((ways.start + ways.durations).argmax())
    of_link = [] if links is None else _busiest_link(program, ways, links)
    return (
        LowerBound(
            "dependency_path",
            int(ways.start[last] + ways.durations[last]),
            (_DATA, _TRANSFER),
            chain=tuple(_step(program, operation) for operation in _chain(ways, last)),
        ),
        LowerBound("busiest_device", int(work[busiest]), (_RANK,), rank=busiest),
        LowerBound(
            "busiest_device_with_path",
            int(heads[between] + work[between] + tails[between]),
            (_RANK, _DATA, _TRANSFER),
            rank=between,
            head=int(heads[between]),
            tail=int(tails[between]),
        ),
        *of_link,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Ways:
    """What operations need and take, the longest way to each start and from each end (ps)."""

    dependencies: Dependencies
    gaps: Int64Array
    durations: Int64Array
    start: Int64Array
    after: Int64Array


def _ways(
    program: Program,
    times: StageTimes,
    forward_transfers: npt.ArrayLike,
    backward_transfers: npt.ArrayLike,
) -> _Ways:
    needs = program_dependencies(program)
    ways = [
        given[:, np.newaxis] if given.ndim == 1 else given
        for given in (np.asarray(forward_transfers), np.asarray(backward_transfers))
    ]
    # By edge, direction of the value and microbatch; the last row is a need within a stage.
    width = max(given.shape[-1] for given in ways)
    table = np.zeros((len(program.stage_edges) + 1, 2, width), dtype=np.int64)
    for index, edge in enumerate(program.stage_edges):
        ranks = program.stage_ranks[edge.direction]
        if ranks[edge.source] != ranks[edge.target]:
            # One of the two may be alike for all microbatches, and the other not.
            table[index, 0] = ways[0][index]
            table[index, 1] = ways[1][index]
    microbatch = None
    if width > 1:
        of_gradient = program.backward_microbatch[needs.before]
        microbatch = np.where(needs.gradient, of_gradient, program.microbatch[needs.before])
    gaps = take_places(table, _need_ways(program), microbatch)
    durations = operation_durations(program, times)
    start, after = np.empty((2, program.operations), dtype=np.int64)
    longest_ways(program.order, needs.offsets, needs.before, gaps, durations, start, after)
    return _Ways(needs, gaps, durations, start, after)


@kept_with_program
def _need_ways(program: Program) -> Int64Array:
    """(needs,) 2 x edge, one more for gradients; after all edges what is needed within a stage."""
    needs = program_dependencies(program)
    edge = np.where(needs.edges < 0, len(program.stage_edges), needs.edges).astype(np.int64)
    return 2 * edge + needs.gradient


def _busiest_link(program: Program, ways: _Ways, links: LinkWork) -> list[LowerBound]:
    """The greatest over links of what comes before them, their work, and what comes after."""
    used = np.flatnonzero(links.picoseconds)
    if not len(used):
        return []
    most = np.iinfo(np.int64).max
    carried = links.carried
    consumers = np.repeat(np.arange(program.operations), np.diff(program.input_offsets))
    own = np.arange(program.operations if carried.own else 0)
    made = (ways.start + ways.durations)[program.inputs]
    followed = (ways.durations + ways.after)[consumers]
    heads = np.concatenate((made, ways.start[own]))
    tails = np.concatenate((followed, ways.after[own]))
    of_kind = np.full((2, carried.bundles.kinds), most)
    present = carried.present
    np.minimum.at(of_kind[0], carried.kinds[present], heads[present])
    np.minimum.at(of_kind[1], carried.kinds[present], tails[present])
    of_link = np.full((2, carried.bundles.links), most)
    kind = np.repeat(np.arange(carried.bundles.kinds), carried.bundles.sizes)
    for way in (0, 1):
        np.minimum.at(of_link[way], carried.bundles.link, of_kind[way, kind])
    heads, tails = of_link[:, used]
    busiest = int((heads + links.picoseconds[used] + tails).argmax())
    link = int(used[busiest])
    head, tail = int(heads[busiest]), int(tails[busiest])
    return [
        LowerBound(
            "busiest_link_with_path",
            head + int(links.picoseconds[link]) + tail,
            (_LINK, _DATA),
            link=link,
            head=head,
            tail=tail,
        )
    ]


def _chain(ways: _Ways, last: int) -> list[int]:
    """The operations of a longest way to the end of `last`, from its beginning."""
    chain = [last]
    while True:
        needs = slice(*ways.dependencies.offsets[chain[-1] : chain[-1] + 2].tolist())
        before = ways.dependencies.before[needs]
        if not len(before):
            return chain[::-1]
        arrivals = ways.start[before] + ways.durations[before] + ways.gaps[needs]
        chain.append(int(before[arrivals.argmax()]))


def _step(program: Program, operation: int) -> BoundStep:
    return BoundStep(
        stage=int(program.stage[operation]),
        kind=OpKind(program.kind[operation]),
        microbatch=int(program.microbatch[operation]),
        label=program.label(operation),
    )
