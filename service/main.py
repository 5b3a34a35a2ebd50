"""Builds the running service: the only place that knows the engine, the stores and the executor."""

import asyncio
import gc
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from math import inf
from typing import Any, TypeVar

from litestar import Request
from litestar.types import Guard
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import QueuePool

from service.api.application import Parts, give_parts, routed_application
from service.api.injection import Readiness
from service.app.access import LOCAL_TEAM, Access, Principal
from service.app.clusters import ClusterCache
from service.app.errors import Overloaded
from service.app.holdings import WORK_PER_SECOND, Holdings, Quota
from service.app.limits import Shares
from service.app.ports import Clock, Database, Executor, Observer
from service.app.services import UNOBSERVED, Backend, Services
from service.core.estimates.version import MODEL_VERSION
from service.core.schedules.simulate import warm_up
from service.settings import Settings
from service.store import migrate
from service.store.database import SqlDatabase
from service.store.engine import create_engine
from service.store.unit_of_work import SystemClock
from service.web.access import access_guard, allowed_hosts
from service.web.application import Application
from service.web.departures import AttendedExecutor
from service.web.holding import holding_of
from service.web.metrics import Metrics
from service.web.rate_limit import RateLimiter, caller_of, rate_limit_guard
from service.web.telemetry import Telemetry, Tracing
from service.web.tracing import open_tracing

__all__ = ["KernelExecutor", "create_app", "open_backend", "open_services"]

T = TypeVar("T")

logger = logging.getLogger("stagefare")

MEBIBYTE = 2**20
# Kernels release the interpreter lock; more threads than this only take turns away from requests.
KERNEL_THREADS = 2
# How long a thread that computes in Python may go on when the event loop wants its turn. A request
# needs some ten turns, and Python's own 5 ms for each would be most of its time.
SWITCH_SECONDS = 0.0005
# Whoever asks whether the service is ready asks again soon, and gives up soon.
READY_SECONDS = 2
# Another version may migrate the database while this one runs. Looking costs a connection.
SCHEMA_SECONDS = 10


