"""Recorded times of handing tensors on, as a part of the profile document."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.profiles.profile import Profile
from service.core.profiles.transfers import RecordedTransfer
from service.core.units import to_picoseconds
from service.formats.documents.fields import MAX_LAYERS, ElementName, PositiveCount, Seconds

__all__ = ["MAX_TRANSFERS", "TransferDocument", "TransferPass", "with_transfers"]

MAX_TRANSFERS = 4 * MAX_LAYERS


class TransferPass(StrEnum):
    """Which pass of a layer hands something on."""

    FORWARD = "forward"
    BACKWARD = "backward"


class TransferDocument(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What handing on one tensor took, where times were recorded and not bytes on links.

    It prices no boundary: a load rule of a plan charges it.
    """

    name: Annotated[ElementName, Meta(description="The tensor", examples=["node12.output"])]
    source: Annotated[ElementName, Meta(description="The layer that makes it")]
    targets: Annotated[
        list[ElementName],
        Meta(min_length=1, max_length=MAX_LAYERS, description="The layers that take it"),
    ]
    source_pass: Annotated[TransferPass, Meta(description="The pass of `source` that makes it")]
    microbatch_size: Annotated[
        PositiveCount, Meta(description="Samples per microbatch when it was recorded")
    ]
    seconds: Annotated[
        Seconds,
        Meta(description="To one other device, charged at each end", examples=[0.0000477]),
    ]


def with_transfers(profile: Profile, documents: Sequence[TransferDocument]) -> Profile:
    """The profile, and these transfers in it.

    Raises `InvalidInput` with every fault; paths lie below `transfers`.
    """
    faults: list[Fault] = []
    read = []
    for index, document in enumerate(documents):
        path = ("transfers", index)
        if document.source in document.targets:
            detail = f"{document.source!r} makes it, and so has it: leave it out"
            here = (*path, "targets", document.targets.index(document.source))
            faults.append(Fault(FaultCode.INCONSISTENT, here, detail))
        try:
            picoseconds = to_picoseconds(document.seconds, (*path, "seconds"))
        except InvalidInput as invalid:
            faults += invalid.faults
            continue
        read.append(
            RecordedTransfer(
                name=document.name,
                source=document.source,
                targets=tuple(document.targets),
                backward=document.source_pass is TransferPass.BACKWARD,
                microbatch_size=document.microbatch_size,
                picoseconds=picoseconds,
            )
        )
    if faults:
        raise InvalidInput(faults)
    return replace(profile, transfers=tuple(read))
