"""Operations that exchange something themselves, on links that transfers use too."""

import random
from dataclasses import replace

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.schedules.bounds import LinkWork, makespan_lower_bounds
from service.core.schedules.bubble import measure_bubble
from service.core.schedules.build import build_program, with_microbatches
from service.core.schedules.bundles import Bundles
from service.core.schedules.cadence import measure_cadence
from service.core.schedules.critical_path import (
    CriticalPath,
    LinkShare,
    PathExchange,
    find_critical_path,
)
from service.core.schedules.effects import effects_of_microbatches
from service.core.schedules.gains import OperationChange
from service.core.schedules.link_use import (
    count_intervals,
    intervals_of,
    link_busy,
    link_exchanges,
    service_of,
)
from service.core.schedules.own_bundles import OwnBundles
from service.core.schedules.program import OpKind, PairMode, Program
from service.core.schedules.program_links import carried
from service.core.schedules.slack import measure_slack
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline, simulate_transfers
from service.core.schedules.transfers import LinkTransfers, Transfers
from tests.core.schedules.own_bundle_cases import OwnCase, lasting, own_cases
from tests.core.schedules.plans import exact_gain, plan_times
from tests.core.schedules.queue_reference import Result, simulate_with_links
from tests.core.schedules.test_link_run import messages_of, operations_of
from tests.core.schedules.test_transfer_modes import longest_way_with_delay


def timeline_of(case: OwnCase) -> Timeline:
    return simulate_transfers(case.program, plan_times(case.plan), case.transfers)


def exchanging(
    program: Program, bundles: Bundles, forward: list[int], backward: list[int] | None = None
) -> Transfers:
    """Kinds of each stage's forward and backward; edges have the kinds 0, 1, 2, 3 ..."""
    edges = np.arange(len(program.stage_edges), dtype=np.int32)[:, np.newaxis]
    there, back = (
        np.array(kinds or [-1] * program.stages, dtype=np.int32)[:, np.newaxis]
        for kinds in (forward, backward)
    )
    own = OwnBundles(there, back, np.full_like(back, -1), np.full_like(back, -1))
    return Transfers.over_links(LinkTransfers.of(bundles, 2 * edges, 2 * edges + 1, own))


def test_an_exchange_waits_for_a_transfer_and_makes_its_operation_longer() -> None:
    """Stage 0 sends to stage 1 over the link on which its next forward exchanges."""
    program = build_program("forward_only", 2, 2)
    # Transfers hold the link for 5, the exchanges of stage 0 for 2, latency 2: 4 alone, as forwards
    # take. 0F0 0-4, exchange 0-2. Its message and 0F1's exchange are ready at 4; the exchange has
    # the lower target stage but the higher microbatch: the message goes first, 4-9. The exchange
    # 9-11, there at 13: 0F1 4-13. Message of 0F1 13-18. 1F0 9-12, 1F1 18-21.
    bundles = Bundles.of(1, [[(0, 5)], [], [(0, 2)]], [0, 0, 2])
    line = simulate_transfers(program, StageTimes.of([4, 3]), exchanging(program, bundles, [2, -1]))
    assert line.run.start.tolist() == [0, 4, 9, 18]
    assert line.run.end.tolist() == [4, 13, 12, 21]
    assert line.exchange_waits.tolist() == [0, 5, 0, 0]
    bubble = measure_bubble(line)
    assert [rank.busy for rank in bubble.ranks] == [8, 6]
    assert [rank.contention_wait for rank in bubble.ranks] == [5, 0]
    assert bubble.ranks[0].drain == 21 - 13
    # Without waiting for the link: 0F 0-4-8, messages of 5: 9 and 13, 1F1 13-16.
    assert bubble.excess.contention == 21 - 16
    path = find_critical_path(line)
    assert [line.label(step.operation) for step in path.operations] == ["0F0", "0F1", "1F1"]
    assert [step.exchange for step in path.operations] == [None, PathExchange(0, 5), None]
    assert (path.by_stage, path.transfer, path.queue) == ((8, 3), 5, 5)
    assert dict(path.by_link) == {0: LinkShare(occupied=5, queued=5)}
    assert measure_slack(line).operations.tolist() == [0, 0, 21 - 3 - 12, 0]
    assert link_busy(line).tolist() == [2 * 5 + 2 * 2]
    assert service_of(line, 0).bundle.tolist() == [0, 1]
    found = intervals_of(line, np.array([True, True, True, True, False, False]))
    names = [carried(program, bundle) for bundle in found.bundle.tolist()]
    assert [(name.edge is None, name.ends, name.microbatch) for name in names] == [
        (True, (0, 0), 0),
        (False, (0, 1), 0),
        (True, (0, 0), 1),
        (False, (0, 1), 1),
    ]
    assert list(zip(found.start.tolist(), found.end.tolist(), strict=True)) == [
        (0, 2),
        (4, 9),
        (9, 11),
        (13, 18),
    ]


