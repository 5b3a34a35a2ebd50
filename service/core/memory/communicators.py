"""How many groups of ranks one rank keeps communication buffers for."""

from service.core.plans.memory_settings import COMMUNICATOR_BYTES, PAIR_COMMUNICATOR_BYTES
from service.core.plans.plan import Degrees

__all__ = ["communicator_bytes", "communicator_sizes"]


def communicator_sizes(degrees: Degrees, copies: int) -> tuple[int, ...]:
    """The ranks of each group that one rank is in, as Megatron-LM forms them.

    One for each dimension in which ranks differ, one for context with data where both do, for the
    ranks that share experts, that share one, and that hold the same ones, where these are others;
    and `copies`, the ranks of the group that holds copies of tied weights with it (1: none).
    """
    dense = {degrees.tensor, degrees.context, degrees.data, degrees.weight_replicas}
    sizes = [degrees.tensor, degrees.context, degrees.data, degrees.pipeline, copies]
    if degrees.context > 1 and degrees.data > 1:
        sizes.append(degrees.weight_replicas)
    if degrees.expert * degrees.expert_tensor > 1:
        sizes.append(degrees.expert)
        sizes += [
            size for size in (degrees.expert_tensor, degrees.expert_replicas) if size not in dense
        ]
    return tuple(size for size in sizes if size > 1)


def communicator_bytes(sizes: tuple[int, ...]) -> int:
    """Their buffers where the plan does not say what one takes."""
    return sum(PAIR_COMMUNICATOR_BYTES if size == 2 else COMMUNICATOR_BYTES for size in sizes)
