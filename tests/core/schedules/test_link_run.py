"""Links with queues: cases worked by hand, and the slow reference on random programs."""

import random

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.schedules.assemble import assemble_program
from service.core.schedules.build import build_program
from service.core.schedules.bundles import Bundles
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.link_run import service_order, simulate_links
from service.core.schedules.program import OpKind, Program, StageEdge
from service.core.schedules.simulate import MAX_PICOSECONDS, Run, simulate
from service.core.schedules.stage_times import input_microbatches, operation_durations
from tests.core.schedules.event_simulator import Operation, Plan, random_legal_plan, random_plan
from tests.core.schedules.plans import named_program, plan_program, plan_times, read_order
from tests.core.schedules.queue_reference import (
    Links,
    Message,
    Occupancy,
    random_links,
    simulate_with_links,
)


def operations_of(program: Program) -> list[Operation]:
    """The reference's name of each operation."""
    return [
        (OpKind(kind).letter, stage, microbatch)
        for kind, stage, microbatch in zip(
            program.kind.tolist(), program.stage.tolist(), program.microbatch.tolist(), strict=True
        )
    ]


def as_bundles(program: Program, links: Links) -> tuple[Bundles, np.ndarray, np.ndarray | None]:
    """The service's form of what messages occupy: kinds, and the kind of each input."""
    operations = operations_of(program)
    every: list[Occupancy] = []
    for edge in range(len(program.stage_edges)):
        every += [links.crossings[edge, False], links.crossings[edge, True]]
    input_kinds = (2 * program.input_edges + program.input_gradient).astype(np.int32)
    own = None
    if links.own:
        own = np.full(program.operations, -1, dtype=np.int32)
        for number, operation in enumerate(operations):
            if operation in links.own:
                own[number] = len(every)
                every.append(links.own[operation])
    bundles = Bundles.of(
        links.count,
        [list(occupied.items()) for occupied, _ in every],
        [latency for _, latency in every],
    )
    return bundles, input_kinds, own


def messages_of(program: Program) -> list[Message]:
    """The reference's name of each bundle: those of inputs, then those of operations."""
    operations = operations_of(program)
    consumers = np.repeat(np.arange(program.operations), np.diff(program.input_offsets))
    sent: list[Message] = [
        (edge, back, operations[producer], operations[consumer])
        for edge, back, producer, consumer in zip(
            program.input_edges.tolist(),
            program.input_gradient.tolist(),
            program.inputs.tolist(),
            consumers.tolist(),
            strict=True,
        )
    ]
    return [*sent, *operations]


def assert_equals_reference(plan: Plan, program: Program, links: Links) -> Run:
    expected = simulate_with_links(plan, links)
    bundles, input_kinds, own = as_bundles(program, links)
    durations = operation_durations(program, plan_times(plan))
    for used in (bundles, bundles.without_hidden_links()):
        run = simulate_links(program, durations, used, input_kinds, own)
        names = operations_of(program)
        assert dict(zip(names, run.start.tolist(), strict=True)) == expected.start
        assert dict(zip(names, run.end.tolist(), strict=True)) == expected.end
        assert run.queues is not None
        arrivals = dict(zip(messages_of(program), run.queues.arrival.tolist(), strict=False))
        assert {m: arrivals[m] for m in expected.arrival} == expected.arrival
    full = simulate_links(program, durations, bundles, input_kinds, own)
    assert_same_queues(program, full, bundles, links, expected.held)
    return full


def assert_same_queues(
    program: Program,
    run: Run,
    bundles: Bundles,
    links: Links,
    held: dict[int, list[tuple[Message, int, int]]],
) -> None:
    """Which link was last, and behind whom; the sequence on each link."""
    assert run.queues is not None
    messages = messages_of(program)
    served = [messages[b] for b in service_order(program, run.queues).tolist()]
    place = {
        (message, link): (number, begin, end)
        for link, holders in held.items()
        for number, (message, begin, end) in enumerate(holders)
    }
    for link, holders in held.items():
        assert [m for m, _, _ in holders] == [m for m in served if link in links.of(m)[0]]
    for bundle, message in enumerate(messages):
        if message not in served:
            continue
        occupied = links.of(message)[0]
        bound = int(run.queues.bound_link[bundle])
        if not occupied:
            assert bound == -1
            continue
        last = max(occupied, key=lambda link: place[message, link][2])
        assert bound == last
        number, begin, _ = place[message, last]
        before = run.queues.behind[bundle]
        if begin == run.end[program.inputs[bundle]]:
            assert before == -1
        else:
            assert messages[before] == held[last][number - 1][0]


