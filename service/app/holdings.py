"""What a request holds of what there is a bounded amount of: bytes of bodies, and work.

`service.app.limits` counts calculations. Requests differ by a factor of a thousand, so they are
weighed too: bodies by their bytes, which are memory, and what is to be done by its operation-runs
(`service.core.estimates.work`), which are time. What is too much is refused before it is done, and
told when it may fit. All of this is used from the event loop only.
"""

from collections import Counter
from math import ceil

from service.app.errors import Overloaded, TooManyAtOnce

__all__ = [
    "PREPARATION_PER_BYTE",
    "WORK_PER_SECOND",
    "Holding",
    "Holdings",
    "NotEnough",
    "Quota",
]

# Operation-runs that a thread gets done in a second: 64 estimates of 64 stages x 4096 microbatches,
# 7.1 million each, took 11 s on two threads of a machine that others used too (decision 8).
WORK_PER_SECOND = 16_000_000

# Reading and checking a body takes 0.1 to 0.35 s a megabyte, all of it Python, so that nothing else
# that is Python gets done meanwhile. It counts as the dearest kind.
PREPARATION_PER_BYTE = 6


class NotEnough(Exception):
    """Less is left than was asked for: `beyond` more is, `of_caller` or of all together."""

    def __init__(self, beyond: int, *, of_caller: bool) -> None:
        self.beyond = beyond
        self.of_caller = of_caller
        super().__init__(beyond)


class Quota:
    """An amount of which all callers together may hold so much, and each of them; 0 is no limit.

    What is asked for while nothing else is held is given whatever it is, so that no request is
    impossible. Only callers who hold something are remembered.
    """

    def __init__(self, most: int, most_of_caller: int) -> None:
        self.most = most
        self.most_of_caller = most_of_caller
        self._held = Counter[str]()
        self._total = 0

    @property
    def held(self) -> int:
        """What all callers hold."""
        return self._total

    def held_by(self, caller: str) -> int:
        """What one caller holds."""
        return self._held.get(caller, 0)

    def change(self, caller: str, before: int, after: int) -> None:
        """Hold `after` instead of `before`. Raises `NotEnough`, and nothing has changed then."""
        self.check(caller, before, after)
        self._total += after - before
        self._held[caller] += after - before
        if not self._held[caller]:
            del self._held[caller]

    def check(self, caller: str, before: int, after: int) -> None:
        """Raise `NotEnough` when `after` instead of `before` would be too much."""
        if after <= before:
            return
        for others, most, of_caller in (
            (self.held_by(caller) - before, self.most_of_caller, True),
            (self._total - before, self.most, False),
        ):
            if most and others and others + after > most:
                raise NotEnough(others + after - most, of_caller=of_caller)


class Holding:
    """What one request of a caller holds, until it is given back."""

    def __init__(self, caller: str, bodies: Quota, work: Quota, work_per_second: int) -> None:
        self._caller = caller
        self._bodies = bodies
        self._work = work
        self._work_per_second = work_per_second
        self._bytes_held = 0
        self._work_held = 0

    def hold_body(self, size_bytes: int) -> None:
        """Hold so many bytes of a body in all. Raises `TooManyAtOnce` or `Overloaded`."""
        try:
            self._bodies.change(self._caller, self._bytes_held, size_bytes)
        except NotEnough as error:
            if error.of_caller:
                raise TooManyAtOnce(
                    f"{self._bodies.held_by(self._caller)} bytes of this caller's requests are "
                    f"being received or worked on, and all may be {self._bodies.most_of_caller}: "
                    f"this one is {error.beyond} too many"
                ) from error
            raise Overloaded(
                f"{self._bodies.held} bytes of requests are being received or worked on, and all "
                f"may be {self._bodies.most}: this one is {error.beyond} too many"
            ) from error
        self._bytes_held = size_bytes

    def expect_preparation(self, size_bytes: int) -> None:
        """Refuse as `hold_preparation` would now, and hold nothing: the bytes are still to come."""
        self._check_work(self._work_held + size_bytes * PREPARATION_PER_BYTE)

    def hold_preparation(self, size_bytes: int) -> None:
        """Hold the work of reading so many bytes, beside what is held. Raises as `hold_work`."""
        self.hold_work(self._work_held + size_bytes * PREPARATION_PER_BYTE)

    def hold_work(self, units: int) -> None:
        """Hold so many operation-runs that are still to be done, instead of what was held before.

        Raises `TooManyAtOnce` or `Overloaded`, with the seconds after which it is expected to fit.
        """
        self._check_work(units)
        self._work.change(self._caller, self._work_held, units)
        self._work_held = units

    def _check_work(self, units: int) -> None:
        try:
            self._work.check(self._caller, self._work_held, units)
        except NotEnough as error:
            wait_seconds = max(1, ceil(error.beyond / self._work_per_second))
            asked = f"this request is {_seconds(units)} s of a thread's work"
            if error.of_caller:
                raise TooManyAtOnce(
                    f"{asked}; {_seconds(self._work.held_by(self._caller))} s of this caller's are "
                    f"running or waiting, and all may be {_seconds(self._work.most_of_caller)} s",
                    wait_seconds,
                ) from error
            raise Overloaded(
                f"{asked}; {_seconds(self._work.held)} s are running or waiting, and all may be "
                f"{_seconds(self._work.most)} s",
                wait_seconds,
            ) from error

    def release(self) -> None:
        """Give back all of it."""
        self.hold_body(0)
        self.hold_work(0)


class Holdings:
    """What all requests of one process hold. `threads` work on what is held as work."""

    def __init__(self, bodies: Quota, work: Quota, *, threads: int) -> None:
        self.bodies = bodies
        self.work = work
        self._work_per_second = threads * WORK_PER_SECOND

    def holding(self, caller: str) -> Holding:
        """That of a request which holds nothing yet."""
        return Holding(caller, self.bodies, self.work, self._work_per_second)


def _seconds(units: int) -> float:
    return round(units / WORK_PER_SECOND, 2)
