"""The tables of an estimate: what stands in them is what the estimate says."""

import pytest

from service.core.estimates.estimate import estimate_plan
from service.core.estimates.simulation import simulate_plan
from service.core.plans.plan import Degrees, Dimension, GivenStage, Placement
from service.core.plans.resolve import resolve
from service.core.topology.cluster import Cluster, Link, LinkKind, Vertex, VertexKind
from service.formats.estimate_report import estimate_report
from tests.core.plans.worlds import cluster, given_plan

STAGE = GivenStage(1.0, backward_seconds=2.0)


def report(plan_of: Placement, first: GivenStage, where: Cluster, data: int = 1) -> list[str]:
    """The lines of the report of a plan of two stages."""
    plan = given_plan(
        first, STAGE, degrees=Degrees(2, data=data), topology="two@1", placement=plan_of
    )
    estimate = estimate_plan(simulate_plan(resolve(plan, cluster=where)))
    return estimate_report(estimate, "a plan", (), ()).splitlines()


def test_a_bound_below_a_picosecond_is_shown() -> None:
    """100 bytes over 1e15 bytes/s take a tenth of one."""
    ends = [Vertex(f"host/gpu{i}", VertexKind.GPU, "host") for i in range(2)]
    links = [Link(a.name, b.name, LinkKind.NVLINK, 1e15) for a, b in (ends, ends[::-1])]
    where = Cluster({v.name: v for v in ends}, {(k.source, k.target): k for k in links})
    stage = GivenStage(1.0, backward_seconds=2.0, boundary_bytes=100)
    (row,) = [line for line in report(Placement(), stage, where) if line.startswith("0 -> 1  ")]
    assert "0 s" in row
    assert "1 ps" in row


def test_a_given_time_stands_beside_the_highest_bound() -> None:
    """One replica stays in its host, the other one crosses: that one's path bounds the boundary."""
    stage = GivenStage(1.0, backward_seconds=2.0, boundary_bytes=8_000_000, transfer_seconds=2e-3)
    placement = Placement(
        order=(Dimension.PIPELINE, Dimension.DATA),
        devices=("host0/gpu0", "host0/gpu1", "host1/gpu0", "host2/gpu0"),
    )
    lines = report(placement, stage, cluster(hosts=3), data=2)
    (row,) = [line for line in lines if line.startswith("0 -> 1  ")]
    assert "10 GB/s" in row
    assert "806 µs" in row
    assert "2 ms" in row
    # A delay is of the whole iteration, not of one message as the other columns are.
    assert any(line.endswith("delays per iteration") for line in lines)


def test_a_prediction_that_is_unknown_is_told_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that is never drained, whose pace is not searched for."""
    monkeypatch.setattr("service.core.schedules.cadence.MOST_PERIODIC_OPERATIONS", 1)
    estimate = estimate_plan(simulate_plan(resolve(given_plan(STAGE, STAGE, kind="pipedream"))))
    lines = estimate_report(estimate, "a plan", (), ()).splitlines()
    (row,) = [line for line in lines if line.startswith("prediction")]
    assert "unknown" in row
    assert "never drained" in row
    assert any(line.startswith("from empty to drained") for line in lines)
    assert any(line.startswith("lower bound: busiest_device") for line in lines)
    (rate,) = [line for line in lines if line.startswith("samples per second")]
    assert "unknown" in rate
