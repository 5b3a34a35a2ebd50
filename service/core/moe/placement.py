"""On which ranks of an expert group experts stand."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from service.core.errors import Fault, FaultCode, InvalidInput, some_of
from service.core.moe.served import ExpertPlacement

__all__ = ["SharedRank", "by_rank", "contiguous", "given", "shared_ranks", "stands_near"]

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]

# An expert, a rank, and how many replicas of the one are on the other.
SharedRank = tuple[int, int, int]


def contiguous(experts: int, ranks: int) -> ExpertPlacement:
    """Experts in their order; where they do not divide, the first ranks have one more each."""
    each, more = divmod(experts, ranks)
    sizes = each + (np.arange(ranks) < more)
    return ExpertPlacement(
        experts,
        ranks,
        np.arange(experts, dtype=np.int32),
        np.repeat(np.arange(ranks, dtype=np.int32), sizes),
    )


def given(experts: int, ranks: int, lists: Sequence[Sequence[int]]) -> ExpertPlacement:
    """The experts that are listed for each rank.

    Raises InvalidInput, with places in `lists`, where there are not as many lists as ranks, an
    expert is not one of 0 to experts - 1, or one of these stands nowhere.
    """
    faults = []
    if len(lists) != ranks:
        detail = f"{len(lists)} lists of experts for an expert group of {ranks} ranks"
        faults.append(Fault(FaultCode.WRONG_LENGTH, (), detail))
    for rank, listed in enumerate(lists):
        for place, expert in enumerate(listed):
            if not 0 <= expert < experts:
                detail = f"there is no expert {expert}: they are 0 to {experts - 1}"
                faults.append(Fault(FaultCode.UNKNOWN_REFERENCE, (rank, place), detail))
    missing = sorted(set(range(experts)).difference(*lists))
    if missing:
        detail = f"{_experts(missing)} on no rank: each has to be on at least one"
        faults.append(Fault(FaultCode.INCONSISTENT, (), detail))
    if faults:
        raise InvalidInput(faults)
    return ExpertPlacement(
        experts,
        ranks,
        np.array([expert for listed in lists for expert in listed], dtype=np.int32),
        np.repeat(np.arange(ranks, dtype=np.int32), [len(listed) for listed in lists]),
    )


def by_rank(placement: ExpertPlacement) -> tuple[tuple[int, ...], ...]:
    """The experts of each rank, as `given` takes them."""
    listed: list[list[int]] = [[] for _ in range(placement.ranks)]
    for expert, rank in zip(
        placement.slot_expert.tolist(), placement.slot_rank.tolist(), strict=True
    ):
        listed[rank].append(expert)
    return tuple(map(tuple, listed))


def shared_ranks(placement: ExpertPlacement) -> tuple[SharedRank, ...]:
    """Replicas of one expert on one rank, by expert: these spread nothing and cost memory."""
    pairs = placement.slot_expert.astype(np.int64) * placement.ranks + placement.slot_rank
    found, replicas = np.unique(pairs, return_counts=True)
    return tuple(
        (int(pair) // placement.ranks, int(pair) % placement.ranks, int(number))
        for pair, number in zip(found, replicas, strict=True)
        if number > 1
    )


def stands_near(
    placement: ExpertPlacement, node_of_source: Int64Array, expert_tensor: int = 1
) -> BoolArray:
    """(R, E) whether an expert has a replica on the host of a source.

    Source r reaches the rank of the group whose expert-tensor coordinate is its own: that of the
    sources on rank q is q x expert_tensor + r % expert_tensor.
    """
    near = np.zeros((len(node_of_source), placement.experts), dtype=bool)
    nodes = node_of_source.reshape(-1, expert_tensor)
    for shard in range(expert_tensor):
        same = nodes[:, shard, None] == nodes[placement.slot_rank, shard]
        sources, slots = np.nonzero(same)
        near[sources * expert_tensor + shard, placement.slot_expert[slots]] = True
    return near


def _experts(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"expert {numbers[0]} is"
    return f"experts {some_of(numbers)} are"
