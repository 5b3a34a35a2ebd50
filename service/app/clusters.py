"""Expanded clusters of stored topologies, kept by digest.

A revision never changes, so its cluster is expanded once and shared by all requests. Whoever
prepares paths on a cluster finds them again as well, because it is the same object.
"""

import asyncio
from collections import OrderedDict

import msgspec

from service.app.ports import Executor, Revision
from service.app.weights import EXPANSION_UNITS, Seen
from service.core.topology.expand import Expansion, expand
from service.formats.documents.topology import TopologyDocument, to_core

__all__ = ["ClusterCache"]

# Vertices and links held at a time: some hundred megabytes. One cluster is kept whatever its size.
DEFAULT_CAPACITY = 500_000


class ClusterCache:
    """The most recently used clusters, as many as the capacity in vertices and links allows."""

    def __init__(self, executor: Executor, capacity: int = DEFAULT_CAPACITY) -> None:
        self._executor = executor
        self._capacity = capacity
        self._held = 0
        self._expansions: OrderedDict[str, Expansion] = OrderedDict()
        self._running: dict[str, asyncio.Task[Expansion]] = {}
        self._seen: dict[str, Seen] = {}

    def units(self, revision: Revision) -> int:
        """The work of getting a cluster, in operation-runs: none when it is there, or soon is."""
        if revision.digest in self._expansions or revision.digest in self._running:
            return 0
        links: int = revision.summary.get("links", 0)
        vertices: int = sum(revision.summary.get("vertices_by_kind", {}).values())
        return EXPANSION_UNITS * (vertices + links)

    def seen(self, revision: Revision) -> Seen:
        """What was done with a cluster since it was expanded."""
        return self._seen.setdefault(revision.digest, Seen())

    async def get(self, revision: Revision) -> Expansion:
        """The expanded cluster of a topology's revision; requests for the same one share it."""
        expansion = self._expansions.get(revision.digest)
        if expansion is not None:
            self._expansions.move_to_end(revision.digest)
            return expansion
        running = self._running.get(revision.digest)
        if running is None:
            running = asyncio.create_task(self._expand(revision))
            self._running[revision.digest] = running
        # Whoever gives up waiting does not stop it for the others.
        return await asyncio.shield(running)

    async def _expand(self, revision: Revision) -> Expansion:
        try:
            expansion = await self._executor.run(_expand_content, revision.content)
        finally:
            del self._running[revision.digest]
        self._keep(revision.digest, expansion)
        return expansion

    def _keep(self, digest: str, expansion: Expansion) -> None:
        self._expansions[digest] = expansion
        self._held += _size(expansion)
        while self._held > self._capacity and len(self._expansions) > 1:
            digest, dropped = self._expansions.popitem(last=False)
            self._held -= _size(dropped)
            self._seen.pop(digest, None)


def _size(expansion: Expansion) -> int:
    return len(expansion.cluster.vertices) + len(expansion.cluster.links)


def _expand_content(content: bytes) -> Expansion:
    return expand(to_core(msgspec.json.decode(content, type=TopologyDocument)))
