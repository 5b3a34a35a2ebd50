"""Wire types of questions about many transfers."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.app.flows import FlowInquiry
from service.core.topology.bounds import MAX_MESSAGE_BYTES
from service.core.topology.flows.bounds import FlowRouting
from service.core.topology.flows.demands import CollectiveKind
from service.core.topology.flows.questions import (
    MAX_FLOWS,
    MAX_MATRIX_DEVICES,
    Collective,
    Flow,
    FlowQuestion,
)

__all__ = ["CollectiveIn", "FlowIn", "FlowsRequest", "flow_inquiry"]

MAX_LINKS = 10_000
MAX_PATTERNS = 4_096

_Device = Annotated[str, Meta(min_length=1, max_length=200, examples=["host0/gpu0"])]
_Size = Annotated[int, Meta(ge=0, le=MAX_MESSAGE_BYTES)]


class FlowIn(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One message."""

    source: Annotated[_Device, Meta(description="host/device, or the name of a switch.")]
    target: Annotated[_Device, Meta(description="host/device, or the name of a switch.")]
    message_bytes: Annotated[int, Meta(ge=0, le=MAX_MESSAGE_BYTES, examples=[16777216])]


class CollectiveIn(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A collective operation."""

    kind: CollectiveKind
    devices: Annotated[
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=200)]],
            Meta(min_length=1, max_length=MAX_PATTERNS),
        ]
        | UnsetType,
        Meta(
            description="Names, patterns and host lists as in `placement.devices` of a plan, in "
            "the order of the ranks; all accelerators when absent.",
            examples=[["host[0-1]/gpu*"]],
        ),
    ] = UNSET
    message_bytes: Annotated[
        _Size | UnsetType,
        Meta(
            description="As nccl-tests count: what each device holds before an all_to_all (a block "
            "for each device, its own included), a reduce_scatter or an all_reduce, and after an "
            "all_gather.",
            examples=[268435456],
        ),
    ] = UNSET
    demand_matrix: Annotated[
        Annotated[
            list[Annotated[list[_Size], Meta(max_length=MAX_MATRIX_DEVICES)]],
            Meta(max_length=MAX_MATRIX_DEVICES),
        ]
        | UnsetType,
        Meta(
            description="Of an all_to_all with unequal blocks: bytes from each device (rows) to "
            "each. What a device keeps moves nothing."
        ),
    ] = UNSET
    in_network_reduction: Annotated[
        bool,
        Meta(description="Whether switches add up on the way (NVLS, SHARP), in an all_reduce."),
    ] = False


class FlowsRequest(
    msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Single messages or a collective, one of them."""

    flows: Annotated[
        Annotated[list[FlowIn], Meta(min_length=1, max_length=MAX_FLOWS)] | UnsetType,
        Meta(description="Messages that all start at the same time."),
    ] = UNSET
    collective: CollectiveIn | UnsetType = UNSET
    routing: Annotated[
        FlowRouting,
        Meta(
            description="any: divided over all routes that are allowed, so that nothing is quicker "
            "whatever the routing; pinned: each pair on its pinned path."
        ),
    ] = FlowRouting.ANY
    max_links: Annotated[
        int,
        Meta(ge=0, le=MAX_LINKS, description="How many used links are listed, the fullest first."),
    ] = 1_000


def flow_inquiry(data: FlowsRequest) -> FlowInquiry:
    """The question of a request."""
    asked = data.collective
    collective = None
    patterns: tuple[str, ...] | None = None
    if not isinstance(asked, UnsetType):
        matrix = asked.demand_matrix
        patterns = None if isinstance(asked.devices, UnsetType) else tuple(asked.devices)
        collective = Collective(
            kind=asked.kind,
            devices=None,
            message_bytes=None
            if isinstance(asked.message_bytes, UnsetType)
            else asked.message_bytes,
            demand_matrix=(
                None if isinstance(matrix, UnsetType) else tuple(tuple(row) for row in matrix)
            ),
            in_network_reduction=asked.in_network_reduction,
        )
    flows = None
    if not isinstance(data.flows, UnsetType):
        flows = tuple(Flow(one.source, one.target, one.message_bytes) for one in data.flows)
    return FlowInquiry(FlowQuestion(flows, collective, data.routing), patterns)
