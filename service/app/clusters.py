"""Expanded clusters of stored topologies, kept by digest.

A revision never changes, so its cluster is expanded once and shared by all requests. Whoever
prepares paths on a cluster finds them again as well, because it is the same object.
"""

from collections import OrderedDict

import msgspec

from service.app.ports import Executor, Revision
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

    async def get(self, revision: Revision) -> Expansion:
        """The expanded cluster of a topology's revision."""
        expansion = self._expansions.get(revision.digest)
        if expansion is None:
            expansion = await self._executor.run(_expand_content, revision.content)
            self._keep(revision.digest, expansion)
        else:
            self._expansions.move_to_end(revision.digest)
        return expansion

    def _keep(self, digest: str, expansion: Expansion) -> None:
        if digest in self._expansions:  # another request was as fast
            return
        self._expansions[digest] = expansion
        self._held += _size(expansion)
        while self._held > self._capacity and len(self._expansions) > 1:
            _, dropped = self._expansions.popitem(last=False)
            self._held -= _size(dropped)


def _size(expansion: Expansion) -> int:
    return len(expansion.cluster.vertices) + len(expansion.cluster.links)


def _expand_content(content: bytes) -> Expansion:
    return expand(to_core(msgspec.json.decode(content, type=TopologyDocument)))