@pytest.mark.parametrize("schedule", [*SCHEDULES, ""])
def test_equals_the_reference_on_random_programs(schedule: str, seed: int) -> None:
    """Over all schedules and orders nobody would think of, 10,000 of them and more."""
    rng = random.Random(seed)
    queued = 0
    for number in range(625):
        if schedule:
            plan = random_plan(rng, schedule, fused=number % 2 == 1)
            program = named_program(plan, schedule)
        else:
            plan = random_legal_plan(rng)
            program = plan_program(plan)
        links = random_links(rng, plan, own=number % 3 == 0)
        run = assert_equals_reference(plan, program, links)
        queued += bool(run.queues and (run.queues.behind >= 0).any())
    assert queued > 100


def two_senders() -> Program:
    """Stages 0 and 1 on ranks of their own, both to stage 2."""
    return assemble_program(
        "explicit",
        [read_order("0F0 0F1"), read_order("1F0 1F1"), read_order("2F0 2F1")],
        stages=3,
        microbatches=2,
        stage_edges=(StageEdge(0, 2), StageEdge(1, 2)),
    )


def forward_only(program: Program, bundles: Bundles, durations: list[int]) -> Run:
    kinds = program.input_edges.astype(np.int32)
    return simulate_links(program, np.array(durations), bundles, kinds)


def test_two_boundaries_on_one_link_wait_for_each_other() -> None:
    # Both first messages are ready at 2; rank 0's goes first: 2-5, rank 1's 5-8. Ready at 4 are the
    # second ones: rank 0's 8-11, rank 1's 11-14. Each takes 1 more to arrive.
    bundles = Bundles.of(1, [[(0, 3)], [(0, 3)]], [1, 1])
    run = forward_only(two_senders(), bundles, [2, 2, 2, 2, 1, 1])
    assert run.start.tolist() == [0, 2, 0, 2, 9, 15]
    assert run.queues is not None
    assert run.queues.arrival.tolist() == [6, 9, 12, 15]
    # inputs: 0F0->2F0, 1F0->2F0, 0F1->2F1, 1F1->2F1; the service order follows the numbers
    assert run.queues.behind.tolist() == [-1, 0, 1, 2]
    assert run.binding.tolist() == [-1, -1, -1, -1, 1, 3]


def test_one_user_a_link_never_waits_for_another_boundary() -> None:
    bundles = Bundles.of(2, [[(0, 1)], [(1, 2)]], [1, 0])
    run = forward_only(two_senders(), bundles, [2, 2, 2, 2, 1, 1])
    assert run.queues is not None
    assert run.queues.arrival.tolist() == [4, 4, 6, 6]
    assert run.queues.behind.tolist() == [-1] * 4


def test_a_bundle_queues_on_each_link_by_itself() -> None:
    # The second sender needs links 0 (taken until 5) and 1 (free): 5-6 on link 0, 2-9 on link 1.
    bundles = Bundles.of(2, [[(0, 3)], [(0, 1), (1, 7)]], [0, 0])
    run = forward_only(two_senders(), bundles, [2, 9, 2, 9, 1, 1])
    assert run.queues is not None
    assert run.queues.arrival.tolist()[:2] == [5, 9]
    assert run.queues.bound_link.tolist()[:2] == [0, 1]
    assert run.queues.behind.tolist()[:2] == [-1, -1]


def test_who_is_served_first_of_equals_follows_the_rule_and_not_the_numbers() -> None:
    # On one rank: a forward of a later microbatch and a gradient of an earlier one, both ready at
    # once because the second operation takes no time. The lower microbatch goes first.
    program = build_program("1f1b", 3, 3)
    bundles = Bundles.of(1, [[(0, 4)]] * 4, [0] * 4)
    kinds = (2 * program.input_edges + program.input_gradient).astype(np.int32)
    durations = np.ones(program.operations, dtype=np.int64)
    zero = [program.label(i) for i in range(program.operations)].index("1B0")
    durations[zero] = 0
    run = simulate_links(program, durations, bundles, kinds)
    assert run.queues is not None
    served = service_order(program, run.queues).tolist()
    names = [program.label(int(program.inputs[b])) for b in served]
    together = [names.index(name) for name in ("1B0", "1F2")]
    assert run.end[zero] == run.start[zero]
    assert together == sorted(together)


