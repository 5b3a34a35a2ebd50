"""Wire types of sensitivities: what the makespan follows, and what given changes would do."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.api.schemas.answers import answer_type
from service.api.schemas.requests import PlanRequest
from service.core.schedules.gains import Change, Gain, OperationChange, TransferChange
from service.core.schedules.program import OpKind
from service.core.schedules.sensitivity import Derivative
from service.core.schedules.sensitivity import Sensitivity as CoreSensitivity
from service.core.schedules.timeline import Timeline
from service.core.units import to_seconds
from service.formats.documents.fields import MAX_STAGES, Seconds

__all__ = [
    "MAX_CHANGES",
    "ChangeEffect",
    "ChangedOperation",
    "ChangedTransfer",
    "OperationSensitivity",
    "Sensitivities",
    "SensitivitiesAnswer",
    "SensitivitiesRequest",
    "Sensitivity",
    "TransferSensitivity",
    "core_changes",
    "sensitivities_terms",
    "sensitivity_terms",
]

# Each is one more simulation of the plan.
MAX_CHANGES = 64

_MEANING = (
    "With every rank's order held fixed: what is faster by x seconds gains at most x times "
    "makespan_seconds_per_second, and what is slower by x seconds loses at least that, because "
    "another chain may take over. Where several chains are equally long, the numbers are of one "
    "of them. POST /v1/sensitivities gives the exact gain of a given change."
)

_Stage = Annotated[int, Meta(ge=0, le=MAX_STAGES - 1)]
_Direction = Annotated[
    Literal["forward", "backward"],
    Meta(description="forward from source to target, backward for the gradient's way back"),
]


class _Changed(
    msgspec.Struct,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="changed",
):
    """What every change has: the new time, in one of two ways."""

    seconds: (
        Annotated[
            Seconds,
            Meta(description="The new time of one of them; this or factor.", examples=[0.005]),
        ]
        | UnsetType
    ) = UNSET
    factor: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=1e6,
                description="The new time as a multiple of the present one; this or seconds.",
                examples=[0.9],
            ),
        ]
        | UnsetType
    ) = UNSET


class ChangedOperation(_Changed, kw_only=True, frozen=True, tag="operation"):
    """Every operation of one kind on one stage takes another time."""

    stage: Annotated[_Stage, Meta(description="Global stage.", examples=[2])]
    kind: Annotated[
        Literal[
            "forward",
            "backward",
            "backward_input",
            "backward_weight",
            "recompute",
            "forward_backward",
        ],
        Meta(
            description="Kind of operation; one that the schedule runs and the plan times.",
            examples=["backward"],
        ),
    ]


class ChangedTransfer(_Changed, kw_only=True, frozen=True, tag="transfer"):
    """Every transfer of one boundary and direction takes another time."""

    source_stage: Annotated[_Stage, Meta(description="The lower stage.", examples=[1])]
    target_stage: Annotated[_Stage, Meta(description="The higher stage.", examples=[2])]
    direction: _Direction


class SensitivitiesRequest(PlanRequest, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A plan, and changes of which each is tried alone."""

    changes: Annotated[
        list[ChangedOperation | ChangedTransfer],
        Meta(
            max_length=MAX_CHANGES,
            description=(
                "Changes of stage and transfer times, each tried alone with every rank's order "
                "held fixed. For a changed plan in all its parts use `patch`."
            ),
        ),
    ] = msgspec.field(default_factory=list)


_SLOPE = Meta(
    ge=0,
    description=(
        "Seconds of makespan for each second that one of them takes longer: how many of them are "
        "on the critical path."
    ),
)
_ON_PATH = Meta(
    ge=0,
    description="Their time on the critical path: the most that could be gained from them.",
)


class OperationSensitivity(msgspec.Struct, kw_only=True, frozen=True):
    """How the makespan follows the operations of one kind on one stage."""

    stage: Annotated[int, Meta(ge=0)]
    kind: Annotated[str, Meta(description="Kind of operation.", examples=["forward"])]
    makespan_seconds_per_second: Annotated[int, _SLOPE]
    path_seconds: Annotated[float, _ON_PATH]


class TransferSensitivity(msgspec.Struct, kw_only=True, frozen=True):
    """How the makespan follows the transfers of one boundary in one direction."""

    source_stage: Annotated[int, Meta(ge=0)]
    target_stage: Annotated[int, Meta(ge=0)]
    direction: Annotated[str, Meta(description="forward or backward")]
    makespan_seconds_per_second: Annotated[int, _SLOPE]
    path_seconds: Annotated[float, _ON_PATH]


