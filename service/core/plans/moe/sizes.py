"""How much experts may be asked to move: so many bytes that sums of them are exact."""

from fractions import Fraction

from service.core.errors import Fault, FaultCode
from service.core.moe.overflow import OverflowPolicy
from service.core.moe.settings import Dispatcher
from service.core.plans.moe.inputs import ExpertLayer, MoeInputs
from service.core.plans.payloads import MAX_BYTES

__all__ = ["size_faults"]


def size_faults(inputs: MoeInputs) -> list[Fault]:
    """A fault where an exchange of a layer may have more than 2**53 - 1 bytes."""
    payloads = inputs.settings.payloads
    every = (
        payloads.forward_dispatch,
        payloads.forward_combine,
        payloads.backward_dispatch,
        payloads.backward_combine,
    )
    tokens = max(inputs.tokens)
    most = max(
        _most_copies(inputs, layer, tokens) * max(one.bytes_of(layer.hidden_size) for one in every)
        for layer in inputs.layers
    )
    if most <= MAX_BYTES:
        return []
    detail = (
        f"an exchange of an expert group may have {most:.3g} bytes, and more than {MAX_BYTES} are "
        "not counted: fewer tokens, a smaller hidden size or capacity"
    )
    return [Fault(FaultCode.OUT_OF_RANGE, ("moe",), detail)]


def _most_copies(inputs: MoeInputs, layer: ExpertLayer, tokens: int) -> int:
    """Of one exchange of a group, whoever asks for whom."""
    capacity, width = inputs.settings.capacity, inputs.groups[0].width
    # All are there before some are dropped.
    copies = tokens * width * layer.top_k
    room = int(copies * Fraction(capacity.factor or 0))
    if capacity.overflow is OverflowPolicy.PAD:
        # Rounded up for each source and expert.
        rounded = (capacity.minimum + capacity.alignment) * layer.experts * width
        copies = max(copies, room + rounded)
    elif room > MAX_BYTES:
        copies = room
    if capacity.overflow is OverflowPolicy.DROPLESS_PADDED:
        copies = tokens * width * layer.experts
    if inputs.settings.dispatcher is Dispatcher.ALL_GATHER:
        copies = max(copies, tokens * width * width)
    return copies * inputs.expert_tensor