class KernelExecutor:
    """Threads of their own for long work, so that it does not fill the event loop's pool.

    When as many calls wait as may, another one is refused at once; 0 means no limit.
    """

    def __init__(self, threads: int = KERNEL_THREADS, *, most_waiting: int = 0) -> None:
        self._most_unfinished = threads + most_waiting if most_waiting else inf
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kernel")
        self._lock = threading.Lock()
        self._unfinished = 0
        self._busy = 0

    @property
    def busy(self) -> int:
        """Threads that work at this moment."""
        return self._busy

    @property
    def waiting(self) -> int:
        """Calls that no thread has taken up yet."""
        with self._lock:
            return self._unfinished - self._busy

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result; its exception is raised here. Raises `Overloaded`."""

        def work() -> T:
            self._count(busy=1)
            try:
                return function(*arguments)
            finally:
                self._count(unfinished=-1, busy=-1)

        with self._lock:
            if self._unfinished >= self._most_unfinished:
                raise Overloaded("as many calculations are waiting as may; try again in a moment")
            self._unfinished += 1
        future = self._pool.submit(work)
        future.add_done_callback(self._forget_cancelled)
        return await asyncio.wrap_future(future)

    def _forget_cancelled(self, future: "Future[Any]") -> None:
        # A caller that goes away takes with it what has not begun.
        if future.cancelled():
            self._count(unfinished=-1)

    def _count(self, *, unfinished: int = 0, busy: int = 0) -> None:
        with self._lock:
            self._unfinished += unfinished
            self._busy += busy

    async def close(self) -> None:
        """Wait for what runs, drop what has not begun, and end the threads."""
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)


@asynccontextmanager
async def open_backend(settings: Settings) -> AsyncIterator[Backend]:
    """What all teams share, on the database the settings name, for uses without HTTP.

    The database must have been migrated.
    """
    async with AsyncExitStack() as resources:
        yield _build_backend(settings, resources)


@asynccontextmanager
async def open_services(settings: Settings, team: str = LOCAL_TEAM) -> AsyncIterator[Services]:
    """The services of one team, for uses without HTTP. The database must have been migrated."""
    async with open_backend(settings) as backend:
        yield backend.for_team(team)


def create_app(
    settings: Settings,
    *,
    database: Database | None = None,
    clock: Clock | None = None,
    executor: Executor | None = None,
    tracing: Tracing | None = None,
    routed: Application | None = None,
) -> Application:
    """The application on the database the settings name, or on what is passed instead.

    The database must have been migrated; `/readyz` says so when it is not, and everything else
    answers 503. On a database that a newer version has migrated the application refuses to start.

    `routed` is one that has ended, to be used again: looking at all routes takes far longer than
    all else that is done here.
    """
    resources = AsyncExitStack()
    warm = asyncio.Event()
    metrics = Metrics(version("stagefare"), MODEL_VERSION)
    if tracing is None and settings.exports_traces:
        tracing = _exported_traces(resources)
    telemetry = Telemetry(metrics, tracing)
    backend = _build_backend(
        settings,
        resources,
        database=database,
        clock=clock,
        executor=executor,
        telemetry=telemetry,
        metrics=metrics,
    )
    access = Access(backend.database.token_directory, backend.clock)
    database_url = settings.database_url if database is None else None
    look = _missing(backend.database, database_url, warm)

    async def missing() -> tuple[str, ...]:
        return ("the service is stopping",) if app.is_stopping else await look()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with resources:
            if database_url is not None:
                await _refuse_unknown_schema(database_url)
            await backend.executor.run(warm_up)
            warm.set()
            _settle_memory()
            sys.setswitchinterval(SWITCH_SECONDS)
            yield
            app.is_stopping = True

    def services_of(request: Request[Any, Principal, Any]) -> Services:
        # The team comes from the guard and from nowhere else; without one this fails.
        team, caller = request.auth.team, caller_of(request)
        services = backend.for_team(team, caller, holding_of(request))
        return replace(services, executor=AttendedExecutor(services.executor, request.receive))

    app = routed_application() if routed is None else routed
    give_parts(
        app,
        Parts(
            services_of,
            access,
            Readiness(missing),
            metrics,
            guards=(
                access_guard(access, allowed_hosts(settings.host)),
                *_rate_limits(settings, backend.clock),
            ),
            lifespan=lifespan,
            telemetry=telemetry,
            holdings=_holdings(settings, metrics),
        ),
    )
    return app


def _build_backend(
    settings: Settings,
    resources: AsyncExitStack,
    *,
    database: Database | None = None,
    clock: Clock | None = None,
    executor: Executor | None = None,
    telemetry: Observer = UNOBSERVED,
    metrics: Metrics | None = None,
) -> Backend:
    """The backend, with what must be closed after it put on `resources`."""
    clock = SystemClock() if clock is None else clock
    if executor is None:
        own_executor = KernelExecutor(most_waiting=settings.waiting_calculations)
        resources.push_async_callback(own_executor.close)
        executor = own_executor
        if metrics is not None:
            _watch_executor(metrics, own_executor)
    if database is None:
        engine = create_engine(settings.database_url)
        resources.push_async_callback(engine.dispose)
        database = SqlDatabase(engine, clock=clock)
        if metrics is not None:
            _watch_pool(metrics, engine)
    shares = Shares(settings.calculations_per_caller)
    return Backend(database, executor, clock, ClusterCache(executor), telemetry, shares)


def _holdings(settings: Settings, metrics: Metrics) -> Holdings:
    """What all requests may hold, and gauges of what they do."""
    bodies = Quota(settings.body_mib * MEBIBYTE, settings.body_mib_per_caller * MEBIBYTE)
    work = Quota(
        settings.work_seconds * WORK_PER_SECOND, settings.work_seconds_per_caller * WORK_PER_SECOND
    )
    metrics.watch("request_body_bytes", "Bodies of requests that are held", lambda: bodies.held)
    metrics.watch("work_seconds", "Work that runs or waits", lambda: work.held / WORK_PER_SECOND)
    return Holdings(bodies, work, threads=KERNEL_THREADS)


def _rate_limits(settings: Settings, clock: Clock) -> list[Guard]:
    limit = settings.requests_per_minute
    return [rate_limit_guard(RateLimiter(limit, clock))] if limit else []


def _exported_traces(resources: AsyncExitStack) -> Tracing | None:
    """Spans sent where the environment says; None, with a warning, when the extra is absent."""
    try:
        tracing = open_tracing()
    except ModuleNotFoundError:
        logger.warning("no traces are exported: the extra `otel` is not installed")
        return None
    # Sending what is left waits for the network.
    resources.push_async_callback(asyncio.to_thread, tracing.close)
    return tracing


def _watch_executor(metrics: Metrics, executor: KernelExecutor) -> None:
    metrics.watch("kernel_threads", "Threads for long work", lambda: KERNEL_THREADS)
    metrics.watch("kernel_threads_busy", "Threads at work", lambda: executor.busy)
    metrics.watch("kernel_queue_depth", "Work waiting for a thread", lambda: executor.waiting)


def _watch_pool(metrics: Metrics, engine: AsyncEngine) -> None:
    pool = engine.sync_engine.pool
    if isinstance(pool, QueuePool):
        metrics.watch("database_connections", "Most that are opened", pool.size)
        metrics.watch("database_connections_in_use", "Taken from the pool", pool.checkedout)


async def _refuse_unknown_schema(database_url: str) -> None:
    """Keep the service from starting on a database that a newer version has migrated.

    One that does not answer, or is not migrated yet, can still become right: `/readyz` waits.
    """
    try:
        await migrate.refuse_unknown(database_url)
    except migrate.UnknownSchema:
        raise
    except Exception as error:
        logger.warning("not ready: %s", error)


def _missing(
    database: Database, database_url: str | None, warm: asyncio.Event
) -> Callable[[], Awaitable[tuple[str, ...]]]:
    """What the service waits for. A schema that is right is looked at again after a while."""
    right_until = -inf if database_url is not None else inf

    async def missing() -> tuple[str, ...]:
        nonlocal right_until
        waiting = [] if warm.is_set() else ["the kernels are being compiled"]
        try:
            async with asyncio.timeout(READY_SECONDS):
                now = time.monotonic()
                if database_url is not None and now >= right_until:
                    is_migrated = await migrate.current(database_url) == migrate.head()
                    right_until = now + SCHEMA_SECONDS if is_migrated else -inf
                    if not is_migrated:
                        await migrate.refuse_unknown(database_url)
                if right_until < now:
                    waiting.append("the database is not migrated: run `stagefare migrate`")
                else:
                    await database.token_directory.is_empty()
        except migrate.UnknownSchema as error:
            waiting.append(str(error))
        except TimeoutError:
            waiting.append(f"the database does not answer within {READY_SECONDS} s")
        except Exception as error:
            # Whatever it is (a refused password, say), the answer is that it is not ready.
            logger.warning("not ready: %s", error)
            waiting.append("the database does not answer")
        return tuple(waiting)

    return missing


def _settle_memory() -> None:
    """Keep collections away from what start-up has made.

    A full collection over the imported modules stops the event loop for half a second; nothing of
    it ever becomes garbage. What a large request makes is walked over some ten thousands of objects
    at a time: that is no more work in all, and each time a shorter one in which nothing else runs.
    """
    if gc.get_freeze_count() == 0:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 10, 250)
