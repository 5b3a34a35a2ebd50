"""What joining several readings has to tell besides the cluster itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from service.core.errors import Fault, FaultCode, InvalidInput, LeftOut, Path

__all__ = ["FileLine", "Notes", "listed"]

_SHOWN = 8
MAX_NOTES = 1000


@dataclass(frozen=True, slots=True)
class FileLine:
    """A line of one of the files (by its place, from 0) that the cluster does not hold, and why."""

    file: int
    line: int
    detail: str


def listed(names: Iterable[str]) -> str:
    """`3 (a, b, c)`; of many only the first are named."""
    given = list(names)
    shown = ", ".join(name[:80] for name in given[:_SHOWN])
    return f"{len(given)} ({shown}{', ...' if len(given) > _SHOWN else ''})"


@dataclass(slots=True)
class Notes:
    """Sentences by what they are for, each told once, and the faults found on the way."""

    joined: dict[str, None] = field(default_factory=dict)
    assumptions: dict[str, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    conflicts: dict[str, None] = field(default_factory=dict)
    left_out: list[FileLine] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _more_left_out: int = 0

    def join(self, sentence: str) -> None:
        """Two facts were brought together."""
        _add(self.joined, sentence)

    def assume(self, sentence: str) -> None:
        """Nobody said this, and it was taken so."""
        _add(self.assumptions, sentence)

    def warn(self, sentence: str) -> None:
        """Legal, and most likely not what was meant."""
        _add(self.warnings, sentence)

    def conflict(self, sentence: str) -> None:
        """Two sources say different things; the sentence has both, and which was taken."""
        _add(self.conflicts, sentence)

    def leave_out(self, file: int, line: int, detail: str) -> None:
        """A line of a file is in no part of the cluster."""
        if len(self.left_out) < MAX_NOTES:
            self.left_out.append(FileLine(file, line, detail))
            return
        last = self.left_out[MAX_NOTES - 1]
        self._more_left_out += 1
        more = f"and {self._more_left_out} more such lines, of this file and the next"
        self.left_out[MAX_NOTES:] = [FileLine(last.file, last.line, more)]

    def take_over(self, file: int, left_out: Sequence[LeftOut]) -> None:
        """What the importer of a file left out already; what it says of many lines is told once."""
        lines: dict[str, list[int]] = {}
        for item in left_out:
            lines.setdefault(item.detail, []).append(item.line)
        for detail, found in lines.items():
            shown = ", ".join(map(str, found[:_SHOWN])) + (", ..." if len(found) > _SHOWN else "")
            more = f" ({len(found)} lines: {shown})" if len(found) > 1 else ""
            self.leave_out(file, found[0], f"{detail}{more}")

    def refuse(self, code: FaultCode, path: Path, detail: str) -> None:
        """The cluster can't be made; what else is wrong is still looked for."""
        self.faults.append(Fault(code, path, detail))

    def raise_faults(self) -> None:
        """Raises `InvalidInput` when anything was refused."""
        if self.faults:
            raise InvalidInput(self.faults)


def _add(sentences: dict[str, None], sentence: str) -> None:
    if len(sentences) < MAX_NOTES:
        sentences[sentence] = None
