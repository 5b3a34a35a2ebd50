"""Arguments of a Megatron-style launch: the options of a script, or a JSON object of them.

A script is read word by word: `--name value` wherever it stands, with `NAME=value` before it for
what is written `$NAME`. Quotes, brackets and continuations only separate words; a `#` begins a
comment. Names are told apart neither by `-` nor by `_`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from re import compile as compile_expression
from typing import Any

from service.core.errors import Fault, FaultCode, InvalidInput, LeftOut
from service.formats.pasted_json import read_json
from service.formats.pasted_text import Findings, lines_of, shown

__all__ = ["MAX_OPTIONS", "Options", "read_options"]

MAX_OPTIONS = 5_000
_MAX_SIZE = 10**9
_PROGRAMS = (".py", ".sh")  # what is run, after the options of what runs it
_WORD = compile_expression(r"[^\s\"'()\\;|&]+")
_ASSIGNMENT = compile_expression(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")
_VARIABLE = compile_expression(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}?")
_WHOLE = compile_expression(r"[0-9]{1,15}")
_NAME = compile_expression(r"--([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?")


@dataclass(frozen=True, slots=True)
class _Option:
    """What is given: True for an option alone, else a text, or the value of a JSON file."""

    line: int
    value: Any


class Options:
    """The options of a launch, each asked for once; what is not asked for is left out.

    `asked` collects faults of what the caller stated beside the file.
    """

    def __init__(self, given: Mapping[str, _Option], findings: Findings) -> None:
        self._given = given
        self._findings = findings
        self._read: set[str] = set()
        self.asked: list[Fault] = []

    @property
    def sound(self) -> bool:
        """Whether nothing was refused so far."""
        return not self._findings.faulty and not self.asked

    def has(self, name: str) -> bool:
        """Whether it is given; null in JSON stands for absent."""
        self._read.add(name)
        return name in self._given and self._given[name].value is not None

    def size(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A count; without a default it has to be there."""
        if not self.has(name):
            if default is None:
                self._findings.refuse(None, f"the file does not give --{_dashed(name)}")
            return default or 1
        value = self._given[name].value
        read = None
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            read = int(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            read = value
        if read is None or not least <= read <= _MAX_SIZE:
            got = shown(str(value))
            self.refuse(name, f"is a whole number from {least} to {_MAX_SIZE}; got {got}")
            return default or 1
        return read

    def flag(self, name: str) -> bool:
        """Whether an option without a value is given, or true in JSON."""
        if not self.has(name):
            return False
        value = self._given[name].value
        if not isinstance(value, bool):
            self.refuse(name, f"takes no value, or is true or false; got {shown(str(value))}")
        return value is True

    def text(self, name: str, default: str) -> str:
        """A word."""
        if not self.has(name):
            return default
        value = self._given[name].value
        if not isinstance(value, str | int | float | list) or isinstance(value, bool):
            self.refuse(name, "takes a word")
            return default
        return str(value)

    def refuse(self, name: str, detail: str) -> None:
        """Note a fault of an option that is given."""
        self._findings.refuse(self._given[name].line, f"(--{_dashed(name)}) {detail}")

    def refuse_together(self, detail: str) -> None:
        """Note that sound options do not fit each other."""
        if self.sound:
            self._findings.refuse(None, detail)

    def ask(self, field: str, detail: str, code: FaultCode = FaultCode.MISSING_FIELD) -> None:
        """Note what the caller has to say beside the file."""
        self.asked.append(Fault(code, (field,), detail))

    def assume(self, text: str) -> None:
        """Note what is taken for granted."""
        self._findings.assumptions.append(text)

    def leave_out(self, name: str, detail: str) -> None:
        """Note an option that is read over though it matters, where it is given."""
        if self.has(name):
            self._findings.leave_out(self._given[name].line, f"--{_dashed(name)}: {detail}")

    def told(self) -> tuple[tuple[str, ...], tuple[LeftOut, ...]]:
        """Assumptions, and what was left out: all that nobody asked for too.

        Raises `InvalidInput` with every fault instead, if there was one.
        """
        if not self.sound:
            try:
                self._findings.raise_faults()
            except InvalidInput as invalid:
                raise InvalidInput([*self.asked, *invalid.faults]) from None
            raise InvalidInput(self.asked)
        for name, option in self._given.items():
            if name not in self._read and option.value is not None:
                detail = "not read: neither model nor plan follows from it"
                self._findings.leave_out(option.line, f"--{_dashed(name)}: {detail}")
        return tuple(self._findings.assumptions), self._findings.left_out()


def read_options(content: bytes) -> Options:
    """The options of a script, or of a JSON object.

    Raises `InvalidInput` for what is neither, for an option that stands twice, and for a variable
    that the script does not set.
    """
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        return _of_json(content)
    return _of_script(content)


def _of_json(content: bytes) -> Options:
    file = read_json(content)
    values = file.mapping((), file.root)
    if values is None:
        raise file.refusal()
    if len(values) > MAX_OPTIONS:
        file.refuse((), f"holds {len(values)} options; at most {MAX_OPTIONS}")
        raise file.refusal()
    lines = file.lines([(name,) for name in values])
    given = {
        name: _Option(line, value)
        for (name, value), line in zip(values.items(), lines, strict=True)
    }
    return Options(given, Findings())


def _of_script(content: bytes) -> Options:
    findings = Findings()
    given: dict[str, _Option] = {}
    variables: dict[str, str] = {}
    for line, text in lines_of(content, findings):
        words = _words(text)
        while words:
            word = words.popleft()
            named = _NAME.fullmatch(word)
            if named is None:
                assigned = _ASSIGNMENT.fullmatch(word)
                if assigned is not None and assigned[2] and len(variables) < MAX_OPTIONS:
                    variables[assigned[1]] = _filled(assigned[2], variables)
                continue
            values = [] if named[2] is None else [named[2]]
            while words and not _NAME.fullmatch(words[0]) and not words[0].endswith(_PROGRAMS):
                values.append(words.popleft())
            name = named[1].replace("-", "_")
            if name in given:
                first = given[name].line
                findings.refuse(line, f"gives --{named[1][:60]} again (first on line {first})")
                continue
            if len(given) == MAX_OPTIONS:
                findings.refuse(line, f"is beyond the {MAX_OPTIONS} options that are read")
                return Options(given, findings)
            value = _filled(" ".join(values), variables) if values else True
            if isinstance(value, str) and "$" in value:
                detail = f"gives --{named[1][:60]} {shown(value)}, which the text does not set"
                findings.refuse(line, detail)
            given[name] = _Option(line, value)
    return Options(given, findings)


def _words(text: str) -> deque[str]:
    words: deque[str] = deque()
    for word in _WORD.findall(text):
        if word.startswith("#"):
            break
        words.append(word)
    return words


def _filled(text: str, variables: Mapping[str, str]) -> str:
    """The text with variables that were set before; the others stay as they are written."""
    filled = _VARIABLE.sub(lambda found: variables.get(found[1], found[2] or found[0]), text)
    return filled[:1000]


def _dashed(name: str) -> str:
    return name.replace("_", "-")[:60]
