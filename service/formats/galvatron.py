"""Hetu-Galvatron's computation profiles: what one block costs, from runs of two layer counts.

Keys `layernum[2]_bsz8_seq2048` hold the milliseconds of one forward of a model with that many
blocks. The difference of two counts is what the blocks between them cost; what is left of the
smaller one is embedding, final norm, head and loss together, the layer `other`. Keys
`layertype_...`, which Galvatron derives in the same way, are held against it. Both times stay in
the description of the profile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose
from re import compile as compile_expression
from typing import Any

from msgspec import UNSET

from service.formats.documents.fields import MAX_INTEGER, MAX_LAYERS
from service.formats.documents.profile import MeasurementDocument, ProfileDocument
from service.formats.pasted_json import JsonFile, read_json
from service.formats.pasted_text import shown
from service.formats.profile_reading import ProfileReading, Stated

__all__ = ["BLOCK_LAYERS", "OTHER_LAYER", "looks_like_galvatron", "read_galvatron"]

BLOCK_LAYERS, OTHER_LAYER = "block.*", "other"
_MAX_MILLISECONDS = 1e8
_MAX_DESCRIPTION = 2000
# Of Galvatron's own derived times: they are written with all digits.
_TOLERANCE = 1e-6
_KEY = compile_expression(
    r"(?:layernum\[(?P<blocks>[0-9,]{1,40})\]|layertype_(?P<kind>[0-9]{1,4}|other))"
    r"_bsz(?P<size>[0-9]{1,16})(?:_seq(?P<length>[0-9,]{1,80}))?"
)


@dataclass(frozen=True, slots=True, order=True)
class _Shape:
    """What a time was measured at."""

    microbatch_size: int
    sequence_length: int

    def __str__(self) -> str:
        return f"bsz {self.microbatch_size} seq {self.sequence_length}"


@dataclass(frozen=True, slots=True)
class _Cost:
    """Two runs at one shape and what follows; all in milliseconds."""

    fewer: int
    more: int
    fewer_time: float
    more_time: float

    @property
    def block(self) -> float:
        """One block."""
        return (self.more_time - self.fewer_time) / (self.more - self.fewer)

    @property
    def other(self) -> float:
        """All that is no block."""
        return self.fewer_time - self.fewer * self.block


def looks_like_galvatron(content: bytes) -> bool:
    """Whether it is a JSON object of times by layer count or layer type, without ranks."""
    head = content.lstrip(b"\xef\xbb\xbf \t\r\n")
    named = b'"layernum[' in head or b'"layertype_' in head
    return head[:1] == b"{" and named and b"_rank" not in head


def read_galvatron(content: bytes, stated: Stated) -> ProfileReading:
    """Read a computation profile into measurements of `block.*` and `other`.

    A forward alone is measured; `stated.backward_ratio` makes a backward of it, as an assumption.
    Raises `InvalidInput` with every fault, each with its line (counted from 1) as path
    `("line", n)`.
    """
    file = read_json(content)
    values = file.mapping((), file.root)
    if values is None:
        raise file.refusal()
    runs, derived = _times(file, values)
    costs = {}
    for shape, times in runs.items():
        cost = _difference(file, shape, times)
        if cost is not None:
            costs[shape] = cost
    _compare(file, derived, costs)
    if not costs and file.sound:
        detail = "holds no shape with the times of two layer counts, whose difference is a block"
        file.refuse((), detail)
    if len(costs) > MAX_LAYERS // 2:
        file.refuse((), f"holds {len(costs)} shapes; at most {MAX_LAYERS // 2} make a profile")
    if not file.sound:
        raise file.refusal()
    points = [
        f"{shape}: {cost.fewer} blocks {cost.fewer_time / 1000:.9g} s, {cost.more} blocks "
        f"{cost.more_time / 1000:.9g} s"
        for shape, cost in sorted(costs.items())
    ]
    return ProfileReading(
        profile=ProfileDocument(
            description=_described(points),
            device=UNSET if stated.device is None else stated.device,
            precision=UNSET if stated.precision is None else stated.precision,
            measurements=[
                _measurement(layer, shape, milliseconds, stated.backward_ratio)
                for shape, cost in sorted(costs.items())
                for layer, milliseconds in (
                    (BLOCK_LAYERS, cost.block),
                    (OTHER_LAYER, cost.other),
                )
            ],
        ),
        model=None,
        facts={
            "shapes": len(costs),
            "times": sum(map(len, runs.values())),
            "derived_times": len(derived),
            "points": points[:100],
        },
        assumptions=_assumptions(stated),
        left_out=file.left_out(),
    )


def _assumptions(stated: Stated) -> tuple[str, ...]:
    backward = (
        "a forward alone was measured: the backward stays unknown; state backward_ratio to assume "
        "one"
        if stated.backward_ratio is None
        else f"a backward takes {stated.backward_ratio:g} times its forward, as the import stated; "
        "a forward alone was measured"
    )
    return (
        (
            "a block is the difference of two layer counts over how many they differ by; both "
            "times are in the description"
        ),
        (
            f"{BLOCK_LAYERS} is each block; {OTHER_LAYER} is embedding, final norm, head and loss "
            "together, which the file does not tell apart"
        ),
        "times are of one device, without tensor parallelism and without recompute",
        backward,
    )


def _described(points: list[str]) -> str:
    text = "Hetu-Galvatron, one forward by layer count"
    for place, point in enumerate(points):
        more = f"; and {len(points) - place} more shapes"
        if len(text) + len(point) + len(more) + 2 > _MAX_DESCRIPTION:
            return text + more
        text += f"; {point}"
    return text


def _measurement(
    layer: str, shape: _Shape, milliseconds: float, ratio: float | None
) -> MeasurementDocument:
    seconds = milliseconds / 1000
    return MeasurementDocument(
        layer=layer,
        microbatch_size=shape.microbatch_size,
        sequence_length=shape.sequence_length,
        forward_seconds=seconds,
        backward_seconds=UNSET if ratio is None else seconds * ratio,
    )


_Runs = dict[_Shape, dict[int, float]]
_Derived = dict[str, tuple[_Shape, str, float]]


def _times(file: JsonFile, values: Mapping[str, Any]) -> tuple[_Runs, _Derived]:
    runs: _Runs = {}
    derived: _Derived = {}
    for key, value in values.items():
        if file.enough:
            break
        found = _KEY.fullmatch(key)
        if found is None:
            file.refuse((key,), "is no time of a computation profile: layernum[2]_bsz8_seq2048")
            continue
        if found["length"] is None:
            file.refuse((key,), "says no sequence length (_seq2048)")
            continue
        if "," in f"{found['blocks'] or ''}{found['length']}" or found["kind"] not in (
            None,
            "0",
            "other",
        ):
            file.refuse((key,), "is of a model with several types of layers, which is not read")
            continue
        time = file.number((key,), value, most=_MAX_MILLISECONDS)
        size, length = int(found["size"]), int(found["length"])
        if not 1 <= size <= MAX_INTEGER or not 1 <= length <= MAX_INTEGER:
            file.refuse((key,), f"is of 1 to {MAX_INTEGER} samples and tokens")
        elif time is not None and found["blocks"] is not None:
            blocks = int(found["blocks"])
            if not 1 <= blocks <= MAX_LAYERS:
                file.refuse((key,), f"is of 1 to {MAX_LAYERS} blocks; got {shown(found['blocks'])}")
            elif blocks in runs.setdefault(_Shape(size, length), {}):
                file.refuse((key,), "stands twice, written differently")
            else:
                runs[_Shape(size, length)][blocks] = time
        elif time is not None:
            derived[key] = (_Shape(size, length), found["kind"], time)
    return runs, derived


def _key(blocks: int, shape: _Shape) -> str:
    return f"layernum[{blocks}]_bsz{shape.microbatch_size}_seq{shape.sequence_length}"


def _difference(file: JsonFile, shape: _Shape, times: Mapping[int, float]) -> _Cost | None:
    fewer, more = min(times), max(times)
    if fewer == more:
        detail = "the time of one layer count alone: a block is the difference of two"
        file.leave_out((_key(fewer, shape),), detail)
        return None
    for between in times.keys() - {fewer, more}:
        file.leave_out(
            (_key(between, shape),), f"between {fewer} and {more} blocks, which are used"
        )
    cost = _Cost(fewer, more, times[fewer], times[more])
    if cost.block <= 0 or cost.other < 0:
        detail = (
            f"takes {times[more]:g} ms where {fewer} blocks take {times[fewer]:g}: a block would "
            "take no time, or the rest less than none"
        )
        file.refuse((_key(more, shape),), detail)
        return None
    return cost


def _compare(file: JsonFile, derived: _Derived, costs: Mapping[_Shape, _Cost]) -> None:
    """Galvatron divides by the batch size as well."""
    for key, (shape, kind, time) in derived.items():
        cost = costs.get(shape)
        if cost is None:
            file.leave_out((key,), "derived from times that the file does not hold for two counts")
            continue
        ours = (cost.other if kind == "other" else cost.block) / shape.microbatch_size
        if isclose(time, ours, rel_tol=_TOLERANCE):
            file.leave_out((key,), "follows from the times of two layer counts, and agrees")
        else:
            detail = f"says {time:g} ms a sample; from {cost.fewer} and {cost.more} blocks {ours:g}"
            file.refuse((key,), f"{detail} follow")
