"""What stages pass on for others: tensors that are neither made nor taken there."""

from collections.abc import Iterable
from dataclasses import dataclass

from service.core.amounts import Amount, total
from service.core.plans.plan import Boundary, Statement
from service.core.plans.statements import counted

__all__ = ["Relayed", "relay_assumptions", "relayed_bytes", "waiting_left_out"]


@dataclass(frozen=True, slots=True)
class Relayed:
    """What stage `stage` holds of others for one microbatch, on each of its ranks.

    `forward_bytes` are there from the start of its forward until the end, when they are sent on,
    and `backward_bytes`, their gradients, likewise in its backward (the input half of it).
    """

    stage: int
    tensors: tuple[str, ...]
    forward_bytes: Amount
    backward_bytes: Amount


def relayed_bytes(boundaries: Iterable[Boundary]) -> tuple[Relayed, ...]:
    """Of each stage that passes anything on, in the order of stages.

    A stage that made a tensor, or takes it, keeps it among its own activations, which its costs
    say. Where tensors go straight to their consumers there is nothing in between, and of boundaries
    whose bytes a plan states itself nobody knows what is passed on.
    """
    found = []
    for boundary in boundaries:
        if boundary.direction or boundary.tensors is None:
            continue
        passed = [t for t in boundary.tensors if boundary.target not in t.consumed_stages]
        if passed:
            found.append(
                Relayed(
                    stage=boundary.target,
                    tensors=tuple(tensor.name for tensor in passed),
                    forward_bytes=total(*(tensor.forward_bytes for tensor in passed)),
                    backward_bytes=total(*(tensor.backward_bytes for tensor in passed)),
                )
            )
    return tuple(sorted(found, key=lambda relayed: relayed.stage))


def relay_assumptions(boundaries: Iterable[Boundary]) -> tuple[Statement, ...]:
    """When what is passed on counts among the live activations of a stage."""
    stages = len(relayed_bytes(boundaries))
    if not stages:
        return ()
    pass_on = counted(stages, "stage passes", "stages pass")
    return (
        Statement(
            "relayed_tensors",
            f"{pass_on} on tensors of other stages: they are alive there from the start of its "
            "forward to the end, and their gradients in the backward",
        ),
    )


def waiting_left_out(boundaries: Iterable[Boundary]) -> tuple[Statement, ...]:
    """What is not counted of tensors that go straight past stages."""
    past = sum(
        boundary.target > boundary.source + 1
        for boundary in boundaries
        if not boundary.direction and boundary.tensors
    )
    if not past:
        return ()
    send = counted(past, "boundary leads", "boundaries lead")
    return (
        Statement(
            "waiting_tensors",
            f"{send} past stages: the memory of tensors that wait at their target until the stages "
            "between are done, and of gradients that wait at their source",
        ),
    )
