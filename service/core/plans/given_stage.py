"""What a plan that prices its stages itself says of one of them."""

from dataclasses import dataclass

from service.core.amounts import Amount

__all__ = ["ActivationChange", "GivenBytes", "GivenSeconds", "GivenStage"]


@dataclass(frozen=True, slots=True)
class ActivationChange:
    """By how many bytes one microbatch changes what its stage keeps, at each of its operations.

    Signed; they sum to zero. A whole backward changes it by its two halves together. What a
    recomputation adds is None where it is not said. As a plan gives them a tuple has a number for
    each microbatch, as resolved one for each size class.
    """

    forward_bytes: Amount
    backward_input_bytes: Amount
    backward_weight_bytes: Amount
    recompute_bytes: Amount | None = None


# As a plan gives them: one for all microbatches, or one for each.
GivenSeconds = float | tuple[float, ...]
GivenBytes = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GivenStage:
    """What a plan states of one stage itself. Bytes are per rank pair and microbatch.

    `parameter_count` are its trained elements, before tensor parallelism splits them;
    `expert_parameter_count` of these are in experts.
    """

    forward_seconds: GivenSeconds
    backward_seconds: GivenSeconds | None = None  # or both of the next two, whose sum it is
    backward_input_seconds: GivenSeconds | None = None
    backward_weight_seconds: GivenSeconds | None = None
    recompute_seconds: GivenSeconds | None = None
    # This forward fused with the other stage's backward, by the microbatch of the forward.
    pair_seconds: GivenSeconds | None = None
    activation_bytes: GivenBytes | None = None
    recomputed_activation_bytes: GivenBytes | None = None  # beside activation_bytes
    activation_deltas: ActivationChange | None = None  # in place of both
    boundary_bytes: GivenBytes | None = None
    backward_boundary_bytes: GivenBytes | None = None
    transfer_seconds: GivenSeconds | None = None
    backward_transfer_seconds: GivenSeconds | None = None
    parameter_count: int | None = None
    expert_parameter_count: int | None = None
