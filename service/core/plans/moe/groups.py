"""Expert groups: the ranks of a stage that hold each expert once, on their devices and hosts."""

from collections.abc import Sequence

import numpy as np

from service.core.plans.moe.inputs import ExpertGroups
from service.core.plans.placement import Layout
from service.core.plans.plan import Degrees, Placed
from service.core.topology.cluster import Cluster

__all__ = ["expert_groups"]


def expert_groups(
    degrees: Degrees, ranks: Layout, placement: Sequence[Placed], cluster: Cluster | None
) -> tuple[ExpertGroups, ...]:
    """Those of each pipeline rank; expert x expert_tensor divides the ranks of each."""
    width = degrees.expert * degrees.expert_tensor
    node_of, place_of = _hosts(cluster)
    found = []
    for number in range(ranks.pipeline.degree):
        blocks = np.array(ranks.ranks_at(number), dtype=np.int64).reshape(-1, width)
        devices = None
        nodes, places = np.zeros((2, *blocks.shape), dtype=np.int64)
        if cluster is not None:
            named = [[placement[rank].device or "" for rank in block] for block in blocks.tolist()]
            devices = tuple(tuple(row) for row in named)
            nodes = np.array([[node_of[name] for name in row] for row in named], dtype=np.int64)
            places = np.array([[place_of[name] for name in row] for row in named], dtype=np.int64)
        found.append(ExpertGroups(blocks, devices, nodes, places))
    return tuple(found)


def _hosts(cluster: Cluster | None) -> tuple[dict[str, int], dict[str, int]]:
    """The number of each accelerator's host, which may be its own, and its place in it."""
    node_of: dict[str, int] = {}
    place_of: dict[str, int] = {}
    number: dict[str, int] = {}
    inside: dict[int, int] = {}
    for device in () if cluster is None else cluster.devices:
        host = device.host if device.host is not None else f" {device.name}"
        node = number.setdefault(host, len(number))
        node_of[device.name] = node
        place_of[device.name] = inside.get(node, 0)
        inside[node] = place_of[device.name] + 1
    return node_of, place_of
