"""What the expert groups of a stage exchange, as bytes between devices of a topology."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput, Statement
from service.core.moe.exchange import GroupExchange, exchange_paths
from service.core.moe.settings import Payload
from service.core.plans.moe.flow import StageFlow
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs
from service.core.plans.statements import counted
from service.core.topology.flows.network import Network
from service.core.topology.flows.study import FlowStudy

__all__ = [
    "LayerExchanges",
    "check_paths",
    "exchanges_assumed",
    "group_vertices",
    "layer_exchanges",
]

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class LayerExchanges:
    """The four exchanges of a layer, each of all groups of a pipeline rank at once.

    The gradient of a combine goes the way of a dispatch, and that of a dispatch the way back.
    """

    forward_dispatch: tuple[GroupExchange, ...]
    forward_combine: tuple[GroupExchange, ...]
    backward_dispatch: tuple[GroupExchange, ...]
    backward_combine: tuple[GroupExchange, ...]


def layer_exchanges(
    inputs: MoeInputs, layer: ExpertLayer, flow: StageFlow, vertices: Sequence[Int32Array]
) -> LayerExchanges:
    """What the groups exchange; `vertices` has the devices of each, see `group_vertices`."""
    payloads = inputs.settings.payloads

    def weighed(payload: Payload) -> tuple[GroupExchange, ...]:
        size = payload.bytes_of(layer.hidden_size)
        return tuple(
            GroupExchange.of_copies(devices, one.traffic.stages, size, one.traffic.fewest)
            for devices, one in zip(vertices, flow.groups, strict=True)
        )

    return LayerExchanges(
        weighed(payloads.forward_dispatch),
        tuple(one.reversed() for one in weighed(payloads.forward_combine)),
        weighed(payloads.backward_dispatch),
        tuple(one.reversed() for one in weighed(payloads.backward_combine)),
    )


def group_vertices(
    study: FlowStudy | None, devices: Sequence[Sequence[str]] | None
) -> tuple[Int32Array, ...]:
    """(W,) the devices of each group by their number in the network; none without a topology."""
    if study is None or devices is None:
        return ()
    number = study.network.number
    return tuple(np.array([number[name] for name in group], dtype=np.int32) for group in devices)


def check_paths(
    study: FlowStudy, inputs: MoeInputs, vertices: Sequence[Sequence[Int32Array]]
) -> None:
    """Raise `InvalidInput` where no path joins two devices of a group that has work.

    `vertices` has the devices of each group of each pipeline rank.
    """
    working = {home for layer in inputs.layers for home in inputs.homes[layer.stage]}
    for home in sorted(working):
        empty = np.zeros((inputs.groups[home].width,) * 2, dtype=np.int64)
        groups = [GroupExchange(devices, (empty,)) for devices in vertices[home]]
        lost = exchange_paths(study, groups).lost
        if lost:
            one, other = (study.network.names[vertex] for vertex in lost[0])
            detail = (
                f"no physical path joins {one} and {other}, which are of one expert group: hosts "
                "are joined by the topology's fabric, or by links to common switches"
            )
            raise InvalidInput([Fault(FaultCode.UNREACHABLE, ("placement",), detail)])


def exchanges_assumed(network: Network, used: Collection[int]) -> Statement:
    """How exchanges are taken to go, and what stood in for unknown rates and latencies.

    `used` are the numbers of the links that carry any of them.
    """
    links = [network.links[number] for number in used]
    without_effective = sum(link.effective_bytes_per_second is None for link in links)
    without_latency = sum(link.latency_seconds is None for link in links)
    return Statement(
        "expert_exchange_paths",
        "what ranks exchange keeps to one physical path for each pair, all groups of a stage at "
        "once and at effective bandwidths; a rank starts one message after the other, so that the "
        "latencies of its paths add up; of "
        f"{counted(len(links), 'link that carries', 'links that carry')} any, {without_effective} "
        f"have an unknown effective bandwidth, whose nominal one stands in, and {without_latency} "
        "an unknown latency, whose guaranteed floor does",
    )
