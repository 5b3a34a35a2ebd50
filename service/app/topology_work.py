"""What questions about a stored topology take, known before they are answered.

In operation-runs, as plans are weighed (`service.app.holdings`), so that a large question is
refused at once where it would only wait and small ones pass it. The factors are measured on 1,024
hosts of eight GPUs behind leaves and spines. What was prepared or answered before costs nothing
again as long as it is kept.
"""

from collections.abc import Callable

from service.app.apart import SMALL, run_apart
from service.app.flows import FlowInquiry, devices_of
from service.app.ports import Revision
from service.app.services import Services
from service.app.weights import LOOK_UNITS, Preparation, Weight
from service.core.errors import InvalidInput
from service.core.topology.cluster import Cluster, VertexKind
from service.core.topology.expand import Expansion
from service.core.topology.flows.collapse import MAX_COLLAPSED_LINKS
from service.core.topology.flows.exchanges import MAX_JOINT_SIZE, MAX_PINNED_PAIRS
from service.core.topology.index import index_of
from service.core.topology.nic_sharing import MAX_COMPARED_NICS
from service.core.topology.pair_paths import MAX_LINKS_SEARCHED

__all__ = ["answered", "expanded", "flows", "paths", "picture", "sharing"]

# A search looks at six links in the time of an operation-run.
_LINKS_PER_UNIT = 6
# A pinned path is described, priced and loaded.
_PAIR_UNITS = 1_250
# For each vertex and link: what can cross the middle of a part, 3 us; which hosts are alike, 5 us.
_CUT_UNITS = 50
_COMPARE_UNITS = 80
# An arc of a linear program, and a link that is moved by symmetries to find one.
_ARC_UNITS = 600
_MOVED_LINK_UNITS = 1_000


async def expanded(services: Services, revision: Revision) -> Expansion:
    """The cluster of a topology's revision. Raises when expanding it would only wait."""
    units = services.clusters.units(revision)
    if units:
        services.holder.hold_work(units)
    return await services.clusters.get(revision)


async def answered(
    services: Services,
    revision: Revision,
    expansion: Expansion,
    weigh: Callable[[Cluster], Weight],
    answer: Callable[[], bytes],
) -> bytes:
    """The answer of a question that is weighed before; both are pure, neither is on the loop.

    Raises what they do, and `TooManyAtOnce` or `Overloaded` when it would only wait.
    """
    size = _size(expansion.cluster)
    # A question about a small cluster may be a long one.
    weight = await run_apart(max(size, SMALL + 1), weigh, expansion.cluster)
    seen = services.clusters.seen(revision)
    services.holder.hold_work(seen.units(weight, size))
    content = await services.executor.run(answer)
    seen.note(weight)
    return content


def paths(cluster: Cluster, source: str, concurrent: int, *, is_part: bool) -> Weight:
    """The ways of one pair, over each GPU beside its source too, and of those that send with it."""
    vertex = cluster.vertices.get(source)
    host = None if vertex is None else vertex.host
    beside = len(index_of(cluster).names(host, VertexKind.GPU))
    return _searches(cluster, 1 + 2 * beside + concurrent, _CUT_UNITS * is_part)


def sharing(cluster: Cluster, hosts: int, *, is_part: bool) -> Weight:
    """What the GPUs of so many hosts share: their paths to each NIC, once hosts are compared."""
    members = index_of(cluster).members.values()
    ways = sorted(
        (
            sum(one.kind is VertexKind.GPU for one in host)
            * sum(one.kind is VertexKind.NIC for one in host)
            for host in members
        ),
        reverse=True,
    )
    pairs = min(sum(ways[:hosts]), MAX_COMPARED_NICS)
    return _searches(cluster, pairs, _COMPARE_UNITS + _CUT_UNITS * is_part)


def picture(cluster: Cluster, pairs: int) -> Weight:
    """A drawing with the paths of so many pairs laid over it."""
    return _searches(cluster, pairs, 0)


def _searches(cluster: Cluster, pairs: int, more_units: int) -> Weight:
    """The pinned paths of so many pairs, a look at the cluster, and more for each part of it."""
    links = min(pairs * len(cluster.links), MAX_LINKS_SEARCHED)
    units = links // _LINKS_PER_UNIT + pairs * _PAIR_UNITS
    return Weight(units + (LOOK_UNITS + more_units) * _size(cluster), (Preparation.PATHS,))


def flows(cluster: Cluster, inquiry: FlowInquiry) -> Weight:
    """Bounds of many transfers: linear programs within their limits, paths, and all cuts."""
    question = inquiry.question
    links = len(cluster.links)
    if question.collective is None:
        messages = question.flows or ()
        pairs = len({(flow.source, flow.target) for flow in messages})
        arcs = len({flow.source for flow in messages}) * links
        program = _ARC_UNITS * min(arcs, MAX_JOINT_SIZE)
    else:
        try:
            count = len(devices_of(cluster, inquiry))
        except InvalidInput:
            count = 0  # the answer names these faults beside the others, and computes nothing
        pairs = count * (count - 1)
        program = _MOVED_LINK_UNITS * min(count * links, MAX_COLLAPSED_LINKS)
    if pairs > MAX_PINNED_PAIRS:
        pairs = 0  # then cuts alone
    units = program + pairs * _PAIR_UNITS + LOOK_UNITS * _size(cluster)
    preparations = (Preparation.PATHS, Preparation.FLOWS)
    return Weight(units, preparations, question=hash(inquiry))


def _size(cluster: Cluster) -> int:
    return len(cluster.vertices) + len(cluster.links)
