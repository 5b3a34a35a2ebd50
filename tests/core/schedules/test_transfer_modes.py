"""What is said of a timeline, in every transfer mode and of every schedule."""

import random
from collections.abc import Iterator
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

from service.core.schedules.bubble import measure_bubble
from service.core.schedules.build import build_program, with_microbatches
from service.core.schedules.bundles import Bundles
from service.core.schedules.cadence import measure_cadence
from service.core.schedules.catalogue import SCHEDULES, schedule_family
from service.core.schedules.critical_path import CriticalPath, LinkShare, find_critical_path
from service.core.schedules.effects import effects_of_microbatches
from service.core.schedules.gains import OperationChange, TransferChange
from service.core.schedules.link_use import intervals_of, link_busy, service_of
from service.core.schedules.no_steady import NoSteady
from service.core.schedules.program import OpKind, Program
from service.core.schedules.sensitivity import measure_sensitivity
from service.core.schedules.slack import measure_slack
from service.core.schedules.stage_times import StageTimes
from service.core.schedules.timeline import Timeline, simulate_transfers
from service.core.schedules.transfers import LinkTransfers, TransferMode, Transfers
from service.core.schedules.waits import operation_waits
from tests.core.schedules.event_simulator import Plan, random_plan
from tests.core.schedules.plans import (
    exact_gain,
    named_program,
    plan_hops,
    plan_times,
    simulate_timeline,
)
from tests.core.schedules.queue_reference import random_links, simulate_with_links
from tests.core.schedules.test_link_run import as_bundles, messages_of

NAMED = list(SCHEDULES)
MILLI = 10**9


def over_links(program: Program, bundles: Bundles) -> Transfers:
    """Kinds 2e and 2e + 1 are what crosses edge e there and back."""
    edges = np.arange(len(program.stage_edges), dtype=np.int32)[:, np.newaxis]
    return Transfers.over_links(LinkTransfers.of(bundles, 2 * edges, 2 * edges + 1))


def timelines(
    schedule: str, rng: random.Random, count: int, *, alike: bool = False
) -> Iterator[tuple[Plan, dict[TransferMode, Timeline]]]:
    """Random small plans, each in all three modes; if wanted with microbatches that are alike."""
    while count > 0:
        plan = random_plan(rng, schedule, fused=rng.random() < 0.5)
        if alike:
            for rows in (*plan.durations.values(), plan.forward, plan.backward):
                rows[:] = [[row[0]] * len(row) for row in rows]
        if not any(plan.duration(op) for order in plan.orders for op in order):
            continue
        count -= 1
        program, times = named_program(plan, schedule), plan_times(plan)
        bundles, _, _ = as_bundles(program, random_links(rng, plan, own=False))
        found = {
            mode: simulate_timeline(program, times, *plan_hops(plan), mode=mode)
            for mode in (TransferMode.LATENCY, TransferMode.BLOCKING)
        }
        found[TransferMode.LINK] = simulate_transfers(program, times, over_links(program, bundles))
        yield plan, found


@pytest.mark.parametrize("schedule", NAMED)
def test_everything_adds_up_in_every_mode(schedule: str, seed: int) -> None:
    for _, found in timelines(schedule, random.Random(seed), 40):
        for mode, line in found.items():
            bubble = measure_bubble(line)
            for rank in bubble.ranks:
                waits = (rank.dependency_wait, rank.transfer_wait, rank.contention_wait)
                parts = (rank.busy, rank.send, rank.fill, rank.drain, *waits)
                assert min(parts) >= 0
                assert sum(parts) == line.makespan
                assert rank.send == 0 or mode is TransferMode.BLOCKING
                assert rank.contention_wait == 0 or mode is TransferMode.LINK
            assert bubble.excess.total == bubble.makespan - bubble.ideal
            assert bubble.excess.contention == 0 or mode is TransferMode.LINK
            path = find_critical_path(line)
            assert sum(path.by_stage) + path.transfer + path.queue == line.makespan
            assert sum(path.by_kind.values()) == sum(path.by_stage)
            assert_unbroken(line, path)
            slack = measure_slack(line)
            assert slack.operations.min() == 0
            for step in path.operations:
                assert slack.operations[step.operation] == 0
            for effect in effects_of_microbatches(line):
                if effect.microbatches == line.program.microbatches:
                    assert effect.makespan == line.makespan


def assert_unbroken(line: Timeline, path: CriticalPath) -> None:
    """Each step begins when what is before it ends."""
    now = 0
    for step in path.operations:
        if step.after is not None:
            for queue in step.after.ahead:
                assert (queue.start, queue.end >= queue.start) == (now, True)
                now = queue.end
            now += step.after.latency
        assert step.start == now
        now = step.end
    assert now == line.makespan


