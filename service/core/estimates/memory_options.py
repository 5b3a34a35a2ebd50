"""What could be changed of a plan that does not fit: each option as a merge patch of the plan.

A patch is made where the plan says enough for one; what it costs is for whoever prices it. Where
there is none the option says why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any

from service.core.estimates.memory import PlanMemory
from service.core.memory.terms import RankMemory
from service.core.plans.plan import Partition, Plan, ResolvedPlan
from service.core.plans.schedule import plan_family
from service.core.plans.training import OptimizerSharding
from service.core.profiles.measurement import Recompute

__all__ = ["MAX_OPTIONS", "MemoryOption", "OptionKind", "memory_options"]

# Of one plan at the most: so often it is simulated again.
MAX_OPTIONS = 10

_MOST_MICROBATCHES = 2**31

_BY_NAMES = "a partition by names is cut anew by hand"
_BY_SIZE = "the plan does not say how many samples a microbatch has"


class OptionKind(StrEnum):
    """What is changed."""

    SMALLER_MICROBATCH = "smaller_microbatch"
    FEWER_IN_FLIGHT = "fewer_in_flight"
    RECOMPUTE = "recompute"
    OTHER_SCHEDULE = "other_schedule"
    MOVED_LAYER = "moved_layer"
    MORE_SHARDING = "more_sharding"


@dataclass(frozen=True, slots=True)
class MemoryOption:
    """One change. Without a patch `why_not` says why there is none."""

    kind: OptionKind
    detail: str
    patch: Mapping[str, Any] = field(default_factory=dict)
    why_not: str | None = None


def memory_options(resolved: ResolvedPlan, memory: PlanMemory) -> list[MemoryOption]:
    """At least one option of each kind, in the order of the kinds; none where every rank fits."""
    full = [
        rank
        for rank in memory.ranks
        if rank.verdict.headroom is not None and rank.verdict.headroom < 0
    ]
    if not full:
        return []
    worst = min(full, key=lambda rank: rank.verdict.headroom or 0)
    return [
        _smaller_microbatch(resolved),
        _fewer_in_flight(resolved.plan),
        *_recompute(resolved.plan),
        *_other_schedules(resolved),
        _moved_layer(resolved, worst, memory),
        *_more_sharding(resolved),
    ]


def _refused(kind: OptionKind, detail: str, why_not: str) -> MemoryOption:
    return MemoryOption(kind, detail, why_not=why_not)


def _smaller_microbatch(resolved: ResolvedPlan) -> MemoryOption:
    """By the least factor; the global batch stays, so there are as many times more."""
    kind, what = OptionKind.SMALLER_MICROBATCH, "fewer samples in a microbatch"
    size, count = resolved.microbatch_size, resolved.plan.workload.microbatches
    if size is None:
        return _refused(kind, what, _BY_SIZE)
    if size == 1:
        return _refused(kind, what, "a microbatch has one sample already")
    if resolved.plan.workload.microbatch_sequence_lengths is not None:
        return _refused(kind, what, "nobody says how long more microbatches would be")
    factor = next(factor for factor in range(2, size + 1) if size % factor == 0)
    if count * factor > _MOST_MICROBATCHES:
        return _refused(kind, what, f"at most {_MOST_MICROBATCHES} microbatches are counted")
    work: dict[str, Any] = {"microbatches": count * factor}
    if resolved.held_fixed == "microbatch_size":
        work["microbatch_size"] = size // factor
    detail = f"{size // factor} instead of {size} samples in a microbatch, and {factor} times as "
    return MemoryOption(kind, f"{detail}many microbatches", {"workload": work})


def _fewer_in_flight(plan: Plan) -> MemoryOption:
    kind, what = OptionKind.FEWER_IN_FLIGHT, "fewer microbatches in flight on a rank"
    family = plan_family(plan)
    if family.takes_memory_limit:
        limit = plan.schedule.memory_limit_activations or plan.degrees.pipeline
        if limit > 1:
            detail = f"at most {limit - 1} instead of {limit} activations on a rank"
            return MemoryOption(kind, detail, {"schedule": {"memory_limit_activations": limit - 1}})
    group = plan.schedule.group_size or plan.degrees.pipeline
    if family.name == "interleaved_1f1b" and group > plan.degrees.pipeline:
        detail = f"groups of {plan.degrees.pipeline} instead of {group} microbatches"
        patch = {"schedule": {"group_size": plan.degrees.pipeline}}
        return MemoryOption(kind, detail, patch)
    return _refused(
        kind,
        what,
        f"{family.name} sets how many are in flight on a rank: another schedule, or fewer ranks in "
        "the pipeline",
    )


def _recompute(plan: Plan) -> Iterator[MemoryOption]:
    kind = OptionKind.RECOMPUTE
    if plan.recompute == Recompute.FULL.value and not plan.recompute_layers:
        yield _refused(kind, "more recomputation", "the plan recomputes in full already")
        return
    policies = [Recompute.SELECTIVE, Recompute.FULL]
    if plan.recompute != Recompute.NONE.value and not plan.recompute_layers:
        policies = [Recompute.FULL]
    for policy in policies:
        detail = f"{policy.value} recomputation of every layer"
        patch: dict[str, Any] = {"default": policy.value}
        if plan.recompute_layers:
            patch["layers"] = None
        yield MemoryOption(kind, detail, {"recompute": patch})


def _other_schedules(resolved: ResolvedPlan) -> Iterator[MemoryOption]:
    """1f1b, which keeps the fewest of those with one stage a rank; for it those that keep fewer."""
    if resolved.plan.schedule.kind == "1f1b":
        yield from _in_a_v(resolved)
    else:
        yield _one_f_one_b(resolved)


def _in_a_v(resolved: ResolvedPlan) -> Iterator[MemoryOption]:
    """Two stages a rank, there and back: each rank keeps as many layers as it has.

    Halves of what the rank has, the larger one on the way there.
    """
    kind, what = OptionKind.OTHER_SCHEDULE, "v_half or v_min, which keep fewer activations"
    plan = resolved.plan
    if plan.stages is not None:
        why = "stages that state their own costs have no layers to lay on two stages a rank"
        yield _refused(kind, what, why)
        return
    if len(resolved.stages) == 1:
        yield _refused(kind, what, "with one rank in the pipeline no schedule keeps fewer")
        return
    layers = [len(stage.layers) for stage in resolved.stages]
    if min(layers) < 2:
        stage = layers.index(min(layers))
        yield _refused(kind, what, f"stage {stage} has one layer, and two stages need two")
        return
    counts = [count - count // 2 for count in layers] + [count // 2 for count in reversed(layers)]
    partition = _as_given(plan.partition, counts)
    if _by_names(plan.partition):
        names = [name for stage in resolved.stages for name in stage.layers]
        ends = list(accumulate(counts))
        partition = {
            "stages": [names[end - count : end] for end, count in zip(ends, counts, strict=True)]
        }
    for name, share in (("v_half", "half"), ("v_min", "a third")):
        detail = f"{name} instead of 1f1b: two stages a rank in a V, and about {share} in flight"
        patch = {
            "schedule": {"kind": name, "chunks_per_rank": 2},
            "partition": partition,
        }
        yield MemoryOption(kind, detail, patch)


def _one_f_one_b(resolved: ResolvedPlan) -> MemoryOption:
    """The same work by the schedule that keeps the fewest of whole backwards."""
    kind, what = OptionKind.OTHER_SCHEDULE, "a schedule that keeps fewer activations"
    plan, schedule = resolved.plan, resolved.plan.schedule
    if schedule.order is not None:
        return _refused(kind, what, "the order is written out: write out another")
    # What belongs to the other kind alone goes with it.
    belongs = ("memory_limit_activations", "group_size", "pair_mode")
    removed = {name: None for name in belongs if getattr(schedule, name) is not None}
    patch: dict[str, Any] = {"schedule": {"kind": "1f1b", **removed}}
    chunks = schedule.chunks_per_rank
    if plan_family(plan).directions > 1 or (chunks > 1 and plan.stages is not None):
        return _refused(kind, what, "its stages lie otherwise on ranks: give those of another")
    if chunks > 1:
        counts = _counts(resolved)
        if counts is None:
            return _refused(kind, what, _BY_NAMES)
        merged = [sum(counts[at : at + chunks]) for at in range(0, len(counts), chunks)]
        patch["partition"] = _as_given(plan.partition, merged)
        patch["schedule"]["chunks_per_rank"] = 1
    detail = f"1f1b instead of {schedule.kind}"
    if chunks > 1:
        detail += f", and so {chunks} neighbouring stages as one"
    return MemoryOption(kind, detail, patch)


def _moved_layer(resolved: ResolvedPlan, worst: RankMemory, memory: PlanMemory) -> MemoryOption:
    """The layer at one end of the fullest rank's largest stage, to the emptier neighbour."""
    kind, what = OptionKind.MOVED_LAYER, "a layer moved to another rank"
    plan = resolved.plan
    if plan.stages is not None:
        return _refused(kind, what, "stages that state their own costs have no layers to move")
    counts = [len(one.layers) for one in resolved.stages]
    stage = max(worst.stages, key=lambda number: counts[number])
    if counts[stage] < 2:
        return _refused(kind, what, f"stage {stage} on rank {worst.rank} has one layer")
    rooms = {
        other: memory.ranks[resolved.stages[other].rank].verdict.headroom or 0
        for other in (stage - 1, stage + 1)
        if 0 <= other < len(counts) and resolved.stages[other].rank != worst.rank
    }
    if not rooms:
        return _refused(kind, what, f"no stage on another rank is next to stage {stage}")
    other = max(rooms, key=lambda number: rooms[number])
    if _by_names(plan.partition):
        return _moved_by_name(resolved, stage, other)
    moved = list(counts)
    moved[stage] -= 1
    moved[other] += 1
    detail = f"one layer from stage {stage} to stage {other}"
    return MemoryOption(kind, detail, {"partition": _as_given(plan.partition, moved)})


