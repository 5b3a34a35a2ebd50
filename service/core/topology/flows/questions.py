"""What may be asked about many transfers in a cluster, and all there is to say about it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from service.core.errors import Fault, FaultCode, InvalidInput, Path
from service.core.topology.bounds import MAX_MESSAGE_BYTES
from service.core.topology.cluster import Cluster
from service.core.topology.flows.bounds import (
    FlowRouting,
    bound_exchange,
    bound_gathering,
    bound_messages,
)
from service.core.topology.flows.demands import (
    CollectiveKind,
    Demand,
    Exchange,
    Gathering,
    Messages,
)
from service.core.topology.flows.prediction import FlowPrediction, predict
from service.core.topology.flows.results import FlowBounds
from service.core.topology.flows.study import FlowStudy, flow_study

__all__ = [
    "MAX_FLOWS",
    "MAX_MATRIX_DEVICES",
    "Collective",
    "Flow",
    "FlowFindings",
    "FlowQuestion",
    "answer_flows",
    "question_faults",
]

MAX_FLOWS = 4_096
MAX_MATRIX_DEVICES = 128


@dataclass(frozen=True, slots=True)
class Flow:
    """One message by the names of its ends."""

    source: str
    target: str
    message_bytes: int


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation among named devices, in this order; None where they are at fault.

    Exactly one of `message_bytes` (what each device holds) and, for an all-to-all,
    `demand_matrix` (bytes from each device, by row, to each) is given.
    """

    kind: CollectiveKind
    devices: tuple[str, ...] | None
    message_bytes: int | None = None
    demand_matrix: tuple[tuple[int, ...], ...] | None = None
    in_network_reduction: bool = False


@dataclass(frozen=True, slots=True)
class FlowQuestion:
    """Exactly one of single messages and a collective, and which routes may be taken."""

    flows: tuple[Flow, ...] | None = None
    collective: Collective | None = None
    routing: FlowRouting = FlowRouting.ANY


@dataclass(frozen=True, slots=True, eq=False)
class FlowFindings:
    """The bounds, and the prediction where there is one."""

    study: FlowStudy
    demand: Demand
    bounds: FlowBounds
    prediction: FlowPrediction | None


def answer_flows(cluster: Cluster, question: FlowQuestion) -> FlowFindings:
    """Bound and predict what is asked about.

    Raises `InvalidInput` with every fault that `question_faults` finds.
    """
    faults = list(question_faults(cluster, question))
    if faults:
        raise InvalidInput(faults)
    study = flow_study(cluster)
    demand = _demand(study, question)
    reduction = question.collective is not None and question.collective.in_network_reduction
    return FlowFindings(
        study=study,
        demand=demand,
        bounds=_bounds(study, demand, question.routing, in_network_reduction=reduction),
        prediction=predict(study, demand, in_network_reduction=reduction),
    )


def _bounds(
    study: FlowStudy, demand: Demand, routing: FlowRouting, *, in_network_reduction: bool
) -> FlowBounds:
    if isinstance(demand, Messages):
        return bound_messages(study, demand, routing)
    if isinstance(demand, Exchange):
        return bound_exchange(study, demand, routing)
    if isinstance(demand, Gathering):
        return bound_gathering(study, demand, routing, in_network_reduction=in_network_reduction)
    raise TypeError(type(demand))


def _demand(study: FlowStudy, question: FlowQuestion) -> Demand:
    number = study.network.number
    asked = question.collective
    if asked is None:
        flows = question.flows or ()
        return Messages.of((number[f.source], number[f.target], f.message_bytes) for f in flows)
    devices = [number[name] for name in asked.devices or ()]
    if asked.demand_matrix is not None:
        return Messages.of(
            (one, other, amount)
            for one, row in zip(devices, asked.demand_matrix, strict=True)
            for other, amount in zip(devices, row, strict=True)
        )
    whole = Fraction(asked.message_bytes or 0)
    vertices = np.array(devices, dtype=np.int32)
    if asked.kind is CollectiveKind.ALL_TO_ALL:
        return Exchange(vertices, whole / len(devices))
    return Gathering(asked.kind, vertices, whole)


