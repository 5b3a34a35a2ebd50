"""Host list expressions: `node[001-004,007],login1`, as Slurm and its kin write them.

Commas outside brackets separate items; brackets hold numbers and ranges of numbers, and an item may
have several of them. Numbers keep the zeros in front that their range begins with.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from re import compile as compile_expression

from service.core.errors import Fault, FaultCode, InvalidInput

__all__ = ["MAX_HOST_NAMES", "expand_hostlist"]

# Of one expression: as many as a topology can have devices and switches.
MAX_HOST_NAMES = 120_000
_MAX_NAME = 255

_LITERAL = compile_expression(r"[A-Za-z0-9._-]+")
_RANGE = compile_expression(r"([0-9]{1,12})(?:-([0-9]{1,12}))?")


def expand_hostlist(text: str, *, at_most: int = MAX_HOST_NAMES) -> tuple[str, ...]:
    """The names in the order of the expression; one that is listed twice is there twice.

    Raises `InvalidInput` (path `()`) for what is no host list, and before anything is expanded for
    one of more than `at_most` names.
    """
    if not text.strip():
        raise _refusal("a host list names at least one host")
    items = [_item(item.strip()) for item in _split(text)]
    count = sum(map(_count, items))
    if count > at_most:
        detail = f"a host list has at most {at_most} names here; this has {count}"
        raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, (), detail)])
    if max(map(_longest, items)) > _MAX_NAME:
        raise _refusal(f"a host's name has at most {_MAX_NAME} characters")
    return tuple(chain.from_iterable(map(_names, items)))


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The numbers from `first` to `last` with at least `width` digits, not written out."""

    first: int
    last: int
    width: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def texts(self) -> Iterator[str]:
        return (str(number).zfill(self.width) for number in range(self.first, self.last + 1))


# A part of an item: text as it stands, or what its brackets hold.
_Part = str | list[_Numbers]


def _count(parts: list[_Part]) -> int:
    return prod(1 if isinstance(part, str) else sum(map(len, part)) for part in parts)


def _longest(parts: list[_Part]) -> int:
    """At least the length of the longest name, at most a few digits more."""
    return sum(
        len(part)
        if isinstance(part, str)
        else max(max(each.width, len(str(each.last))) for each in part)
        for part in parts
    )


def _names(parts: list[_Part]) -> Iterator[str]:
    texts = (
        (part,) if isinstance(part, str) else chain.from_iterable(each.texts() for each in part)
        for part in parts
    )
    return ("".join(chosen) for chosen in product(*texts))


def _split(text: str) -> list[str]:
    """Items at commas that stand outside brackets."""
    items, start, open_at = [], 0, None
    for place, character in enumerate(text):
        if character == "[":
            if open_at is not None:
                raise _refusal("a bracket opens within a bracket", text, place)
            open_at = place
        elif character == "]":
            if open_at is None:
                raise _refusal("a bracket closes that was not opened", text, place)
            open_at = None
        elif character == "," and open_at is None:
            items.append(text[start:place])
            start = place + 1
    if open_at is not None:
        raise _refusal("a bracket opens and does not close", text, open_at)
    items.append(text[start:])
    return items


def _item(text: str) -> list[_Part]:
    """The parts of one item, brackets and text in turn."""
    if not text:
        raise _refusal("two commas of a host list have a name between them")
    parts: list[_Part] = []
    place = 0
    while place < len(text):
        if text[place] == "[":
            end = text.index("]", place)
            parts.append(
                [_numbers(each.strip(), text) for each in text[place + 1 : end].split(",")]
            )
            place = end + 1
        elif literal := _LITERAL.match(text, place):
            parts.append(literal[0])
            place = literal.end()
        else:
            raise _refusal("a host's name has letters, digits and . _ - only", text, place)
    return parts


def _numbers(text: str, item: str) -> _Numbers:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise _refusal(f"brackets hold numbers and ranges, not {text[:40]!r}", item)
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise _refusal(f"a range goes up; {text} does not", item)
    return _Numbers(first, last, len(found[1]))


def _refusal(detail: str, text: str = "", place: int = 0) -> InvalidInput:
    near = f": {text[max(0, place - 20) : place + 40]!r}" if text else ""
    return InvalidInput([Fault(FaultCode.UNREADABLE, (), f"{detail}{near}")])
