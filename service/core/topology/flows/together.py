"""Bounds of several collectives that start at once, whatever their algorithms and routes.

A cut has to let through what each of them must move across it, so their crossings add up.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.cuts import (
    Border,
    Family,
    family_bound,
    partition_bound,
    port_family,
)
from service.core.topology.flows.demands import CollectiveKind, Crossing, Gathering
from service.core.topology.flows.ordering import greatest
from service.core.topology.flows.results import FlowBound
from service.core.topology.flows.study import FlowStudy

__all__ = ["Together", "bound_together"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Float64Array = npt.NDArray[np.float64]


class Together:
    """Gatherings of one kind that are all to be done; see `Demand`."""

    def __init__(self, gatherings: Sequence[Gathering]) -> None:
        self._parts = gatherings
        self.vertices: Int32Array = np.unique(np.concatenate([one.vertices for one in gatherings]))

    def crossings(self, label: Int32Array, groups: int) -> tuple[Float64Array, Float64Array]:
        """(groups,) bytes out of each group of `label` (V,) and into it, as floats."""
        of_each = [one.crossings(label, groups) for one in self._parts]
        out, into = (np.sum([moved[way] for moved in of_each], axis=0) for way in (0, 1))
        return out.astype(np.float64), into.astype(np.float64)

    def crossing(self, inside: BoolArray) -> Crossing:
        """The same for one set (V,), exactly."""
        of_each = [one.crossing(inside) for one in self._parts]
        return Crossing(
            sum((one.out for one in of_each), Fraction(0)),
            sum((one.into for one in of_each), Fraction(0)),
        )


def bound_together(study: FlowStudy, gatherings: Sequence[Gathering]) -> FlowBound | None:
    """The greatest bound of ports, cuts and, for all-reduces, of partitions; None if nothing moves.

    No algorithm and no routes are quicker, unless the network itself adds up. All are of one kind.
    """
    moving = [one for one in gatherings if len(one.vertices) > 1 and one.message_bytes]
    if not moving:
        return None
    demand, network = Together(moving), study.network
    # They take as long to find as all the rest, and serve all collectives of a cluster.
    families = study.keep("borders of all families", lambda: _with_borders(study))
    found = [family_bound(network, demand, family, border=border) for family, border in families]
    if moving[0].kind is CollectiveKind.ALL_REDUCE:
        found += [
            partition_bound(network, moving, family, border=border) for family, border in families
        ]
    return greatest(found)


def _with_borders(study: FlowStudy) -> list[tuple[Family, Border]]:
    network = study.network
    # The ports of all accelerators, whether they send or not.
    families = (port_family(network, network.gpus), *study.families)
    return [(family, Border(network, family)) for family in families]
