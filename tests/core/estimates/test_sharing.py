"""Jobs that share links: by hand, and against a slow reference in exact fractions."""

from collections.abc import Sequence
from fractions import Fraction
from random import Random

import pytest

from service.core.errors import WorkBudgetExceeded
from service.core.estimates.reduction.sharing import Job, Span, run_jobs, sharing_work
from tests.core.estimates.reducing_plans import SECOND


def job(
    queue: int, ready: int, size: int, takes: dict[str, Fraction | int], latency: int = 0
) -> Job:
    """Times in seconds."""
    exact = {name: Fraction(one) for name, one in takes.items()}
    return Job(queue, ready * SECOND, size, exact, latency * SECOND)


def test_a_queue_runs_in_the_order_of_readiness() -> None:
    jobs = [job(0, 5, 2, {"a": 1}), job(0, 1, 3, {"a": 1}, latency=1), job(0, 9, 1, {"a": 1})]
    assert run_jobs(jobs) == [
        Span(5 * SECOND, 7 * SECOND),
        Span(1 * SECOND, 5 * SECOND),
        Span(9 * SECOND, 10 * SECOND),
    ]


def test_two_queues_share_a_capacity_and_a_third_has_its_own() -> None:
    jobs = [job(0, 0, 4, {"a": 1}), job(1, 2, 4, {"a": 1}), job(2, 0, 4, {"b": 1})]
    # From 2 s on each has half; the first is done at 6 s, the second had two bytes left then.
    assert run_jobs(jobs) == [
        Span(0, 6 * SECOND),
        Span(2 * SECOND, 8 * SECOND),
        Span(0, 4 * SECOND),
    ]


def test_latency_takes_up_no_capacity() -> None:
    jobs = [job(0, 0, 2, {"a": 1}), job(1, 0, 2, {"a": 1}, latency=2)]
    assert run_jobs(jobs) == [Span(0, 2 * SECOND), Span(0, 4 * SECOND)]


def test_what_is_given_takes_its_time_whatever_is_shared() -> None:
    jobs = [job(0, 1, 0, {}, latency=3), job(1, 0, 5, {})]
    assert run_jobs(jobs) == [Span(SECOND, 4 * SECOND), Span(0, 0)]


def rates(moving: Sequence[Job]) -> list[Fraction]:
    """Max-min fair rates: raise all together, and settle who is held up first."""
    found: dict[int, Fraction] = {}
    while len(found) < len(moving):
        least: tuple[Fraction, list[int]] | None = None
        for name in sorted({name for one in moving for name in one.seconds_per_byte}):
            users = [i for i, one in enumerate(moving) if name in one.seconds_per_byte]
            taken = [found[i] * moving[i].seconds_per_byte[name] for i in users if i in found]
            free = [i for i in users if i not in found]
            if free:
                left = Fraction(1) - sum(taken, Fraction(0))
                share = left / sum((moving[i].seconds_per_byte[name] for i in free), Fraction(0))
                if least is None or share < least[0]:
                    least = share, free
        assert least is not None
        found |= dict.fromkeys(least[1], least[0])
    return [found[i] for i in range(len(moving))]


def reference(jobs: Sequence[Job]) -> list[tuple[Fraction, Fraction]]:
    """Exact spans in seconds, followed from event to event."""
    waiting = sorted(range(len(jobs)), key=lambda i: (jobs[i].ready, i))
    now = Fraction(0)
    start: dict[int, Fraction] = {}
    end: dict[int, Fraction] = {}
    left = [Fraction(one.message_bytes) for one in jobs]
    while len(end) < len(jobs):
        busy = {jobs[i].queue for i in start if i not in end}
        for i in waiting:
            ready = Fraction(jobs[i].ready, SECOND)
            if i not in start and ready <= now and jobs[i].queue not in busy:
                start[i] = now
                busy.add(jobs[i].queue)
        running = [i for i in start if i not in end]
        awake = {i: start[i] + Fraction(jobs[i].latency_picoseconds, SECOND) for i in running}
        moving = [i for i in running if awake[i] <= now]
        done = [i for i in moving if not left[i] or not jobs[i].seconds_per_byte]
        if done:
            end |= dict.fromkeys(done, now)
            continue
        speed = dict(zip(moving, rates([jobs[i] for i in moving]), strict=True))
        events = [time for time in awake.values() if time > now]
        events += [Fraction(jobs[i].ready, SECOND) for i in waiting if i not in start]
        events += [now + left[i] / speed[i] for i in moving]
        then = min(time for time in events if time > now)
        for i in moving:
            left[i] -= speed[i] * (then - now)
        now = then
    return [(start[i], end[i]) for i in range(len(jobs))]


@pytest.mark.parametrize("seed", range(40))
def test_spans_are_those_of_the_slow_reference(seed: int) -> None:
    random = Random(seed)
    capacities = "abcd"[: random.randint(1, 4)]
    mappings = [
        {name: Fraction(random.randint(1, 4), 3) for name in capacities if random.random() < 0.6}
        for _ in range(3)
    ]
    jobs = []
    for _ in range(random.randint(1, 8)):
        queue = random.randrange(3)
        jobs.append(
            Job(
                queue,
                random.randint(0, 6) * SECOND,
                random.randint(0, 9),
                mappings[queue],
                random.choice([0, 0, SECOND]),
            )
        )
    for span, (start, end), one in zip(run_jobs(jobs), reference(jobs), jobs, strict=True):
        assert span.start == pytest.approx(float(start * SECOND), abs=50)
        assert span.end == pytest.approx(float(end * SECOND), abs=50)
        assert span.end - span.start >= one.alone_picoseconds


def test_too_much_to_follow_is_refused_before_it_is_followed() -> None:
    many = {f"link{number}": Fraction(1) for number in range(1000)}
    jobs = [Job(number % 2, 0, 1, many, 0) for number in range(5000)]
    assert sharing_work(jobs) > 20_000_000
    with pytest.raises(WorkBudgetExceeded):
        run_jobs(jobs)
