"""What a file of expert loads is read into, and what the caller says beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.core.errors import LeftOut, Path

__all__ = ["MAX_COUNTED", "ReadRecord", "RoutingReading", "StatedRouting"]

# Counts of all sources and experts, layers and steps that tables may stand for which leave out
# those that are 0.
MAX_COUNTED = 2**22


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRouting:
    """What the caller says that a file can't; None where nothing is said.

    `loads` says that counts are in a unit that is no number of tokens; `replicated` how often each
    assignment was counted; `drop_warm_up` leaves dummy tokens of an engine's warm-up out.
    """

    experts: int | None = None
    top_k: int | None = None
    loads: bool | None = None
    replicated: int | None = None
    drop_warm_up: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadRecord:
    """One layer in one step, as the document of a routing has it.

    `form` is `topk_ids`, `matrix` or `counts`, and `rows` what stands there; counts are a single
    row. `step` is None where nothing says it. `weights` are the router's for each of `topk_ids`.
    """

    layer: int
    step: int | None
    form: str
    rows: Sequence[Sequence[int]]
    tokens: int | None = None
    tokens_by_source: Sequence[int] | None = None
    padded: Sequence[bool] | None = None
    padded_tokens: int | None = None
    weights: Sequence[Sequence[float]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoutingReading:
    """What one file says; None where it says nothing.

    `loads` is whether it says itself that its counts are no assignments, `sparse` whether it leaves
    out who was not asked for, so that there may be more experts and sources. `lines_of` has lines
    of places, each given as the number of a record and the path within it.
    """

    records: Sequence[ReadRecord]
    lines_of: Callable[[Sequence[tuple[int, Path]]], list[int]]
    experts: int | None = None
    top_k: int | None = None
    loads: bool = False
    sparse: bool = False
    tokens: int | None = None
    replicated: int | None = None
    model: str | None = None
    dataset: str | None = None
    assumptions: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def facts(self) -> dict[str, int]:
        """What it holds, in a few numbers; `tokens` where it lists them."""
        listed = [len(record.rows) for record in self.records if record.form == "topk_ids"]
        counted = {
            "layers": len({record.layer for record in self.records}),
            "steps": len({record.step for record in self.records}),
        }
        return counted | ({"tokens": sum(listed)} if listed else {})
