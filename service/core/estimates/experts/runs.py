"""The exchanges of one layer in one step of the routing, and what bounds them."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from service.core.estimates.experts.facts import (
    Exchange,
    ExchangeFacts,
    StepBounds,
    StepFacts,
    in_turn,
)
from service.core.models.dtypes import DType
from service.core.moe.compute import Experts, least_expert_times
from service.core.moe.exchange import ExchangeCost, GroupExchange
from service.core.moe.exchange_bounds import ExchangeBounds, bound_exchange, group_bisections
from service.core.moe.imbalance import Imbalance, imbalance, rows_by_node
from service.core.moe.step import exchanged_together, overlapped_bound_picoseconds
from service.core.moe.traffic import Copies, Traffic
from service.core.plans.moe.exchanges import group_vertices, layer_exchanges
from service.core.plans.moe.flow import StageFlow
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs
from service.core.plans.moe.results import ExpertPass
from service.core.profiles.roofline import Roofline
from service.core.topology.bisection import Bisection
from service.core.topology.flows.bounds import FlowRouting
from service.core.topology.flows.study import FlowStudy

__all__ = ["Run"]

Int64Array = npt.NDArray[np.int64]


class Run:
    """One layer in one step of the routing, on the expert groups of a pipeline rank.

    `group` is the number of the one that stands for all. `peak` is what devices give at most, None
    where that is not known of products, which are of `dtype`. Bounds are found once, also where
    forward and backward send the same bytes; that of a concurrent flow `with_flow` alone.
    """

    def __init__(
        self,
        inputs: MoeInputs,
        layer: ExpertLayer,
        home: int,
        group: int,
        flow: StageFlow,
        study: FlowStudy | None,
        peak: Roofline | None,
        dtype: DType,
        *,
        with_flow: bool,
    ) -> None:
        self._with_flow = with_flow
        self._inputs, self._layer, self._group, self._study = inputs, layer, group, study
        self._groups = inputs.groups[home]
        self._peak, self._dtype = peak, dtype
        self._served = flow.groups[group].served
        self.traffic: Traffic = flow.groups[group].traffic
        self._exchanges: dict[Exchange, tuple[GroupExchange, ...]] = {}
        vertices = group_vertices(study, self._groups.devices)
        if vertices:
            made = layer_exchanges(inputs, layer, flow, vertices)
            self._exchanges = {one: getattr(made, one.value) for one in Exchange}
        self._bounds: dict[tuple[Exchange | None, int, int], ExchangeBounds] = {}

    @cached_property
    def bisection(self) -> Bisection | None:
        """Of the devices of the group; None without a topology, and of a single one."""
        if self._study is None or not self._exchanges:
            return None
        mine = self._exchanges[Exchange.FORWARD_DISPATCH][self._group]
        return group_bisections(self._study, [mine])[0]

    def hosts(self, rank_rows: Int64Array) -> Imbalance | None:
        """How unevenly rows fall on hosts; None without a topology.

        Ranks that share experts compute the same rows: a host has those of each of its ranks.
        """
        if self._groups.devices is None:
            return None
        rows = np.repeat(rank_rows, self._inputs.expert_tensor)
        numbers = np.unique(self._groups.nodes[self._group], return_inverse=True)[1]
        return imbalance(rows_by_node(rows, numbers))

    def step(self, made: ExpertPass, *, forward: bool) -> StepFacts:
        """A way through the layer and what no overlap of its parts goes below."""
        there, back = (
            (Exchange.FORWARD_DISPATCH, Exchange.FORWARD_COMBINE)
            if forward
            else (Exchange.BACKWARD_DISPATCH, Exchange.BACKWARD_COMBINE)
        )
        group = self._group
        return StepFacts(
            dispatch=self._exchange(there, made.dispatch),
            combine=self._exchange(back, made.combine),
            packing=int(made.packing[group]),
            products=int(made.products[group]),
            unpacking=int(made.unpacking[group]),
            fallback=int(made.fallback[group]),
            in_turn=in_turn(made, group),
            step=int(made.step[group]),
            bounds=self._overlapped(there, back, forward=forward),
        )

    def _exchange(self, exchange: Exchange, cost: ExchangeCost | None) -> ExchangeFacts:
        traffic, size = self.traffic, self._copy_bytes(exchange)
        sent, received = traffic.sent * size, traffic.received * size
        if exchange.is_combine:
            sent, received = received, sent
        least, most = (
            None if bounds is None else size * _moved(bounds)
            for bounds in (traffic.fewest, traffic.most)
        )
        nodes = self._groups.nodes[self._group]
        apart = nodes[:, np.newaxis] != nodes
        crossing = sum(int(stage.between[apart].sum()) for stage in traffic.stages)
        return ExchangeFacts(
            exchange=exchange,
            copy_bytes=size,
            sent=sent,
            received=received,
            fewest=least,
            most=most,
            between_hosts=None if self._groups.devices is None else size * crossing,
            logical=size * int(traffic.logical.sum()),
            cost=cost,
            bounds=self._bounded(exchange),
        )

    def _copy_bytes(self, exchange: Exchange) -> int:
        payload = getattr(self._inputs.settings.payloads, exchange.value)
        size: int = payload.bytes_of(self._layer.hidden_size)
        return size

    def _bounded(self, exchange: Exchange) -> ExchangeBounds | None:
        """The same bytes the same way have the same bounds, forward and backward."""
        if self._study is None or not self._exchanges:
            return None
        way = Exchange.FORWARD_COMBINE if exchange.is_combine else Exchange.FORWARD_DISPATCH
        key = way, self._copy_bytes(exchange), 0
        if key not in self._bounds:
            self._bounds[key] = bound_exchange(
                self._study, self._exchanges[exchange], with_flow=self._with_flow
            )
        return self._bounds[key]

    def _least_products(self, *, forward: bool) -> int:
        """What the fullest rank computes at least; a backward has twice the FLOPs of a forward."""
        if self._peak is None:
            return 0
        layer, placement = self._layer, self._served.placement
        width = layer.width // self._inputs.expert_tensor
        experts = Experts(layer.hidden_size, width, layer.gated, self._dtype)
        rows = self._served.slot_rows * (1 if forward else 2)
        least = least_expert_times(experts, self._peak, rows, placement.slot_rank, placement.ranks)
        return int(least.max(initial=0))

    def _overlapped(self, there: Exchange, back: Exchange, *, forward: bool) -> StepBounds | None:
        if self._study is None or not self._exchanges:
            return None
        key = None, self._copy_bytes(there), self._copy_bytes(back)
        if key not in self._bounds:
            both = exchanged_together(self._exchanges[there], self._exchanges[back])
            self._bounds[key] = bound_exchange(self._study, both, with_flow=False)
        found = self._bounds[key]
        least = self._least_products(forward=forward)
        pinned, any_route = (
            overlapped_bound_picoseconds(found.picoseconds(routing), least)
            for routing in (FlowRouting.PINNED, FlowRouting.ANY)
        )
        return StepBounds(pinned, any_route)


def _moved(stages: tuple[Copies, ...]) -> int:
    return sum(int(stage.sent.sum()) for stage in stages)
