"""Expert groups with tokens that somebody chose: what tests of copies are about."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from service.core.moe.copies import dispatch
from service.core.moe.served import ExpertPlacement, Served
from service.core.moe.settings import Deduplication, Dispatcher
from service.core.moe.traffic import Traffic

__all__ = ["Group", "evenly_asked", "random_group"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Tokens of the ranks of a group: `chosen` (tokens, k) slots, those of each source in turn."""

    placement: ExpertPlacement
    chosen: npt.NDArray[np.int32]
    tokens: Int64Array
    nodes: Int64Array
    places: Int64Array
    width: int = 1

    @property
    def owners(self) -> Int64Array:
        """(tokens,) the source of each token."""
        return np.repeat(np.arange(len(self.tokens)), self.tokens)

    @property
    def rows(self) -> Int64Array:
        """(R, P) rows of each source in each slot."""
        rows = np.zeros((len(self.tokens), self.placement.slots), dtype=np.int64)
        owners = np.repeat(self.owners[:, np.newaxis], self.chosen.shape[1], axis=1)
        there = self.chosen >= 0
        np.add.at(rows, (owners[there], self.chosen[there]), 1)
        return rows

    def served(self, *, counts_only: bool = False) -> Served:
        return Served(self.placement, self.rows, self.rows, None if counts_only else self.chosen)

    def sent(
        self,
        deduplication: Deduplication,
        *,
        counts_only: bool = False,
        dispatcher: Dispatcher = Dispatcher.ALL_TO_ALL,
        served: Served | None = None,
        padded: bool = False,
    ) -> Traffic:
        return dispatch(
            served or self.served(counts_only=counts_only),
            dispatcher=dispatcher,
            deduplication=deduplication,
            node_of_source=self.nodes,
            place_in_node=self.places,
            expert_tensor=self.width,
            top_k=self.chosen.shape[1],
            tokens=self.tokens,
            padded=padded,
        )

    def moved(self, nodes: Int64Array, places: Int64Array) -> "Group":
        return replace(self, nodes=nodes, places=places)


def random_group(
    random: np.random.Generator, *, width: int = 1, drop: bool = False, replicas: bool = True
) -> Group:
    """A group of up to 12 ranks in up to 4 hosts, not all of one size, some experts replicated."""
    ranks = int(random.integers(1, 7)) if width > 1 else int(random.integers(1, 13))
    sources = ranks * width
    top_k = int(random.integers(1, 5))
    experts = int(random.integers(top_k, 13))
    slot_expert = np.arange(experts)
    if replicas:
        slot_expert = np.append(slot_expert, random.integers(0, experts, int(random.integers(4))))
    slot_rank = np.sort(random.integers(0, ranks, len(slot_expert)))
    slot_expert = random.permutation(slot_expert)
    tokens = random.integers(0, 9, sources)
    liking = random.exponential(size=experts) ** 2 + 1e-3
    chosen = np.full((int(tokens.sum()), top_k), -1, dtype=np.int32)
    for token in range(len(chosen)):
        asked = random.choice(experts, top_k, replace=False, p=liking / liking.sum())
        for place, expert in enumerate(asked.tolist()):
            if not drop or random.random() < 0.7:
                chosen[token, place] = random.choice(np.flatnonzero(slot_expert == expert))
    nodes = random.integers(0, int(random.integers(1, 5)), sources)
    places = np.zeros(sources, dtype=np.int64)
    for node in set(nodes.tolist()):
        inside = np.flatnonzero(nodes == node)
        places[inside] = random.choice(8 * width + 8, len(inside), replace=False)
    placement = ExpertPlacement(
        experts, ranks, slot_expert.astype(np.int32), slot_rank.astype(np.int32)
    )
    return Group(placement, chosen, tokens, nodes, places, width)


def evenly_asked(
    ranks: int, in_host: int, experts: int, top_k: int, tokens: int, *, random: np.random.Generator
) -> Group:
    """A group in hosts of `in_host` ranks, each token's experts chosen evenly and independently."""
    keys = random.random((ranks * tokens, experts))
    chosen = np.argpartition(keys, top_k - 1, axis=1)[:, :top_k].astype(np.int32)
    slots = np.arange(experts, dtype=np.int32)
    placement = ExpertPlacement(experts, ranks, slots, slots // (experts // ranks))
    numbers = np.arange(ranks)
    sizes = np.full(ranks, tokens)
    return Group(placement, chosen, sizes, numbers // in_host, numbers % in_host)
