"""Copies counted one token at a time, with sets: shares no code with `service.core.moe`."""

from collections import Counter
from collections.abc import Sequence

__all__ = ["count"]

Pairs = Counter[tuple[int, int]]


def count(
    tokens: Sequence[tuple[int, Sequence[int]]],
    slot_rank: Sequence[int],
    hosts: Sequence[int],
    places: Sequence[int],
    *,
    width: int,
    spared: str,
) -> list[Pairs]:
    """Copies by (from, to) of each stage, for tokens given as (source, slots that serve it).

    `hosts` and `places` are those of each rank, `width` ranks share an expert, `spared` is none,
    rank or node.
    """
    between: Pairs = Counter()
    inside: Pairs = Counter()
    for source, slots in tokens:
        finals = [slot_rank[slot] * width + source % width for slot in slots]
        if spared == "none":
            inside.update((source, final) for final in finals)
        elif spared == "rank":
            inside.update((source, final) for final in set(finals))
        else:
            for host in {hosts[final] for final in finals}:
                here = {final for final in finals if hosts[final] == host}
                start = source
                if host != hosts[source]:
                    start = _relay(source, host, hosts, places)
                    between[source, start] += 1
                inside.update((start, final) for final in here)
    stages = [between, inside] if spared == "node" else [inside]
    if width > 1:
        gathered: Pairs = Counter()
        for (_, final), copies in stages[-1].items():
            for other in range(final - final % width, final - final % width + width):
                gathered[final, other] += copies
        stages.append(gathered)
    return stages


def _relay(source: int, host: int, hosts: Sequence[int], places: Sequence[int]) -> int:
    """The rank of like place in a host; if it has none, as many places on as in the own host."""
    there = sorted((place, rank) for rank, place in enumerate(places) if hosts[rank] == host)
    for place, rank in there:
        if place == places[source]:
            return rank
    here = sorted(places[rank] for rank in range(len(places)) if hosts[rank] == hosts[source])
    return there[here.index(places[source]) % len(there)][1]