class Sensitivity(msgspec.Struct, kw_only=True, frozen=True):
    """Derivatives of the makespan along the critical path: bounds of gains, not gains."""

    operations: Annotated[
        list[OperationSensitivity], Meta(description="Every stage and kind that is run.")
    ]
    transfers: Annotated[
        list[TransferSensitivity], Meta(description="Every boundary between ranks, each way.")
    ]
    meaning: Annotated[str, Meta(description="What may be concluded from the numbers.")]


class ChangeEffect(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one change alone does, exactly, beside what the derivative allows."""

    change: ChangedOperation | ChangedTransfer
    before_seconds: Annotated[float, Meta(ge=0, description="Of one of them, as it is.")]
    after_seconds: Annotated[float, Meta(ge=0, description="Of one of them, changed.")]
    makespan_seconds: Annotated[
        float, Meta(ge=0, description="Of the same order with the changed time.")
    ]
    gain_seconds: Annotated[
        float, Meta(description="By how much the makespan is shorter; negative when longer.")
    ]
    gain_bound_seconds: Annotated[
        float | UnsetType,
        Meta(
            description=(
                "Derivative x change: the gain is never more, and equal while the same chain of "
                "operations sets the makespan. Absent in `link` mode, where no such bound holds."
            )
        ),
    ] = UNSET


class Sensitivities(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Derivatives of a plan's makespan, and the exact effect of each change in their order."""

    makespan_seconds: Annotated[float, Meta(ge=0, description="Of the plan without any change.")]
    sensitivity: Annotated[
        Sensitivity | UnsetType,
        Meta(description="Absent in `link` mode: where transfers queue a slope bounds nothing."),
    ] = UNSET
    changes: list[ChangeEffect]


SensitivitiesAnswer = answer_type("SensitivitiesAnswer", Sensitivities)


def core_changes(request: SensitivitiesRequest) -> list[Change]:
    """The changes in the core's terms."""
    return [
        OperationChange(
            stage=change.stage,
            kind=OpKind[change.kind.upper()],
            seconds=_or_none(change.seconds),
            factor=_or_none(change.factor),
        )
        if isinstance(change, ChangedOperation)
        else TransferChange(
            source=change.source_stage,
            target=change.target_stage,
            gradient=change.direction == "backward",
            seconds=_or_none(change.seconds),
            factor=_or_none(change.factor),
        )
        for change in request.changes
    ]


def _or_none(value: float | UnsetType) -> float | None:
    return None if value is UNSET else value


def sensitivity_terms(timeline: Timeline, sensitivity: CoreSensitivity) -> Sensitivity:
    """The wire form of a timeline's derivatives."""
    # A schedule of two directions has each boundary twice, between other ranks.
    boundaries: dict[tuple[int, int, bool], list[Derivative]] = {}
    for (index, gradient), derivative in sensitivity.transfers.items():
        edge = timeline.program.stage_edges[index]
        boundaries.setdefault((edge.source, edge.target, gradient), []).append(derivative)
    return Sensitivity(
        operations=[
            OperationSensitivity(
                stage=stage,
                kind=kind.name.lower(),
                makespan_seconds_per_second=derivative.on_path,
                path_seconds=to_seconds(derivative.picoseconds),
            )
            for (stage, kind), derivative in sensitivity.operations.items()
        ],
        transfers=[
            TransferSensitivity(
                source_stage=source,
                target_stage=target,
                direction="backward" if gradient else "forward",
                makespan_seconds_per_second=sum(derivative.on_path for derivative in found),
                path_seconds=to_seconds(sum(derivative.picoseconds for derivative in found)),
            )
            for (source, target, gradient), found in boundaries.items()
        ],
        meaning=_MEANING,
    )


def sensitivities_terms(
    timeline: Timeline,
    sensitivity: CoreSensitivity | None,
    request: SensitivitiesRequest,
    gains: tuple[Gain, ...],
) -> Sensitivities:
    """The wire form of derivatives, if any, and exact gains, in the order of the changes."""
    return Sensitivities(
        makespan_seconds=to_seconds(timeline.makespan),
        sensitivity=UNSET if sensitivity is None else sensitivity_terms(timeline, sensitivity),
        changes=[
            ChangeEffect(
                change=change,
                before_seconds=to_seconds(gain.before),
                after_seconds=to_seconds(gain.after),
                makespan_seconds=to_seconds(gain.makespan),
                gain_seconds=to_seconds(gain.gain),
                gain_bound_seconds=UNSET if gain.bound is None else to_seconds(gain.bound),
            )
            for change, gain in zip(request.changes, gains, strict=True)
        ],
    )
