"""What clusters cost by size: expanding, paths, all-to-all bounds, linear programs; memory.

    python -m benchmarks.topology

DGX H100 behind leaves and spines, and tori, where no two searches are alike. Times are CPU time of
this process, memory what Python and numpy allocate; the ratio is against networkx in the same run:
its shortest path on the same links. Warm is what the second request for the same stored topology
finds.
"""

import platform
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from math import prod
from random import Random
from typing import TypeVar

import networkx as nx

from service.core.topology.cluster import Cluster
from service.core.topology.expand import expand
from service.core.topology.flows.bounds import FlowRouting, bound_exchange, bound_gathering
from service.core.topology.flows.collapse import Collapse
from service.core.topology.flows.demands import CollectiveKind, Exchange, Gathering
from service.core.topology.flows.exchanges import MAX_SYMMETRIC_SIZE
from service.core.topology.flows.problems import flow_bound, whole
from service.core.topology.flows.routes import Routes
from service.core.topology.flows.study import FlowStudy, flow_study
from service.core.topology.paths import path_finder
from service.core.topology.spec import ClusterSpec, HostSpec, LeafSpine, Torus

T = TypeVar("T")

GPUS = (64, 512, 4_096, 8_192)
WHOLE_PROGRAMS = (8, 16, 32)
TORI = ((8, 8), (8, 8, 8), (64, 64), (16, 16, 16), (4_096,))
TORUS_PAIRS = 100


