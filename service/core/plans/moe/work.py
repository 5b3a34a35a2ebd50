"""How much work the experts of a plan are, known before it is done."""

from collections.abc import Iterable

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.moe.assignments import RoutingLevel
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs

__all__ = [
    "MOST_EXPERT_UNITS",
    "MOST_RUNS",
    "RunKey",
    "check_expert_work",
    "expert_units",
    "run_key",
    "run_keys",
]

# Runs of a layer that are alike are made once: its shape, its layer of the routing, step, tokens,
# and the pipeline rank whose groups it is of.
RunKey = tuple[int, ...]

# Of one plan: some seconds of one core. A unit is an entry of a matrix of pairs of ranks, or of
# sources and experts, or a choice of a token.
MOST_EXPERT_UNITS = 200_000_000

# What of a run does not grow with its ranks takes some milliseconds: seconds for so many.
MOST_RUNS = 1_000

# Layers x size classes of microbatches, each looked at some times, about a tenth of a millisecond
# in all.
_MOST_LOOKED_AT = 30_000

# Layers are added up and said one by one, half a millisecond each.
_MOST_LAYERS = 5_000

# A matrix of pairs is laid on the links of a topology for each of the four exchanges.
_EXCHANGES = 4


def run_key(inputs: MoeInputs, layer: ExpertLayer, size_class: int, home: int) -> RunKey:
    """What a run of a layer follows from, besides what is the same for all of the plan."""
    read = -1 if layer.routing_layer is None else layer.routing_layer
    return (
        home,
        read,
        inputs.steps[size_class] % inputs.of(layer).steps,
        inputs.tokens[size_class],
        layer.hidden_size,
        layer.experts,
        layer.top_k,
        layer.width,
        layer.gated,
        layer.shared_width or 0,
    )


def run_keys(inputs: MoeInputs) -> dict[RunKey, tuple[ExpertLayer, int, int]]:
    """The different runs of a plan, each with a layer, a size class and a home that it is of."""
    found: dict[RunKey, tuple[ExpertLayer, int, int]] = {}
    for layer in inputs.layers:
        for home in inputs.homes[layer.stage]:
            for size_class in range(len(inputs.tokens)):
                key = run_key(inputs, layer, size_class, home)
                found.setdefault(key, (layer, size_class, home))
    return found


def expert_units(inputs: MoeInputs) -> int:
    """Of all different runs of a plan's layers with experts."""
    return sum(_of_run(inputs, *run) for run in run_keys(inputs).values())


def _of_run(inputs: MoeInputs, layer: ExpertLayer, size_class: int, home: int) -> int:
    groups, routing = inputs.groups[home], inputs.of(layer)
    pairs = _EXCHANGES * groups.count * groups.width**2
    asked = groups.count * groups.width * layer.experts
    choices = 0
    if routing.level is RoutingLevel.TOKENS:
        choices = groups.count * groups.width * inputs.tokens[size_class] * layer.top_k
    return pairs + asked + choices


def check_expert_work(several: Iterable[MoeInputs], most: int = MOST_EXPERT_UNITS) -> None:
    """Raise `WorkBudgetExceeded` where all together are more than one request may take."""
    found = list(several)
    layers = len(found[0].layers)
    if layers > _MOST_LAYERS:
        detail = f"{layers} layers with experts; a plan may have {_MOST_LAYERS}"
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("moe",), detail)])
    looked_at = sum(len(inputs.layers) * len(inputs.tokens) for inputs in found)
    if looked_at > _MOST_LOOKED_AT:
        detail = (
            f"{looked_at} runs of layers with experts, each layer in each step of the routing; at "
            f"most {_MOST_LOOKED_AT} are looked at: use fewer steps, or sequence lengths"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("moe",), detail)])
    runs = sum(len(run_keys(inputs)) for inputs in found)
    if runs > MOST_RUNS:
        detail = (
            f"{runs} different runs of layers with experts; one plan may have {MOST_RUNS}: let "
            "fewer layers or steps of the routing differ"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("moe",), detail)])
    units = sum(expert_units(inputs) for inputs in found)
    if units <= most:
        return
    widest = max(groups.width for groups in found[0].groups)
    detail = (
        f"{runs} different runs of layers with experts, of groups of {widest} ranks, are {units} "
        f"units of work; one plan may take {most}: let fewer layers or steps of the routing "
        "differ, or use a smaller expert degree"
    )
    raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("moe",), detail)])
