"""What a use case refuses for reasons outside the core.

AppError
├── NotFound              nothing is stored under the name that was asked for
├── PreconditionFailed    what is stored is not what the caller expected
├── Superseded            what is stored was made by an earlier cost model
├── KeyInUse              the first request with an idempotency key is not finished
├── KeyReused             an idempotency key came with another request than its first
├── AnswerNotKept         the first answer to an idempotency key held a secret
├── TooManyAtOnce         the caller has as much being received or computed as it may
├── Overloaded            as much is being received, or waiting to be computed, as may be
└── Unavailable           something the service depends on does not answer
"""

__all__ = [
    "AnswerNotKept",
    "AppError",
    "KeyInUse",
    "KeyReused",
    "NotFound",
    "Overloaded",
    "PreconditionFailed",
    "Superseded",
    "TooManyAtOnce",
    "Unavailable",
]


class AppError(Exception):
    """Whatever a use case refuses; `detail` is a sentence for the caller."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


class NotFound(AppError):
    """Nothing is stored under that name."""


class PreconditionFailed(AppError):
    """What is stored is not what the caller expected; `current` is its version, None if absent."""

    def __init__(self, detail: str, current: str | None) -> None:
        self.current = current
        super().__init__(detail)


class Superseded(AppError):
    """What is stored was made by an earlier cost model and can't be computed again as it was."""


class KeyInUse(AppError):
    """The first request with this idempotency key is not finished; trying again later may help."""


class KeyReused(AppError):
    """The idempotency key belongs to another request."""


class AnswerNotKept(AppError):
    """The request was done once, and its answer held a secret that is stored nowhere."""


class _Full(AppError):
    """There is no room at the moment; it is expected after `retry_after_seconds`."""

    def __init__(self, detail: str, retry_after_seconds: int = 1) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(detail)


class TooManyAtOnce(_Full):
    """The caller has as much received, running or waiting as it may."""


class Overloaded(_Full):
    """So much is received or waits that more would only wait; trying again later may help."""


class Unavailable(AppError):
    """The database (or whatever else) does not answer; trying again later may help."""