def test_transfers_pass_an_exchange_that_goes_on_after_them() -> None:
    """What is on a link when a message comes is interrupted, and its operation waits for it."""
    program = build_program("forward_only", 3, 1)
    # 0F0 0-2, its message over no link, there at 2. 1F0 2-14 exchanges over link 0 2-12 (latency
    # 2), its message 14-17, 2F0 17-21.
    bundles = Bundles.of(1, [[], [], [(0, 3)], [], [(0, 10)]], [0, 0, 0, 0, 2])
    line = simulate_transfers(
        program, StageTimes.of([2, 5, 4]), exchanging(program, bundles, [-1, 4, -1])
    )
    assert line.run.end.tolist() == [2, 14, 21]
    assert line.durations.tolist() == [2, 12, 4]  # the exchange alone takes longer than the work
    assert [rank.busy for rank in measure_bubble(line).ranks] == [2, 12, 4]

    program = build_program("forward_only", 2, 2)
    # 0F0 0-1, its message 1-4. 0F1 1-5, its message 5-8. 1F0 4-15 exchanges 4-5 and, when the
    # second message is through, 8-16, which is 2 more than it would take by itself.
    bundles = Bundles.of(1, [[(0, 3)], [], [(0, 9)]], [0, 0, 0])
    line = simulate_transfers(
        program, StageTimes.of([[1, 4], [10, 10]]), exchanging(program, bundles, [-1, 2])
    )
    assert line.run.end.tolist() == [1, 5, 16, 26]
    assert line.exchange_waits.tolist() == [0, 0, 2, 0]
    found = intervals_of(line, np.ones(6, dtype=np.bool_))
    columns = (found.bundle, found.start, found.end)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == [
        (0, 1, 4),
        (4, 4, 5),
        (1, 5, 8),
        (4, 8, 16),
        (5, 16, 25),
    ]
    path = find_critical_path(line)
    steps = [(line.label(s.operation), s.exchange) for s in path.operations]
    assert steps == [("0F0", None), ("1F0", PathExchange(0, 2)), ("1F1", None)]
    assert (path.by_stage, path.transfer, path.queue) == ((1, 20), 3, 2)
    exchanges = link_exchanges(line)
    assert (exchanges.ready.tolist(), exchanges.done.tolist()) == ([4, 16], [16, 25])


def assert_unbroken(line: Timeline, path: CriticalPath) -> None:
    """Each step begins when what is before it ends."""
    now = 0
    for step in path.operations:
        for queue in () if step.after is None else step.after.ahead:
            assert (queue.start, queue.end >= queue.start) == (now, True)
            now = queue.end
        now += 0 if step.after is None else step.after.latency
        assert step.start == now
        now += int(line.durations[step.operation])
        now += 0 if step.exchange is None else step.exchange.waited
        assert step.end == now
    assert now == line.makespan


