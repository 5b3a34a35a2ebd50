"""The section of docs/worked-examples.md that sets two plans of one model side by side."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeVar

import msgspec

from service.core.estimates.comparison import (
    ComparedTerms,
    Comparison,
    compare_terms,
    compared_terms,
)
from service.core.estimates.simulation import simulate_plan
from service.core.plans.plan import Boundary, ResolvedPlan, ResolvedStage
from service.core.plans.resolve import resolve
from service.core.topology.expand import expand
from service.core.units import exact_seconds
from service.formats.documents import model as models
from service.formats.documents import plan as plans
from service.formats.documents import profile as profiles
from service.formats.documents import topology as topologies
from service.resources import resource_folder
from tools.tables import table

__all__ = ["BEFORE", "moved_mlp"]

Document = TypeVar("Document", bound=msgspec.Struct)

BEFORE, AFTER = "moved-mlp-before", "moved-mlp-after"
STAGES = (1, 2)


def moved_mlp() -> str:
    """The move of one MLP from stage 2 to stage 1, and what it was due to."""
    found = compare_terms(_terms(BEFORE), _terms(AFTER))
    return f"""
## Moving one MLP, explained

Plans of one model, priced by one profile on one topology:

- [`{BEFORE}`](../examples/plans/{BEFORE}.json)
- [`{AFTER}`](../examples/plans/{AFTER}.json)

Stage 2 holds one attention more than the others and recomputes two of its MLPs in the backward. Its
receive takes 1 ms. Its first MLP moves to the end of stage 1, where it is not recomputed.

```console
$ curl -s http://127.0.0.1:8000/v1/comparisons -H 'Content-Type: application/json' -d '
{{"plans": [{{"name": "before", "plan": "{BEFORE}"}},
           {{"name": "after", "plan": "{AFTER}"}}]}}'
```

{_stage_table(found)}

The same bytes cross between the two stages before and after: the output of an attention, then that
of an MLP. So the receive takes as long as it did, and what is gained is compute:

{_effect_table(found)}

Given the times of stage 1 alone, the first plan would take {_alone(found, 1)}, given those of
stage 2 alone {_alone(found, 2)}. Both together gain less: stage 1 is the slowest now.
"""


def _terms(name: str) -> ComparedTerms:
    document = _read("plans", name, plans.PlanDocument)
    plan = plans.to_core(document)
    return compared_terms(
        simulate_plan(
            resolve(
                plan,
                cluster=expand(
                    topologies.to_core(
                        _read("topologies", str(plan.topology), topologies.TopologyDocument)
                    )
                ).cluster,
                model=models.to_core(_read("models", str(plan.model), models.ModelDocument)),
                profile=profiles.to_core(
                    _read("profiles", str(plan.profile), profiles.ProfileDocument)
                ),
            )
        )
    )


def _read(kind: str, name: str, of: type[Document]) -> Document:
    content = (resource_folder("examples") / kind / f"{name}.json").read_bytes()
    return msgspec.json.decode(content, type=of)


def _stage_table(found: Comparison) -> str:
    sides = [(stage, terms) for stage in STAGES for terms in (found.before, found.after)]

    def row(what: str, of: Callable[[ComparedTerms, int], str]) -> list[str]:
        return [what, *(of(terms, stage) for stage, terms in sides)]

    def of_stage(write: Callable[[ResolvedStage], str]) -> Callable[[ComparedTerms, int], str]:
        return lambda terms, stage: write(_resolved(terms).stages[stage])

    def of_receive(write: Callable[[Boundary], str]) -> Callable[[ComparedTerms, int], str]:
        return lambda terms, stage: write(_resolved(terms).boundaries[stage - 1])

    rows = [
        row("layers", of_stage(lambda stage: str(len(stage.layers)))),
        row(
            "work for a microbatch, ms", lambda terms, stage: _ms(terms.cadence.stages[stage].work)
        ),
        row("of it recomputation, ms", of_stage(lambda stage: _ms(stage.recompute_picoseconds))),
        row(
            "parameter memory, MB",
            lambda terms, stage: _mb((_resolved(terms).weights or ())[stage].parameter_bytes),
        ),
        row(
            "saved activations of a microbatch, MB",
            of_stage(lambda stage: _mb(stage.activation_bytes)),
        ),
        row("made anew by recomputation, MB", of_stage(lambda stage: _mb(stage.recomputed_bytes))),
        row(
            "live activations at the peak, MB",
            lambda terms, stage: _mb(terms.live[stage].peak_bytes),
        ),
        row("received, MB", of_receive(lambda boundary: _mb(boundary.forward_bytes))),
        row("receive, ms", of_receive(lambda boundary: _ms(boundary.forward_picoseconds))),
    ]
    heading = ["", *(f"stage {stage} {when}" for stage in STAGES for when in ("before", "after"))]
    return table(heading, rows)


def _effect_table(found: Comparison) -> str:
    attribution = found.attribution
    if attribution is None or found.before.iteration is None or found.after.iteration is None:
        raise ValueError("the worked example has no iteration to explain")
    rows = [
        ["iteration before", _ms(found.before.iteration)],
        *([cause.value, _ms(effect)] for cause, effect in attribution.effects.items()),
        ["iteration after", _ms(found.after.iteration)],
    ]
    return table(["", "ms"], rows)


def _alone(found: Comparison, stage: int) -> str:
    if found.attribution is None:
        raise ValueError("the worked example has no difference to share out")
    effect = found.attribution.stages[stage]
    return f"{_ms(abs(effect))} ms {'longer' if effect > 0 else 'less'}"


def _resolved(terms: ComparedTerms) -> ResolvedPlan:
    return terms.simulated.resolved


def _ms(picoseconds: Any) -> str:
    """Of one number; microbatches are alike in a worked example."""
    return f"{exact_seconds(Fraction(picoseconds)) * 1000:.6g}"


def _mb(size: Any) -> str:
    return f"{int(size) / 1e6:.1f}"
