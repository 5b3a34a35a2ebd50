"""Expanded clusters are kept by digest, within a capacity."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from service.app.clusters import ClusterCache
from service.app.ports import DocumentKind, Revision
from service.core.errors import InvalidInput
from tests.app.fakes import InlineExecutor

T = TypeVar("T")


class CountingExecutor(InlineExecutor):
    """Counts what it runs."""

    runs = 0

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        self.runs += 1
        return await super().run(function, *arguments)


def revision(host: str) -> Revision:
    content = b'{"hosts":[{"name":"%b","design":"dgx-h100"}]}' % host.encode()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Revision(DocumentKind.TOPOLOGY, host, 1, f"sha256:{host}", now, {}, (), content)


async def test_a_cluster_is_expanded_once_and_shared() -> None:
    executor = CountingExecutor()
    cache = ClusterCache(executor)
    first = await cache.get(revision("a"))
    assert (await cache.get(revision("a"))) is first
    assert executor.runs == 1
    assert len(first.cluster.devices) == 8


async def test_the_least_recently_used_goes_first() -> None:
    executor = CountingExecutor()
    one = await ClusterCache(executor).get(revision("a"))
    size = len(one.cluster.vertices) + len(one.cluster.links)
    executor.runs = 0
    cache = ClusterCache(executor, capacity=2 * size)
    for host in ("a", "b", "a", "c"):
        await cache.get(revision(host))
    assert executor.runs == 3
    await cache.get(revision("a"))
    assert executor.runs == 3
    await cache.get(revision("b"))
    assert executor.runs == 4


async def test_one_cluster_is_kept_whatever_its_size() -> None:
    executor = CountingExecutor()
    cache = ClusterCache(executor, capacity=1)
    await cache.get(revision("a"))
    await cache.get(revision("a"))
    assert executor.runs == 1


class GatedExecutor(CountingExecutor):
    """Runs nothing before the gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        await self.gate.wait()
        return await super().run(function, *arguments)


async def test_requests_at_the_same_time_share_one_expansion() -> None:
    executor = GatedExecutor()
    cache = ClusterCache(executor)
    asking = [asyncio.create_task(cache.get(revision("a"))) for _ in range(8)]
    await asyncio.sleep(0)
    asking[0].cancel()  # whoever came first gives up
    executor.gate.set()
    first, *others = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert len({id(expansion) for expansion in others}) == 1
    assert executor.runs == 1


async def test_a_failed_expansion_is_told_to_all_and_tried_again() -> None:
    executor = GatedExecutor()
    cache = ClusterCache(executor)
    unknown = replace(revision("a"), content=b'{"hosts":[{"name":"a","design":"none"}]}')
    asking = [asyncio.create_task(cache.get(unknown)) for _ in range(2)]
    await asyncio.sleep(0)
    executor.gate.set()
    for outcome in await asyncio.gather(*asking, return_exceptions=True):
        assert isinstance(outcome, InvalidInput)
    with pytest.raises(InvalidInput):
        await cache.get(unknown)
    assert executor.runs == 2
