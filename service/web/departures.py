"""Callers who go away while their calculation waits for a thread.

The server lets a request go on when its connection closes. A scheduler that gives up after a second
and asks again would then wait behind everything it has given up before.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from litestar.types import Receive

from service.app.ports import Executor

__all__ = ["AttendedExecutor", "CallerGone"]

T = TypeVar("T")


class CallerGone(BaseException):
    """Nobody waits for the answer any more.

    No `Exception`, like the error of a cancelled task: there is nobody to be told, so nothing on
    the way up makes an answer of it.
    """


class AttendedExecutor:
    """The `Executor` port for one request: what has not begun goes with its caller.

    What has begun is finished and stored, so that a caller who asks again finds it.
    """

    def __init__(self, executor: Executor, receive: Receive) -> None:
        self._executor = executor
        self._receive = receive

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result; its exception is raised here. Raises `CallerGone`.

        The body of the request has been read before: what is still to come of it is dropped.
        """
        has_begun = False

        def work() -> T:
            nonlocal has_begun
            has_begun = True
            return function(*arguments)

        result = asyncio.ensure_future(self._executor.run(work))
        departure = asyncio.ensure_future(self._departure())
        try:
            await asyncio.wait({result, departure}, return_when=asyncio.FIRST_COMPLETED)
            if not result.done() and not has_begun:
                raise CallerGone
            return await result
        finally:
            result.cancel()
            departure.cancel()
            # Only when both have ended is nothing of the caller's share taken any more.
            await asyncio.gather(result, departure, return_exceptions=True)

    async def _departure(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
