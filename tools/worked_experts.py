"""The section of docs/worked-examples.md about a mixture of experts with one hot expert."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import msgspec

from service.core.amounts import largest
from service.core.estimates.iteration import plan_iteration
from service.core.estimates.memory import PlanMemory, plan_memory
from service.core.estimates.simulation import SimulatedPlan, simulate_plan
from service.core.memory.terms import Term
from service.core.plans.moe.results import MoeLayer, Pass
from service.core.plans.resolve import resolve
from service.core.topology.expand import expand
from service.core.units import exact_seconds
from service.formats.documents import model as models
from service.formats.documents import plan as plans
from service.formats.documents import routing as routings
from service.formats.documents import topology as topologies
from service.resources import resource_folder
from tools.tables import table

__all__ = ["MIXTURE", "mixture"]

Document = TypeVar("Document", bound=msgspec.Struct)

MIXTURE = "routed-experts"
_ROUTING = "four-ranks-eight-experts"


def mixture() -> str:
    """The same plan under its routing and with tokens that choose evenly."""
    even, hot = _simulated(evenly=True), _simulated(evenly=False)
    return f"""
## One hot expert

[`{MIXTURE}`](../examples/plans/{MIXTURE}.json) has two blocks with eight experts on each of
two stages. Eight ranks have one expert of each block, four on each host, and send their tokens to
them by NVLink and the network.
[`{_ROUTING}`](../examples/routings/{_ROUTING}.json) is an invented routing:
in the first two blocks expert 5 is asked for most, in the others expert 2. The port and products
of one rank hold back the other seven, and on each stage it is another rank.

{_table(even, hot)}

Rows are tokens, one for each of their experts on a rank. A microbatch reads step 0 or step 1 of the
routing in turn, so they are not all alike, and the schedule shows it. Each block has memory for the
most rows that any microbatch brings to a rank of it.

```console
$ curl -s http://127.0.0.1:8000/v1/comparisons -H 'Content-Type: application/json' -d '
{{"plans": [{{"name": "hot", "plan": "{MIXTURE}"}},
           {{"name": "even", "plan": "{MIXTURE}",
            "patch": {{"moe": {{"routing": null, "routing_layers": null}}}}}}],
 "allow_unlike": ["routing"]}}'
```
"""


def _simulated(*, evenly: bool) -> SimulatedPlan:
    plan = plans.to_core(_read("plans", MIXTURE, plans.PlanDocument))
    routing = None
    if evenly and plan.moe is not None:
        plan = replace(plan, moe=replace(plan.moe, routing=None, routing_layers=None))
    else:
        routing = routings.to_core(_read("routings", _ROUTING, routings.RoutingDocument))
    topology = _read("topologies", str(plan.topology), topologies.TopologyDocument)
    return simulate_plan(
        resolve(
            plan,
            cluster=expand(topologies.to_core(topology)).cluster,
            model=models.to_core(_read("models", str(plan.model), models.ModelDocument)),
            routing=routing,
        )
    )


def _read(kind: str, name: str, struct: type[Document]) -> Document:
    content = (resource_folder("examples") / kind / f"{name}.json").read_bytes()
    return msgspec.json.decode(content, type=struct)


def _table(even: SimulatedPlan, hot: SimulatedPlan) -> str:
    memories = [plan_memory(one.resolved, one.timeline.program) for one in (even, hot)]
    rows = [
        ("most rows of a rank, each block", *_each(even, hot, _most_rows)),
        ("experts of a block, forward, longest", *_each(even, hot, _forward)),
        ("iteration", *(_milliseconds(_iteration(one)) for one in (even, hot))),
        ("activations, most on a rank", *(_most(one, Term.ACTIVATIONS) for one in memories)),
        ("buffers of exchanges", *(_most(one, Term.DISPATCH_BUFFERS) for one in memories)),
    ]
    return table(("", "tokens choose evenly", "the routing"), rows)


def _each(
    even: SimulatedPlan, hot: SimulatedPlan, of: Callable[[MoeLayer], str]
) -> tuple[str, str]:
    found = []
    for one in (even, hot):
        moe = one.resolved.moe
        found.append("" if moe is None else ", ".join(of(layer) for layer in moe.layers))
    return found[0], found[1]


def _most_rows(layer: MoeLayer) -> str:
    rows = [int(load.rank_rows.max()) for run in layer.runs for load in run.groups]
    return f"{max(rows):,}"


def _forward(layer: MoeLayer) -> str:
    return f"{largest(layer.takes[Pass.FORWARD]) / 1e9:.3f} ms"


def _iteration(one: SimulatedPlan) -> float:
    found = plan_iteration(one).picoseconds
    if found is None:
        raise ValueError("the iteration of the example is not known")
    return exact_seconds(found)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def _most(memory: PlanMemory, wanted: Term) -> str:
    sizes = [term.maximum for rank in memory.ranks for term in rank.terms if term.term is wanted]
    return f"{max(sizes) / 1e6:,.1f} MB"