def test_equals_the_reference_and_everything_adds_up(seed: int) -> None:
    rng = random.Random(seed)
    late = divided = pairs = 0
    for case in own_cases(rng, 250):
        line, program = timeline_of(case), case.program
        names = operations_of(program)
        expected = simulate_with_links(case.plan, case.links)
        assert dict(zip(names, line.run.start.tolist(), strict=True)) == expected.start
        assert dict(zip(names, line.run.end.tolist(), strict=True)) == expected.end
        assert line.durations.tolist() == [
            lasting(case.plan, case.exchanges, name) for name in names
        ]
        divided += assert_same_intervals(rng, line, expected)
        bubble = measure_bubble(line)
        for rank in bubble.ranks:
            waits = (rank.dependency_wait, rank.transfer_wait, rank.contention_wait)
            parts = (rank.busy, rank.send, rank.fill, rank.drain, *waits)
            assert min(parts) >= 0
            assert sum(parts) == line.makespan
        assert bubble.excess.total == bubble.makespan - bubble.ideal
        path = find_critical_path(line)
        assert sum(path.by_stage) + path.transfer + path.queue == line.makespan
        assert sum(path.by_kind.values()) == sum(path.by_stage)
        assert_unbroken(line, path)
        slack = measure_slack(line).operations
        assert slack.min() == 0
        assert longest_way_with_delay(line, 0, 0) == line.makespan
        operation = rng.randrange(program.operations)
        for more in (0, 1):
            by = int(slack[operation]) + more
            assert longest_way_with_delay(line, operation, by) == line.makespan + more
        late += bool(line.exchange_waits.any())
        pairs += OpKind.FORWARD_BACKWARD in program.kind
    assert min(late, divided, pairs) > 10


def assert_same_intervals(rng: random.Random, line: Timeline, expected: Result) -> bool:
    """And whether any exchange was interrupted."""
    assert line.links is not None
    messages = messages_of(line.program)
    wanted = np.array([rng.random() < 0.7 for _ in line.links.kinds], dtype=np.bool_)
    found = intervals_of(line, wanted)
    assert len(found.link) <= count_intervals(line, wanted)
    columns = (found.link, found.bundle, found.start, found.end)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    chosen = {messages[i] for i in np.flatnonzero(wanted)}
    for link, holders in expected.held.items():
        pieces = expected.pieces[link]
        mine = [(messages[i], start, end) for at, i, start, end in rows if at == link]
        for every in (holders, pieces):
            shown = [holder for holder in every if holder[0] in chosen]
            assert [one for one in mine if one in shown] == shown
        assert len(mine) == sum(one[0] in chosen for one in (*holders, *pieces))
        busy = sum(end - start for _, start, end in (*holders, *pieces))
        assert link_busy(line)[link] == busy
    every_piece = [(link, piece[0]) for link, of in expected.pieces.items() for piece in of]
    return len(set(every_piece)) < len(every_piece)


def test_alone_nothing_waits_and_bounds_stay_below(seed: int) -> None:
    for case in own_cases(random.Random(seed), 100):
        line = timeline_of(case)
        alone = simulate_transfers(case.program, line.times, line.transfers.without_contention())
        assert np.array_equal(alone.durations, line.durations)
        apart = line.transfers.without_exchanges().without_transfers()
        off_links = simulate_transfers(case.program, line.times, apart)
        assert np.array_equal(off_links.run.start, alone.run.start)
        assert not link_busy(off_links).any()
        assert not alone.exchange_waits.any()
        contention = line.makespan - alone.makespan
        assert measure_bubble(line).excess.contention == contention
        assert line.links is not None
        work = LinkWork(link_busy(line), line.links)
        floors = np.zeros((len(case.program.stage_edges), 1), dtype=np.int64)
        bounds = makespan_lower_bounds(case.program, line.times, floors, floors, links=work)
        for bound in bounds:
            assert bound.picoseconds <= line.makespan
        for effect in effects_of_microbatches(line):
            if effect.microbatches == case.program.microbatches:
                assert effect.makespan == line.makespan


