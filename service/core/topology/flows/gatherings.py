"""Bounds of collectives that copy or add up on the way: all-gather, reduce-scatter, all-reduce.

What one device gets in an all-gather, it gets once from each other one whatever is copied: that is
one flow to it, and the greatest bound of all devices is what an optimal set of trees reaches
(Edmonds; Zhao et al., ForestColl, 2024). A reduce-scatter is the same backwards. In an all-reduce
the whole message must get from each device to each other one, over whatever links, at least once.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.collapse import Collapse
from service.core.topology.flows.cuts import partition_bound, port_family
from service.core.topology.flows.demands import CollectiveKind, Gathering
from service.core.topology.flows.exchanges import each_to_each
from service.core.topology.flows.ordering import ordered
from service.core.topology.flows.parts import lost_in_collective
from service.core.topology.flows.pinned import pinned_routes
from service.core.topology.flows.problems import (
    Problem,
    flow_bound,
    latency_floor,
    link_bound,
    whole,
)
from service.core.topology.flows.results import FlowBound, FlowBounds, Method
from service.core.topology.flows.routes import Routes
from service.core.topology.flows.study import FlowStudy

__all__ = ["MAX_SEPARATE_SIZE", "any_gathering", "pinned_gathering"]

BoolArray = npt.NDArray[np.bool_]

# Arcs of the linear programs of one collective together, each of which is one flow.
MAX_SEPARATE_SIZE = 100_000

_Pairs = tuple[tuple[int, int], ...]


def any_gathering(
    study: FlowStudy, gathering: Gathering, *, in_network_reduction: bool
) -> FlowBounds:
    """Devices that take part pass on everything, and all links may be used."""
    forwarders = _forwarders(study, gathering)
    routes = Routes(study.network, forwarders=forwarders)
    symmetry = study.symmetry(gathering.vertices)
    collapse = Collapse(study.network, routes, symmetry, gathering.vertices)
    problems = _collapsed_problems(collapse, gathering)
    method = Method.SYMMETRIC_LINEAR_PROGRAM
    return _bounds(study, gathering, problems, method, None, in_network_reduction)


def pinned_gathering(
    study: FlowStudy, gathering: Gathering, *, in_network_reduction: bool
) -> FlowBounds:
    """Any algorithm that sends between the devices over their pinned paths only.

    So the links of all these paths may be used. For too many pairs all links count, and cuts alone.
    """
    messages = each_to_each(study, gathering.vertices, Fraction(1))
    if messages is None:
        return _bounds(study, gathering, None, Method.CUTS, None, in_network_reduction)
    pinned = pinned_routes(study.network, study.finder, messages)
    if pinned.lost:
        return FlowBounds((), Method.LINEAR_PROGRAM, unreachable=pinned.lost)
    usable = pinned.used(study.network)
    routes = Routes(study.network, forwarders=_forwarders(study, gathering), usable=usable)
    problems = _whole_problems(study, routes, gathering, int(usable.sum()))
    return _bounds(study, gathering, problems, Method.LINEAR_PROGRAM, usable, in_network_reduction)


def _forwarders(study: FlowStudy, gathering: Gathering) -> BoolArray:
    forwarders = np.zeros(study.network.vertex_count, dtype=np.bool_)
    forwarders[gathering.vertices] = True
    return forwarders


def _bounds(
    study: FlowStudy,
    gathering: Gathering,
    problems: list[tuple[Problem, _Pairs]] | None,
    method: Method,
    usable: BoolArray | None,
    in_network_reduction: bool,
) -> FlowBounds:
    """The greatest bounds of all the problems, each of which is solved by itself."""
    network = study.network
    if problems is None:
        lost = lost_in_collective(network, gathering.vertices)
        if lost:
            return FlowBounds((), Method.CUTS, unreachable=lost)
    links: list[FlowBound | None] = []
    flows: list[FlowBound | None] = []
    floor = Fraction(0)
    for problem, pairs in problems or ():
        (commodity,) = problem.commodities
        lost = tuple(pairs[place] for place in commodity.unreached)
        if lost:
            return FlowBounds((), method, unreachable=lost)
        found = flow_bound(network, problem)
        flows.append(None if found is None else found[0])
        links.append(link_bound(network, problem))
        floor = max(floor, latency_floor(network, problem))
    is_solved = problems is not None and None not in flows
    partitions: list[FlowBound | None] = []
    if gathering.kind is CollectiveKind.ALL_REDUCE and not in_network_reduction:
        families = (port_family(network, gathering.vertices), *study.families)
        partitions = [partition_bound(network, [gathering], family, usable) for family in families]
    bounds = ordered(
        study,
        gathering,
        links=links,
        cuts=partitions,
        flows=flows if is_solved else (),
        usable=usable,
    )
    return FlowBounds(tuple(bounds), method if is_solved else Method.CUTS, latency_floor=floor)


def _share(gathering: Gathering) -> Fraction:
    """What one device sends to one other at least, not counting what it passes on."""
    if gathering.kind is CollectiveKind.ALL_REDUCE:
        return gathering.message_bytes
    return gathering.message_bytes / len(gathering.vertices)


def _whole_problems(
    study: FlowStudy, routes: Routes, gathering: Gathering, usable_links: int
) -> list[tuple[Problem, _Pairs]] | None:
    """One flow for each device (to one device and back for an all-reduce); None for too much."""
    devices = gathering.vertices.tolist()
    is_reduce = gathering.kind is CollectiveKind.ALL_REDUCE
    count = 2 * (len(devices) - 1) if is_reduce else len(devices)
    if count * usable_links > MAX_SEPARATE_SIZE:
        return None
    share = _share(gathering)
    made = []
    for root, others, inward in _flows(devices, gathering.kind):
        commodity = routes.commodity(root, others, [share] * len(others), inward=inward)
        made.append((whole(study.network, [commodity]), _pairs(root, others, inward=inward)))
    return made


def _flows(devices: list[int], kind: CollectiveKind) -> Iterator[tuple[int, list[int], bool]]:
    """The roots, the others and whether these send to the root."""
    if kind is CollectiveKind.ALL_REDUCE:
        # Whatever separates two devices separates the first one from one of them.
        first, *others = devices
        for other in others:
            yield first, [other], False
            yield first, [other], True
        return
    for root in devices:
        others = [other for other in devices if other != root]
        yield root, others, kind is CollectiveKind.ALL_GATHER


def _collapsed_problems(
    collapse: Collapse, gathering: Gathering
) -> list[tuple[Problem, _Pairs]] | None:
    """The same with one of each kind; None for too much."""
    made: list[tuple[Problem, _Pairs]] = []
    size = 0
    for problem, pairs in _flows_of_kinds(collapse, gathering):
        size += 0 if problem is None else problem.size
        if problem is None or size > MAX_SEPARATE_SIZE:
            return None
        made.append((problem, pairs))
    return made


def _flows_of_kinds(
    collapse: Collapse, gathering: Gathering
) -> Iterator[tuple[Problem | None, _Pairs]]:
    """The problems one by one, each None where it looks at too much."""
    share = _share(gathering)
    roots = [root for root, _ in collapse.kinds_of_devices()]
    if gathering.kind is CollectiveKind.ALL_REDUCE:
        # Whatever separates two devices separates the first one from one of them.
        for root, inward in product(roots[:1], (False, True)):
            for other in collapse.others(root):
                problem = collapse.between(root, other, share, inward=inward)
                yield problem, _pairs(root, [other], inward=inward)
        return
    inward = gathering.kind is CollectiveKind.ALL_GATHER
    for root in roots:
        others = collapse.others(root)
        shares = {other: number * share for other, number in others.items()}
        problem = collapse.alone(root, shares, inward=inward)
        yield problem, _pairs(root, list(others), inward=inward)


def _pairs(root: int, others: list[int], *, inward: bool) -> _Pairs:
    return tuple((other, root) if inward else (root, other) for other in others)