def _moved_by_name(resolved: ResolvedPlan, stage: int, other: int) -> MemoryOption:
    """The layer that runs last on the stage, or first where it goes to the stage before."""
    names = [list(one.layers) for one in resolved.stages]
    place = -1 if other > stage else 0
    layer = names[stage].pop(place)
    names[other].insert(0 if other > stage else len(names[other]), layer)
    detail = f"layer {layer!r} from stage {stage} to stage {other}"
    return MemoryOption(OptionKind.MOVED_LAYER, detail, {"partition": {"stages": names}})


def _counts(resolved: ResolvedPlan) -> list[int] | None:
    """Layers of each stage; None where the partition lists them by name."""
    if resolved.plan.partition is None or _by_names(resolved.plan.partition):
        return None
    return [len(stage.layers) for stage in resolved.stages]


def _by_names(partition: Partition | None) -> bool:
    return partition is not None and partition.stages is not None


def _as_given(partition: Partition | None, counts: list[int]) -> dict[str, Any]:
    """In the form in which the plan writes its partition."""
    if partition is not None and partition.cuts is not None:
        return {"cuts": list(accumulate(counts))[:-1]}
    return {"layers_per_stage": counts}


def _more_sharding(resolved: ResolvedPlan) -> Iterator[MemoryOption]:
    kind, what = OptionKind.MORE_SHARDING, "more of the state split among ranks"
    plan = resolved.plan
    held = [one for rank in resolved.rank_weights if rank is not None for one in rank.held]
    if plan.training is None:
        yield _refused(kind, what, "the plan does not say how weights are trained")
        return
    if all(one.replicas == 1 for one in held):
        yield _refused(kind, what, "no two ranks hold the same weights: context x data is 1")
        return
    levels = list(OptimizerSharding)
    at = levels.index(plan.training.optimizer_sharding)
    if at == len(levels) - 1:
        yield _refused(kind, what, "parameters are split already, and with them all state")
        return
    for level in levels[at + 1 :]:
        detail = f"optimizer_sharding {level.value} instead of {levels[at].value}"
        yield MemoryOption(kind, detail, {"training": {"optimizer_sharding": level.value}})
