"""What an estimate assumes because of its own terms, and statements held against what they say."""

from dataclasses import replace

from service.core.estimates.estimate import Estimate, estimate_plan
from service.core.estimates.simulation import simulate_plan
from service.core.plans.plan import Degrees, GivenStage, Placement, Plan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.topology.cluster import Cluster
from tests.core.plans.worlds import cluster

STAGE = GivenStage(
    0.010, backward_input_seconds=0.010, backward_weight_seconds=0.010, activation_bytes=100
)


def estimate(kind: str, ranks: int, microbatches: int, devices: Cluster | None = None) -> Estimate:
    plan = Plan(
        Degrees(ranks),
        Workload(microbatches),
        Schedule(kind),
        stages=(STAGE,) * ranks,
        topology=None if devices is None else "two@1",
        placement=Placement(devices=None if devices is None else ("host[0-1]/gpu[0-1]",)),
    )
    return estimate_plan(simulate_plan(resolve(plan, cluster=devices)))


def with_memory(**bytes_of: int) -> Cluster:
    bare = cluster()
    vertices = {
        name: replace(vertex, memory_bytes=bytes_of.get(name.replace("/", "_")))
        for name, vertex in bare.vertices.items()
    }
    return replace(bare, vertices=vertices)


def test_activations_beyond_the_memory_of_a_device_are_told() -> None:
    """1F1B keeps 400, 300, 200 and 100 bytes on four ranks."""
    fits = with_memory(host0_gpu0=400, host0_gpu1=300, host1_gpu0=200)
    assert estimate("1f1b", 4, 8, fits).assumptions == ()
    (said,) = estimate("1f1b", 4, 8, with_memory(host0_gpu1=299)).assumptions
    assert said.code == "live_above_memory"
    assert "pipeline rank 1 (300 bytes at the peak, the device has 299); the" in said.detail
    two = with_memory(host0_gpu0=399, host0_gpu1=300, host1_gpu0=1)
    (said,) = estimate("1f1b", 4, 8, two).assumptions
    assert "rank 0 (400 bytes" in said.detail
    assert "and so on 1 other rank;" in said.detail


def test_the_smallest_device_of_a_pipeline_rank_counts() -> None:
    plan = Plan(
        Degrees(2, tensor=2),
        Workload(8),
        Schedule("1f1b"),
        stages=(STAGE, STAGE),
        topology="two@1",
    )
    sized = with_memory(host0_gpu0=500, host0_gpu1=150, host1_gpu0=70)
    assert resolve(plan, cluster=sized).memory_bytes == (150, 70)
    assert resolve(plan, cluster=cluster()).memory_bytes == (None, None)
    assert resolve(replace(plan, topology=None)).memory_bytes == (None, None)


def test_nothing_is_said_of_memory_that_is_not_known() -> None:
    assert estimate("1f1b", 4, 8, cluster()).assumptions == ()
    assert estimate("1f1b", 4, 8).assumptions == ()


def test_zb_h2_gains_in_the_span_alone() -> None:
    """Four equal stages, F = B = W = 10 ms, 8 microbatches: 24 units each rank, 3 to fill."""
    one, two = estimate("zb_h1", 4, 8), estimate("zb_h2", 4, 8)
    assert one.bubble.makespan == two.bubble.makespan == 270_000_000_000
    assert (one.bubble.span, two.bubble.span) == (270_000_000_000, 240_000_000_000)


def test_one_chunk_keeps_more_than_1f1b_in_the_same_time() -> None:
    for ranks in (2, 4, 8):
        chunked = estimate("interleaved_1f1b", ranks, 2 * ranks)
        plain = estimate("1f1b", ranks, 2 * ranks)
        assert chunked.bubble.makespan == plain.bubble.makespan
        peaks = [live.peak_activations for live in chunked.live]
        assert peaks == [2 * (ranks - 1 - rank) + 1 for rank in range(ranks)]
        assert [live.peak_activations for live in plain.live] == list(range(ranks, 0, -1))
