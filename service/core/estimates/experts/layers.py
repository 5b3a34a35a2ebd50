"""From the experts of a resolved plan to the facts of each layer, with bounds on its topology."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.core.errors import Fault, FaultCode, WorkBudgetExceeded
from service.core.estimates.experts.facts import EvenFacts, LayerFacts
from service.core.estimates.experts.repricing import (
    Repriced,
    class_microbatches,
    stage_devices,
)
from service.core.estimates.experts.runs import Run
from service.core.moe.imbalance import imbalance
from service.core.plans.moe.flow import stage_flow
from service.core.plans.moe.inputs import ExpertGroups
from service.core.plans.moe.rates import nominal_rates, product_dtype
from service.core.plans.moe.results import LayerRun, MoeLayer, PlanMoe
from service.core.plans.moe.work import RunKey, expert_units, run_key
from service.core.plans.plan import ResolvedPlan
from service.core.profiles.roofline import Roofline
from service.core.topology.flows.study import flow_study

__all__ = ["MOST_BOUNDED_UNITS", "ExpertReport", "expert_report"]

# Bounds look at each entry of a matrix of pairs of ranks some five times as often as pricing does.
MOST_BOUNDED_UNITS = 40_000_000

# Layers x size classes of microbatches that are reported of, a millisecond each.
MOST_REPORTED = 4_000

# Different runs whose concurrent flow is looked for: two to four linear programs each, of up to a
# third of a second. Those beyond have cuts.
MOST_FLOW_RUNS = 8


@dataclass(frozen=True, slots=True, eq=False)
class ExpertReport:
    """The layers of a plan in execution order, each with its different runs."""

    moe: PlanMoe
    layers: tuple[tuple[LayerFacts, ...], ...]

    @property
    def runs(self) -> tuple[LayerFacts, ...]:
        """Of all layers, in order."""
        return tuple(facts for layer in self.layers for facts in layer)

    def groups(self, stage: int) -> ExpertGroups:
        """The expert groups that a stage is reported of."""
        return self.moe.inputs.groups[self.moe.stages[stage].home]


def expert_report(resolved: ResolvedPlan, moe: PlanMoe) -> ExpertReport:
    """What every layer with experts sends, computes and waits for. Layers alike are looked at once.

    `moe` are the experts of the plan; where its tokens do not choose evenly, what they would take
    if they did stands beside. Raises `WorkBudgetExceeded` where there are too many, or bounding
    all exchanges is too much work.
    """
    reported = sum(len(layer.runs) for layer in moe.layers)
    if reported > MOST_REPORTED:
        detail = (
            f"{reported} runs of layers with experts, each layer in each step of the routing; one "
            f"answer is of at most {MOST_REPORTED}: use fewer layers or steps; an estimate prices "
            "them without bounds"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("moe",), detail)])
    units = expert_units(moe.inputs)
    if units > MOST_BOUNDED_UNITS:
        detail = (
            f"the expert exchanges of this plan are {units} units of work to bound; one answer may "
            f"take {MOST_BOUNDED_UNITS}: let fewer layers or steps of the routing differ, or use a "
            "smaller expert degree; an estimate prices them without bounds"
        )
        raise WorkBudgetExceeded([Fault(FaultCode.WORK_BUDGET, ("moe",), detail)])
    runs: dict[tuple[RunKey, Roofline | None], Run] = {}
    evenly = None if moe.inputs.is_uniform else Repriced.evenly(resolved, moe)
    peaks = _peaks(resolved, moe)
    return ExpertReport(
        moe,
        tuple(
            _layer(resolved, moe, layer, runs, peaks[layer.layer.stage], evenly)
            for layer in moe.layers
        ),
    )


def _peaks(resolved: ResolvedPlan, moe: PlanMoe) -> Sequence[Roofline | None]:
    """What the devices of each stage give at most; None where products follow a measured curve."""
    settings, stages = moe.inputs.settings, len(moe.stages)
    if settings.compute.curve:
        return (None,) * stages
    devices = stage_devices(resolved, moe)
    return nominal_rates(resolved.plan, settings, resolved.model, stages, devices, resolved.cluster)


def _layer(
    resolved: ResolvedPlan,
    moe: PlanMoe,
    layer: MoeLayer,
    runs: dict[tuple[RunKey, Roofline | None], Run],
    peak: Roofline | None,
    evenly: Repriced | None,
) -> tuple[LayerFacts, ...]:
    """One entry for each different run of a layer."""
    microbatches = class_microbatches(resolved)
    home = moe.stages[layer.layer.stage].home
    even = None if evenly is None else evenly.runs(layer)
    found: dict[RunKey, LayerFacts] = {}
    for number in range(len(layer.runs)):
        key = run_key(moe.inputs, layer.layer, number, home)
        if key in found:
            more = found[key].microbatches + microbatches[number]
            found[key] = replace(found[key], microbatches=more)
            continue
        if (key, peak) not in runs:
            cluster = resolved.cluster
            flow = stage_flow(moe.inputs, layer.layer, number, home)
            study = None if cluster is None else flow_study(cluster)
            dtype = product_dtype(resolved.plan, resolved.model)
            runs[key, peak] = Run(
                moe.inputs,
                layer.layer,
                home,
                moe.group,
                flow,
                study,
                peak,
                dtype,
                with_flow=len(runs) < MOST_FLOW_RUNS,
            )
        facts = _facts(moe, layer, runs[key, peak], number, microbatches[number])
        if even is not None:
            copy_bytes = facts.forward.dispatch.copy_bytes
            facts = replace(facts, even=_even(even[number], moe.group, copy_bytes))
        found[key] = facts
    return tuple(found.values())


def _facts(
    moe: PlanMoe, layer: MoeLayer, run: Run, size_class: int, microbatches: int
) -> LayerFacts:
    made = layer.runs[size_class]
    load = made.groups[moe.group]
    return LayerFacts(
        layer=layer.layer,
        routing_step=moe.inputs.steps[size_class] % moe.inputs.of(layer.layer).steps,
        microbatches=microbatches,
        tokens=moe.inputs.tokens[size_class],
        repeats=layer.repeats,
        load=load,
        experts=imbalance(load.expert_rows),
        ranks=imbalance(load.rank_rows),
        hosts=run.hosts(load.rank_rows),
        traffic=run.traffic,
        forward=run.step(made.forward, forward=True),
        backward=None if made.backward is None else run.step(made.backward, forward=False),
        bisection=run.bisection,
        even=None,
    )


def _even(run: LayerRun, group: int, copy_bytes: int) -> EvenFacts:
    load, backward = run.groups[group], run.backward
    return EvenFacts(
        most_rank_rows=int(load.rank_rows.max(initial=0)),
        wire_bytes=copy_bytes * int(load.sent.sum()),
        forward=int(run.forward.step[group]),
        backward=None if backward is None else int(backward.step[group]),
    )
