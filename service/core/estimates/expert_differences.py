"""What two plans have otherwise in their experts: what they say of them, and what layers take."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from itertools import zip_longest

from service.core.amounts import largest
from service.core.errors import Path
from service.core.moe.settings import MoeSettings
from service.core.plans.moe.results import MoeLayer, Pass
from service.core.plans.plan import ResolvedPlan

__all__ = ["ExpertDifferences", "ExpertLayerSide", "SettingDifference", "expert_differences"]

# Under which name a document has what a setting of the core is called otherwise.
_NAMES = {
    "experts_by_rank": "placement",
    "factor": "capacity_factor",
    "scope": "capacity_scope",
    "minimum": "capacity_minimum",
    "alignment": "capacity_alignment",
    "order": "drop_order",
}
# Parts of the settings whose fields stand beside the others in a document.
_LAID_OPEN = frozenset({"capacity"})
_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A field of `moe` that differs, by its place in the plan; None where a plan does not say it.

    Long lists are cut short.
    """

    path: Path
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class ExpertLayerSide:
    """A layer with experts in one plan: the mean picoseconds of its experts in a microbatch, and
    the most rows that come to any rank.
    """

    name: str | None
    stage: int
    forward: Fraction
    backward: Fraction
    most_rows: int


@dataclass(frozen=True, slots=True)
class ExpertDifferences:
    """`layers` has those that take another time, by their number among the layers with experts."""

    settings: tuple[SettingDifference, ...]
    layers: Mapping[int, tuple[ExpertLayerSide | None, ExpertLayerSide | None]]


def expert_differences(before: ResolvedPlan, after: ResolvedPlan) -> ExpertDifferences:
    """Nothing of plans without `moe`."""
    said = [_said(plan.moe.inputs.settings) if plan.moe else {} for plan in (before, after)]
    settings = tuple(
        SettingDifference(path, said[0].get(path), said[1].get(path))
        for path in dict.fromkeys((*said[0], *said[1]))
        if said[0].get(path) != said[1].get(path)
    )
    sides = [
        [_side(plan, layer) for layer in plan.moe.layers] if plan.moe else []
        for plan in (before, after)
    ]
    layers = {
        number: (one, other)
        for number, (one, other) in enumerate(zip_longest(*sides))
        if one is None
        or other is None
        or (one.forward, one.backward) != (other.forward, other.backward)
    }
    return ExpertDifferences(settings, layers)


def _side(plan: ResolvedPlan, layer: MoeLayer) -> ExpertLayerSide:
    def mean(way: Pass) -> Fraction:
        return plan.sizes.spread(layer.takes[way]).mean

    return ExpertLayerSide(
        name=layer.layer.name,
        stage=layer.layer.stage,
        forward=mean(Pass.FORWARD),
        backward=mean(Pass.BACKWARD),
        most_rows=largest(
            tuple(
                max(int(load.rank_rows.max(initial=0)) for load in run.groups) for run in layer.runs
            )
        ),
    )


def _said(settings: MoeSettings) -> dict[Path, str]:
    return dict(_fields(settings, ("moe",)))


def _fields(part: object, path: Path) -> Iterator[tuple[Path, str]]:
    if not is_dataclass(part) or isinstance(part, type):
        return
    for field in fields(part):
        value = getattr(part, field.name)
        here = path if field.name in _LAID_OPEN else (*path, _NAMES.get(field.name, field.name))
        if is_dataclass(value):
            yield from _fields(value, here)
        elif value is not None:
            yield here, _written(value)


def _written(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    text = _lists(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def _lists(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, tuple):
        return str(value)
    return f"[{', '.join(map(_lists, value))}]"
