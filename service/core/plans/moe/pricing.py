"""What a layer with experts takes: exchanges on the topology, products on the devices, steps."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput, Statement
from service.core.models.graph import Model
from service.core.moe.compute import Experts, Packing, Products, expert_times
from service.core.moe.exchange import ExchangeCost, GroupExchange, price_exchange
from service.core.moe.settings import Dispatcher
from service.core.moe.step import LayerParts, step_picoseconds
from service.core.plans.moe.exchanges import (
    check_paths,
    exchanges_assumed,
    group_vertices,
    layer_exchanges,
)
from service.core.plans.moe.flow import GroupFlow, StageFlow, stage_flow
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs
from service.core.plans.moe.rates import product_dtype, products_assumed, stage_rates
from service.core.plans.moe.results import ExpertPass, GroupLoad, LayerRun
from service.core.plans.moe.work import RunKey, run_key
from service.core.plans.plan import Plan
from service.core.plans.schedule import has_backward, splits_backward
from service.core.topology.cluster import Cluster
from service.core.topology.flows.study import flow_study
from service.core.units import to_picoseconds, to_seconds

__all__ = ["Pricing"]

Int64Array = npt.NDArray[np.int64]

# Exchanges of a forward, and of a backward: there, and back.
_Way = tuple[ExchangeCost | None, ExchangeCost | None]


class Pricing:
    """Prices the layers of one plan; what is alike is priced once.

    `devices` has those of each stage, None without a topology. Raises `InvalidInput` for rates that
    nobody gives, and for devices of one expert group that no path joins.
    """

    def __init__(
        self,
        plan: Plan,
        model: Model | None,
        inputs: MoeInputs,
        devices: Sequence[Sequence[str]] | None,
        cluster: Cluster | None,
    ) -> None:
        self._plan, self._model, self._inputs = plan, model, inputs
        stages = len(inputs.homes)
        self._rates = stage_rates(plan, inputs.settings, model, stages, devices, cluster)
        kinds = {rates: number for number, rates in enumerate(dict.fromkeys(self._rates))}
        self._kind_of_rates = [kinds[rates] for rates in self._rates]
        self._study = None if cluster is None else flow_study(cluster)
        self._vertices = [group_vertices(self._study, each.devices) for each in inputs.groups]
        self._runs: dict[RunKey, LayerRun] = {}
        self._notes: dict[Statement, None] = {}
        self._extrapolated = False
        self._exchanging: set[int] = set()  # numbers of links
        if self._study is not None:
            check_paths(self._study, inputs, self._vertices)

    @property
    def notes(self) -> tuple[Statement, ...]:
        """What bringing tokens to the ranks took for granted, of all runs so far."""
        return tuple(self._notes)

    @property
    def assumptions(self) -> tuple[Statement, ...]:
        """What was taken for granted of exchanges and products, of all runs so far."""
        products = products_assumed(
            self._plan, self._inputs.settings, self._model, extrapolated=self._extrapolated
        )
        if self._study is None or not self._exchanging:
            return products
        return exchanges_assumed(self._study.network, self._exchanging), *products

    def run(self, layer: ExpertLayer, size_class: int, home: int) -> LayerRun:
        """One layer in a microbatch of a size class, on the groups of a pipeline rank."""
        key = *run_key(self._inputs, layer, size_class, home), self._kind_of_rates[layer.stage]
        if key not in self._runs:
            try:
                self._runs[key] = self._priced(layer, size_class, home)
            except InvalidInput as invalid:
                raise InvalidInput(_of_layer(layer, fault) for fault in invalid.faults) from invalid
        return self._runs[key]

    def _priced(self, layer: ExpertLayer, size_class: int, home: int) -> LayerRun:
        flow = stage_flow(self._inputs, layer, size_class, home)
        self._notes |= dict.fromkeys(flow.notes)
        loads = {id(one): _load(one) for one in flow.groups}
        forward, backward = self._exchanged(layer, flow, home)
        return LayerRun(
            tuple(loads[id(one)] for one in flow.groups),
            self._pass(layer, flow, forward, backward=False),
            self._pass(layer, flow, backward, backward=True) if has_backward(self._plan) else None,
        )

    def _exchanged(self, layer: ExpertLayer, flow: StageFlow, home: int) -> tuple[_Way, _Way]:
        """The exchanges of a forward and of a backward; those of equal bytes are priced once."""
        study, settings = self._study, self._inputs.settings
        if study is None:
            return (None, None), (None, None)
        exchanges = layer_exchanges(self._inputs, layer, flow, self._vertices[home])

        def price(groups: tuple[GroupExchange, ...]) -> ExchangeCost:
            cost = price_exchange(study, groups, efficiency=settings.exchange_efficiency)
            self._exchanging |= set(cost.loads.links.tolist())
            return cost

        there, back = price(exchanges.forward_dispatch), price(exchanges.forward_combine)
        if not has_backward(self._plan):
            return (there, back), (None, None)
        of = settings.payloads
        again = of.backward_dispatch == of.forward_dispatch
        gradients = there if again else price(exchanges.backward_dispatch)
        again = of.backward_combine == of.forward_combine
        return (there, back), (gradients, back if again else price(exchanges.backward_combine))

    def _pass(
        self, layer: ExpertLayer, flow: StageFlow, way: _Way, *, backward: bool
    ) -> ExpertPass:
        """One way through the experts, for each group; groups that are alike take the same."""
        of_group: dict[int, tuple[int, int, int, int, int, int]] = {}
        for one in flow.groups:
            if id(one) not in of_group:
                of_group[id(one)] = self._of_group(layer, one, way, backward=backward)
        columns = np.array([of_group[id(one)] for one in flow.groups], dtype=np.int64).T
        packing, products, weights, unpacking, fallback, step = columns
        return ExpertPass(*way, packing, products, weights, unpacking, fallback, step)

    def _of_group(
        self, layer: ExpertLayer, flow: GroupFlow, way: _Way, *, backward: bool
    ) -> tuple[int, int, int, int, int, int]:
        """Packing, products, the part for weights, unpacking, fallback, and the step of them all.

        A schedule that splits backwards runs the part for the weights' gradients by itself, after
        the exchanges.
        """
        settings = self._inputs.settings
        rates = self._rates[layer.stage]
        launch = to_picoseconds(settings.compute.launch_seconds)
        payloads = settings.payloads
        packing = Packing.of(
            layer.hidden_size,
            payloads.backward_dispatch if backward else payloads.forward_dispatch,
            payloads.backward_combine if backward else payloads.forward_combine,
            rates.bytes_per_second,
            launch,
        )
        tokens, copies = flow.assignments.tokens, self._copies(flow)
        pack = int(packing.pack(tokens, copies).max(initial=0))
        unpack = int(packing.unpack(tokens, copies).max(initial=0))
        products = self._products(layer, flow, launch, backward=backward)
        weights = products // 2 if backward else 0
        apart = weights if backward and splits_backward(self._plan) else 0
        fallback = self._fallback(flow, backward=backward)
        shared = self._shared(layer, flow, backward=backward)
        parts = LayerParts(
            pack=pack,
            dispatch=0 if way[0] is None else way[0].picoseconds,
            compute=products - apart,
            combine=0 if way[1] is None else way[1].picoseconds,
            unpack=unpack,
            shared=shared,
        )
        # The shared expert itself is in the cost of the layer: only what is hidden of it counts.
        step = step_picoseconds(parts, settings.overlap) - shared + apart + fallback
        to_picoseconds(to_seconds(step))  # parts within what a time may be can come to more
        return pack, products, weights, unpack, fallback, step

    def _copies(self, flow: GroupFlow) -> Int64Array:
        """(W,) copies of tokens that each rank makes: in all stages but the one that gathers."""
        expert_tensor = self._inputs.expert_tensor
        if self._inputs.settings.dispatcher is Dispatcher.ALL_GATHER:
            return np.repeat(flow.served.rank_rows, expert_tensor)
        stages = flow.traffic.stages[: -1 if expert_tensor > 1 else None]
        copied: Int64Array = np.sum([stage.between.sum(axis=1) for stage in stages], axis=0)
        return copied

    def _products(self, layer: ExpertLayer, flow: GroupFlow, launch: int, *, backward: bool) -> int:
        compute = self._inputs.settings.compute
        placement = flow.served.placement
        found = expert_times(
            Experts(
                layer.hidden_size,
                -(-layer.width // self._inputs.expert_tensor),
                layer.gated,
                product_dtype(self._plan, self._model),
            ),
            Products(
                compute.curve,
                self._rates[layer.stage],
                compute.tile_rows,
                launch,
                compute.backward_ratio,
            ),
            flow.served.slot_rows,
            placement.slot_rank,
            placement.ranks,
        )
        self._extrapolated |= found.extrapolated
        times = found.backward_picoseconds if backward else found.forward_picoseconds
        return int(times.max(initial=0))

    def _fallback(self, flow: GroupFlow, *, backward: bool) -> int:
        settings = self._inputs.settings
        rows = int(flow.admitted.fallback.max(initial=0))
        ratio = settings.compute.backward_ratio if backward else 1.0
        return to_picoseconds(rows * (settings.fallback_seconds_per_row or 0.0) * ratio)

    def _shared(self, layer: ExpertLayer, flow: GroupFlow, *, backward: bool) -> int:
        """What the shared expert takes where it runs under the dispatch; 0 where it does not."""
        settings = self._inputs.settings
        if layer.shared_width is None or not settings.overlap.shared_expert:
            return 0
        rates, tensor = self._rates[layer.stage], self._plan.degrees.tensor
        width = -(-layer.shared_width // tensor)
        shared = Experts(layer.hidden_size, width, layer.gated)
        rows = int(flow.assignments.tokens.max(initial=0)) * tensor
        try:
            forward = rates.picoseconds(rows * shared.row_flops, shared.weight_bytes)
        except OverflowError as error:
            detail = f"the shared expert would take too long: {error}"
            path = ("compute", "peak_flops")
            raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, path, detail)]) from error
        return round(forward * settings.compute.backward_ratio) if backward else forward


def _of_layer(layer: ExpertLayer, fault: Fault) -> Fault:
    """The fault in a plan; one that points to no field says which layer it is of."""
    if fault.path:
        return fault.under("moe")
    return Fault(fault.code, ("moe",), f"in layer {layer.number} with experts {fault.detail}")


def _load(flow: GroupFlow) -> GroupLoad:
    admitted, served = flow.admitted, flow.served
    return GroupLoad(
        level=flow.assignments.level,
        expert_rows=flow.assignments.counts.sum(axis=0),
        slot_rows=served.slot_rows,
        rank_rows=served.rank_rows,
        tokens=flow.assignments.tokens,
        dropped=admitted.dropped,
        fallback=admitted.fallback,
        rerouted=admitted.rerouted,
        capacity=admitted.capacity,
        sent=flow.traffic.sent,
        received=flow.traffic.received,
        staying=flow.traffic.staying,
        logical=flow.traffic.logical,
        counted=flow.traffic.is_counted,
    )
