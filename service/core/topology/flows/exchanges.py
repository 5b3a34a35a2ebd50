"""Bounds of messages that go each from one device to another, single ones or an all-to-all."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np
import numpy.typing as npt

from service.core.topology.flows.collapse import Collapse
from service.core.topology.flows.demands import Exchange, Messages
from service.core.topology.flows.linear_program import LpSolution
from service.core.topology.flows.ordering import ordered
from service.core.topology.flows.parts import lost_between_parts, lost_in_collective
from service.core.topology.flows.pinned import (
    comes_back,
    pinned_bounds,
    pinned_loads,
    pinned_routes,
)
from service.core.topology.flows.problems import (
    Problem,
    flow_bound,
    latency_floor,
    link_bound,
    whole,
)
from service.core.topology.flows.results import FlowBounds, Load, Method
from service.core.topology.flows.routes import Routes
from service.core.topology.flows.study import FlowStudy

__all__ = [
    "MAX_JOINT_SIZE",
    "MAX_LINKS_SEARCHED",
    "MAX_PINNED_PAIRS",
    "MAX_SYMMETRIC_SIZE",
    "any_exchange",
    "any_messages",
    "each_to_each",
    "paths_are_found",
    "pinned_exchange",
    "pinned_messages",
]

Int32Array = npt.NDArray[np.int32]

# Arcs and nodes of one linear program: one to three seconds of one core at the most. Where
# symmetries have been taken out the solver has fewer equal ways, and is quicker for its size.
MAX_JOINT_SIZE = 20_000
MAX_SYMMETRIC_SIZE = 40_000
# Pairs whose pinned paths are looked up, and links that all searches for them look at together.
MAX_PINNED_PAIRS = 65_536
MAX_LINKS_SEARCHED = 100_000_000
# Links that are looked at to find which ones the routes of all sources may use.
_MAX_LOOKS = 50_000_000


def pinned_messages(study: FlowStudy, messages: Messages) -> FlowBounds:
    """Each message keeps to its pinned path."""
    network = study.network
    if not paths_are_found(study, messages.pairs):
        return _cuts_of_messages(study, messages)
    routes = pinned_routes(network, study.finder, messages)
    loads = pinned_loads(network, routes)
    floors = [Fraction(path.latency_floor_seconds) for path in routes.paths]
    return FlowBounds(
        bounds=tuple(pinned_bounds(network, routes, loads)),
        method=Method.PINNED_LOADS,
        loads=tuple(Load(resource, 1, float(total)) for resource, total in loads.items()),
        latency_floor=max(floors, default=Fraction(0)),
        unreachable=routes.lost,
    )


def pinned_exchange(study: FlowStudy, exchange: Exchange) -> FlowBounds:
    """Each pair's block keeps to its pinned path; for too many pairs, ports and cuts alone."""
    messages = each_to_each(study, exchange.vertices, exchange.pair_bytes)
    if messages is None:
        return _cuts_of_exchange(study, exchange)
    found = pinned_messages(study, messages)
    return _incomplete(found.method, found.unreachable) if found.unreachable else found


def each_to_each(study: FlowStudy, devices: Int32Array, amount: Fraction) -> Messages | None:
    """A message from each device to each other one; None where their paths are too much work."""
    if len(devices) * (len(devices) - 1) > MAX_PINNED_PAIRS:
        return None
    messages = Messages.of((*pair, amount) for pair in permutations(devices.tolist(), 2))
    return messages if paths_are_found(study, messages.pairs) else None


def paths_are_found(study: FlowStudy, pairs: Iterable[tuple[int, int]]) -> bool:
    """Whether the pinned paths of pairs of devices can be looked up with bounded work."""
    names = study.network.names
    named = ((names[source], names[target]) for source, target in pairs)
    return study.finder.links_searched(named) <= MAX_LINKS_SEARCHED


def any_messages(study: FlowStudy, messages: Messages) -> FlowBounds:
    """Each message may be divided over all routes that are allowed."""
    shares: dict[int, dict[int, Fraction]] = {}
    for (source, target), amount in zip(messages.pairs, messages.amounts, strict=True):
        of_source = shares.setdefault(source, {})
        of_source[target] = of_source.get(target, Fraction(0)) + amount
    found = _whole(study, shares)
    if found is None:
        return _cuts_of_messages(study, messages)
    problem, sent = found
    lost = _lost(problem, sent)
    if lost:
        messages = _without(messages, lost)
    return _together(study, messages, problem, Method.LINEAR_PROGRAM, lost)


def any_exchange(study: FlowStudy, exchange: Exchange) -> FlowBounds:
    """Each block may be divided over all routes that are allowed."""
    found = _collapsed(study, exchange)
    method = Method.SYMMETRIC_LINEAR_PROGRAM
    if found is None:
        method = Method.LINEAR_PROGRAM
        devices = exchange.vertices.tolist()
        if len(devices) * (len(devices) - 1) > MAX_JOINT_SIZE:
            # Each pair takes an arc at least.
            return _cuts_of_exchange(study, exchange)
        shares = {
            root: {other: exchange.pair_bytes for other in devices if other != root}
            for root in devices
        }
        found = _whole(study, shares)
        if found is None:
            return _cuts_of_exchange(study, exchange)
    problem, sent = found
    lost = _lost(problem, sent)
    if lost:
        return _incomplete(method, lost)
    return _together(study, exchange, problem, method, ())


