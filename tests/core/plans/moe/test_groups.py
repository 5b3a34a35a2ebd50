"""Expert groups: consecutive ranks of a stage, on their devices and hosts."""

from service.core.plans.moe.groups import expert_groups
from service.core.plans.moe.inputs import ExpertGroups
from service.core.plans.placement import layout, place_ranks
from service.core.plans.plan import Degrees, Dimension, Placement
from service.core.topology.cluster import Cluster
from tests.core.plans.worlds import cluster


def groups_of(
    degrees: Degrees, on: Cluster | None, placement: Placement | None = None
) -> tuple[ExpertGroups, ...]:
    ranks = layout(placement or Placement(), degrees)
    devices = None if on is None else [device.name for device in on.devices]
    return expert_groups(degrees, ranks, place_ranks(ranks, devices), on)


def test_they_are_blocks_of_the_ranks_of_a_pipeline_rank() -> None:
    first, second = groups_of(Degrees(pipeline=2, data=4, expert=2), None)
    assert first.ranks.tolist() == [[0, 1], [2, 3]]
    assert second.ranks.tolist() == [[4, 5], [6, 7]]
    assert first.devices is None
    assert (first.count, first.width) == (2, 2)


def test_they_span_data_parallel_replicas_where_the_expert_degree_does() -> None:
    (only,) = groups_of(
        Degrees(pipeline=1, tensor=2, data=2, sequence_parallel=True, expert=4), cluster()
    )
    assert only.ranks.tolist() == [[0, 1, 2, 3]]
    assert only.nodes.tolist() == [[0, 0, 1, 1]]
    assert only.places.tolist() == [[0, 1, 0, 1]]


def test_experts_split_over_ranks_take_neighbours() -> None:
    degrees = Degrees(pipeline=1, data=4, expert=2, expert_tensor=2)
    (only,) = groups_of(degrees, cluster())
    assert only.ranks.tolist() == [[0, 1, 2, 3]]
    assert only.devices == (("host0/gpu0", "host0/gpu1", "host1/gpu0", "host1/gpu1"),)


def test_the_order_of_dimensions_says_on_which_hosts_they_are() -> None:
    """With the pipeline innermost the two stages lie in one host, and each group on both hosts."""
    order = Placement(order=(Dimension.PIPELINE, Dimension.DATA))
    first, second = groups_of(Degrees(pipeline=2, data=2, expert=2), cluster(), order)
    assert first.devices == (("host0/gpu0", "host1/gpu0"),)
    assert second.devices == (("host0/gpu1", "host1/gpu1"),)
    assert first.nodes.tolist() == [[0, 1]]
    assert second.places.tolist() == [[1, 1]]
