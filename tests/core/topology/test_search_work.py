"""What finding pinned paths takes, in links that are looked at: no clock is needed."""

from bisect import bisect_left
from collections.abc import Sequence
from math import prod

import pytest

from service.core.errors import WorkBudgetExceeded
from service.core.topology.cluster import Cluster, VertexKind
from service.core.topology.expand import expand
from service.core.topology.paths import PathFinder, SearchBudget
from service.core.topology.routing import Router
from service.core.topology.spec import ClusterSpec, DeviceSpec, HostSpec, RailOptimised, Torus


def rails(count: int, spines: int) -> Cluster:
    """Hosts of eight GPUs and eight NICs on rails."""
    own = HostSpec(name="host", count=count, design="dgx-h100")
    return expand(ClusterSpec(hosts=(own,), fabric=RailOptimised(spines=spines))).cluster


def test_a_search_does_not_grow_with_the_hosts_it_may_not_enter() -> None:
    looked = []
    for count in (4, 64):
        router = Router(rails(count, 2))
        ends = router.number["host0/gpu0"], router.number["host3/gpu5"]
        looked.append(router.route(*ends)[1].links)
    assert looked[0] == looked[1] > 0


def test_hosts_that_are_wired_alike_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The searches are counted: between hosts of one rail fabric there is one a pair of GPUs."""
    searched = []
    search = Router._search

    def counted(router: Router, source: int, target: int, view: object) -> object:
        searched.append((router.names[source], router.names[target]))
        return search(router, source, target, view)  # type: ignore[arg-type]

    monkeypatch.setattr(Router, "_search", counted)
    finder = PathFinder(rails(32, 4))
    for number in range(31):
        for gpu in range(8):
            finder.path(f"host{number}/gpu{gpu}", f"host{number + 1}/gpu{gpu}")
            finder.path(f"host{number + 1}/gpu{gpu}", f"host{number}/gpu{gpu}")
    # The host's order by name is part of what makes pairs alike, so there are two of each.
    assert len(searched) == 2 * 8


def torus(*dimensions: int) -> PathFinder:
    """One accelerator a host, joined by a torus."""
    gpu = DeviceSpec(name="gpu0", kind=VertexKind.GPU)
    own = HostSpec(name="host", count=prod(dimensions), devices=(gpu,))
    network = Torus(dimensions=dimensions, link_bytes_per_second=1e9)
    return PathFinder(expand(ClusterSpec(hosts=(own,), device_network=network)).cluster)


def spent(finder: PathFinder, pairs: Sequence[tuple[str, str]]) -> int:
    """The least budget that finding these paths keeps to."""

    def is_enough(links: int) -> bool:
        budget = SearchBudget(links)
        try:
            for pair in pairs:
                finder.path(*pair, budget)
        except WorkBudgetExceeded:
            return False
        return True

    return bisect_left(range(10_000_000), True, key=is_enough)


def test_the_work_of_a_search_is_what_lies_nearer_than_its_target() -> None:
    """Across a torus it looks at every link, next door at a few, however large the torus is."""
    middle = {n: f"host{n * n // 2 + n // 2}/gpu0" for n in (4, 16)}
    across = [spent(torus(n, n), [("host0/gpu0", far)]) for n, far in middle.items()]
    beside = [spent(torus(n, n), [("host0/gpu0", "host1/gpu0")]) for n in (4, 16)]
    assert across[1] > 3 * across[0]
    assert beside[0] == beside[1] < across[0]


def test_what_was_found_before_counts_again() -> None:
    """The same question gets the same answer, whatever others have asked."""
    pairs = [("host0/gpu0", f"host{number}/gpu0") for number in (1, 5, 9)]
    warm = torus(4, 4)
    for pair in pairs:
        warm.path(*pair)
    assert spent(warm, pairs) == spent(torus(4, 4), pairs)


def test_pairs_that_are_alike_are_one_search() -> None:
    finder = PathFinder(rails(8, 2))
    one = spent(finder, [("host0/gpu0", "host1/gpu0")])
    both = spent(finder, [("host0/gpu0", "host1/gpu0"), ("host2/gpu0", "host3/gpu0")])
    path = finder.path("host2/gpu0", "host3/gpu0")
    assert path is not None
    assert both == one + 300 * len(path.links)


def test_paths_through_a_ring_are_found_without_limit_of_depth() -> None:
    """The far side of a ring of 1,024 is 512 links away, both ways round."""
    path = torus(1024).path("host0/gpu0", "host512/gpu0")
    assert path is not None
    assert len(path.links) == 2 + 512
    assert path.equal_cost_alternatives == 1
