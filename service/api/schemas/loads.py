"""Wire types of the loads of devices by a published rule."""

from typing import Annotated

import msgspec
from msgspec import Meta

from service.core.plans.loads import DeviceLoad, LoadRule
from service.core.plans.plan import ResolvedPlan
from service.core.units import to_seconds

__all__ = ["LoadOut", "LoadsOut", "loads_terms"]

Seconds = Annotated[float, Meta(ge=0)]


class LoadOut(msgspec.Struct, kw_only=True, frozen=True):
    """What one microbatch takes of each device of a pipeline rank."""

    rank: Annotated[int, Meta(ge=0, description="Pipeline rank.")]
    compute_seconds: Annotated[Seconds, Meta(description="The work of its stages.")]
    sending_seconds: Annotated[Seconds, Meta(description="Recorded times of what leaves it.")]
    receiving_seconds: Annotated[Seconds, Meta(description="Recorded times of what enters it.")]
    load_seconds: Annotated[Seconds, Meta(description="The three together.")]


class LoadsOut(msgspec.Struct, kw_only=True, frozen=True):
    """Loads by a published rule: neither a prediction nor a bound of what the schedule takes."""

    rule: LoadRule
    ranks: list[LoadOut]
    busiest_rank: Annotated[int, Meta(ge=0, description="The first of equals.")]
    largest_load_seconds: Annotated[Seconds, Meta(description="What such planners minimise.")]


def loads_terms(resolved: ResolvedPlan) -> LoadsOut | msgspec.UnsetType:
    """The wire form of a plan's loads; unset where its partition names no rule."""
    partition, loads = resolved.plan.partition, resolved.loads
    if loads is None or partition is None or partition.load_rule is None:
        return msgspec.UNSET
    busiest = max(loads, key=lambda load: load.picoseconds)
    return LoadsOut(
        rule=partition.load_rule,
        ranks=[_load(load) for load in loads],
        busiest_rank=busiest.rank,
        largest_load_seconds=to_seconds(busiest.picoseconds),
    )


def _load(load: DeviceLoad) -> LoadOut:
    return LoadOut(
        rank=load.rank,
        compute_seconds=to_seconds(load.compute_picoseconds),
        sending_seconds=to_seconds(load.sending_picoseconds),
        receiving_seconds=to_seconds(load.receiving_picoseconds),
        load_seconds=to_seconds(load.picoseconds),
    )
