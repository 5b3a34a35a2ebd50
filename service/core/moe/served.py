"""Where experts stand, and who serves what: from assignments to rows and copies."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Admitted", "ExpertPlacement", "Served"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ExpertPlacement:
    """P slots in which experts stand, in the order of the ranks: one with several is replicated.

    `slot_expert` (P,) and `slot_rank` (P,), both of logical experts and of the `ranks` of an expert
    group (those that differ in their expert coordinate). A rank without a slot has no expert.
    """

    experts: int
    ranks: int
    slot_expert: Int32Array
    slot_rank: Int32Array

    @property
    def slots(self) -> int:
        """Experts and all their replicas."""
        return len(self.slot_expert)


@dataclass(frozen=True, slots=True, eq=False)
class Admitted:
    """What becomes of assignments under a capacity: R sources, E experts, all int64.

    `kept` (R, E) are assignments that an expert serves, rerouted ones where they land; `wire`
    (R, E) the rows that travel for them and that experts compute, padding included; `dropped`
    (R,) those of each source that nobody serves, `fallback` (R,) those that its own path serves,
    `rerouted` (R,) those that went to another expert. `kept_choices` (tokens, top_k) says of each
    choice whether it is served where it was asked for; None below token level and where rerouting
    or padding moves tokens. `capacity` is rows of an expert: under source scope those for the
    source with the most assignments, else for all together; None without one.
    """

    kept: Int64Array
    wire: Int64Array
    dropped: Int64Array
    fallback: Int64Array
    rerouted: Int64Array
    kept_choices: BoolArray | None
    capacity: int | None

    @property
    def dropped_fraction(self) -> float:
        """Of all assignments; 0 of none."""
        total = int(self.kept.sum() + self.dropped.sum() + self.fallback.sum())
        return int(self.dropped.sum()) / total if total else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """Rows by source and slot: (R, P) int64, for the slots of `placement`.

    `rows` travel and are computed, padding included; `kept` are the assignments among them.
    `choices` (tokens, top_k) has the slot of each choice, -1 where it is not served; None where no
    tokens are known. R is a multiple of `placement.ranks`: with experts split over `expert_tensor`
    ranks, source r has the expert coordinate r // expert_tensor.
    """

    placement: ExpertPlacement
    rows: Int64Array
    kept: Int64Array
    choices: Int32Array | None

    @property
    def slot_rows(self) -> Int64Array:
        """(P,) rows that each slot computes."""
        summed: Int64Array = self.rows.sum(axis=0)
        return summed

    @property
    def rank_rows(self) -> Int64Array:
        """(ranks,) rows that each rank computes."""
        by_rank = np.zeros(self.placement.ranks, dtype=np.int64)
        np.add.at(by_rank, self.placement.slot_rank, self.slot_rows)
        return by_rank
