"""The lines of a text file as people hand it over, and what is found wrong with them.

An importer asks `lines_of` for the lines and tells its `Findings` what it refuses, reads over and
takes for granted; each is told with its line, counted from 1.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import NoReturn

from service.core.errors import Fault, FaultCode, InvalidInput, LeftOut

__all__ = [
    "MAX_FAULTS",
    "MAX_LEFT_OUT",
    "MAX_LINES",
    "MAX_LINE_BYTES",
    "MAX_NOTES",
    "Findings",
    "lines_of",
    "refuse_file",
    "shown",
]

# A broken file is told by its first faults; the rest follow from them as a rule.
MAX_FAULTS = 100
MAX_LEFT_OUT = 1000
MAX_NOTES = 100
MAX_LINES = 500_000
MAX_LINE_BYTES = 2**20
_SHOWN = 60


class Findings:
    """What is refused, read over, assumed and noted while one file is read."""

    def __init__(self) -> None:
        self.assumptions: list[str] = []
        self._notes: list[str] = []
        self._more_notes = 0
        self._faults: list[Fault] = []
        self._left_out: list[LeftOut] = []
        self._more_left_out = 0

    @property
    def enough(self) -> bool:
        """Whether so much is wrong that reading on tells nothing new."""
        return len(self._faults) > MAX_FAULTS

    @property
    def faulty(self) -> bool:
        """Whether anything was refused so far."""
        return bool(self._faults)

    def refuse(self, line: int | None, detail: str, code: FaultCode = FaultCode.UNREADABLE) -> None:
        """Note a fault of a line (`detail` goes on after "line 7 "), or of the file as a whole."""
        if line is None:
            self._faults.append(Fault(code, (), detail))
        else:
            self._faults.append(Fault(code, ("line", line), f"line {line} {detail}"))

    def assume(self, sentence: str) -> None:
        """Note what the file does not say and was taken so; the same is told once."""
        if sentence not in self.assumptions:
            self.assumptions.append(sentence)

    def leave_out(self, line: int, detail: str) -> None:
        """Note what is read over, and why."""
        if len(self._left_out) < MAX_LEFT_OUT:
            self._left_out.append(LeftOut(line, detail))
        else:
            self._more_left_out += 1

    def note(self, text: str) -> None:
        """Note what a person should know of what was found."""
        if len(self._notes) < MAX_NOTES:
            self._notes.append(text)
        else:
            self._more_notes += 1

    def notes(self) -> tuple[str, ...]:
        """What was noted; beyond `MAX_NOTES` only how much more."""
        more = (f"and {self._more_notes} more such notes",) if self._more_notes else ()
        return (*self._notes, *more)

    def left_out(self) -> tuple[LeftOut, ...]:
        """What was read over, in the order of lines; beyond `MAX_LEFT_OUT` only how many more."""
        told = sorted(self._left_out, key=lambda item: item.line)
        if self._more_left_out:
            told.append(LeftOut(told[-1].line, f"and {self._more_left_out} more such lines"))
        return tuple(told)

    def refusal(self) -> InvalidInput:
        """Every fault noted, up to `MAX_FAULTS`."""
        told = self._faults[:MAX_FAULTS]
        if len(self._faults) > MAX_FAULTS:
            more = f"more faults follow; reading ended after {MAX_FAULTS}"
            told.append(Fault(FaultCode.UNREADABLE, (), more))
        return InvalidInput(told)

    def raise_faults(self) -> None:
        """Raise `InvalidInput` with every fault noted; nothing without one."""
        if self._faults:
            raise self.refusal()


def refuse_file(line: int, detail: str) -> NoReturn:
    """Refuse a file at once for one line; `detail` goes on after "line 7 "."""
    raise InvalidInput([Fault(FaultCode.UNREADABLE, ("line", line), f"line {line} {detail}")])


def lines_of(
    content: bytes, findings: Findings, most_lines: int | None = None
) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, without line ends and a byte order mark.

    A line that is no UTF-8 text, holds a NUL or is longer than `MAX_LINE_BYTES` is refused and not
    given out; after too many faults, or `most_lines` (`MAX_LINES` when absent), the lines end.
    """
    most = MAX_LINES if most_lines is None else most_lines
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        findings.refuse(1, "the file is UTF-16; save it as UTF-8")
        return
    for line, raw in enumerate(BytesIO(content.removeprefix(b"\xef\xbb\xbf")), start=1):
        if findings.enough:
            return
        if line > most:
            findings.refuse(line, f"is beyond the {most} lines that are read of a file")
            return
        if len(raw) > MAX_LINE_BYTES:
            findings.refuse(line, f"is longer than {MAX_LINE_BYTES} bytes")
            continue
        try:
            text = raw.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            findings.refuse(line, "is not UTF-8 text")
            continue
        if "\0" in text:
            findings.refuse(line, "holds a NUL character")
            continue
        yield line, text


def shown(text: str) -> str:
    """A piece of the file as it is quoted in a message: short, and on one line."""
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}...")
