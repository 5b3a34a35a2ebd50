"""The bucket of each caller against a slow one, bounded memory, and what the guard says."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import Litestar, get, post

from service.app.access import Access
from service.web.access import OPEN, access_guard
from service.web.application import Application
from service.web.problems import EXCEPTION_HANDLERS
from service.web.rate_limit import UNLIMITED, RateLimiter, Standing, rate_limit_guard
from tests.api.clients import client_of
from tests.app.fakes import FakeDatabase


class MovedClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 3, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def forward(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def test_a_minutes_burst_and_then_the_rate() -> None:
    clock = MovedClock()
    limiter = RateLimiter(3, clock)
    assert [limiter.take("a") for _ in range(4)] == [
        Standing(3, 2, 20),
        Standing(3, 1, 40),
        Standing(3, 0, 60),
        Standing(3, 0, 60, wait_seconds=20),
    ]
    clock.forward(19.5)
    assert limiter.take("a").wait_seconds == 1
    clock.forward(0.5)
    assert limiter.take("a") == Standing(3, 0, 60)
    clock.forward(30)
    assert limiter.take("a") == Standing(3, 0, 50)
    clock.forward(3600)
    assert limiter.take("a") == Standing(3, 2, 20)


def test_every_request_of_a_burst_is_served_whatever_the_limit() -> None:
    for limit in (1, 7, 6000, 999_983):
        limiter = RateLimiter(limit, MovedClock())
        served = range(min(limit, 7000))
        assert all(limiter.take("a").remaining == limit - 1 - number for number in served)


def test_refusals_cost_nothing() -> None:
    clock = MovedClock()
    limiter = RateLimiter(60, clock)
    for _ in range(1000):
        limiter.take("a")
    clock.forward(1)
    assert limiter.take("a").wait_seconds == 0


def test_callers_have_buckets_of_their_own() -> None:
    limiter = RateLimiter(1, MovedClock())
    assert limiter.take("a").wait_seconds == 0
    assert limiter.take("b").wait_seconds == 0
    assert limiter.take("a").wait_seconds == 60


def test_a_clock_set_back_keeps_nobody_out_for_long() -> None:
    clock = MovedClock()
    limiter = RateLimiter(2, clock)
    for _ in range(2):
        limiter.take("a")
    clock.forward(-86_400)
    assert limiter.take("a").wait_seconds == 30


@given(
    limit=st.integers(1, 9),
    pauses=st.lists(st.integers(0, 40_000_000), max_size=40),
)
def test_it_agrees_with_a_bucket_of_fractions(limit: int, pauses: list[int]) -> None:
    clock = MovedClock()
    limiter = RateLimiter(limit, clock)
    held = Fraction(limit)
    for microseconds in pauses:
        clock.moment += timedelta(microseconds=microseconds)
        held = min(Fraction(limit), held + Fraction(microseconds * limit, 60_000_000))
        standing = limiter.take("a")
        if held >= 1:
            held -= 1
            assert (standing.wait_seconds, standing.remaining) == (0, int(held))
        else:
            wait = (1 - held) * Fraction(60, limit)
            assert standing.wait_seconds == -(-wait.numerator // wait.denominator)


def test_memory_is_bounded_and_who_is_still_asking_is_remembered() -> None:
    clock = MovedClock()
    limiter = RateLimiter(2, clock, max_callers=100)
    for number in range(1000):
        limiter.take(f"caller-{number}")
        if number % 40 == 0:
            limiter.take("busy")
    assert len(limiter) == 100
    assert limiter.take("busy").wait_seconds > 0
    # Whoever has a full bucket again is forgotten as others come.
    clock.forward(60)
    for number in range(200):
        limiter.take(f"later-{number}")
    assert len(limiter) <= 100
    clock.forward(60)
    for _ in range(100):
        limiter.take("one")
    assert len(limiter) == 1


@get("/counted", sync_to_thread=False)
def counted() -> dict[str, int]:
    return {}


@post("/fails", sync_to_thread=False)
def fails() -> None:
    raise ZeroDivisionError


@get("/probe", opt=OPEN, sync_to_thread=False)
def probe() -> dict[str, int]:
    return {}


@get("/scrape", opt=UNLIMITED, sync_to_thread=False)
def scrape() -> dict[str, int]:
    return {}


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def app(clock: MovedClock) -> Litestar:
    return Application(
        route_handlers=[counted, fails, probe, scrape],
        exception_handlers=EXCEPTION_HANDLERS,
        guards=[
            access_guard(Access(FakeDatabase(), clock), ["localhost"]),
            rate_limit_guard(RateLimiter(4, clock)),
        ],
        openapi_config=None,
        logging_config=None,
    )


async def test_every_answer_to_a_known_caller_says_where_it_stands(
    app: Litestar, clock: MovedClock
) -> None:
    async with client_of(app) as http:
        answers = [
            await http.get("/counted"),
            await http.post("/fails"),
            await http.head("/counted"),
            await http.get("/counted"),
            await http.get("/counted"),
        ]
        assert [answer.status_code for answer in answers] == [200, 500, 200, 200, 429]
        for answer, left in zip(answers, (3, 2, 1, 0, 0), strict=True):
            assert answer.headers["ratelimit-policy"] == '"default";q=4;w=60'
            assert answer.headers["ratelimit"].startswith(f'"default";r={left};t=')
        refused = answers[-1]
        assert refused.headers["retry-after"] == "15"
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["type"] == "/problems/rate-limit-exceeded"
        for path in ("/probe", "/scrape", "/nowhere"):
            for _ in range(9):
                free = await http.get(path)
                assert free.status_code == (404 if path == "/nowhere" else 200)
                assert "ratelimit" not in free.headers
        clock.forward(15)
        assert (await http.get("/counted")).status_code == 200
