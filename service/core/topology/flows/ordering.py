"""The bounds of one demand put together, each kind at least as high as the one before."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.cuts import family_bound, port_family
from service.core.topology.flows.demands import Demand
from service.core.topology.flows.results import BoundKind, FlowBound
from service.core.topology.flows.study import FlowStudy

__all__ = ["greatest", "ordered"]

BoolArray = npt.NDArray[np.bool_]

_Found = Iterable[FlowBound | None]


def greatest(found: _Found) -> FlowBound | None:
    """The first of the highest bounds; None when there is none."""
    known = [bound for bound in found if bound is not None]
    return max(known, key=lambda bound: bound.exact_seconds, default=None)


def ordered(
    study: FlowStudy,
    demand: Demand,
    *,
    links: _Found = (),
    cuts: _Found = (),
    flows: _Found = (),
    usable: BoolArray | None = None,
) -> Iterator[FlowBound]:
    """Port, link, cut and flow, each that there is.

    Ports and cuts are looked for here, among `usable` (E,) links. A port and a link that can't be
    avoided are cuts too; what a solver found counts as the flow's only where it is higher than the
    highest cut, which it can fail to be in the last digits.
    """
    network = study.network
    ports = port_family(network, demand.vertices)
    port = family_bound(network, demand, ports, BoundKind.PORT, usable)
    link = greatest(links)
    families = [
        family_bound(network, demand, family, BoundKind.CUT, usable) for family in study.families
    ]
    cut = greatest([port, link, *families, *cuts])
    flow = greatest(flows)
    if port is not None:
        yield port
    if link is not None:
        yield link
    if cut is not None:
        yield cut.of_kind(BoundKind.CUT)
    if flow is not None:
        higher = cut is not None and cut.exact_seconds >= flow.exact_seconds
        yield (cut if cut is not None and higher else flow).of_kind(BoundKind.CONCURRENT_FLOW)
