"""The words of `nvidia-smi topo -m` found again in the cluster that is made of its matrix."""

from itertools import pairwise

import networkx as nx

from service.app.topology_formats import format_of
from service.core.topology.cluster import Cluster, LinkKind
from service.core.topology.expand import expand
from service.core.topology.join import Stated, join
from service.core.topology.path_kinds import path_kind
from service.core.topology.route_arrays import ROUTING_DISTANCE

__all__ = ["differing_words"]


def differing_words(content: bytes, gpu: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Pairs whose relation in the matrix is not the kind of the nearest way between them over PCIe:
    the word of the matrix, and that kind.
    """
    reading = format_of(content).read(content)
    cluster = expand(join([reading], Stated(gpu=gpu)).spec).cluster
    (host,) = cluster.hosts
    graph: nx.DiGraph[str] = nx.DiGraph()
    for ends, link in cluster.links.items():
        if link.kind is not LinkKind.NVLINK:
            graph.add_edge(*ends, weight=ROUTING_DISTANCE[link.kind])
    rows = [line.split() for line in content.replace(b"\x1b[4m", b"").decode().splitlines()]
    header = next(row for row in rows if row and row[0] == "GPU0")
    names = [name for name in header if name.upper().startswith(("GPU", "NIC", "MLX"))]
    names = [name for name in names if name != "GPU"]
    of_row = {row[0]: row[1 : 1 + len(names)] for row in rows if row and row[0] in names}
    by_title = {
        device.logical_names[0]: device.name
        for device in reading.hosts[0].devices
        if device.logical_names
    }
    differing = {}
    for one in names:
        for other, word in zip(names, of_row[one], strict=True):
            if word == "X" or word.startswith("NV"):
                continue
            source, target = (f"{host}/{by_title.get(n, n.lower())}" for n in (one, other))
            kind = _kind(cluster, graph, source, target)
            if kind != word.replace("SOC", "SYS").lower():
                differing[one, other] = word, kind
    return differing


def _kind(cluster: Cluster, graph: "nx.DiGraph[str]", source: str, target: str) -> str:
    vertices = nx.dijkstra_path(graph, source, target)
    return path_kind(cluster, [cluster.links[pair] for pair in pairwise(vertices)]).value
