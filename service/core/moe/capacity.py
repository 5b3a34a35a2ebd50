"""What becomes of assignments under a capacity: who is served, dropped, sent elsewhere.

A capacity is that of Megatron-LM and DeepSpeed (moe_and_memory.md A2): a factor times the mean of
an expert, of the tokens of one source or of all. It never drops anything where it exceeds the
tokens there are, as a token asks for an expert once.
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.moe.assignments import Assignments
from service.core.moe.choice_kernels import keep_first
from service.core.moe.overflow import Capacity, CapacityScope, DropOrder, OverflowPolicy
from service.core.moe.remainders import shares
from service.core.moe.rerouting import reroute
from service.core.moe.served import Admitted

__all__ = ["admit", "capacity_faults", "capacity_rows", "reroute_bounds"]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]

# Rows of one capacity: what every reader of JSON keeps exactly.
_MOST_ROWS = 2**53


def capacity_faults(capacity: Capacity) -> list[Fault]:
    """What contradicts itself in a capacity, under the names that requests have for its fields."""
    policy = capacity.overflow.value
    if not capacity.limits:
        stated = (
            ("capacity_factor", capacity.factor is not None),
            ("capacity_scope", capacity.scope is not None),
            ("capacity_minimum", capacity.minimum > 0),
            ("capacity_alignment", capacity.alignment > 1),
        )
        detail = (
            f"{policy} has no capacity: leave this out, or say in overflow what happens to tokens "
            "beyond it"
        )
        return [
            Fault(FaultCode.EXCLUSIVE_FIELDS, (name,), detail) for name, given in stated if given
        ]
    faults = []
    if capacity.factor is None:
        detail = f"{policy} begins at a capacity: say which part of the mean"
        faults.append(Fault(FaultCode.MISSING_FIELD, ("capacity_factor",), detail))
    if capacity.scope is None:
        detail = (
            "say of which tokens the capacity is a share: source (each rank's own, as Megatron-LM "
            "and DeepSpeed count it) or global (of all of the group)"
        )
        faults.append(Fault(FaultCode.MISSING_FIELD, ("capacity_scope",), detail))
    return faults


def capacity_rows(capacity: Capacity, assigned: npt.ArrayLike, experts: int) -> Int64Array:
    """Rows of an expert for each number of assignments: the same shape as `assigned`.

    max(minimum, ceil(factor x assigned / experts)), then up to a multiple of the alignment. The
    factor is read as the decimal that was written, so that 1.1 x 10 is 11 and not a bit more.

    Raises InvalidInput where the policy has no capacity, or lacks its factor, and for more rows
    than are counted.
    """
    if capacity.factor is None or not capacity.limits:
        raise InvalidInput(capacity_faults(capacity) or [_no_limit(capacity)])
    factor = Fraction(repr(capacity.factor))
    numbers = np.asarray(assigned, dtype=np.int64)
    distinct, places = np.unique(numbers, return_inverse=True)
    rows = [-(-factor * int(number) // experts) for number in distinct]
    least = [_aligned(max(capacity.minimum, int(row)), capacity.alignment) for row in rows]
    if max(least, default=0) > _MOST_ROWS:
        raise InvalidInput([_too_many(capacity, max(least))])
    return np.array(least, dtype=np.int64)[places].reshape(numbers.shape)


def admit(assignments: Assignments, capacity: Capacity) -> Admitted:
    """What of each source's assignments each expert serves, and what becomes of the others.

    Under global scope the places of an expert are shared out among the sources by what they ask:
    whose tokens are beyond it, nobody knows from counts. Of one source the last tokens are beyond.
    Rerouted tokens go to the experts with the fewest tokens; `reroute_bounds` has the other way.

    Raises InvalidInput where a policy lacks its factor or scope.
    """
    faults = capacity_faults(capacity)
    if faults:
        raise InvalidInput(faults)
    counts, nobody = assignments.counts, np.zeros(assignments.sources, dtype=np.int64)
    if capacity.overflow is OverflowPolicy.DROPLESS:
        return Admitted(counts, counts, nobody, nobody, nobody, _everyone(assignments), None)
    if capacity.overflow is OverflowPolicy.DROPLESS_PADDED:
        block = int(counts.max(initial=0))
        return Admitted(counts, np.full_like(counts, block), nobody, nobody, nobody, None, block)
    if capacity.overflow is OverflowPolicy.REROUTE:
        return _rerouted(assignments, capacity, None)
    kept, rows = _within(assignments, capacity)
    beyond = (counts - kept).sum(axis=1)
    most = int(rows.max(initial=0))
    if capacity.overflow is OverflowPolicy.PAD:
        wire = _padded(kept, rows, assignments.tokens)
        return Admitted(kept, wire, beyond, nobody, nobody, None, most)
    choices = _kept_choices(assignments, kept, capacity.order)
    if capacity.overflow is OverflowPolicy.FALLBACK:
        return Admitted(kept, kept, nobody, beyond, nobody, choices, most)
    return Admitted(kept, kept, beyond, nobody, nobody, choices, most)


def reroute_bounds(
    assignments: Assignments, capacity: Capacity, near: BoolArray
) -> tuple[Admitted, Admitted]:
    """Where rerouted tokens land, least-loaded experts first and those of the own host first.

    `near` (R, E) says whether an expert stands on the host of a source. Which expert takes a token
    nobody knows from a routing: these two are the ends between which traffic lies.

    Raises InvalidInput where the policy is not `reroute`, or lacks its factor or scope.
    """
    if capacity.overflow is not OverflowPolicy.REROUTE:
        detail = f"the policy {capacity.overflow.value} sends no token to another expert"
        raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, ("overflow",), detail)])
    return admit(assignments, capacity), _rerouted(assignments, capacity, near)


def _no_limit(capacity: Capacity) -> Fault:
    detail = f"the policy {capacity.overflow.value} limits nothing: it has no capacity"
    return Fault(FaultCode.NOT_SUPPORTED, ("overflow",), detail)


def _too_many(capacity: Capacity, rows: int) -> Fault:
    """Points to what makes a capacity larger than can be counted."""
    factor, minimum, alignment = "capacity_factor", "capacity_minimum", "capacity_alignment"
    field = alignment if capacity.alignment > _MOST_ROWS // 2 else factor
    field = minimum if capacity.minimum > _MOST_ROWS // 2 else field
    detail = f"an expert would have a capacity of {rows:.3g} rows; at most {_MOST_ROWS} are counted"
    return Fault(FaultCode.OUT_OF_RANGE, (field,), detail)


def _aligned(rows: int, alignment: int) -> int:
    return -(-rows // alignment) * alignment


def _everyone(assignments: Assignments) -> BoolArray | None:
    choices = assignments.choices
    return None if choices is None else np.ones(choices.shape, dtype=bool)


def _within(assignments: Assignments, capacity: Capacity) -> tuple[Int64Array, Int64Array]:
    """(R, E) assignments within the capacity, and its rows: (R, 1) of each source, or (1,)."""
    counts = assignments.counts
    if capacity.scope is CapacityScope.SOURCE:
        asked = assignments.tokens * assignments.top_k
        rows = capacity_rows(capacity, asked, assignments.experts)[:, None]
        return np.minimum(counts, rows), rows
    rows = capacity_rows(capacity, [assignments.total], assignments.experts)
    asked_of = counts.sum(axis=0)
    beyond = np.flatnonzero(asked_of > rows)
    kept = counts.copy()
    kept[:, beyond] = shares(np.minimum(asked_of, rows)[beyond], counts.T[beyond]).T
    return kept, rows


def _padded(kept: Int64Array, rows: Int64Array, tokens: Int64Array) -> Int64Array:
    """(R, E) rows with padding: the capacity of each source, or each expert's among all of them.

    What an expert is short of under global scope comes from the sources in proportion to their
    tokens.
    """
    if rows.ndim == 2:
        return np.broadcast_to(rows, kept.shape).copy()
    missing = np.maximum(0, rows - kept.sum(axis=0))
    of_tokens = np.broadcast_to(tokens, (len(missing), len(tokens)))
    padded: Int64Array = kept + shares(missing, of_tokens).T
    return padded


def _kept_choices(assignments: Assignments, kept: Int64Array, order: DropOrder) -> BoolArray | None:
    """(tokens, top_k) whether a choice is within the capacity: of a source the first ones are."""
    choices = assignments.choices
    if choices is None:
        return None
    if np.array_equal(kept, assignments.counts):
        return _everyone(assignments)
    if order is DropOrder.PROBABILITY:
        return None
    keeps = np.empty(choices.shape, dtype=np.bool_)
    keep_first(
        assignments.offsets,
        np.ascontiguousarray(choices, dtype=np.int32),
        np.ascontiguousarray(kept),
        keeps,
    )
    return keeps


def _rerouted(assignments: Assignments, capacity: Capacity, near: BoolArray | None) -> Admitted:
    kept, rows = _within(assignments, capacity)
    beyond = (assignments.counts - kept).sum(axis=1)
    landed = reroute(kept, beyond, rows, assignments.tokens, near)
    moved = landed.sum(axis=1)
    choices = None if moved.any() else _kept_choices(assignments, kept, capacity.order)
    served, nobody = kept + landed, np.zeros_like(beyond)
    return Admitted(
        served, served, beyond - moved, nobody, moved, choices, int(rows.max(initial=0))
    )
