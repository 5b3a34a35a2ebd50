"""Work that grows with what is sent is done beside the event loop, one piece after another."""

import asyncio
import threading

import pytest

from service.app.apart import SMALL, USUAL, run_apart


async def test_what_is_small_is_done_where_it_is_asked_for() -> None:
    assert await run_apart(SMALL, threading.current_thread) is threading.current_thread()


@pytest.mark.parametrize("size", [SMALL + 1, USUAL + 1])
async def test_what_is_not_small_has_one_thread_in_all(size: int) -> None:
    at_work, most_at_work = 0, 0
    has_begun, may_end = threading.Event(), threading.Event()

    def work(number: int) -> tuple[int, threading.Thread]:
        nonlocal at_work, most_at_work
        at_work += 1
        most_at_work = max(most_at_work, at_work)
        has_begun.set()
        assert may_end.wait(60)
        at_work -= 1
        return number, threading.current_thread()

    working = [asyncio.create_task(run_apart(size, work, number)) for number in range(8)]
    assert await asyncio.to_thread(has_begun.wait, 60)
    may_end.set()
    done = await asyncio.gather(*working)
    assert [number for number, _ in done] == list(range(8))
    assert len({thread for _, thread in done} - {threading.current_thread()}) == 1
    assert most_at_work == 1


async def test_what_is_usual_does_not_wait_for_what_is_large() -> None:
    may_end = threading.Event()
    large = asyncio.create_task(run_apart(USUAL + 1, may_end.wait, 60))
    assert await run_apart(USUAL, divmod, 7, 2) == (3, 1)
    assert not large.done()
    may_end.set()
    assert await large


async def test_a_failure_is_raised_where_it_was_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_apart(SMALL + 1, divmod, 7, 0)
