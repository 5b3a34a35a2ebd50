"""What the use cases work with, built once by `service.main`."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from service.app.clusters import ClusterCache
from service.app.limits import Shares
from service.app.ports import Clock, Database, Executor, Observer, Storage, WorkHolder

__all__ = ["UNLIMITED", "UNOBSERVED", "Backend", "Services", "Unlimited", "Unobserved"]


class Unobserved:
    """The `Observer` that nobody asks."""

    def estimated(self, *, computed: bool) -> None:
        """Count nothing."""

    def span(self, _name: str) -> AbstractContextManager[None]:
        """Record nothing."""
        return nullcontext()


UNOBSERVED = Unobserved()


class Unlimited:
    """The `WorkHolder` of who has no others beside it."""

    def hold_preparation(self, _size_bytes: int) -> None:
        """Hold nothing."""

    def hold_work(self, _units: int) -> None:
        """Hold nothing."""


UNLIMITED = Unlimited()


@dataclass(frozen=True, slots=True)
class Services:
    """The ports of one running service, for one team."""

    storage: Storage
    executor: Executor
    clock: Clock
    clusters: ClusterCache
    observer: Observer = UNOBSERVED
    holder: WorkHolder = UNLIMITED


@dataclass(frozen=True, slots=True)
class Backend:
    """What the requests of all teams share.

    Clusters are kept by the digest of their content and hold nothing else, so a team that finds
    one has the same content itself.
    """

    database: Database
    executor: Executor
    clock: Clock
    clusters: ClusterCache
    observer: Observer = UNOBSERVED
    shares: Shares | None = None

    def for_team(
        self, team: str, caller: str | None = None, holder: WorkHolder = UNLIMITED
    ) -> Services:
        """The services of one team, which reach nothing of another.

        A caller who is named may have no more than its share of the executor at a time.
        """
        executor = self.executor
        if caller is not None and self.shares is not None:
            executor = self.shares.executor_of(caller, executor)
        return Services(
            self.database.for_team(team),
            executor,
            self.clock,
            self.clusters,
            self.observer,
            holder,
        )