def test_an_operation_ends_when_its_own_bundle_arrives() -> None:
    # Both ranks exchange over link 0 while they run: rank 0 first, 0-3, rank 1 3-6 (its forward
    # takes 2), then the next two, ready at 3 and at 7 (own latency 1).
    program = assemble_program(
        "explicit",
        [read_order("0F0 0F1"), read_order("1F0 1F1")],
        stages=2,
        microbatches=2,
        stage_edges=(),
    )
    bundles = Bundles.of(1, [[(0, 3)], [(0, 3)]], [0, 1])
    own = np.array([0, 0, 1, -1], dtype=np.int32)
    durations = np.array([2, 5, 2, 2])
    run = simulate_links(program, durations, bundles, np.empty(0, np.int32), own)
    # 0F0 0-3; 1F0 its bundle 3-6, arrives at 7; 0F1's bundle 6-9, its own work until 8; 1F1 7-9
    assert run.start.tolist() == [0, 3, 0, 7]
    assert run.end.tolist() == [3, 9, 7, 9]


def test_without_occupancy_it_is_latency_mode(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        schedule = rng.choice([*SCHEDULES])
        plan = random_plan(rng, schedule, fused=rng.random() < 0.5)
        program = named_program(plan, schedule)
        crossing = 2 * program.input_edges + program.input_gradient
        kinds = (crossing * program.microbatches + input_microbatches(program)).astype(np.int32)
        each = zip(plan.forward, plan.backward, strict=True)
        latency = [time for pair in each for times in pair for time in times]
        durations = operation_durations(program, plan_times(plan))
        for occupied in ([], [(0, 0), (1, 0)]):
            bundles = Bundles.of(2, [occupied] * len(latency), latency)
            run = simulate_links(program, durations, bundles, kinds)
            alone = simulate(program, durations, bundles.alone[kinds])
            assert np.array_equal(run.start, alone.start)
            assert np.array_equal(run.binding, alone.binding)


def test_hidden_links_are_left_out_and_the_lowest_of_equals_stays() -> None:
    bundles = Bundles.of(
        5,
        # link 1 as link 0; link 2 less than link 0; link 3 longer; link 4 for one kind only
        [[(0, 4), (1, 4), (2, 3), (3, 5), (4, 9)], [(0, 2), (1, 2), (2, 2), (3, 1)]],
        [7, 8],
    )
    fewer = bundles.without_hidden_links()
    assert fewer.entries(0) == [(0, 4), (3, 5), (4, 9)]
    assert fewer.entries(1) == [(0, 2), (3, 1)]
    assert fewer.latency.tolist() == [7, 8]


def test_further_kinds_take_another_time_alone() -> None:
    bundles = Bundles.of(2, [[(0, 6), (1, 4)], []], [2, 0])
    assert bundles.alone.tolist() == [8, 0]
    more = bundles.extended([(0, 4), (1, 5)])
    assert (more.entries(0), more.latency.tolist()) == ([(0, 6), (1, 4)], [2, 0, 1, 5])
    assert (more.entries(2), more.entries(3)) == ([(0, 3), (1, 2)], [])
    assert more.alone.tolist() == [8, 0, 4, 5]


def test_times_that_pass_the_limit_are_refused() -> None:
    long = MAX_PICOSECONDS - 1
    for durations, occupied, latency in (
        ([long, 2, 1, 1, 1, 1], 1, 0),
        ([1, 1, 1, 1, 1, 1], long, 0),
        ([1, 1, 1, 1, 1, 1], 1, long),
    ):
        bundles = Bundles.of(1, [[(0, occupied)], [(0, occupied)]], [latency, 0])
        with pytest.raises(InvalidInput, match="53 days"):
            forward_only(two_senders(), bundles, durations)
    # Many ranks that are busy all the time together take longer than any of them.
    bundles = Bundles.of(1, [[(0, 1)], [(0, 1)]], [0, 0])
    run = forward_only(two_senders(), bundles, [long // 2, 1, long // 2, 1, 1, 1])
    assert run.makespan < MAX_PICOSECONDS


def test_wrong_lengths_and_times_are_refused_together() -> None:
    program = two_senders()
    bundles = Bundles.of(1, [[(0, -1)]], [0])
    with pytest.raises(InvalidInput) as refused:
        simulate_links(program, np.ones(3, np.int64), bundles, np.ones(4, np.int32))
    assert [fault.path for fault in refused.value.faults] == [
        ("durations",),
        ("occupied",),
        ("kinds",),
    ]
