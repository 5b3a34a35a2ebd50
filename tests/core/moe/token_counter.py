"""Follows tokens one at a time through capacity, placement and replicas, in plain loops.

It shares no code with what it checks: dictionaries instead of arrays, fractions, one row a step.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count

__all__ = ["Counted", "Followed", "TokenCase", "count_tokens"]

# Source, token, and which of its choices.
Choice = tuple[int, int, int]


@dataclass(frozen=True)
class TokenCase:
    """`tokens[r]` lists the experts of each token of source r. Names are those of the wire."""

    tokens: list[list[tuple[int, ...]]]
    experts: int
    overflow: str
    factor: str | None = None
    scope: str | None = None
    minimum: int = 0
    alignment: int = 1
    by_rank: tuple[tuple[int, ...], ...] = ()
    splitting: str = "even"
    node_of_source: tuple[int, ...] = ()
    expert_tensor: int = 1
    near_first: bool = False


@dataclass(frozen=True)
class Followed:
    """A choice that is served where it was asked for, and the slot that serves it."""

    source: int
    token: int
    expert: int
    slot: int


@dataclass
class Counted:
    """All by (source, expert), by source, or by (source, slot). `followed` are served choices."""

    kept: Counter[tuple[int, int]] = field(default_factory=Counter)
    wire: Counter[tuple[int, int]] = field(default_factory=Counter)
    dropped: Counter[int] = field(default_factory=Counter)
    fallback: Counter[int] = field(default_factory=Counter)
    rerouted: Counter[int] = field(default_factory=Counter)
    kept_choices: set[Choice] = field(default_factory=set)
    slot_kept: Counter[tuple[int, int]] = field(default_factory=Counter)
    slot_rows: Counter[tuple[int, int]] = field(default_factory=Counter)
    followed: list[Followed] = field(default_factory=list)


def count_tokens(case: TokenCase) -> Counted:
    """What becomes of every token of a case."""
    found = Counted()
    beyond = _admit(case, found)
    for source, experts in beyond.items():
        if case.overflow == "fallback":
            found.fallback[source] += len(experts)
        elif case.overflow != "reroute":
            found.dropped[source] += len(experts)
    if case.overflow == "reroute":
        _reroute(case, found, {source: len(experts) for source, experts in beyond.items()})
    _pad(case, found)
    _place(case, found)
    return found


def rows_of_expert(case: TokenCase, asked: int) -> int:
    """Its capacity where `asked` assignments count."""
    assert case.factor is not None
    due = Fraction(case.factor) * asked / case.experts
    whole = next(rows for rows in count(int(due)) if rows >= due)
    whole = max(whole, case.minimum)
    while whole % case.alignment:
        whole += 1
    return whole


def _asked(case: TokenCase, source: int) -> int:
    return sum(len(experts) for experts in case.tokens[source])


def _asked_in_all(case: TokenCase) -> int:
    return sum(_asked(case, source) for source in range(len(case.tokens)))


def _all_choices(case: TokenCase) -> list[tuple[Choice, int]]:
    return [
        ((source, number, place), expert)
        for source, tokens in enumerate(case.tokens)
        for number, experts in enumerate(tokens)
        for place, expert in enumerate(experts)
    ]


def _quotas(case: TokenCase) -> dict[tuple[int, int], int]:
    """How many a source may give an expert; without a limit as many as there are tokens."""
    sources = range(len(case.tokens))
    asked = Counter((choice[0], expert) for choice, expert in _all_choices(case))
    if case.overflow in ("dropless", "dropless_padded"):
        return dict(asked)
    if case.scope == "source":
        return {
            (source, expert): rows_of_expert(case, _asked(case, source))
            for source in sources
            for expert in range(case.experts)
        }
    rows = rows_of_expert(case, _asked_in_all(case))
    quotas: dict[tuple[int, int], int] = {}
    for expert in range(case.experts):
        wants = [asked[source, expert] for source in sources]
        given = divide(min(rows, sum(wants)), wants)
        quotas |= {(source, expert): given[source] for source in sources}
    return quotas


def divide(total: int, weights: list[int]) -> list[int]:
    """By largest remainder, one unit after the other; the first of equals first."""
    if not sum(weights):
        weights = [1] * len(weights)
    due = [Fraction(total * weight, sum(weights)) for weight in weights]
    given = [int(share) for share in due]
    while sum(given) < total:
        short = [due[place] - given[place] for place in range(len(due))]
        given[short.index(max(short))] += 1
    return given


def _admit(case: TokenCase, found: Counted) -> dict[int, list[int]]:
    quotas, beyond = _quotas(case), defaultdict(list)
    for choice, expert in _all_choices(case):
        source = choice[0]
        if found.kept[source, expert] < quotas.get((source, expert), 0):
            found.kept[source, expert] += 1
            found.kept_choices.add(choice)
        else:
            beyond[source].append(expert)
    return beyond


def _reroute(case: TokenCase, found: Counted, beyond: dict[int, int]) -> None:
    left = Counter(beyond)
    if case.scope == "source":
        for source in sorted(left):
            _reroute_alone(case, found, source, left)
    else:
        _reroute_together(case, found, left)
    for source, number in left.items():
        found.dropped[source] += number


def _near(case: TokenCase, source: int) -> set[int]:
    shard = source % case.expert_tensor
    return {
        expert
        for rank, experts in enumerate(case.by_rank)
        if case.node_of_source[rank * case.expert_tensor + shard] == case.node_of_source[source]
        for expert in experts
    }


def _reroute_alone(case: TokenCase, found: Counted, source: int, left: Counter[int]) -> None:
    rows = min(rows_of_expert(case, _asked(case, source)), len(case.tokens[source]))
    orders = [_near(case, source)] if case.near_first else []
    for allowed in [*orders, set(range(case.experts))]:
        while left[source]:
            open_to = [e for e in sorted(allowed) if found.kept[source, e] < rows]
            if not open_to:
                break
            emptiest = min(open_to, key=lambda e: found.kept[source, e])
            found.kept[source, emptiest] += 1
            found.rerouted[source] += 1
            left[source] -= 1


def _reroute_together(case: TokenCase, found: Counted, left: Counter[int]) -> None:
    rows, sources = rows_of_expert(case, _asked_in_all(case)), range(len(case.tokens))
    rounds: list[tuple[list[int], set[int]]] = []
    if case.near_first:
        alike: dict[frozenset[int], list[int]] = {}
        for source in sources:
            alike.setdefault(frozenset(_near(case, source)), []).append(source)
        rounds = [(members, set(experts)) for experts, members in alike.items()]
    for members, allowed in [*rounds, (list(sources), set(range(case.experts)))]:
        loads = Counter({e: sum(found.kept[r, e] for r in sources) for e in range(case.experts)})
        wanted: Counter[int] = Counter()
        for _ in range(sum(left[source] for source in members)):
            open_to = [e for e in sorted(allowed) if loads[e] < rows]
            if open_to:
                emptiest = min(open_to, key=lambda e: loads[e])
                loads[emptiest] += 1
                wanted[emptiest] += 1
        for expert in sorted(wanted):
            takers = [min(left[r], len(case.tokens[r]) - found.kept[r, expert]) for r in members]
            given = divide(min(wanted[expert], sum(takers)), takers)
            for source, number in zip(members, given, strict=True):
                found.kept[source, expert] += number
                found.rerouted[source] += number
                left[source] -= number


def _pad(case: TokenCase, found: Counted) -> None:
    pairs = [(r, e) for r in range(len(case.tokens)) for e in range(case.experts)]
    if case.overflow == "dropless_padded":
        most = max(found.kept[pair] for pair in pairs)
        found.wire.update(dict.fromkeys(pairs, most))
    elif case.overflow == "pad" and case.scope == "source":
        for source, expert in pairs:
            found.wire[source, expert] = rows_of_expert(case, _asked(case, source))
    elif case.overflow == "pad":
        rows = rows_of_expert(case, _asked_in_all(case))
        for expert in range(case.experts):
            kept = [found.kept[source, expert] for source in range(len(case.tokens))]
            more = divide(max(0, rows - sum(kept)), [len(tokens) for tokens in case.tokens])
            for source, number in enumerate(kept):
                found.wire[source, expert] = number + more[source]
    else:
        found.wire.update(found.kept)


def _slots(case: TokenCase) -> dict[int, list[tuple[int, int]]]:
    """Slot and rank of each replica of an expert, in the order of the ranks."""
    of_expert: dict[int, list[tuple[int, int]]] = defaultdict(list)
    slot = count()
    for rank, experts in enumerate(case.by_rank):
        for expert in experts:
            of_expert[expert].append((next(slot), rank))
    return of_expert


def _serving(case: TokenCase, source: int, replicas: list[tuple[int, int]]) -> list[int]:
    """The slots that serve a source in turn."""
    all_of_them = [slot for slot, _ in replicas]
    if case.splitting == "even":
        return all_of_them
    if case.splitting == "by_source":
        return [all_of_them[source % len(replicas)]]
    here, shard = divmod(source, case.expert_tensor)
    own = [slot for slot, rank in replicas if rank == here]
    host = [
        slot
        for slot, rank in replicas
        if case.node_of_source[rank * case.expert_tensor + shard] == case.node_of_source[source]
    ]
    return own or host or all_of_them


def _place(case: TokenCase, found: Counted) -> None:
    if not case.by_rank:
        return
    of_expert = _slots(case)

    def turn(source: int, expert: int) -> Callable[[int], int]:
        serving = _serving(case, source, of_expert[expert])
        return lambda number: serving[(source + number) % len(serving)]

    for rows, by_slot in ((found.kept, found.slot_kept), (found.wire, found.slot_rows)):
        for (source, expert), number in rows.items():
            slot_of = turn(source, expert)
            for row in range(number):
                by_slot[source, slot_of(row)] += 1
    if found.rerouted.total():
        return
    seen: Counter[tuple[int, int]] = Counter()
    for choice, expert in _all_choices(case):
        if choice in found.kept_choices:
            source = choice[0]
            slot = turn(source, expert)(seen[source, expert])
            seen[source, expert] += 1
            found.followed.append(Followed(source, choice[1], expert, slot))