_Shares = Mapping[int, Mapping[int, Fraction]]
# What each commodity of a problem takes from one device to which others.
_Sent = Sequence[tuple[int, Mapping[int, Fraction]]]


def _collapsed(study: FlowStudy, exchange: Exchange) -> tuple[Problem, _Sent] | None:
    """The problem with one of each kind, and what each kind of device sends to each other one.

    None where symmetries leave too much, or where some pinned path comes back to its last host: of
    the routes that are then allowed each pair has its own.
    """
    symmetry = study.symmetry(exchange.vertices)
    collapse = Collapse(study.network, Routes(study.network), symmetry, exchange.vertices)
    problem = collapse.exchange(exchange.pair_bytes, MAX_SYMMETRIC_SIZE)
    if problem is None:
        return None
    shares = {
        root: {other: count * exchange.pair_bytes for other, count in collapse.others(root).items()}
        for root, _ in collapse.kinds_of_devices()
    }
    return None if _coming_back(study, shares) else (problem, tuple(shares.items()))


def _coming_back(study: FlowStudy, shares: _Shares) -> set[tuple[int, int]]:
    """The pairs whose pinned path comes back to its last host, where paths can be looked up."""
    pairs = [(source, target) for source, others in shares.items() for target in others]
    if len(pairs) > MAX_PINNED_PAIRS or not paths_are_found(study, pairs):
        return set()
    return {pair for pair in pairs if comes_back(study.network, study.finder, *pair)}


def _whole(study: FlowStudy, shares: _Shares) -> tuple[Problem, _Sent] | None:
    """The problem of what each source sends on the network as it is; None when it is too large."""
    network, routes = study.network, Routes(study.network)
    if len(shares) * len(network.links) > _MAX_LOOKS:
        return None
    apart = _coming_back(study, shares)
    if (len(shares) + len(apart)) * len(network.links) > _MAX_LOOKS:
        return None
    sent: list[tuple[int, Mapping[int, Fraction]]] = []
    for source, of_source in shares.items():
        usual = {other: of_source[other] for other in of_source if (source, other) not in apart}
        sent += [(source, usual)] if usual else []
    count = len(sent)
    sent += [(source, {target: shares[source][target]}) for source, target in sorted(apart)]
    size = 0
    for source, of_source in sent:
        hosts = np.unique(network.host[list(of_source)])
        size += int(routes.may_use(network.host[[source]], hosts).sum())
        if size > MAX_JOINT_SIZE:
            return None
    commodities = [
        routes.commodity(source, list(others), list(others.values()), comes_back=place >= count)
        for place, (source, others) in enumerate(sent)
    ]
    problem = whole(network, commodities)
    return (problem, sent) if problem.size <= MAX_JOINT_SIZE else None


def _lost(problem: Problem, sent: _Sent) -> tuple[tuple[int, int], ...]:
    """The pairs that no route joins, of those that are sent to."""
    return tuple(
        (source, list(of_source)[place])
        for (source, of_source), commodity in zip(sent, problem.commodities, strict=True)
        for place in commodity.unreached
    )


def _without(messages: Messages, lost: tuple[tuple[int, int], ...]) -> Messages:
    """The messages that are not between the pairs of `lost`."""
    apart = set(lost)
    sent = zip(messages.pairs, messages.amounts, strict=True)
    return Messages.of((*pair, amount) for pair, amount in sent if pair not in apart)


def _cuts_of_messages(study: FlowStudy, messages: Messages) -> FlowBounds:
    """Ports and cuts of the messages that can arrive at all, where routes are too much work."""
    lost = lost_between_parts(study.network, messages.pairs)
    kept = _without(messages, lost)
    return FlowBounds(tuple(ordered(study, kept)), Method.CUTS, unreachable=lost)


def _cuts_of_exchange(study: FlowStudy, exchange: Exchange) -> FlowBounds:
    """Ports and cuts of an all-to-all that can be completed, where routes are too much work."""
    lost = lost_in_collective(study.network, exchange.vertices)
    if lost:
        return _incomplete(Method.CUTS, lost)
    return FlowBounds(tuple(ordered(study, exchange)), Method.CUTS)


def _incomplete(method: Method, lost: tuple[tuple[int, int], ...]) -> FlowBounds:
    """Where some pairs of a collective have no route it never ends, and has no bounds."""
    return FlowBounds((), method, unreachable=lost)


def _together(
    study: FlowStudy,
    demand: Messages | Exchange,
    problem: Problem,
    method: Method,
    lost: tuple[tuple[int, int], ...],
) -> FlowBounds:
    """The bounds of what moves all at once."""
    network = study.network
    found = flow_bound(network, problem)
    bounds = ordered(
        study,
        demand,
        links=[link_bound(network, problem)],
        flows=[] if found is None else [found[0]],
    )
    return FlowBounds(
        bounds=tuple(bounds),
        method=method if found is not None or not len(demand.vertices) else Method.CUTS,
        loads=() if found is None else _loads(problem, found[1]),
        latency_floor=latency_floor(network, problem),
        unreachable=lost,
    )


def _loads(problem: Problem, solution: LpSolution) -> tuple[Load, ...]:
    """What each capacity carries, to as many digits as a solver's answer has."""
    least = float(solution.loads.max(initial=0.0)) * 1e-9
    return tuple(
        Load(int(problem.representative[kind]), int(problem.copies[kind]), float(f"{total:.9g}"))
        for kind, total in enumerate(solution.loads / problem.copies)
        if total > least
    )
