"""JSON files as people hand them over, and what is found wrong with them, told with lines.

An importer asks `read_json` for the value and tells the `JsonFile` what it refuses and reads over,
by the path of keys and places to it; the lines are looked up once, at the end.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from re import compile as compile_expression
from typing import Any

from service.core.errors import Fault, FaultCode, InvalidInput, LeftOut, Path
from service.formats.pasted_text import MAX_FAULTS, MAX_LEFT_OUT, Findings, shown

__all__ = ["MAX_VALUES", "JsonFile", "read_json"]

_SHOWN = 60
_SPACE = compile_expression(r"[ \t\n\r]*")
_ESCAPED_SURROGATE = compile_expression(rb"\\u[dD][89a-fA-F]")

# As many as stand in a YAML file: a file of 16 MiB could hold eight million, half a gigabyte.
MAX_VALUES = 1_000_000


class JsonFile:
    """The value of a JSON file, and what is told of places in it."""

    def __init__(self, text: str, root: Any) -> None:
        self.root = root
        self._text = text
        self._refused: list[tuple[Path, str, FaultCode]] = []
        self._left_out: list[tuple[Path, str]] = []
        self._more_left_out = 0

    @property
    def sound(self) -> bool:
        """Whether nothing was refused so far."""
        return not self._refused

    @property
    def enough(self) -> bool:
        """Whether so much is wrong that reading on tells nothing new."""
        return len(self._refused) > MAX_FAULTS

    def refuse(self, path: Path, detail: str, code: FaultCode = FaultCode.UNREADABLE) -> None:
        """Note a fault of the value at `path` (a key that is missing counts for what lacks it)."""
        if not self.enough:
            self._refused.append((path, detail, code))

    def leave_out(self, path: Path, detail: str) -> None:
        """Note what is read over, and why."""
        if len(self._left_out) < MAX_LEFT_OUT:
            self._left_out.append((path, detail))
        else:
            self._more_left_out += 1

    def number(self, path: Path, value: object, *, least: float = 0, most: float) -> float | None:
        """A finite number of the range, or None with a fault."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and isfinite(value) and least <= value <= most:  # type: ignore[arg-type,operator]
            return float(value)  # type: ignore[arg-type]
        self.refuse(path, f"is a number from {least:g} to {most:g}; got {_short(value)}")
        return None

    def whole(self, path: Path, value: object, *, least: int = 0, most: int) -> int | None:
        """A whole number of the range (`4.0` is one), or None with a fault."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and least <= value <= most and value == int(value):  # type: ignore[operator,call-overload]
            return int(value)  # type: ignore[call-overload,no-any-return]
        self.refuse(path, f"is a whole number from {least} to {most}; got {_short(value)}")
        return None

    def mapping(self, path: Path, value: object) -> Mapping[str, Any] | None:
        """An object, or None with a fault."""
        if isinstance(value, dict):
            return value
        self.refuse(path, f"is an object; got {_short(value)}")
        return None

    def lines(self, paths: Sequence[Path]) -> list[int]:
        """The line (from 1) of each path, or of the innermost value on the way to what is not."""
        return _lines_of(self._text, paths)

    def refusal(self, also: Iterable[Fault] = ()) -> InvalidInput:
        """What the file is refused for, each fault with its line, after `also`."""
        findings = Findings()
        lines = _lines_of(self._text, [path for path, _, _ in self._refused])
        for (path, detail, code), line in zip(self._refused, lines, strict=True):
            findings.refuse(line, f"({_spoken(path)}) {detail}", code)
        try:
            findings.raise_faults()
        except InvalidInput as invalid:
            return InvalidInput([*also, *invalid.faults])
        return InvalidInput(also)

    def left_out(self) -> tuple[LeftOut, ...]:
        """What was read over, in the order of lines; of very much only how much more there is."""
        findings = Findings()
        lines = _lines_of(self._text, [path for path, _ in self._left_out])
        for (path, detail), line in zip(self._left_out, lines, strict=True):
            findings.leave_out(line, f"{_spoken(path)}: {detail}")
        for _ in range(self._more_left_out):
            findings.leave_out(lines[-1], "")
        return findings.left_out()


def read_json(content: bytes) -> JsonFile:
    """The value of a file.

    Raises `InvalidInput` for what is no JSON in UTF-8, NaN and infinities, a key that stands twice
    in an object, half of a surrogate pair, nesting deeper than Python's reader takes, and more
    values than `MAX_VALUES`; with path `("line", n)` where the line is known.
    """
    # Commas in texts count too, which no file comes near to.
    values = sum(map(content.count, (b",", b"[", b"{")))
    if values > MAX_VALUES:
        raise _broken(None, f"the file holds {values} values; at most {MAX_VALUES} are read")
    twice: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(found)
        if len(value) < len(found):
            counts = Counter(name for name, _ in found)
            twice.append(next(name for name, count in counts.items() if count > 1))
        return value

    def constant(name: str) -> None:
        raise ValueError(f"{name} is no number that JSON has")

    try:
        text = content.decode("utf-8-sig")
        root = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
        if _ESCAPED_SURROGATE.search(content):
            # Writing everything again is one step, in which no other thread runs.
            json.dumps(root, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _broken(None, "the file holds half of a surrogate pair (\\ud800)") from None
    except UnicodeDecodeError as error:
        raise _broken(content.count(b"\n", 0, error.start) + 1, "is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        detail = f"is no JSON at column {error.colno}: {error.msg}"
        raise _broken(error.lineno, detail) from None
    except RecursionError:
        raise _broken(None, "the file is nested too deep") from None
    except ValueError as error:  # NaN, or a number of thousands of digits
        raise _broken(None, f"the file is no JSON: {error}"[:200]) from None
    if twice:
        raise _broken(None, f"the key {shown(twice[0])} stands twice in one object")
    return JsonFile(text, root)


def _broken(line: int | None, detail: str) -> InvalidInput:
    if line is None:
        return InvalidInput([Fault(FaultCode.UNREADABLE, (), detail)])
    return InvalidInput([Fault(FaultCode.UNREADABLE, ("line", line), f"line {line} {detail}")])


def _short(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _spoken(path: Path) -> str:
    return "/".join(str(part)[:60] for part in path) or "the whole file"


class _Wanted:
    """A value whose place is asked for, and values inside it."""

    __slots__ = ("inside", "offset")

    def __init__(self) -> None:
        self.offset: int | None = None
        self.inside: dict[str | int, _Wanted] = {}


def _lines_of(text: str, paths: Sequence[Path]) -> list[int]:
    """The line (from 1) of each path, or of the innermost value on the way to what is not there."""
    root = _Wanted()
    ways = []
    for path in paths:
        way = [root]
        for part in path:
            way.append(way[-1].inside.setdefault(part, _Wanted()))
        ways.append(way)
    if paths:
        _walk(text, 0, root)
    offsets = [
        next(each.offset for each in reversed(way) if each.offset is not None) for way in ways
    ]
    lines: dict[int, int] = {}
    line, before = 1, 0
    for offset in sorted(set(offsets)):
        line += text.count("\n", before, offset)
        lines[offset], before = line, offset
    return [lines[offset] for offset in offsets]


def _walk(text: str, at: int, wanted: _Wanted) -> int:
    """Note where the wanted values of a valid text begin; returns where this one ends."""
    at = _skip(text, at)
    wanted.offset = at
    opening = text[at]
    if not wanted.inside or opening not in "{[":
        return json.JSONDecoder().raw_decode(text, at)[1]
    at = _skip(text, at + 1)
    place = 0
    while text[at] not in "}]":
        key: str | int = place
        if opening == "{":
            key, at = json.JSONDecoder().raw_decode(text, at)
            at = _skip(text, at) + 1
        found = wanted.inside.get(key)
        at = _walk(text, at, _Wanted() if found is None else found)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        place += 1
    return at + 1


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
