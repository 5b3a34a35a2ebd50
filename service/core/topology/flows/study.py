"""What is prepared once for a cluster, so that bounds of many transfers in it are found quickly."""

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from service.core.topology.cluster import Cluster
from service.core.topology.flows.cuts import Family, cut_families
from service.core.topology.flows.network import Network, network_of
from service.core.topology.flows.symmetry import Symmetry, symmetry_of
from service.core.topology.paths import PathFinder, path_finder

__all__ = ["FlowStudy", "flow_study"]

Int32Array = npt.NDArray[np.int32]
T = TypeVar("T")

# Symmetries and answers for sets of devices that are kept for one cluster.
_MAX_KEPT = 32


@lru_cache(maxsize=4)
def flow_study(cluster: Cluster) -> "FlowStudy":
    """The study of a cluster, which compares by identity."""
    return FlowStudy(cluster)


class FlowStudy:
    """One cluster as a network, with its pinned paths, its families of cuts and its symmetries."""

    def __init__(self, cluster: Cluster) -> None:
        self.network: Network = network_of(cluster)
        self.finder: PathFinder = path_finder(cluster)
        self._kept: dict[object, tuple[Any]] = {}

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The families of cuts beyond the ports."""
        return cut_families(self.network)

    def symmetry(self, devices: Int32Array) -> Symmetry:
        """The symmetries that keep a set of devices."""

        def find() -> Symmetry:
            special = np.zeros(self.network.vertex_count, dtype=np.bool_)
            special[devices] = True
            return symmetry_of(self.network, special)

        return self.keep(("symmetry", devices.tobytes()), find)

    def keep(self, key: object, make: Callable[[], T]) -> T:
        """What `make` gives, made once as long as it is among the last ones that were asked for."""
        kept = self._kept.pop(key, None)
        if kept is None:
            kept = (make(),)
        # The newest stands last. Two threads may make the same, which does no harm.
        self._kept[key] = kept
        for old in list(self._kept)[:-_MAX_KEPT]:
            self._kept.pop(old, None)
        made: T = kept[0]
        return made