def question_faults(cluster: Cluster, question: FlowQuestion) -> Iterator[Fault]:
    """What is wrong with a question, paths as in the fields of `FlowQuestion`.

    The devices of a collective are vertices of the cluster, each once.
    """
    if (question.flows is None) == (question.collective is None):
        code = FaultCode.MISSING_FIELD if question.flows is None else FaultCode.EXCLUSIVE_FIELDS
        yield Fault(code, ("flows",), "give flows or a collective, one of them")
    for place, flow in enumerate(question.flows or ()):
        for end, name in (("source", flow.source), ("target", flow.target)):
            if name not in cluster.vertices:
                detail = f"{name[:100]!r} is no device of this topology; a device is host/device"
                yield Fault(FaultCode.UNKNOWN_NAME, ("flows", place, end), detail)
        yield from _size_faults(flow.message_bytes, ("flows", place, "message_bytes"))
    if question.collective is not None:
        yield from _collective_faults(question.collective)


def _collective_faults(asked: Collective) -> Iterator[Fault]:
    here: Path = ("collective",)
    count = None if asked.devices is None else len(asked.devices)
    if count is not None and count < 2:
        detail = f"a collective takes at least 2 devices; got {count}"
        yield Fault(FaultCode.TOO_FEW_DEVICES, (*here, "devices"), detail)
    if asked.in_network_reduction and asked.kind is not CollectiveKind.ALL_REDUCE:
        detail = f"only an all_reduce is added up on the way; this is a {asked.kind.value}"
        yield Fault(FaultCode.INCONSISTENT, (*here, "in_network_reduction"), detail)
    if asked.demand_matrix is None:
        if asked.message_bytes is None:
            detail = "give message_bytes, or for an all_to_all a demand_matrix"
            yield Fault(FaultCode.MISSING_FIELD, (*here, "message_bytes"), detail)
        else:
            yield from _size_faults(asked.message_bytes, (*here, "message_bytes"))
        return
    where: Path = (*here, "demand_matrix")
    if asked.message_bytes is not None:
        detail = "give message_bytes or demand_matrix, not both"
        yield Fault(FaultCode.EXCLUSIVE_FIELDS, where, detail)
    if asked.kind is not CollectiveKind.ALL_TO_ALL:
        detail = f"a {asked.kind.value} has one size; only an all_to_all has a demand_matrix"
        yield Fault(FaultCode.INCONSISTENT, where, detail)
    if count is None:
        return
    if count > MAX_MATRIX_DEVICES:
        detail = f"a demand_matrix is for at most {MAX_MATRIX_DEVICES} devices; these are {count}"
        yield Fault(FaultCode.WORK_BUDGET, (*here, "devices"), detail)
        return
    yield from _matrix_faults(asked.demand_matrix, count, where)


def _matrix_faults(matrix: Sequence[Sequence[int]], count: int, where: Path) -> Iterator[Fault]:
    if len(matrix) != count:
        detail = f"one row for each of the {count} devices; got {len(matrix)}"
        yield Fault(FaultCode.WRONG_LENGTH, where, detail)
    for place, row in enumerate(matrix):
        if len(row) != count:
            detail = f"one number for each of the {count} devices; got {len(row)}"
            yield Fault(FaultCode.WRONG_LENGTH, (*where, place), detail)
        for column, amount in enumerate(row):
            yield from _size_faults(amount, (*where, place, column))


def _size_faults(message_bytes: int, path: Path) -> Iterator[Fault]:
    if not 0 <= message_bytes <= MAX_MESSAGE_BYTES:
        detail = f"between 0 and {MAX_MESSAGE_BYTES} bytes; got {message_bytes}"
        yield Fault(FaultCode.OUT_OF_RANGE, path, detail)
