"""What an answer says of the experts of its plan."""

from collections.abc import Sequence

from service.core.errors import Statement, some_of
from service.core.moe.assignments import RoutingLevel
from service.core.moe.overflow import DropOrder, OverflowPolicy
from service.core.moe.placement import shared_ranks
from service.core.moe.settings import LayerCostsInclude
from service.core.moe.skews import SkewKind
from service.core.plans.moe.inputs import MoeInputs
from service.core.plans.moe.results import PlanMoe
from service.core.plans.statements import counted

__all__ = ["experts_assumed", "experts_left_out"]

_LEVELS = {
    RoutingLevel.TOKENS: "the experts of each token",
    RoutingLevel.SOURCES: "how often each source asks for each expert",
    RoutingLevel.COUNTS: "how often each expert is asked for, so that all sources ask alike",
    RoutingLevel.SKEW: "a named distribution: nothing was measured",
}

# Skews that are hot or empty where experts stand, not in experts themselves.
_OF_RANKS = (SkewKind.HOT_RANK.value, SkewKind.EMPTY_RANK.value)

_SLOWEST = Statement(
    "slowest_expert_rank",
    "in each layer with experts all ranks of a group wait for the one that takes longest; the "
    "layers' times add up, and with them those of the data-parallel replicas in a group",
)
_COUNTS_EXCHANGE = Statement(
    "expert_counts_exchange",
    "the exchange of counts before tokens are dispatched: its latency is in no time",
)
_NO_TOPOLOGY = Statement(
    "expert_exchange",
    "how long tokens are on the way to their experts and back: the plan has no topology, so "
    "exchanges take no time",
)
_REPLICA_GRADIENTS = Statement(
    "replica_gradients",
    "adding up the gradients of an expert's replicas in one expert group: the time of it, and what "
    "it is buffered in",
)
_DROPPED_BY_WEIGHT = Statement(
    "drop_order",
    "which tokens have the least weight: counts, and so rows and bytes, are the same; copies that "
    "tokens beyond a capacity would share are counted as expected",
)
_REPEATED = Statement(
    "expert_recompute",
    "layers with experts that are computed again repeat their dispatch, products and combine",
)
_REROUTED = Statement(
    "rerouted_tokens",
    "where rerouted tokens land is taken to be the experts with the fewest; nobody knows from a "
    "routing",
)


def experts_assumed(
    inputs: MoeInputs,
    moe: PlanMoe,
    *,
    includes: LayerCostsInclude,
    stated: bool,
    overdrawn: Sequence[int],
    notes: Sequence[Statement],
) -> tuple[Statement, ...]:
    """What was taken for granted of the experts; `notes` are those of bringing tokens to ranks.

    `overdrawn` are stages whose costs are less than what they are said to contain.
    """
    said = [_routing(inputs), *_nearest(inputs), *_steps(inputs), *dict.fromkeys(notes)]
    said += [_SLOWEST, *_standing_group(moe), *_standing_home(moe), *_placement(inputs)]
    said.append(_contains(includes, stated=stated))
    if overdrawn:
        detail = (
            f"{counted(len(overdrawn), 'stage costs', 'stages cost')} less than the experts that "
            f"the costs are said to contain (stage {some_of([str(one) for one in overdrawn])}): "
            "nothing of them is left beside their experts"
        )
        said.append(Statement("layer_costs_below_experts", detail))
    capacity = inputs.settings.capacity
    if capacity.limits and capacity.order is DropOrder.PROBABILITY:
        said.append(_DROPPED_BY_WEIGHT)
    if capacity.overflow is OverflowPolicy.REROUTE:
        said.append(_REROUTED)
    if any(layer.repeats for layer in moe.layers):
        said.append(_REPEATED)
    loads = [load for layer in moe.layers for run in layer.runs for load in run.groups]
    if not all(load.counted for load in loads):
        detail = (
            "which of a token's experts share a copy is not known from counts: copies are those "
            "expected where tokens choose independently, with no limit on groups of experts that "
            "a token may use, and bounds use the fewest"
        )
        said.append(Statement("expected_copies", detail))
    return tuple(said)


def experts_left_out(inputs: MoeInputs) -> tuple[Statement, ...]:
    """What the numbers of the experts leave out."""
    said = [_REPLICA_GRADIENTS] if _replicates(inputs) else []
    if inputs.groups[0].devices is None:
        said.append(_NO_TOPOLOGY)
    elif inputs.expert > 1:
        said.append(_COUNTS_EXCHANGE)
    return tuple(said)


