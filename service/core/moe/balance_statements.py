"""What an answer about balance takes for granted, and what it leaves out."""

from collections.abc import Iterator

from service.core.errors import Statement
from service.core.moe.balance_question import BalanceQuestion
from service.core.moe.overflow import CapacityScope, OverflowPolicy
from service.core.moe.routing import Routing

__all__ = ["balance_assumptions", "balance_gaps"]

_EVEN_SHARES = Statement(
    "replicas_share_evenly",
    "advice divides the load of an expert evenly over its replicas, all steps together",
)
_CONTIGUOUS = Statement(
    "contiguous_placement",
    "the request names no placement: experts stand on the ranks in their order",
)
_RECORDED_TOKENS = Statement(
    "tokens_as_recorded",
    "the request does not say how many tokens a rank brings: all that were recorded of a layer in "
    "a step are divided over the ranks, or are those of its sources where there are as many",
)
_DROPLESS = Statement(
    "no_capacity", "the request names no capacity: experts serve all that they are asked for"
)
_EMPTIEST_FIRST = Statement(
    "rerouted_to_the_emptiest",
    "rerouted tokens go to the experts with the fewest tokens: which take them no routing says",
)
_SHARED_OUT = Statement(
    "capacity_shared_out",
    "the places of an expert are shared out among the sources by what they ask of it",
)
_OWN_UNIT = Statement(
    "loads_in_their_own_unit",
    "rows are in the unit of the recorded loads, divided evenly over replicas",
)
_NO_EXCHANGE = Statement(
    "exchange",
    "who is near to whom, and what copies of tokens take on links: rows are counted, not sent",
)
_NO_MOVE = Statement(
    "moving_experts", "what it takes to bring experts to another placement, and its memory"
)
_NO_DROPS = Statement("capacity", "how many tokens a capacity drops, as no number of them is known")


def balance_assumptions(routing: Routing, question: BalanceQuestion) -> Iterator[Statement]:
    """Of one question about one routing."""
    yield _EVEN_SHARES
    if question.experts_by_rank is None:
        yield _CONTIGUOUS
    if routing.top_k is None:
        yield _OWN_UNIT
        return
    if question.tokens_per_rank is None:
        yield _RECORDED_TOKENS
    capacities = [question.capacity, question.swept or question.capacity]
    if question.capacity.overflow is OverflowPolicy.DROPLESS:
        yield _DROPLESS
    if any(one.overflow is OverflowPolicy.REROUTE for one in capacities):
        yield _EMPTIEST_FIRST
    if any(one.scope is CapacityScope.GLOBAL for one in capacities):
        yield _SHARED_OUT


def balance_gaps(routing: Routing) -> Iterator[Statement]:
    """What no number of the answer has in it."""
    yield _NO_EXCHANGE
    yield _NO_MOVE
    if routing.top_k is None:
        yield _NO_DROPS
