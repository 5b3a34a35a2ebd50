"""A bound moves with what its witness names, and with nothing else."""

from fractions import Fraction

import pytest

from service.core.topology.bounds import Transfer, link_loads
from service.core.topology.cluster import Cluster, LinkKind
from service.core.topology.flows.bounds import FlowRouting, bound_exchange, bound_messages
from service.core.topology.flows.demands import Exchange, Messages
from service.core.topology.flows.results import BindingKind, BoundKind, FlowBound
from service.core.topology.flows.study import FlowStudy
from service.core.topology.paths import PathFinder
from validation.small_clusters import cluster_of, nvswitch_hosts, with_rates

Ends = tuple[str, str]


def narrow_host() -> Cluster:
    """Three hosts of two devices with a NIC each; the NICs of h1 are the slowest, by direction."""
    slow = {
        **{(f"h1/gpu{i}", f"h1/nic{i}"): 20e9 + i for i in range(2)},
        **{(f"h1/nic{i}", "switch"): 30e9 for i in range(2)},
    }
    return with_rates(nvswitch_hosts(3, 2, 450e9, 50e9), slow)


def mesh() -> Cluster:
    """Four devices in a ring whose links all differ; nothing but lengths of links binds."""
    names = [f"a/gpu{i}" for i in range(4)]
    rates = (11e9, 13e9, 17e9, 19e9)
    return cluster_of(names, [(names[i], names[(i + 1) % 4], rates[i]) for i in range(4)])


def exchanged(cluster: Cluster, kind: BoundKind) -> tuple[FlowStudy, FlowBound]:
    study = FlowStudy(cluster)
    found = bound_exchange(study, Exchange(study.network.gpus, Fraction(10**9)), FlowRouting.ANY)
    bound = found.of(kind)
    assert bound is not None
    return study, bound


def witness(study: FlowStudy, bound: FlowBound) -> set[Ends]:
    """The directed links of a witness, all that are alike included."""
    capacities = {
        (link.kind, link.bandwidth_bytes_per_second)
        for link in (
            study.network.links[study.network.representative[part.resource]] for part in bound.parts
        )
        if any(part.copies > 1 for part in bound.parts)
    }
    named = {study.network.resource_name(part.resource) for part in bound.parts}
    return {
        ends
        for ends, link in study.network.cluster.links.items()
        if link.resource in named or (link.kind, link.bandwidth_bytes_per_second) in capacities
    }


@pytest.mark.parametrize("kind", [BoundKind.CUT, BoundKind.CONCURRENT_FLOW])
@pytest.mark.parametrize("cluster", [narrow_host(), mesh()], ids=["a host's cut", "a mesh"])
def test_bounds_of_an_exchange(cluster: Cluster, kind: BoundKind) -> None:
    study, bound = exchanged(cluster, kind)
    inside = witness(study, bound)
    assert inside
    assert inside < set(cluster.links)
    for ends, link in cluster.links.items():
        rate = link.bandwidth_bytes_per_second
        raised = exchanged(with_rates(cluster, {ends: 2 * rate}), kind)[1]
        lowered = exchanged(with_rates(cluster, {ends: rate * 0.9}), kind)[1]
        if ends in inside:
            assert lowered.exact_seconds > bound.exact_seconds, ends
        else:
            assert float(raised.exact_seconds) == pytest.approx(
                float(bound.exact_seconds), rel=1e-9
            ), ends


def test_the_mesh_is_bound_by_lengths() -> None:
    _, flow = exchanged(mesh(), BoundKind.CONCURRENT_FLOW)
    _, cut = exchanged(mesh(), BoundKind.CUT)
    assert flow.binding.kind is BindingKind.LENGTHS
    assert flow.exact_seconds > cut.exact_seconds


def test_one_message_over_two_ways() -> None:
    """5 + 7 GB/s out of the source; the ways on are wider."""
    cluster = cluster_of(
        ["a/gpu0", "a/gpu1"],
        [("a/gpu0", "x", 5e9), ("x", "a/gpu1", 50e9), ("a/gpu0", "y", 7e9), ("y", "a/gpu1", 60e9)],
        kind=LinkKind.OTHER,
    )

    def seconds(changed: Cluster) -> Fraction:
        study = FlowStudy(changed)
        ends = study.network.number["a/gpu0"], study.network.number["a/gpu1"]
        found = bound_messages(study, Messages.of([(*ends, 12 * 10**9)]), FlowRouting.ANY)
        flow = found.of(BoundKind.CONCURRENT_FLOW)
        assert flow is not None
        return flow.exact_seconds

    assert seconds(cluster) == 1
    inside = {("a/gpu0", "x"), ("a/gpu0", "y")}
    for ends, link in cluster.links.items():
        half = with_rates(cluster, {ends: link.bandwidth_bytes_per_second / 2})
        twice = with_rates(cluster, {ends: link.bandwidth_bytes_per_second * 2})
        assert (seconds(half) > 1) == (ends in inside), ends
        assert (seconds(twice) == 1) == (ends not in inside), ends


def test_pinned_bounds_move_with_the_most_loaded_link() -> None:
    """Two messages share one way; its narrowest link binds, and no other link matters."""
    cluster = cluster_of(
        ["a/gpu0", "a/gpu1", "a/gpu2"],
        [("a/gpu0", "x", 40e9), ("a/gpu1", "x", 40e9), ("x", "y", 30e9), ("y", "a/gpu2", 50e9)],
        kind=LinkKind.OTHER,
    )

    def bounds(changed: Cluster) -> tuple[Fraction, float, float]:
        study = FlowStudy(changed)
        number = study.network.number
        sent = [(number[f"a/gpu{i}"], number["a/gpu2"], 15 * 10**9) for i in range(2)]
        found = bound_messages(study, Messages.of(sent), FlowRouting.PINNED)
        flow = found.of(BoundKind.CONCURRENT_FLOW)
        assert flow is not None
        finder = PathFinder(changed)
        paths = [finder.path(f"a/gpu{i}", "a/gpu2") for i in range(2)]
        loads = link_loads([Transfer(path, 15 * 10**9) for path in paths if path is not None])
        assert paths[0] is not None
        assert paths[0].bandwidth_bytes_per_second is not None
        return flow.exact_seconds, loads.lower_bound_seconds, paths[0].bandwidth_bytes_per_second

    assert bounds(cluster) == (Fraction(1), 1.0, 30e9)
    for ends, link in cluster.links.items():
        raised = bounds(with_rates(cluster, {ends: link.bandwidth_bytes_per_second * 2}))
        lowered = bounds(with_rates(cluster, {ends: link.bandwidth_bytes_per_second * 0.9}))
        if ends == ("x", "y"):
            assert raised[0] < 1
            assert raised[1] < 1.0
            assert lowered[0] > 1
            assert lowered[1] > 1.0
            assert lowered[2] < 30e9 < raised[2]
        else:
            assert raised == (Fraction(1), 1.0, 30e9), ends
