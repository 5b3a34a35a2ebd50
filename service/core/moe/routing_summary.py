"""A routing in a few numbers."""

from dataclasses import dataclass

from service.core.moe.routing import Routing

__all__ = ["RoutingSummary", "summarise_routing"]


@dataclass(frozen=True, slots=True)
class RoutingSummary:
    """Spans over layers and steps, each from the least to the most.

    `expert_max_over_mean` is the busiest expert's share of all over an even one. `tokens` and
    `sources` are None where the routing says nothing of them; a skew has none of these.
    """

    expert_max_over_mean: tuple[float, float] | None
    tokens: tuple[int, int] | None
    sources: int | None
    padded_tokens: int


def summarise_routing(routing: Routing) -> RoutingSummary:
    """The summary of a routing; a skew is the same wherever it is used, and has no numbers yet."""
    records = list(routing.records.values())
    if not records:
        return RoutingSummary(None, None, None, 0)
    summed = [record.counts.sum(axis=0) for record in records]
    ratios = [float(loads.max()) * routing.experts / float(loads.sum()) for loads in summed]
    tokens = None
    if routing.top_k is not None:
        each = [int(loads.sum()) // routing.top_k for loads in summed]
        tokens = (min(each), max(each))
    several = records[0].sources > 1
    return RoutingSummary(
        expert_max_over_mean=(min(ratios), max(ratios)),
        tokens=tokens,
        sources=records[0].sources if several else None,
        padded_tokens=sum(record.padded_tokens for record in records),
    )
