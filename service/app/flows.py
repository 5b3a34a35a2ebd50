"""Questions about many transfers in a stored topology."""

from dataclasses import dataclass, replace

from service.core.errors import InvalidInput
from service.core.plans.devices import expand_devices
from service.core.topology.cluster import Cluster
from service.core.topology.flows.questions import (
    FlowFindings,
    FlowQuestion,
    answer_flows,
    question_faults,
)

__all__ = ["FlowInquiry", "devices_of", "inquire"]


@dataclass(frozen=True, slots=True)
class FlowInquiry:
    """A question whose collective, if there is one, is among the accelerators that patterns name.

    Without `patterns` it is among all.
    """

    question: FlowQuestion
    patterns: tuple[str, ...] | None = None


def inquire(cluster: Cluster, inquiry: FlowInquiry) -> FlowFindings:
    """Find the devices and answer. Pure; raises `InvalidInput` with every fault of the request."""
    question = inquiry.question
    if question.collective is None:
        return answer_flows(cluster, question)
    try:
        devices = devices_of(cluster, inquiry)
    except InvalidInput as refused:
        raise InvalidInput([*refused.faults, *question_faults(cluster, question)]) from refused
    collective = replace(question.collective, devices=devices)
    return answer_flows(cluster, replace(question, collective=collective))


def devices_of(cluster: Cluster, inquiry: FlowInquiry) -> tuple[str, ...]:
    """The accelerators of an inquiry's collective. Raises `InvalidInput` with every fault."""
    try:
        return expand_devices(cluster, inquiry.patterns)
    except InvalidInput as refused:
        raise InvalidInput(
            [
                replace(fault, path=("collective", "devices", *fault.path[2:]))
                for fault in refused.faults
            ]
        ) from refused