def test_links_without_occupancy_are_latency_mode(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        for plan, found in timelines(rng.choice(NAMED), rng, 1):
            line = found[TransferMode.LATENCY]
            latency = np.column_stack(plan_hops(plan)[0:1])  # one number an edge is enough here
            hops = latency[:, 0] if latency.size else np.zeros(0, dtype=np.int64)
            bundles = Bundles.of(0, [[]] * 2 * len(hops), np.repeat(hops, 2).tolist())
            other = simulate_transfers(line.program, line.times, over_links(line.program, bundles))
            alone = simulate_timeline(line.program, line.times, hops)
            assert np.array_equal(other.run.start, alone.run.start)
            assert measure_bubble(other) == measure_bubble(alone)
            assert np.array_equal(measure_slack(other).operations, measure_slack(alone).operations)


def test_with_one_message_at_a_time_on_each_link_nobody_queues() -> None:
    """Links of their own for every boundary and direction, each message shorter than a stage."""
    program = build_program("1f1b", 4, 8)
    times = StageTimes.of([5, 6, 7, 5], [9, 12, 10, 9])
    bundles = Bundles.of(6, [[(kind, 3)] for kind in range(6)], [2] * 6)
    line = simulate_transfers(program, times, over_links(program, bundles))
    alone = simulate_timeline(program, times, 5)
    assert np.array_equal(line.run.start, alone.run.start)
    assert not line.queueing.any()
    assert measure_bubble(line) == measure_bubble(alone)


def excess_of(program: Program, times: StageTimes, bundles: Bundles) -> dict[str, Fraction]:
    line = simulate_transfers(program, times, over_links(program, bundles))
    excess = measure_bubble(line).excess
    names = ("contention", "transfer", "imbalance", "structural")
    return {name: getattr(excess, name) for name in names}


def test_what_is_planted_is_found_in_its_own_term() -> None:
    program = build_program("1f1b", 4, 16)
    even = StageTimes.of([6] * 4, [12] * 4)
    # Links of their own, messages of 2, which nobody waits for twice.
    own = [[(kind, 2)] for kind in range(6)]
    base = excess_of(program, even, Bundles.of(7, own, [0] * 6))
    assert base["contention"] == base["imbalance"] == 0
    assert base["structural"] == 3 * 18

    slow_stage = StageTimes.of([6, 6, 9, 6], [12, 12, 16, 12])
    found = excess_of(program, slow_stage, Bundles.of(7, own, [0] * 6))
    assert found["contention"] == 0
    assert found["imbalance"] > 50

    slow_hop = [[(kind, 9 if kind in (2, 3) else 2)] for kind in range(6)]
    found = excess_of(program, even, Bundles.of(7, slow_hop, [0] * 6))
    assert found["contention"] == found["imbalance"] == 0
    assert found["transfer"] > base["transfer"] + 50
    assert found["structural"] == base["structural"]

    # The same messages, and all over one link as well that is busy for 8 of every 18.
    shared = [[(kind, 2), (6, 4)] for kind in range(6)]
    alone = excess_of(
        program, even, Bundles.of(12, [[(k, 2), (k + 6, 4)] for k in range(6)], [0] * 6)
    )
    found = excess_of(program, even, Bundles.of(7, shared, [0] * 6))
    assert alone["contention"] == 0
    assert found["contention"] > 20
    assert {**found, "contention": 0} == {**alone, "contention": 0}


def test_blocking_time_is_the_senders() -> None:
    """18/18/18/18 with 4 a hop: a rank sends for 4 after each forward and each backward."""
    program = build_program("1f1b", 4, 8)
    line = simulate_timeline(
        program, StageTimes.of([6] * 4, [12] * 4), 4, mode=TransferMode.BLOCKING
    )
    bubble = measure_bubble(line)
    assert [rank.send for rank in bubble.ranks] == [8 * 4, 8 * 8, 8 * 8, 8 * 4]
    assert bubble.excess.contention == 0
    assert bubble.excess.imbalance == 0
    assert bubble.excess.structural == 3 * 18
    assert (
        bubble.makespan
        > measure_bubble(simulate_timeline(program, StageTimes.of([6] * 4, [12] * 4), 4)).makespan
    )


def test_a_queue_is_on_the_path_with_who_was_ahead() -> None:
    """Two stages send to a third over one link; the second one's message waits for the first's."""
    program = build_program("forward_only", 2, 3)
    # 0F at 0, 1, 2; messages of 5: 1-6, 6-11, 11-16, latency 1; 1F at 7, 12, 17.
    bundles = Bundles.of(1, [[(0, 5)], [(0, 5)]], [1, 1])
    line = simulate_transfers(program, StageTimes.of([1, 2]), over_links(program, bundles))
    assert line.run.start.tolist() == [0, 1, 2, 7, 12, 17]
    path = find_critical_path(line)
    assert [line.label(step.operation) for step in path.operations] == ["0F0", "1F2"]
    transfer = path.operations[1].after
    assert transfer is not None
    assert transfer.latency == 6
    assert [(q.input, q.start, q.end) for q in transfer.ahead] == [(0, 1, 6), (1, 6, 11)]
    assert transfer.link == 0
    assert (path.by_stage, path.transfer, path.queue) == ((1, 2), 6, 10)
    assert (dict(path.by_link), path.off_links) == ({0: LinkShare(occupied=5, queued=10)}, 1)
    waits = operation_waits(line)
    # Before 1F1 the rank is free from 9: its message queued from 2 to 6 and is there at 12.
    assert waits.contention.tolist() == [0, 0, 0, 0, 3, 3]
    assert waits.transfer.tolist() == [0] * 6
    assert link_busy(line).tolist() == [15]


def test_a_link_has_its_share_of_the_path_where_it_is_the_slowest_of_a_transfer() -> None:
    """Three stages in a row: links of 2 and 5 with latency 1, then no link and 3."""
    program = build_program("forward_only", 3, 1)
    bundles = Bundles.of(2, [[(0, 2), (1, 5)], [], [], []], [1, 0, 3, 0])
    line = simulate_transfers(program, StageTimes.of([4, 4, 4]), over_links(program, bundles))
    path = find_critical_path(line)
    steps = [None if step.after is None else step.after.link for step in path.operations]
    assert steps == [None, 1, None]
    assert dict(path.by_link) == {1: LinkShare(occupied=5, queued=0)}
    assert (sum(path.by_stage), path.transfer, path.off_links) == (12, 9, 4)
    assert line.makespan == 21


def test_links_share_out_the_transfers_of_the_path(seed: int) -> None:
    """Held against when each link was held by whom, links that never decide anything included."""
    rng = random.Random(seed)
    on_links = 0
    for _, found in timelines("1f1b", rng, 60):
        line = found[TransferMode.LINK]
        path, links = find_critical_path(line), line.links
        assert links is not None
        crossed = np.zeros(len(line.program.inputs), dtype=np.bool_)
        crossed[path.operations.crossed[path.operations.crossed >= 0]] = True
        held = intervals_of(line, crossed)
        occupied = dict.fromkeys(range(links.bundles.links), 0)
        travels = links.bundles.latency[links.input_kinds]
        off = 0
        for step in path.operations:
            if step.after is None:
                continue
            of_step = held.bundle == step.after.input
            off += int(travels[step.after.input])
            if step.after.link is None:
                assert not of_step.any()
                continue
            last = of_step & (held.link == step.after.link)
            (start,), (end,) = held.start[last], held.end[last]
            assert end == held.end[of_step].max()
            assert line.arrival_of(step.after.input) == end + travels[step.after.input]
            occupied[step.after.link] += int(end - start)
            on_links += 1
        assert {link: time for link, time in occupied.items() if time} == {
            link: share.occupied for link, share in path.by_link.items() if share.occupied
        }
        assert path.off_links == off
        assert path.transfer == off + sum(occupied.values())
        for mode in (TransferMode.LATENCY, TransferMode.BLOCKING):
            path = find_critical_path(found[mode])
            assert not path.by_link
            assert path.off_links == path.transfer
    assert on_links > 20


def test_intervals_are_those_of_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        schedule = rng.choice(NAMED)
        plan = random_plan(rng, schedule, fused=rng.random() < 0.5)
        if not any(plan.duration(op) for order in plan.orders for op in order):
            continue
        program = named_program(plan, schedule)
        links = random_links(rng, plan, own=False)
        bundles, _, _ = as_bundles(program, links)
        line = simulate_transfers(program, plan_times(plan), over_links(program, bundles))
        held = simulate_with_links(plan, links).held
        messages = messages_of(program)
        wanted = np.array([rng.random() < 0.7 for _ in program.inputs], dtype=np.bool_)
        found = intervals_of(line, wanted)
        columns = (found.link, found.bundle, found.start, found.end)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        chosen = {messages[i] for i in np.flatnonzero(wanted)}
        for link, holders in held.items():
            mine = [(messages[i], start, end) for at, i, start, end in rows if at == link]
            assert mine == [holder for holder in holders if holder[0] in chosen]
            service = service_of(line, link)
            assert [
                (messages[i], start, end)
                for i, start, end in zip(
                    service.bundle.tolist(),
                    service.start.tolist(),
                    service.end.tolist(),
                    strict=True,
                )
            ] == holders
            busy = sum(end - start for _, start, end in holders)
            assert link_busy(line)[link] == busy


def longest_way_with_delay(line: Timeline, delayed: int, by: int) -> int:
    """The makespan when one operation ends later, ranks and links keeping to their sequence.

    All operations wait as long as they did for what they exchange themselves.
    """
    program, links, queues = line.program, line.links, line.run.queues
    assert links is not None
    assert queues is not None
    kinds = links.kinds
    end = [0] * program.operations
    arrival = [0] * len(program.inputs)
    link_free = [0] * links.bundles.links
    rank_free = [0] * program.ranks
    for item in queues.sequence.tolist():
        if item < program.operations:
            inputs = range(program.input_offsets[item], program.input_offsets[item + 1])
            rank = program.rank[item]
            begin = max([rank_free[rank], *(arrival[i] for i in inputs)])
            lasted = int(line.run.end[item] - line.run.start[item])
            end[item] = rank_free[rank] = begin + lasted + by * (item == delayed)
            continue
        bundle = item - program.operations
        if bundle >= len(arrival):
            continue
        ready = end[program.inputs[bundle]]
        done = ready
        for link, time in links.bundles.entries(int(kinds[bundle])):
            link_free[link] = max(link_free[link], ready) + time
            done = max(done, link_free[link])
        arrival[bundle] = done + int(links.bundles.latency[kinds[bundle]])
    return max(end)


def test_slack_over_links_is_what_an_operation_can_lose(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        for _, found in timelines(rng.choice(NAMED), rng, 1):
            line = found[TransferMode.LINK]
            slack = measure_slack(line).operations
            assert longest_way_with_delay(line, 0, 0) == line.makespan
            for operation in rng.sample(range(line.program.operations), 3):
                spare = int(slack[operation])
                assert longest_way_with_delay(line, operation, spare) == line.makespan
                assert longest_way_with_delay(line, operation, spare + 1) == line.makespan + 1


def test_slack_of_blocking_senders_is_what_an_operation_can_lose(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        for _, found in timelines(rng.choice(NAMED), rng, 1):
            line = found[TransferMode.BLOCKING]
            slack = measure_slack(line).operations
            for operation in rng.sample(range(line.program.operations), 3):
                for spare in (int(slack[operation]), int(slack[operation]) + 1):
                    durations = line.durations.copy()
                    durations[operation] += spare
                    later = line.transfers.run(line.program, durations).makespan - line.makespan
                    assert later == spare - slack[operation]


def test_gains_are_exact_in_every_mode_and_bounded_where_slopes_hold(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        for _, found in timelines(rng.choice(["1f1b", "zb_h1", "interleaved_1f1b"]), rng, 1):
            for mode, line in found.items():
                path = find_critical_path(line)
                change = OperationChange(rng.randrange(line.program.stages), OpKind.FORWARD, 0.0)
                gain = exact_gain(line, path, change)
                times = line.times.forward.copy()
                times[change.stage] = 0
                changed = replace(line.times, forward=times)
                if not (changed.forward.any() or changed.backward.any()):
                    continue
                again = simulate_transfers(line.program, changed, line.transfers)
                assert gain.makespan == again.makespan
                assert (gain.bound is None) == (mode is TransferMode.LINK)
                if gain.bound is not None:
                    assert gain.gain <= gain.bound


def test_slopes_of_blocking_senders_are_derivatives(seed: int) -> None:
    """A picosecond more on one stage or hop, in a unit so large that the path stays."""
    rng = random.Random(seed)
    checked = 0
    for _ in range(60):
        for plan, found in timelines(rng.choice(NAMED), rng, 1):
            line = found[TransferMode.BLOCKING]
            large = 10**6
            given = {field.name: getattr(line.times, field.name) for field in fields(line.times)}
            longer_times = {name: t * large for name, t in given.items() if t is not None}
            times = replace(line.times, **longer_times)
            hops = [hop * large for hop in plan_hops(plan)]
            scaled = simulate_timeline(line.program, times, *hops, mode=TransferMode.BLOCKING)
            sensitivity = measure_sensitivity(scaled, find_critical_path(scaled))
            for (edge, gradient), slope in sensitivity.transfers.items():
                longer = [hop.copy() for hop in hops]
                longer[gradient][edge] += 1
                after = simulate_timeline(line.program, times, *longer, mode=TransferMode.BLOCKING)
                assert after.makespan - scaled.makespan >= slope.on_path
                checked += slope.on_path > 0
    assert checked > 20


def test_sensitivity_is_refused_where_transfers_queue() -> None:
    program = build_program("1f1b", 2, 2)
    bundles = Bundles.of(1, [[(0, 1)], [(0, 1)]], [0, 0])
    line = simulate_transfers(program, StageTimes.of([1, 1], [1, 1]), over_links(program, bundles))
    with pytest.raises(ValueError, match="slope"):
        measure_sensitivity(line, find_critical_path(line))


def test_a_transfer_change_over_links_is_a_bundle_of_another_length() -> None:
    program = build_program("forward_only", 2, 3)
    bundles = Bundles.of(1, [[(0, 5)], [(0, 5)]], [1, 1])
    line = simulate_transfers(program, StageTimes.of([1, 2]), over_links(program, bundles))
    half = exact_gain(
        line, find_critical_path(line), TransferChange(0, 1, gradient=False, factor=0.5)
    )
    # 5 * 3 // 6 = 2 on the link and 1 after it: ready at 1, 2, 3; 1-3, 3-5, 5-7; 1F at 4, 6, 8
    assert (half.before, half.after, half.makespan) == (6, 3, 10)


def span(line: Timeline, microbatches: int) -> int | None:
    """How long that many microbatches take; None where the order can't have so many."""
    program = with_microbatches(line.program, microbatches)
    if program is None:
        return None
    return simulate_transfers(program, line.times, line.transfers).makespan


@pytest.mark.parametrize("schedule", [n for n in NAMED if schedule_family(n).period is not None])
def test_the_pace_is_what_further_periods_take(schedule: str, seed: int) -> None:
    """In blocking and link mode, against longer iterations.

    There is none where phases need not follow one another, as nothing joins the stages, nor for a
    group that a long iteration can't have. Queues may not come to repeat themselves.
    """
    rng = random.Random(seed)
    family = schedule_family(schedule)
    repeats: list[bool] = []
    for _, found in timelines(schedule, rng, 12, alike=True):
        for mode in (TransferMode.BLOCKING, TransferMode.LINK):
            line = found[mode]
            cadence = measure_cadence(line)
            joined = {edge.source for edge in line.program.stage_edges if edge.gradient}
            apart = not joined >= set(range(line.program.stages - 1))
            assert (cadence.steady is None) != (cadence.no_steady is None)
            if apart and len(family.phases) > 1:
                assert cadence.no_steady is NoSteady.PHASES_APART
                continue
            ranks, microbatches = line.program.ranks, line.program.microbatches
            odd_group = family.takes_groups and microbatches > ranks and microbatches % ranks > 0
            if mode is TransferMode.LINK and not odd_group:
                repeats.append(cadence.steady is not None)
            if cadence.steady is None:
                refused = cadence.no_steady is NoSteady.GROUPS_DO_NOT_GO_ON
                assert odd_group if refused else mode is TransferMode.LINK
                continue
            pace = cadence.steady.per_microbatch
            assert pace >= cadence.bound
            unit = 2 * ranks  # a multiple of every order's period
            long = 96 * ranks
            # Queues repeat themselves after some periods, no more than ranks and chunks make leads.
            growth = [span(line, long + n * unit) for n in range(line.program.stages * 2 + 1)]
            if None not in growth:
                (start, *ends) = [length for length in growth if length is not None]
                exact = [n for n, end in enumerate(ends, 1) if end - start == pace * n * unit]
                assert exact
                thrice = span(line, long + 3 * exact[0] * unit)
                assert thrice is not None
                assert thrice - start == 3 * pace * exact[0] * unit
    assert 2 * repeats.count(True) >= len(repeats)


def test_the_pace_is_found_where_queues_settle_later_than_the_order() -> None:
    """Three ranks whose activations share one link.

    The order is steady from microbatch 3 on. The queues repeat themselves every three microbatches,
    but only after more of them than the shortest iteration that is looked at holds.
    """
    program = build_program("pipedream", 3, 8)
    bundles = Bundles.of(1, [[(0, 4)], [(0, 0)], [(0, 4)], [(0, 0)]], [0] * 4)
    transfers = over_links(program, bundles)
    times = StageTimes.of([1, 1, 1], [2, 1, 1])
    line = simulate_transfers(program, times, transfers)
    steady = measure_cadence(line).steady
    assert steady is not None
    assert steady.per_microbatch == Fraction(25, 3)
    # Further periods of three microbatches take 25 each.
    start = span(line, 300)
    assert start is not None
    assert [span(line, count) for count in (303, 333)] == [start + 25, start + 11 * 25]
