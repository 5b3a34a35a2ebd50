"""Which slot serves which rows: the replicas of an expert divide them by a stated rule."""

import numpy as np
import numpy.typing as npt

from service.core.moe.assignments import Assignments
from service.core.moe.choice_kernels import serve_in_turn
from service.core.moe.served import Admitted, ExpertPlacement, Served
from service.core.moe.settings import ReplicaSplitting

__all__ = ["serve"]

BoolArray = npt.NDArray[np.bool_]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

# Sources at a time: what is worked out for each source and slot then stays in the caches.
BLOCK = 64


def serve(
    admitted: Admitted,
    assignments: Assignments,
    placement: ExpertPlacement,
    splitting: ReplicaSplitting,
    *,
    expert_tensor: int = 1,
    node_of_source: Int64Array,
) -> Served:
    """Rows by source and slot. `node_of_source` (R,) has the host of each source.

    Of an expert's replicas those that may serve a source take its rows in turn, source r beginning
    with the one numbered r modulo their number: so they differ by a row at most, and rows that are
    left over do not all go to the first. All may serve it, or the one of its turn (`by_source`), or
    those on its rank, else on its host, else all (`local_first`).

    Raises ValueError where there are not `expert_tensor` sources for each rank.
    """
    sources = assignments.sources
    if sources != placement.ranks * expert_tensor:
        raise ValueError(
            f"{sources} sources are not {expert_tensor} for each of {placement.ranks} ranks"
        )
    replicas = _Replicas(placement)
    if replicas.most == 1:
        rows = admitted.wire[:, placement.slot_expert]
        padded = admitted.wire is not admitted.kept
        kept = admitted.kept[:, placement.slot_expert] if padded else rows
        return Served(placement, rows, kept, _only_slots(admitted, assignments, replicas))
    rows = np.empty((sources, placement.slots), dtype=np.int64)
    kept = rows if admitted.wire is admitted.kept else np.empty_like(rows)
    choices = _Choices.of(admitted, assignments)
    for begin in range(0, sources, BLOCK):
        block = np.arange(begin, min(begin + BLOCK, sources))
        may = _may_serve(replicas, placement, splitting, node_of_source, expert_tensor, block)
        turns = _Turns(replicas, may, block)
        rows[block] = turns.divide(admitted.wire[block])
        if kept is not rows:
            kept[block] = turns.divide(admitted.kept[block])
        if choices is not None:
            choices.serve(turns)
    return Served(placement, rows, kept, None if choices is None else choices.slots)


class _Replicas:
    """Slots by expert: `place` (P,) of each among those of its expert, `number` (E,) of these.

    `order` (P,) sorts slots by expert, of which the first is at `first` (E,). `slot` (E, most) has
    those of each expert in their order, -1 beyond them.
    """

    def __init__(self, placement: ExpertPlacement) -> None:
        self.expert = placement.slot_expert.astype(np.int64)
        self.order = np.argsort(self.expert, kind="stable")
        self.number = np.bincount(self.expert, minlength=placement.experts)
        self.first = np.cumsum(self.number) - self.number
        self.place = np.empty(placement.slots, dtype=np.int64)
        self.place[self.order] = np.arange(placement.slots) - self.first[self.expert[self.order]]
        self.most = int(self.number.max(initial=1))
        self.slot = np.full((placement.experts, self.most), -1, dtype=np.int64)
        self.slot[self.expert, self.place] = np.arange(placement.slots)

    def count(self, flags: BoolArray) -> Int64Array:
        """(n, E) how many slots of each expert have the flag; flags are (n, P)."""
        counted: Int64Array = np.add.reduceat(
            flags[:, self.order], self.first, axis=1, dtype=np.int64
        )
        return counted


class _Turns:
    """Of some sources: which slots serve each in turn, (n, P), and from where on."""

    def __init__(self, replicas: _Replicas, may: BoolArray, sources: Int64Array) -> None:
        self.expert, self.sources = replicas.expert, sources
        self.may, self.number = may, replicas.count(may)
        ordered = may[:, replicas.order]
        before = np.cumsum(ordered, axis=1, dtype=np.int64) - ordered
        of_expert = replicas.first[replicas.expert[replicas.order]]
        place = np.empty_like(before)
        place[:, replicas.order] = before - before[:, of_expert]
        # Of the slots that serve source r, that with r modulo their number has its first row.
        begins = (sources[:, None] % self.number)[:, self.expert]
        behind = np.where(place < begins, self.number[:, self.expert], 0)
        self.turn = place - begins + behind

    def divide(self, asked: Int64Array) -> Int64Array:
        """(n, P) rows of each slot, of those (n, E) that its source asks its expert for."""
        each, over = np.divmod(asked, self.number)
        rows = each[:, self.expert] + (self.turn < over[:, self.expert])
        return np.where(self.may, rows, 0)


def _may_serve(
    replicas: _Replicas,
    placement: ExpertPlacement,
    splitting: ReplicaSplitting,
    node_of_source: Int64Array,
    expert_tensor: int,
    sources: Int64Array,
) -> BoolArray:
    """(n, P) whether a slot may serve a source; of each expert at least one may."""
    if splitting is ReplicaSplitting.EVEN:
        return np.ones((len(sources), placement.slots), dtype=bool)
    if splitting is ReplicaSplitting.BY_SOURCE:
        turn = (sources[:, None] % replicas.number)[:, replicas.expert]
        by_source: BoolArray = replicas.place == turn
        return by_source
    slot_rank = placement.slot_rank.astype(np.int64)
    shard = (sources % expert_tensor)[:, None]
    here = slot_rank == (sources // expert_tensor)[:, None]
    near = node_of_source[slot_rank * expert_tensor + shard] == node_of_source[sources, None]
    may: BoolArray = here | (near & (replicas.count(here) == 0)[:, replicas.expert])
    may |= (replicas.count(may) == 0)[:, replicas.expert]
    return may


def _only_slots(
    admitted: Admitted, assignments: Assignments, replicas: _Replicas
) -> Int32Array | None:
    """(tokens, top_k) the slot of each choice where no expert has replicas."""
    kept, choices = admitted.kept_choices, assignments.choices
    if kept is None or choices is None:
        return None
    return np.where(kept, replicas.slot[choices, 0], -1).astype(np.int32)


class _Choices:
    """Choices of tokens that get slots, source by source."""

    def __init__(self, kept: BoolArray, choices: Int32Array, assignments: Assignments) -> None:
        self.kept, self.offsets = np.ascontiguousarray(kept), assignments.offsets
        self.choices = np.ascontiguousarray(choices, dtype=np.int32)
        self.slots = np.full(choices.shape, -1, dtype=np.int32)

    @classmethod
    def of(cls, admitted: Admitted, assignments: Assignments) -> "_Choices | None":
        """None where it is not known which choices are served."""
        if admitted.kept_choices is None or assignments.choices is None:
            return None
        return cls(admitted.kept_choices, assignments.choices, assignments)

    def serve(self, turns: _Turns) -> None:
        """The slots of the choices of the sources whose turns these are."""
        serve_in_turn(
            self.offsets,
            self.choices,
            self.kept,
            int(turns.sources[0]),
            turns.expert,
            np.ascontiguousarray(turns.may),
            np.ascontiguousarray(turns.turn),
            np.ascontiguousarray(turns.number),
            self.slots,
        )
