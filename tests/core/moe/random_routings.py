"""Random tokens for the expert layers of small groups, and cases of all policies over them."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np

from service.core.moe.assignments import Assignments, RoutingLevel
from service.core.moe.overflow import Capacity, CapacityScope, OverflowPolicy
from service.core.moe.placement import given
from service.core.moe.served import Admitted, ExpertPlacement
from service.core.moe.settings import ReplicaSplitting
from tests.core.moe.token_counter import TokenCase

__all__ = [
    "assignments_of",
    "capacity_of",
    "kept_choices_of",
    "placement_of",
    "random_cases",
    "splitting_of",
]

POLICIES = ("drop", "pad", "dropless", "dropless_padded", "reroute", "fallback")


def random_cases(seed: int, number: int) -> Iterator[TokenCase]:
    """Each with every policy and scope: sources without tokens, replicas, skewed experts."""
    random = Random(seed)
    for _ in range(number):
        ranks, shards = random.randint(1, 5), random.choice((1, 1, 2))
        experts = random.randint(1, 9)
        top_k = random.randint(1, min(3, experts))
        weights = [random.choice((1, 1, 2, 9)) for _ in range(experts)]
        tokens = [
            [_token(random, weights, top_k) for _ in range(random.choice((0, 3, 6, 11)))]
            for _ in range(ranks * shards)
        ]
        by_rank: list[list[int]] = [[] for _ in range(ranks)]
        for expert in [*range(experts), *random.choices(range(experts), k=random.randint(0, 5))]:
            by_rank[random.randrange(ranks)].append(expert)
        per_host = random.randint(1, ranks * shards)
        case = TokenCase(
            tokens,
            experts,
            "dropless",
            by_rank=tuple(map(tuple, by_rank)),
            splitting=random.choice(("even", "by_source", "local_first")),
            node_of_source=tuple(source // per_host for source in range(ranks * shards)),
            expert_tensor=shards,
        )
        factor = random.choice(("0.5", "1.0", "1.1", "1.25", "2.0"))
        minimum, alignment = random.choice((0, 0, 1, 3)), random.choice((1, 1, 4))
        for policy in POLICIES:
            chosen = replace(case, overflow=policy)
            if policy.startswith("dropless"):
                yield chosen
                continue
            rounded = replace(chosen, factor=factor, minimum=minimum, alignment=alignment)
            for scope in ("source", "global"):
                yield replace(rounded, scope=scope)


def _token(random: Random, weights: list[int], top_k: int) -> tuple[int, ...]:
    chosen: list[int] = []
    while len(chosen) < top_k:
        expert = random.choices(range(len(weights)), weights)[0]
        if expert not in chosen:
            chosen.append(expert)
    return tuple(chosen)


def assignments_of(case: TokenCase, *, counts_only: bool = False) -> Assignments:
    """What the sources of a case ask for."""
    counts = np.zeros((len(case.tokens), case.experts), dtype=np.int64)
    for source, tokens in enumerate(case.tokens):
        for experts in tokens:
            counts[source, list(experts)] += 1
    flat = [experts for tokens in case.tokens for experts in tokens]
    top_k = len(flat[0]) if flat else 1
    return Assignments(
        counts,
        np.array([len(tokens) for tokens in case.tokens], dtype=np.int64),
        top_k,
        RoutingLevel.SOURCES if counts_only else RoutingLevel.TOKENS,
        None if counts_only else np.array(flat, dtype=np.int32).reshape(-1, top_k),
    )


def capacity_of(case: TokenCase) -> Capacity:
    """The capacity that a case writes in words."""
    return Capacity(
        OverflowPolicy(case.overflow),
        None if case.factor is None else float(case.factor),
        None if case.scope is None else CapacityScope(case.scope),
        case.minimum,
        case.alignment,
    )


def placement_of(case: TokenCase) -> ExpertPlacement:
    """The experts of each rank of a case."""
    return given(case.experts, len(case.by_rank), case.by_rank)


def splitting_of(case: TokenCase) -> ReplicaSplitting:
    """The rule by which replicas divide tokens."""
    return ReplicaSplitting(case.splitting)


def kept_choices_of(admitted: Admitted, assignments: Assignments) -> set[tuple[int, int, int]]:
    """Source, token of the source, and which of its choices."""
    assert admitted.kept_choices is not None
    offsets = assignments.offsets
    found = set()
    for token, place in zip(*np.nonzero(admitted.kept_choices), strict=True):
        source = int(np.searchsorted(offsets, token, side="right")) - 1
        found.add((source, int(token - offsets[source]), int(place)))
    return found
