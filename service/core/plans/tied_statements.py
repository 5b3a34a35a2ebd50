"""What an answer says of the copies of tied weights."""

from collections.abc import Sequence

from service.core.plans.plan import Statement
from service.core.plans.statements import counted
from service.core.plans.tied import TiedCopies

__all__ = ["assumptions_of_copies", "left_out_of_copies"]


def assumptions_of_copies(copies: Sequence[TiedCopies]) -> tuple[Statement, ...]:
    """What was taken for granted of the weights that stand on several stages."""
    weights = sum(len(each.weights) for each in copies)
    if not weights:
        return ()
    detail = (
        f"{counted(weights, 'tied weight stands', 'tied weights stand')} on several stages: each "
        "pipeline rank of these stages holds a copy, and each rank that shares a weight as much "
        "of it, over the tensor-parallel ranks where the model does not say"
    )
    if any(each.rank_gradient_bytes and each.groups for each in copies):
        detail += (
            "; after the last backward a ring all-reduce adds up their gradients among the ranks "
            "of equal tensor, context and data coordinates, all of these groups at once"
        )
        sets = sum(bool(each.rank_gradient_bytes and each.groups) for each in copies)
        if sets > 1:
            detail += f", those of each of {sets} sets of stages by themselves"
    return (Statement("tied_copies", detail),)


def left_out_of_copies(copies: Sequence[TiedCopies]) -> tuple[Statement, ...]:
    """What is not known, or not counted, of their exchange."""
    exchanged = [each for each in copies if each.rank_gradient_bytes and each.groups]
    if not exchanged:
        return ()
    detail = "the exchange of gradients among the copies of tied weights is no part of "
    detail += "iteration_seconds"
    if all(each.picoseconds is not None for each in exchanged):
        detail += "; boundary transfers have its time under `tied_copies`"
    else:
        detail += ", and its time is not known: the plan has no topology"
    return (Statement("tied_copies_exchange", detail),)
