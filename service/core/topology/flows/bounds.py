"""How long many transfers take at least, by kind of bound, under one routing policy.

port <= cut <= concurrent flow <= any schedule: each kind looks at more than the one before, and a
link that can't be avoided is a cut of one edge. Nothing is simulated, and capacities are nominal.
Bounds of one policy say nothing of another: `any` allows more routes than `pinned`.
"""

from enum import StrEnum
from fractions import Fraction

from service.core.topology.flows.demands import CollectiveKind, Exchange, Gathering, Messages
from service.core.topology.flows.exchanges import (
    any_exchange,
    any_messages,
    pinned_exchange,
    pinned_messages,
)
from service.core.topology.flows.gatherings import any_gathering, pinned_gathering
from service.core.topology.flows.results import FlowBounds
from service.core.topology.flows.study import FlowStudy

__all__ = ["FlowRouting", "bound_exchange", "bound_gathering", "bound_messages"]


class FlowRouting(StrEnum):
    """Which routes traffic may take.

    `pinned`: the one path of each pair, see `service.core.topology.paths`. `any`: all that are
    allowed, divided as one likes, see `service.core.topology.flows.routes`.
    """

    PINNED = "pinned"
    ANY = "any"


def bound_messages(study: FlowStudy, messages: Messages, routing: FlowRouting) -> FlowBounds:
    """Bounds of single messages that all have to arrive."""
    find = pinned_messages if routing is FlowRouting.PINNED else any_messages
    return find(study, messages)


def bound_exchange(study: FlowStudy, exchange: Exchange, routing: FlowRouting) -> FlowBounds:
    """Bounds of an all-to-all with equal blocks."""
    find = pinned_exchange if routing is FlowRouting.PINNED else any_exchange
    # Bounds grow in proportion to the bytes, so those of one byte serve all sizes.
    key = routing, CollectiveKind.ALL_TO_ALL, exchange.vertices.tobytes()
    unit = Exchange(exchange.vertices, Fraction(1))
    return study.keep(key, lambda: find(study, unit)).times(exchange.pair_bytes)


def bound_gathering(
    study: FlowStudy,
    gathering: Gathering,
    routing: FlowRouting,
    *,
    in_network_reduction: bool = False,
) -> FlowBounds:
    """Bounds of an all-gather, reduce-scatter or all-reduce, whatever its algorithm.

    Reduction in the network can shorten an all-reduce; to the others it makes no difference.
    """
    find = pinned_gathering if routing is FlowRouting.PINNED else any_gathering
    key = routing, gathering.kind, gathering.vertices.tobytes(), in_network_reduction
    unit = Gathering(gathering.kind, gathering.vertices, Fraction(1))
    made = study.keep(key, lambda: find(study, unit, in_network_reduction=in_network_reduction))
    return made.times(gathering.message_bytes)
