"""Output of nccl-tests and rccl-tests: the table of one collective, with the ranks above it.

`busbw` is the rate per rank that can be held against a link's; GB/s are 10^9 bytes/s. The
collective is the one that the text names (the program in the command line, or what newer versions
print); where it names none, the table decides as far as it can.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from re import compile as compile_expression

from service.core.topology.readings import MeasuredTransfer, Reading, TransferScope
from service.formats.pasted_text import Findings, lines_of, shown

__all__ = ["looks_like_nccl_tests", "read_nccl_tests"]

FORMAT = "nccl_tests"
_MAX_RANKS = 20_000
_MAX_ROWS = 10_000
_MAX_LINE = 2000

# What launchers put before a line.
_PREFIX = compile_expression(r"(\[[0-9]+,[0-9]+\]<std(out|err)>:\s?|[0-9]{1,6}: )")
_RANK = compile_expression(
    r"#\s+Rank\s+(?P<rank>[0-9]{1,6})\s+(?:Group\s+[0-9]+\s+)?Pid\s+[0-9]+\s+on\s+(?P<host>\S+)\s+"
    r"device\s+(?P<device>[0-9]{1,3})\s+\[[^\]]{1,20}\]\s+(?P<product>.{1,80})"
)
_PROGRAM = compile_expression(r"(?<![A-Za-z_])(?P<name>[a-z_]{4,20})_perf(?![A-Za-z_])")
_HEADER = compile_expression(r"#\s+size\s+count\s+type\s.*\stime\s+algbw\s+busbw\s+\S+")
_MEASURED = ("time", "algbw", "busbw")
_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "alltoall",
    "alltoallv": "alltoall",
    "sendrecv": "sendrecv",
    "broadcast": "broadcast",
}
# Programs whose busbw says nothing of a link of every rank.
_OTHERS = ("reduce", "gather", "scatter", "hypercube")


def looks_like_nccl_tests(content: bytes) -> bool:
    """Whether the header of a table is near the beginning."""
    head = content[:262_144].decode(errors="replace")
    return any(_HEADER.fullmatch(_bare(line)) for line in head.splitlines() if len(line) < 1000)


def read_nccl_tests(content: bytes) -> Reading:
    """One measurement a row, out of place. Raises `InvalidInput` with every fault and its line."""
    findings = Findings()
    table = _Table(findings)
    for line, text in lines_of(content, findings):
        table.take(line, _bare(text))
    return table.reading()


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    size: int
    redop: str | None
    root: str | None
    algorithm: float
    bus: float
    in_place_unchecked: bool


@dataclass(slots=True)
class _Table:
    findings: Findings
    header: int | None = None
    columns: list[str] = field(default_factory=list)
    programs: dict[str, int] = field(default_factory=dict)
    ranks: dict[int, tuple[str, str]] = field(default_factory=dict)
    products: dict[str, int] = field(default_factory=dict)
    rows: list[_Row] = field(default_factory=list)
    noise: list[int] = field(default_factory=list)

    def take(self, line: int, text: str) -> None:
        if not text or len(text) > _MAX_LINE:
            if text:
                self.noise.append(line)
            return
        if _HEADER.fullmatch(text):
            if self.header is not None:
                detail = f"begins another table (first on line {self.header}); a file has one"
                self.findings.refuse(line, detail)
            self.header = line
            self.columns = text.split()[1:]
        elif found := _RANK.fullmatch(text):
            rank = int(found["rank"])
            if rank in self.ranks:
                self.findings.refuse(line, f"gives rank {rank} again")
            self.ranks[rank] = (found["host"], f"gpu{found['device']}")
            self.products.setdefault(found["product"].strip(), line)
        elif self.header is not None and text.split(maxsplit=1)[0].isdigit():
            self._row(line, text)
        else:
            self._name(line, text)

    def _name(self, line: int, text: str) -> None:
        for found in _PROGRAM.finditer(text):
            if found["name"] in (*_COLLECTIVES, *_OTHERS):
                self.programs.setdefault(found["name"], line)
        if not text.startswith("#"):
            self.noise.append(line)

    def _row(self, line: int, text: str) -> None:
        words = text.split()
        if len(words) != len(self.columns):
            detail = f"has {len(words)} columns, the head of the table {len(self.columns)}"
            self.findings.refuse(line, f"{detail}: {shown(text)}")
            return
        if len(self.rows) >= _MAX_ROWS:
            self.findings.refuse(line, f"is beyond the {_MAX_ROWS} rows that are read")
            return
        first = self.columns.index("time")
        head = dict(zip(self.columns[:first], words, strict=False))
        numbers = [_number(each) for each in words[first : first + 3]]
        if None in numbers or not words[0].isdigit() or len(words[0]) > 15:
            self.findings.refuse(line, f"is no row of the table: {shown(text)}")
            return
        _time, algorithm, bus = (each or 0.0 for each in numbers)
        wrong = [word for name, word in self._checked(words) if name not in _MEASURED]
        if any(_is_wrong(each) for each in wrong):
            self.findings.leave_out(line, f"has wrong values ({', '.join(wrong)}): no measurement")
            return
        self.rows.append(
            _Row(
                line=line,
                size=int(words[0]),
                redop=head.get("redop"),
                root=head.get("root"),
                algorithm=algorithm * 1e9,
                bus=bus * 1e9,
                in_place_unchecked=wrong[-1] == "N/A" and wrong[0] != "N/A",
            )
        )

    def _checked(self, words: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The columns behind those that say what was run, with their names."""
        first = self.columns.index("time")
        return zip(self.columns[first:], words[first:], strict=True)

    def reading(self) -> Reading:
        if self.header is None and not self.findings.faulty:
            self.findings.refuse(None, "the file has no table of nccl-tests")
        if not self.rows and not self.findings.faulty:
            self.findings.refuse(self.header, "begins a table without a row that can be used")
        self._check_ranks()
        self.findings.raise_faults()
        collective = self._collective()
        self.findings.raise_faults()
        hosts = {host for host, _device in self.ranks.values()}
        inside = len(hosts) == 1
        if self.noise:
            detail = f"{len(self.noise)} lines are no part of the table"
            self.findings.leave_out(self.noise[0], detail)
        if len(self.products) > 1:
            self.findings.note(f"ranks have different GPUs: {', '.join(self.products)}")
        return Reading(
            format=FORMAT,
            facts={
                "ranks": len(self.ranks),
                "hosts": len(hosts),
                "rows": len(self.rows),
            },
            measurements=tuple(self._measurements(collective, inside=inside)),
            assumptions=tuple(self.findings.assumptions),
            notes=(*self.findings.notes(), f"GPUs are {next(iter(self.products))}"),
            left_out=self.findings.left_out(),
        )

    def _measurements(self, collective: str, *, inside: bool) -> Iterator[MeasuredTransfer]:
        devices = tuple(f"{host}/{device}" for _rank, (host, device) in sorted(self.ranks.items()))
        for row in self.rows:
            if row.size > 0:
                yield MeasuredTransfer(
                    tool="nccl-tests",
                    collective=collective,
                    message_bytes=row.size,
                    ranks=len(self.ranks),
                    scope=TransferScope.INSIDE_HOST if inside else TransferScope.BETWEEN_HOSTS,
                    line=row.line,
                    bus_bytes_per_second=row.bus or None,
                    algorithm_bytes_per_second=row.algorithm or None,
                    devices=devices,
                )

    def _check_ranks(self) -> None:
        if not self.ranks:
            detail = "begins a table, but no `# Rank` line above says which GPUs took part"
            self.findings.refuse(self.header, detail)
        elif sorted(self.ranks) != list(range(len(self.ranks))):
            missing = next(rank for rank in range(len(self.ranks)) if rank not in self.ranks)
            self.findings.refuse(self.header, f"has ranks above it, but rank {missing} is missing")
        elif len(self.ranks) > _MAX_RANKS:
            self.findings.refuse(self.header, f"has more than {_MAX_RANKS} ranks")

    def _collective(self) -> str:
        """The collective that the text names, held against the table; else what the table says."""
        factors = _factors(self.rows, len(self.ranks))
        told = [name for name in self.programs if name in _COLLECTIVES]
        others = [name for name in self.programs if name in _OTHERS]
        if len(self.programs) > 1 or others:
            names = ", ".join(self.programs)
            detail = f"names {names}; a table of one of {', '.join(_COLLECTIVES)} is read"
            self.findings.refuse(next(iter(self.programs.values())), detail)
            return ""
        if told:
            collective = _COLLECTIVES[told[0]]
            if collective not in factors:
                detail = f"names {told[0]}, but busbw over algbw in the table is of another"
                self.findings.refuse(self.programs[told[0]], detail)
            return collective
        fitting = self._by_columns(factors)
        if len(fitting) != 1:
            which = " or ".join(sorted(fitting)) or "no collective that is known"
            detail = f"begins a table of {which}: put the command line above it"
            self.findings.refuse(self.header, detail)
            return ""
        self.findings.assumptions.append(f"the table is of {fitting[0]}: its columns fit no other")
        return fitting[0]

    def _by_columns(self, factors: set[str]) -> list[str]:
        first = self.rows[0]
        reduces = first.redop not in (None, "none")
        rooted = first.root is not None and first.root != "-1"
        fitting = []
        for name in sorted(factors):
            wants = (name in ("all_reduce", "reduce_scatter"), name == "broadcast")
            unchecked = name == "alltoall"
            if wants == (reduces, rooted) and (
                name not in ("alltoall", "all_gather") or unchecked == first.in_place_unchecked
            ):
                fitting.append(name)
        return fitting


def _factors(rows: Sequence[_Row], ranks: int) -> set[str]:
    """Collectives whose busbw is to algbw what it is in the row where both are largest.

    nccl-tests, doc/PERFORMANCE.md. One rank has busbw 0 everywhere but with factor 1.
    """
    row = max(rows, key=lambda each: each.algorithm)
    share = (ranks - 1) / ranks if ranks else 0.0
    known = {
        "all_reduce": 2 * share,
        "all_gather": share,
        "reduce_scatter": share,
        "alltoall": share,
        "sendrecv": 1.0,
        "broadcast": 1.0,
    }
    # Both are printed with two digits, so small ones are only nearly in proportion.
    slack = 0.005e9 * 3 + 0.001 * row.bus
    return {
        name for name, factor in known.items() if abs(row.bus - factor * row.algorithm) <= slack
    }


def _bare(text: str) -> str:
    found = _PREFIX.match(text)
    return (text[found.end() :] if found else text).strip()


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None


def _is_wrong(text: str) -> bool:
    """Whether a column of wrong values (older: of the largest error) says that values are wrong."""
    if text == "N/A":
        return False
    value = _number(text)
    return value is None or value >= 1
