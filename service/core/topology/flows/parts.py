"""Which vertices nothing joins: known without a search for paths, whatever the size."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.network import Network

__all__ = ["lost_between_parts", "lost_in_collective", "part_of_each"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


def part_of_each(network: Network) -> Int64Array:
    """(V,) the lowest number among the vertices that links join to each, in either direction."""
    label = np.arange(network.vertex_count, dtype=np.int64)
    while True:
        lower = label.copy()
        np.minimum.at(lower, network.tail, label[network.head])
        np.minimum.at(lower, network.head, label[network.tail])
        # A label is a vertex of the same part, so its own label may be taken in its stead.
        lower = lower[lower]
        if np.array_equal(lower, label):
            return label
        label = lower


def lost_in_collective(network: Network, devices: Int32Array) -> tuple[tuple[int, int], ...]:
    """Pairs that can't be joined, both ways: of the first device with one of each other part.

    Empty where all devices are in one part; routes that are not allowed may still be lacking then.
    """
    parts, first = np.unique(part_of_each(network)[devices], return_index=True)
    if len(parts) < 2:
        return ()
    one, *others = devices[np.sort(first)].tolist()
    return tuple(pair for other in others for pair in ((one, other), (other, one)))


def lost_between_parts(
    network: Network, pairs: Iterable[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Those of the pairs whose two ends are in different parts, each once and in order."""
    part = part_of_each(network)
    return tuple(dict.fromkeys(pair for pair in pairs if part[pair[0]] != part[pair[1]]))
