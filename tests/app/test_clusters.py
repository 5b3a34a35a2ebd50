"""Expanded clusters are kept by digest, within a capacity."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from service.app.clusters import ClusterCache
from service.app.ports import DocumentKind, Revision
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
