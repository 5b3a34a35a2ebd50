"""What an answer says of experts and stages that use the same links."""

from service.core.errors import Statement
from service.core.plans.plan import Plan

__all__ = [
    "COLLECTIVES_BESIDE_EXCHANGES",
    "EXCHANGE_CONTENTION",
    "EXCHANGE_QUEUES",
    "exchanges_on_paths",
]

EXCHANGE_QUEUES = Statement(
    "exchange_queues",
    "all that the experts of a stage exchange in one operation, in all layers and groups, is one "
    "message that is ready when the operation starts; each link serves it while it has no transfer "
    "between stages, after what other stages exchange there already; alone it is there when the "
    "operation ends, so that what it waits for makes the operation longer",
)
COLLECTIVES_BESIDE_EXCHANGES = Statement(
    "collectives_on_links",
    "what the tensor, context and data ranks of a stage send one another, beside what experts "
    "exchange, occupies no link, so transfers between stages do not wait for it",
)
EXCHANGE_CONTENTION = Statement(
    "exchange_contention",
    "what experts exchange and what stages hand on do not slow each other where they share a link, "
    "nor do exchanges of different stages: link mode queues them",
)


def exchanges_on_paths(plan: Plan) -> bool:
    """Whether experts exchange anything over links that are known."""
    several = plan.degrees.expert * plan.degrees.expert_tensor > 1
    return plan.moe is not None and plan.topology is not None and several
