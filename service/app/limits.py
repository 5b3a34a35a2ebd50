"""How much of the executor one caller may have at a time, so that none keeps the others out."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from service.app.errors import TooManyAtOnce
from service.app.ports import Executor

__all__ = ["CallerExecutor", "Shares"]

T = TypeVar("T")


class Shares:
    """Counts what each caller has in the executor, running or waiting; 0 means no limit.

    Only callers with something in it are held.
    """

    def __init__(self, most_at_once: int) -> None:
        self._most = most_at_once
        self._lock = threading.Lock()
        self._taken = Counter[str]()

    def executor_of(self, caller: str, executor: Executor) -> Executor:
        """The executor as this caller may use it."""
        return executor if self._most == 0 else CallerExecutor(self, caller, executor)

    def take(self, caller: str) -> None:
        """Count one more. Raises `TooManyAtOnce`, and counts nothing then."""
        with self._lock:
            if self._taken[caller] >= self._most:
                raise TooManyAtOnce(
                    f"{self._most} calculations of this caller are running or waiting already, "
                    "which is as many as may be"
                )
            self._taken[caller] += 1

    def give_back(self, caller: str) -> None:
        """Count one less."""
        with self._lock:
            self._taken[caller] -= 1
            if self._taken[caller] == 0:
                del self._taken[caller]

    def taken(self) -> dict[str, int]:
        """How many each caller has."""
        with self._lock:
            return {caller: count for caller, count in self._taken.items() if count}


class CallerExecutor:
    """The `Executor` port for one caller, within its share.

    What has begun counts until it is done, also when nobody waits for it any more.
    """

    def __init__(self, shares: Shares, caller: str, executor: Executor) -> None:
        self._shares = shares
        self._caller = caller
        self._executor = executor

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result; its exception is raised here. Raises `TooManyAtOnce`."""
        self._shares.take(self._caller)
        place = _Place(self._shares, self._caller)

        def work() -> T:
            if not place.begin():
                raise CancelledError  # its caller went away in the same moment
            try:
                return function(*arguments)
            finally:
                self._shares.give_back(self._caller)

        try:
            return await self._executor.run(work)
        finally:
            place.leave()


class _Place:
    """A share taken before the work begins: given back by the work, or by who left before."""

    def __init__(self, shares: Shares, caller: str) -> None:
        self._shares = shares
        self._caller = caller
        self._lock = threading.Lock()
        self._is_decided = False

    def begin(self) -> bool:
        """Called by the work; False when its caller has left."""
        with self._lock:
            is_first, self._is_decided = not self._is_decided, True
        return is_first

    def leave(self) -> None:
        """Called when nobody waits any more: refused, cancelled while it waited, or done."""
        if self.begin():
            self._shares.give_back(self._caller)
