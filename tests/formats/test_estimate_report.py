"""The tables of an estimate: what stands in them is what the estimate says."""

import re
from dataclasses import replace

import pytest

from service.core.estimates.estimate import estimate_plan
from service.core.estimates.simulation import simulate_plan
from service.core.models.dtypes import DType
from service.core.plans.memory_settings import MemorySettings
from service.core.plans.plan import Degrees, Dimension, GivenStage, Placement
from service.core.plans.resolve import resolve
from service.core.plans.training import Optimizer, Training
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


HELD = GivenStage(
    1.0,
    backward_seconds=2.0,
    activation_bytes=1_000_000_000,
    boundary_bytes=0,
    parameter_count=500_000_000,
)


@pytest.mark.parametrize(
    ("device_bytes", "activation_bytes", "row"),
    [
        # 16 bytes a parameter; two microbatches on the first rank, none at the step with 4 more.
        (16_000_000_000, 10**9, "0|0F1|10 GB|16 GB|6 GB|fits"),
        (
            9_000_000_000,
            10**9,
            "0|0F1|10 GB|9 GB|-1 GB|does not fit: half of optimizer moments would fit",
        ),
        (16_000_000_000, None, "0|optimizer_step|10 GB|16 GB|6 GB|open: activations unknown"),
        (None, 10**9, "0|0F1|10 GB|unknown|unknown|open: no device memory is known"),
    ],
)
def test_a_rank_fits_or_has_a_term_to_blame_or_is_open(
    device_bytes: int | None, activation_bytes: int | None, row: str
) -> None:
    stage = replace(HELD, activation_bytes=activation_bytes)
    settings = MemorySettings(
        device_memory_bytes=device_bytes,
        reserve_fraction=0,
        usable_fraction=1,
        context_bytes=0,
        communicators=0,
        workspace_bytes=0,
    )
    plan = replace(
        given_plan(stage, replace(stage, boundary_bytes=None)),
        training=Training(Optimizer.ADAM, weight_dtype=DType.BF16),
        memory=settings,
    )
    estimate = estimate_plan(simulate_plan(resolve(plan)))
    lines = estimate_report(estimate, "a plan", (), ()).splitlines()
    title = lines.index("Memory: each rank at its fullest instant")
    assert re.sub(" {2,}", "|", lines[title + 2]) == row


def test_a_plan_that_says_nothing_of_its_weights_has_no_table_of_memory() -> None:
    estimate = estimate_plan(simulate_plan(resolve(given_plan(STAGE, STAGE))))
    assert "Memory" not in "\n".join(estimate_report(estimate, "a plan", (), ()).splitlines())
