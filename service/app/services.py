"""What the use cases work with, built once by `service.main`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from service.app.clusters import ClusterCache
from service.app.ports import Clock, Executor, Storage

__all__ = ["Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """The ports of one running service.

    `missing` says what the service still waits for, in words; nothing means that it is ready.
    """

    storage: Storage
    executor: Executor
    clock: Clock
    clusters: ClusterCache
    missing: Callable[[], Awaitable[tuple[str, ...]]]
