"""Bundles that operations send and await themselves while they run.

An expert layer sends tokens to its experts and has them back before it is done. All that one
operation exchanges so is one bundle, ready when the operation starts; what is on the links longer
than alone makes the operation longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from service.core.schedules.bundles import Bundles
from service.core.schedules.program import OpKind, Program
from service.core.schedules.stage_times import (
    StageTimes,
    at_microbatches,
    check_shape,
    check_stage_times,
    operation_groups,
    operation_kinds,
    pick,
    take_places,
)

__all__ = ["OwnBundles", "lengthened", "own_bundles"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True, eq=False)
class OwnBundles:
    """The kind of bundle that an operation of each stage exchanges itself, -1 for none.

    Each is (stages, microbatches or 1). The half of a backward that gives the gradients of weights
    has none; a fused pair has what its forward and its whole backward have, together.
    """

    forward: Int32Array
    backward: Int32Array
    backward_input: Int32Array
    recompute: Int32Array

    @property
    def of_kinds(self) -> dict[OpKind, Int32Array]:
        """By kind of operation; those that have any."""
        return {OpKind[field.name.upper()]: getattr(self, field.name) for field in fields(self)}

    def at_microbatches(self, microbatches: IntArray) -> "OwnBundles":
        """Those of these microbatches, in their order."""
        found = {
            field.name: at_microbatches(getattr(self, field.name), microbatches)
            for field in fields(self)
        }
        return OwnBundles(**found)

    def replaced(self, kind: OpKind, stage: int, numbers: Int32Array) -> "OwnBundles":
        """With other kinds of bundles, (microbatches or 1), for operations of a kind on a stage."""
        present = self.of_kinds[kind]
        width = max(present.shape[-1], len(numbers))
        changed = np.broadcast_to(present, (len(present), width)).copy()
        changed[stage] = numbers
        return replace(self, **{kind.name.lower(): changed})


def own_bundles(
    program: Program, own: OwnBundles, durations: Int64Array, every: Bundles, served: Bundles
) -> tuple[Int32Array, Bundles, Bundles]:
    """(operations,) the kind of bundle of each operation itself, and both bundles with all kinds.

    `durations` is (operations,) ps. Further kinds are those of fused pairs: on each link what their
    two have there, arriving when the pair would end, or when the last link is done with them.
    """
    _check(program, own)
    kinds = _table(program, own)
    pair, forward, backward = _pairs(program, own)
    if not len(pair):
        return kinds, every, served
    rows, number = np.unique(
        np.stack((forward, backward, durations[pair]), axis=1), axis=0, return_inverse=True
    )
    kinds[pair] = every.kinds + number.ravel()
    of_pairs = [(first, second, time) for first, second, time in rows.tolist()]
    return kinds, every.joined(of_pairs), served.joined(of_pairs)


def lengthened(
    program: Program, own: OwnBundles, bundles: Bundles, times: StageTimes
) -> StageTimes:
    """No operation takes less than its own bundle takes alone. All times are picoseconds.

    Raises `InvalidInput` on times and kinds that are not those of the program's microbatches.
    """
    check_stage_times(program, times)
    _check(program, own)
    alone = bundles.alone
    found: Mapping[str, Int64Array] = times.given
    longer = {}
    for kind, numbers in own.of_kinds.items():
        name = kind.name.lower()
        if name in found and (numbers >= 0).any():
            least = np.where(numbers >= 0, alone[numbers], 0)
            longer[name] = np.maximum(found[name], least)
    if times.forward_backward is not None:
        longer["forward_backward"] = _longer_pairs(program, own, bundles, times.forward_backward)
    return replace(times, **longer)


def _longer_pairs(
    program: Program, own: OwnBundles, bundles: Bundles, given: Int64Array
) -> Int64Array:
    """Pairs that have times of their own, at least as long as links are occupied by them."""
    pair, forward, backward = _pairs(program, own)
    if not len(pair):
        return given
    stage, microbatch = program.stage[pair], program.microbatch[pair]
    rows, number = np.unique(np.stack((forward, backward), axis=1), axis=0, return_inverse=True)
    joined = bundles.joined([(first, second, 0) for first, second in rows.tolist()])
    least = joined.alone[bundles.kinds + number.ravel()]
    if (pick(given, stage, microbatch) >= least).all():
        return given
    of_stage = np.zeros((program.stages, 1), dtype=np.int64)
    np.maximum.at(of_stage[:, 0], stage, least)
    if given.shape[-1] == 1 and (of_stage[stage, 0] == least).all():
        return np.maximum(given, of_stage)
    changed = np.broadcast_to(given, (program.stages, program.microbatches)).copy()
    np.maximum.at(changed, (stage, microbatch), least)
    return changed


def _check(program: Program, own: OwnBundles) -> None:
    for kind, numbers in own.of_kinds.items():
        name = f"bundles of each {kind.name.lower()}"
        check_shape(name, numbers, program.stages, "a stage", program)


def _table(program: Program, own: OwnBundles) -> Int32Array:
    """(operations,) kinds of bundles, none for pairs."""
    tables = own.of_kinds
    width = max(numbers.shape[-1] for numbers in tables.values())
    table = np.full((program.stages, len(OpKind), width), -1, dtype=np.int64)
    for kind, numbers in tables.items():
        table[:, kind] = numbers
    return take_places(table, operation_groups(program), program.microbatch).astype(np.int32)


def _pairs(program: Program, own: OwnBundles) -> tuple[Int64Array, Int32Array, Int32Array]:
    """The fused pairs whose forward or backward has a bundle, and both kinds, -1 for none."""
    if OpKind.FORWARD_BACKWARD not in operation_kinds(program):
        none = np.zeros(0, dtype=np.int32)
        return none.astype(np.int64), none, none
    pair = np.flatnonzero(program.kind == OpKind.FORWARD_BACKWARD)
    forward = pick(own.forward, program.stage[pair], program.microbatch[pair])
    backward = pick(own.backward, program.backward_stage[pair], program.backward_microbatch[pair])
    has = (forward >= 0) | (backward >= 0)
    return pair[has], forward[has], backward[has]
