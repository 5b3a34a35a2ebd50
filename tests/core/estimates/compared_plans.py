"""Plans that the tests of comparisons set against one another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from service.core.estimates.comparison import Comparison, compare_terms, compared_terms
from service.core.estimates.simulation import simulate_plan
from service.core.plans.plan import Degrees, GivenStage, Plan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.schedules.transfers import TransferMode
from service.core.topology.cluster import Cluster

__all__ = ["MS", "compare", "four_stages", "teaching_plan"]

MS = 10**9  # picoseconds


def four_stages(
    work_ms: Sequence[float],
    *,
    kind: str = "1f1b",
    microbatches: int = 16,
    recompute_ms: Mapping[int, float] | None = None,
    hop_ms: Mapping[int, float] | None = None,
    mode: TransferMode | None = None,
    **more: Any,
) -> Plan:
    """Stages of so much work a microbatch: a third forward, two thirds backward, and recomputation.

    `hop_ms` is what a stage takes to hand on, 0 where nothing is said.
    """
    stages = []
    for number, work in enumerate(work_ms):
        again = (recompute_ms or {}).get(number, 0)
        third = round((work - again) / 3 * MS)
        forward = round(work * MS) - round(again * MS) - 2 * third
        last = number == len(work_ms) - 1
        stage = GivenStage(
            forward_seconds=forward / 1e12,
            recompute_seconds=again / 1000 or None,
            transfer_seconds=None if last else (hop_ms or {}).get(number, 0) / 1000,
        )
        if kind.startswith("zb"):
            half = third / 1e12
            stage = replace(stage, backward_input_seconds=half, backward_weight_seconds=half)
        else:
            stage = replace(stage, backward_seconds=2 * third / 1e12)
        stages.append(stage)
    return Plan(
        degrees=Degrees(pipeline=len(stages)),
        workload=Workload(microbatches=microbatches, microbatch_size=1),
        schedule=Schedule(kind, transfer_mode=mode),
        stages=tuple(stages),
        **more,
    )


def teaching_plan(*, moved: bool) -> Plan:
    """Stage 2 receives in 1 ms and recomputes for 3 ms, 2 once a block has moved to stage 1."""
    if moved:
        return four_stages((18, 21, 20, 18), recompute_ms={2: 2}, hop_ms={1: 1})
    return four_stages((18, 18, 25, 18), recompute_ms={2: 3}, hop_ms={1: 1})


def compare(before: Plan, after: Plan, cluster: Cluster | None = None) -> Comparison:
    """Two plans side by side."""
    return compare_terms(
        *(compared_terms(simulate_plan(resolve(plan, cluster=cluster))) for plan in (before, after))
    )
