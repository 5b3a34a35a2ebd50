"""The share of the executor that each caller may have."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from service.app.errors import Overloaded, TooManyAtOnce
from service.app.limits import Shares
from tests.app.fakes import InlineExecutor

T = TypeVar("T")


class Refusing:
    """An executor that is full."""

    async def run(self, _function: Callable[..., T], *_arguments: Any) -> T:
        raise Overloaded("full")


class Threads:
    """An executor with one thread."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.wrap_future(self.pool.submit(function, *arguments))


async def test_results_and_failures_pass_through_and_leave_nothing_taken() -> None:
    shares = Shares(1)
    executor = shares.executor_of("a", InlineExecutor())
    assert await executor.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await executor.run(divmod, 7, 0)
    with pytest.raises(Overloaded):
        await shares.executor_of("a", Refusing()).run(divmod, 7, 2)
    assert shares.taken() == {}


async def test_no_limit_leaves_the_executor_as_it_is() -> None:
    inline = InlineExecutor()
    assert Shares(0).executor_of("a", inline) is inline


async def test_a_caller_has_its_share_and_no_more() -> None:
    shares, threads, may_end = Shares(2), Threads(), threading.Event()
    one, other = shares.executor_of("a", threads), shares.executor_of("b", threads)
    # The same caller in another request: shares are counted by name.
    again = shares.executor_of("a", threads)
    running = asyncio.create_task(one.run(may_end.wait, 60))
    waiting = asyncio.create_task(again.run(may_end.wait, 60))
    await asyncio.sleep(0)
    assert shares.taken() == {"a": 2}
    with pytest.raises(TooManyAtOnce, match="2 calculations"):
        await one.run(may_end.wait, 60)
    elsewhere = asyncio.create_task(other.run(may_end.wait, 60))
    await asyncio.sleep(0)
    assert shares.taken() == {"a": 2, "b": 1}
    may_end.set()
    assert all(await asyncio.gather(running, waiting, elsewhere))
    assert shares.taken() == {}
    threads.pool.shutdown()


async def test_who_goes_away_gives_back_what_has_not_begun_and_later_what_has() -> None:
    shares, threads = Shares(2), Threads()
    executor = shares.executor_of("a", threads)
    has_begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        has_begun.set()
        may_end.wait(60)

    running = asyncio.create_task(executor.run(work))
    await asyncio.to_thread(has_begun.wait, 60)
    waiting = asyncio.create_task(executor.run(work))
    await asyncio.sleep(0)
    assert shares.taken() == {"a": 2}
    waiting.cancel()
    running.cancel()
    await asyncio.gather(waiting, running, return_exceptions=True)
    # The thread is still at it, for nobody.
    assert shares.taken() == {"a": 1}
    may_end.set()
    await asyncio.to_thread(threads.pool.shutdown)
    assert shares.taken() == {}


async def test_work_whose_caller_left_in_the_same_moment_is_not_done() -> None:
    """An executor may take up the work although its caller has just been cancelled."""
    shares, done = Shares(1), list[str]()
    taken_up: list[Callable[[], Any]] = []

    class Late:
        async def run(self, function: Callable[..., T], *_arguments: Any) -> T:
            taken_up.append(function)
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await shares.executor_of("a", Late()).run(done.append, "work")
    with pytest.raises(concurrent.futures.CancelledError):
        taken_up[0]()
    assert (done, shares.taken()) == ([], {})
