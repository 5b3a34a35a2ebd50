"""Lines of `Key=value` as Slurm reads its files and prints its records.

Keys are in any case, blanks may stand around `=`, a value may be in double quotes, `#` begins a
comment, and a `\\` at the end of a line goes on with the next (slurm.conf(5)).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from re import compile as compile_expression

from service.core.errors import FaultCode
from service.formats.pasted_text import Findings, lines_of, shown

__all__ = ["MAX_RECORDS", "SlurmRecord", "first_keys", "slurm_records"]

_PAIR = compile_expression(r"([A-Za-z][A-Za-z0-9_]*)\s*=\s*(?:\"([^\"]*)\"|([^\s\"]+))(?=\s|$)")

# Each line is a switch, a block or a ring; a topology has room for a fraction of these.
MAX_RECORDS = 32_768


@dataclass(frozen=True, slots=True)
class SlurmRecord:
    """The pairs of one line, keys in lower case; `key` is the first of them as written."""

    line: int
    key: str
    values: Mapping[str, str]


def slurm_records(
    content: bytes, keys: Mapping[str, Sequence[str]], findings: Findings
) -> Iterator[SlurmRecord]:
    """The records of a file, in order.

    `keys` gives, for each key that begins a record, the keys that may follow it, as Slurm writes
    them.
    Lines that are none, and keys that are unknown or given twice, are refused and not given out;
    so is all that comes after `MAX_RECORDS` lines.
    """
    followers = {first.lower(): {key.lower() for key in rest} for first, rest in keys.items()}
    spelled = {first.lower(): rest for first, rest in keys.items()}
    for count, (line, text) in enumerate(_joined(content, findings)):
        if count == MAX_RECORDS:
            detail = f"is beyond the {MAX_RECORDS} lines that are read"
            findings.refuse(line, detail, FaultCode.OUT_OF_RANGE)
            return
        pairs, rest = _pairs(text)
        if rest or not pairs:
            findings.refuse(line, f"is no list of Key=value: {shown(rest or text)}")
            continue
        key = pairs[0][0]
        values = {name.lower(): value for name, value in pairs}
        if key.lower() not in followers:
            known = ", ".join(f"{each}=" for each in keys)
            findings.refuse(line, f"begins with {shown(key)}; a line here begins with {known}")
        elif len(values) < len(pairs):
            findings.refuse(line, "gives a key twice")
        elif unknown := values.keys() - {key.lower()} - followers[key.lower()]:
            known = ", ".join(spelled[key.lower()]) or "nothing"
            findings.refuse(
                line, f"gives {', '.join(sorted(unknown))}; after {key} there may be {known}"
            )
        else:
            yield SlurmRecord(line, key, values)


def first_keys(content: bytes) -> set[str]:
    """Keys, in lower case, that lines near the beginning start with."""
    head = content[:65_536].decode(errors="replace")
    found = (_PAIR.match(line.strip()) for line in head.splitlines())
    return {match[1].lower() for match in found if match is not None}


def _joined(content: bytes, findings: Findings) -> Iterator[tuple[int, str]]:
    """Lines without comments, those that go on joined, with the number of the first."""
    start = 0
    parts: list[str] = []
    for line, raw in lines_of(content, findings):
        text = raw.split("#", 1)[0].strip()
        start = start if parts else line
        if text.endswith("\\"):
            parts.append(text[:-1])
            continue
        whole = " ".join([*parts, text]).strip() if parts else text
        parts = []
        if whole:
            yield start, whole
    if parts:
        findings.refuse(start, "goes on with a next line, which is missing")


def _pairs(text: str) -> tuple[list[tuple[str, str]], str]:
    """The pairs of a line, and what is left where they end."""
    pairs: list[tuple[str, str]] = []
    place = 0
    while place < len(text):
        found = _PAIR.match(text, place)
        if found is None:
            return pairs, text[place:]
        pairs.append((found[1], found[3] if found[2] is None else found[2]))
        place = found.end()
        while place < len(text) and text[place].isspace():
            place += 1
    return pairs, ""
