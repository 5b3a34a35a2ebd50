"""What an answer with a plan's memory says of itself, beside what resolving the plan said."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.core.estimates.memory import PlanMemory
from service.core.memory.terms import Term, TermOrigin
from service.core.plans import memory_statements, statements
from service.core.plans.plan import ResolvedPlan, Statement
from service.core.plans.schedule import has_backward

__all__ = ["NOTHING_SAID", "MemorySays", "memory_says"]

# Left out by whatever does not count memory.
_REPRESENTED_HERE = frozenset(
    said.code
    for said in (memory_statements.MEMORY, statements.TRAINING, statements.PARAMETER_COUNTS)
)


@dataclass(frozen=True, slots=True)
class MemorySays:
    """What is assumed, represented and left out of memory.

    `represented_here` are codes of what resolving the plan left out and its memory does not.
    """

    assumptions: tuple[Statement, ...]
    represented: tuple[Statement, ...]
    not_represented: tuple[Statement, ...]
    represented_here: frozenset[str]


# Where memory is not counted.
NOTHING_SAID = MemorySays((), (), (), frozenset())


def memory_says(resolved: ResolvedPlan, memory: PlanMemory) -> MemorySays:
    """Of the memory of a plan."""
    assumed = [memory_statements.MEMORY_RULES]
    if resolved.plan.training is not None and has_backward(resolved.plan):
        assumed += memory_statements.training_defaults(resolved.plan.training)
    assumed += _experts(resolved)
    split = [0 if one is None else one.assumed_split for one in resolved.rank_weights]
    if any(split):
        assumed.append(memory_statements.assumed_split(sum(split)))
    defaults = [
        term.value
        for term in Term
        if any(
            one.term is term and one.origin is TermOrigin.DEFAULT
            for rank in memory.ranks
            for one in rank.terms
        )
    ]
    if defaults:
        assumed.append(memory_statements.memory_defaults(defaults))
    if has_backward(resolved.plan) and not any(stage.logits for stage in resolved.stages):
        assumed.append(memory_statements.LOGITS_CONTAINED)
    return MemorySays(
        assumptions=tuple(assumed),
        represented=(memory_statements.MEMORY_TERMS,),
        not_represented=tuple(
            memory_statements.unknown_term(one.term.value, one.reason) for one in memory.unknown
        ),
        represented_here=_REPRESENTED_HERE,
    )


def _experts(resolved: ResolvedPlan) -> Iterator[Statement]:
    moe = resolved.moe
    if moe is None:
        return
    yield memory_statements.expert_rows(moe.inputs.settings)
    stages = [resolved.stages[experts.stage] for experts in moe.stages if experts.layers]
    # Where some layers of a stage were measured, nobody can tell which rows these had.
    standing = sum(
        stage.activation_bytes is not None and stage.activations_assumed < len(stage.layers or "?")
        for stage in stages
    )
    if standing and has_backward(resolved.plan):
        yield memory_statements.measured_expert_activations(standing)