def cluster_spec(gpus: int) -> ClusterSpec:
    """Hosts of eight, up to 32 at a leaf, as many spines as a leaf has hosts."""
    hosts = gpus // 8
    per_leaf = min(32, max(hosts // 2, 1))
    fabric = LeafSpine(hosts_per_leaf=per_leaf, spines=per_leaf)
    return ClusterSpec(
        hosts=(HostSpec(name="host", count=hosts, design="dgx-h100"),), fabric=fabric
    )


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """A result and the CPU seconds it took."""
    begin = time.process_time()
    result = work()
    return result, time.process_time() - begin


def best(work: Callable[[], object], repeats: int = 5) -> float:
    """CPU seconds of the quickest of several runs."""
    return min(timed(work)[1] for _ in range(repeats))


def allocated(work: Callable[[], T]) -> tuple[T, float]:
    """A result and the megabytes that it keeps."""
    tracemalloc.start()
    result = work()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return result, kept / 1e6


def torus_paths(*dimensions: int) -> str:
    """Cold paths in a torus: to the next device, between random ones, to the far side."""
    gpus = prod(dimensions)
    network = Torus(dimensions=dimensions, link_bytes_per_second=80e9)
    own = HostSpec(name="host", count=gpus // 8, design="dgx-h100")
    cluster = expand(ClusterSpec(hosts=(own,), device_network=network)).cluster
    names = [device.name for device in cluster.devices]
    count = min(TORUS_PAIRS, gpus)
    halves = [size // 2 * prod(dimensions[at + 1 :]) for at, size in enumerate(dimensions)]
    shifts = Random(0)
    milliseconds = []
    for shift in ([1], [shifts.randrange(gpus) for _ in range(count)], [sum(halves)]):
        finder = path_finder.__wrapped__(cluster)
        pairs = [
            (names[number], names[(number + shift[number % len(shift)]) % gpus])
            for number in range(count)
        ]
        _, seconds = timed(lambda pairs=pairs, finder=finder: [finder.path(*p) for p in pairs])  # type: ignore[misc]
        milliseconds.append(1e3 * seconds / count)
    shape = "x".join(map(str, dimensions))
    return f"{gpus:6} {shape:>10} " + " ".join(f"{each:9.3f} ms" for each in milliseconds)


def as_networkx(cluster: Cluster) -> "nx.DiGraph[str]":
    """The links as a graph, and nothing of the rules of routing."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from(cluster.links)
    return graph


def paths(gpus: int, cluster: Cluster) -> str:
    """Preparing and finding paths, against networkx."""
    finder, preparing = timed(lambda: path_finder(cluster))
    last = gpus // 8 - 1
    _, cold = timed(lambda: finder.path("host0/gpu0", f"host{last}/gpu5"))
    # Another pair of hosts alike: what was found for the first is moved.
    _, like = timed(lambda: finder.path("host1/gpu0", f"host{last - 1}/gpu5"))
    warm = best(lambda: finder.path("host0/gpu0", f"host{last}/gpu5"))
    graph, building = timed(lambda: as_networkx(cluster))
    slow = best(lambda: nx.dijkstra_path(graph, "host0/gpu0", f"host{last}/gpu5"), 2)
    return (
        f"{preparing:9.3f} s {1e3 * cold:8.2f} ms {1e3 * like:8.2f} ms {1e6 * warm:7.1f} us"
        f" {building:9.3f} s {1e3 * slow:8.2f} ms {slow / cold:7.1f}"
    )


def bounds(study: FlowStudy) -> str:
    """An all-to-all and an all-gather over all devices, any route."""
    devices = study.network.gpus
    symmetry, finding = timed(lambda: study.symmetry(devices))
    collapse = Collapse(study.network, Routes(study.network), symmetry, devices)
    problem, collapsing = timed(lambda: collapse.exchange(Fraction(1), MAX_SYMMETRIC_SIZE))
    assert problem is not None  # noqa: S101
    solving = best(lambda: flow_bound(study.network, problem), 3)
    exchange = Exchange(devices, Fraction(1_000_000))
    _, cold = timed(lambda: bound_exchange(study, exchange, FlowRouting.ANY))
    warm = best(lambda: bound_exchange(study, exchange, FlowRouting.ANY))
    gathering = Gathering(CollectiveKind.ALL_GATHER, devices, Fraction(1_000_000))
    _, gathered = timed(lambda: bound_gathering(study, gathering, FlowRouting.ANY))
    return (
        f"{finding:8.3f} s {collapsing:8.3f} s {problem.size:8} {solving:8.3f} s {cold:8.3f} s"
        f" {1e3 * warm:7.2f} ms {gathered:9.3f} s"
    )


def program(gpus: int) -> str:
    """The whole program of an all-to-all, without symmetries, beside the collapsed one."""
    study = flow_study(expand(cluster_spec(gpus)).cluster)
    routes, devices = Routes(study.network), study.network.gpus.tolist()
    one = Fraction(1)
    commodities, building = timed(
        lambda: [
            routes.commodity(root, [x for x in devices if x != root], [one] * (len(devices) - 1))
            for root in devices
        ]
    )
    problem = whole(study.network, commodities)
    solved, solving = timed(lambda: flow_bound(study.network, problem))
    few = bound_exchange(study, Exchange(study.network.gpus, one), FlowRouting.ANY)
    assert solved is not None  # noqa: S101
    ratio = float(few.bounds[-1].exact_seconds / solved[0].exact_seconds)
    return f"{gpus:6} {problem.size:9} {building:9.3f} s {solving:9.3f} s {ratio:12.9f}"


def main() -> None:
    """Print all of it."""
    print(f"python {platform.python_version()}, {platform.machine()}\n")
    clusters: dict[int, Cluster] = {}
    print("  GPUs    links   expanding    memory   arrays    memory")
    for gpus in GPUS:
        spec = cluster_spec(gpus)
        _, seconds = timed(lambda spec=spec: expand(spec))  # type: ignore[misc]
        expansion, megabytes = allocated(lambda spec=spec: expand(spec))  # type: ignore[misc]
        clusters[gpus] = expansion.cluster
        path_finder(expansion.cluster)
        study, more = allocated(lambda made=expansion: flow_study(made.cluster))  # type: ignore[misc]
        flow_study.cache_clear()
        _, preparing = timed(lambda made=expansion: flow_study(made.cluster))  # type: ignore[misc]
        links = len(study.network.links)
        print(
            f"{gpus:6} {links:8} {seconds:9.3f} s {megabytes:6.1f} MB {preparing:6.3f} s"
            f" {more:6.1f} MB"
        )
    path_finder.cache_clear()
    print(
        "\n  GPUs   preparing   path cold        like        warm    networkx     its path   ratio"
    )
    for gpus, cluster in clusters.items():
        print(f"{gpus:6} {paths(gpus, cluster)}")
    print("\n  GPUs      torus    next door       random     far side")
    for dimensions in TORI:
        print(torus_paths(*dimensions))
    flow_study.cache_clear()
    print("\n  GPUs  symmetry   collapse     size   program  all-to-all      warm  all-gather")
    for gpus, cluster in clusters.items():
        print(f"{gpus:6} {bounds(flow_study(cluster))}")
    print("\n  GPUs      size   building   whole program   collapsed over whole")
    for gpus in WHOLE_PROGRAMS:
        print(program(gpus))


if __name__ == "__main__":
    main()
