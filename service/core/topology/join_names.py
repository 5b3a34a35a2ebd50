"""Names of hosts and switches as files have them, made legal, and which became which."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Names", "Renamed", "as_count", "natural_key"]

_MOST = 63
_ILLEGAL = re.compile(r"[^a-z0-9.-]+")
_NUMBERED = re.compile(r"([a-z](?:[a-z0-9.-]*[a-z.-])?)(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Renamed:
    """A name that is not legal here, and what it became."""

    old: str
    new: str


@dataclass(slots=True)
class Names:
    """Legal names, each given once. `fallback` begins what has no letter to begin with."""

    fallback: str
    renamed: list[Renamed] = field(default_factory=list)
    _taken: dict[str, None] = field(default_factory=dict)
    # The last number that was put behind a name.
    _last: dict[str, int] = field(default_factory=dict)

    def all_of(self, titles: Iterable[str]) -> dict[str, str]:
        """Legal names by title; those that are legal already keep theirs."""
        titles = list(dict.fromkeys(titles))
        names = {title: title for title in titles if _is_legal(title) and title not in self._taken}
        self._taken |= dict.fromkeys(names)
        for title in titles:
            if title not in names:
                names[title] = self._free(_legal(title, self.fallback))
                self.renamed.append(Renamed(title, names[title]))
        return names

    def _free(self, name: str) -> str:
        free, number = name, self._last.get(name, 1)
        while free in self._taken:
            number += 1
            free = f"{name[: _MOST - 1 - len(str(number))]}-{number}"
        self._last[name] = number
        self._taken[free] = None
        return free


def _is_legal(name: str) -> bool:
    return len(name) <= _MOST and name[:1].isalpha() and _legal(name, "x") == name


def _legal(title: str, fallback: str) -> str:
    name = _ILLEGAL.sub("-", title.lower()).strip("-.")[:_MOST]
    if not name:
        return fallback
    return name if "a" <= name[0] <= "z" else f"{fallback}-{name}"[:_MOST]


def natural_key(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Sorts `mlx5_2` before `mlx5_10`."""
    return tuple(
        (not part.isdecimal(), int(part[:30]) if part.isdecimal() else 0, part)
        for part in re.findall(r"[0-9]+|[^0-9]+", name[:200])
    )


def as_count(names: list[str]) -> str | None:
    """The prefix when the names are prefix0, prefix1, ... in order, so that a count says them."""
    found = _NUMBERED.fullmatch(names[0])
    if found is None or found[2] != "0":
        return None
    prefix = found[1]
    expected = all(name == f"{prefix}{index}" for index, name in enumerate(names))
    return prefix if expected else None