def _replicates(inputs: MoeInputs) -> bool:
    placed = inputs.settings.experts_by_rank
    return placed is not None and sum(map(len, placed)) > len(set().union(*placed))


def _routing(inputs: MoeInputs) -> Statement:
    settings = inputs.settings
    if inputs.routing is not None:
        level = inputs.routing.level
        detail = f"tokens go where the routing {settings.routing} says, which has {_LEVELS[level]}"
    elif inputs.is_uniform:
        detail = "tokens choose their experts evenly: the plan names no routing"
    else:
        kind = "" if settings.skew is None else settings.skew.kind.value
        detail = f"tokens go where the skew {kind} says, {_LEVELS[RoutingLevel.SKEW]}"
        if settings.experts_by_rank is not None and kind in _OF_RANKS:
            detail += "; the experts it means are those that would stand on the rank in order"
    return Statement("routing", detail)


def _nearest(inputs: MoeInputs) -> list[Statement]:
    routing = inputs.routing
    if routing is None or not routing.layers or inputs.settings.routing_layers is not None:
        return []
    if len(routing.layers) == len(inputs.layers):
        return []
    detail = (
        f"the routing has {counted(len(routing.layers), 'layer', 'layers')} and the plan "
        f"{len(inputs.layers)} with experts: each reads the one whose number is nearest to its "
        "place among them (moe.routing_layers says which otherwise)"
    )
    return [Statement("routing_layers_nearest", detail)]


def _steps(inputs: MoeInputs) -> list[Statement]:
    steps = max(inputs.of(layer).steps for layer in inputs.layers)
    if steps == 1:
        return []
    detail = (
        f"the routing has {steps} steps: microbatch m reads step m modulo {steps}, on every "
        "data-parallel replica"
    )
    return [Statement("routing_steps", detail)]


def _standing_group(moe: PlanMoe) -> list[Statement]:
    groups = moe.inputs.groups[0].count
    differ = any(
        len({int(step) for step in made.step}) > 1
        for layer in moe.layers
        for run in layer.runs
        for made in (run.forward, run.backward)
        if made is not None
    )
    if not differ:
        return []
    detail = (
        f"the {groups} expert groups of a stage take different times: group {moe.group}, whose "
        "layers take longest in all, stands for every pipeline"
    )
    return [Statement("slowest_expert_group", detail)]


def _standing_home(moe: PlanMoe) -> list[Statement]:
    differ = any(
        len({one.forward.step.tobytes() for one in runs}) > 1
        for layer in moe.layers
        for runs in zip(*layer.by_home.values(), strict=True)
    )
    if not differ:
        return []
    detail = (
        "stages that are on two pipeline ranks take different times for their experts: of each the "
        "rank that takes longer over all microbatches stands for both"
    )
    return [Statement("slowest_pipeline_rank", detail)]


def _placement(inputs: MoeInputs) -> list[Statement]:
    experts = sorted({layer.experts for layer in inputs.layers})
    said = []
    if inputs.settings.experts_by_rank is None:
        detail = "experts stand on the ranks of their group in order"
        uneven = [count for count in experts if count % inputs.expert]
        if uneven:
            detail += f"; {uneven[0]} do not divide, so the first ranks have one more"
        said.append(Statement("expert_placement", detail))
        return said
    double = shared_ranks(inputs.placement(experts[0]))
    if double:
        expert, rank, count = double[0]
        more = f" (and {len(double) - 1} more like it)" if len(double) > 1 else ""
        detail = (
            f"expert {expert} stands {count} times on rank {rank} of its group{more}: replicas on "
            "one rank spread no load and cost memory"
        )
        said.append(Statement("replicas_share_rank", detail))
    return said


def _contains(includes: LayerCostsInclude, *, stated: bool) -> Statement:
    what = {
        LayerCostsInclude.NOTHING: "nothing of their experts",
        LayerCostsInclude.EXPERTS: "the products of their experts",
        LayerCostsInclude.EXPERTS_AND_EXCHANGE: "the products and the exchanges of their experts",
    }[includes]
    how = "as the plan says" if stated else "as assumed costs do"
    detail = f"the costs of layers with experts contain {what}, {how}"
    if includes is not LayerCostsInclude.NOTHING:
        detail += (
            ", of tokens that choose evenly: these are taken off as they are priced here, and what "
            "the plan's own routing takes is added"
        )
    return Statement("layer_costs_include", detail)