def test_a_pair_exchanges_what_its_two_do() -> None:
    """Two ranks of four stages; kinds 4 and 5 are those of forwards and backwards."""
    program = build_program("dualpipe_v", 2, 4, pair_mode=PairMode.FUSED)
    edges = len(program.stage_edges)
    free: list[list[tuple[int, int]]] = [[]] * (2 * edges)
    forward, backward = 2 * edges, 2 * edges + 1
    bundles = Bundles.of(2, [*free, [(0, 3)], [(0, 2), (1, 4)]], [0] * (2 * edges) + [1, 2])
    transfers = exchanging(program, bundles, [forward] * 4, [backward] * 4)
    pair = np.flatnonzero(program.kind == OpKind.FORWARD_BACKWARD)
    for given, lasts in ((None, 4 + 6), ([7] * 4, 7), ([2] * 4, 3 + 2)):
        times = StageTimes.of([1] * 4, backward_halves=([3] * 4, [3] * 4), forward_backward=given)
        line = simulate_transfers(program, times, transfers)
        assert line.links is not None
        assert set(line.durations[pair].tolist()) == {lasts}
        (kind,) = set(line.links.own_kinds[pair].tolist())
        assert line.links.bundles.entries(kind) == [(0, 5), (1, 4)]
        assert int(line.links.bundles.alone[kind]) == lasts


def test_an_operation_of_another_time_has_its_links_as_long_as_before() -> None:
    program = build_program("forward_only", 2, 2)
    bundles = Bundles.of(1, [[(0, 5)], [], [(0, 2)]], [0, 0, 2])
    transfers = exchanging(program, bundles, [2, -1])
    line = simulate_transfers(program, StageTimes.of([4, 3]), transfers)
    path = find_critical_path(line)
    # In 3 with 2 on the link: 0F0 0-3, message 3-8, 0F1's exchange 8-10, there at 11, its message
    # 11-16, 1F1 16-19. In 1 it takes 2, as the link does: 0F0 0-2, message 2-7, exchange 7-9,
    # message 9-14, 1F1 14-17.
    for seconds, after, makespan in ((3e-12, 3, 19), (1e-12, 2, 17), (6e-12, 6, 25)):
        gain = exact_gain(line, path, OperationChange(0, OpKind.FORWARD, seconds))
        assert (gain.before, gain.after, gain.makespan) == (4, after, makespan)
        assert gain.bound is None


def test_the_pace_with_exchanges_is_what_one_more_microbatch_costs(seed: int) -> None:
    rng = random.Random(seed)
    found = 0
    for case in own_cases(rng, 60, alike=True):
        line = timeline_of(case)
        steady = measure_cadence(line).steady
        if steady is None:
            continue
        period = line.program.microbatches * case.program.directions * 12
        makespans = []
        for count in (40 * period, 41 * period):
            longer = with_microbatches(line.program, count)
            if longer is None:
                break
            makespans.append(simulate_transfers(longer, line.times, line.transfers).makespan)
        if len(makespans) == 2:
            assert makespans[1] - makespans[0] == pytest.approx(
                float(steady.per_microbatch * period), rel=0.02, abs=20
            )
            found += 1
    assert found > 15


def test_kinds_of_another_number_of_microbatches_are_refused() -> None:
    program = build_program("forward_only", 2, 2)
    bundles = Bundles.of(1, [[], [], [(0, 2)]], [0, 0, 2])
    transfers = exchanging(program, bundles, [2, -1])
    assert transfers.links is not None
    assert transfers.links.own is not None
    own = replace(transfers.links.own, forward=np.array([[2, 2, 2], [-1, 2, 2]], dtype=np.int32))
    wrong = replace(transfers, links=replace(transfers.links, own=own))
    with pytest.raises(InvalidInput, match="one for each of 2"):
        simulate_transfers(program, StageTimes.of([4, 3]), wrong)
