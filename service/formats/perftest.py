"""Output of perftest (`ib_write_bw`, `ib_read_lat`, ...): the table of one test of one adapter.

Bandwidth is in Gb/s with `--report_gbits` and else in MB/s of 2^20 bytes; latencies are
microseconds, one way for write and send, there and back for read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from re import compile as compile_expression

from service.core.topology.readings import MeasuredTransfer, Reading, TransferScope
from service.formats.pasted_text import Findings, lines_of, shown

__all__ = ["looks_like_perftest", "read_perftest"]

FORMAT = "perftest"
_MAX_ROWS = 10_000
_MAX_LINE = 2000

_TITLE = compile_expression(
    r"(?P<verb>RDMA_Write|RDMA_Read|Send|Atomic|RDMA_Atomic|Fetch_Add|Compare_Swap)"
    r"(?P<two> Bidirectional)?(?: Post List)? (?P<what>BW|Latency) Test.*"
)
_HEADER = compile_expression(r"#bytes\s+#iterations\s+(?P<columns>\S.*)")
_FACT = compile_expression(r"(?P<key>[A-Za-z][A-Za-z0-9_*. /-]{1,30}?)\s*:\s*(?P<value>\S+)")
_ADDRESS = compile_expression(r"(?P<which>local|remote) address: (?P<address>.*)")
_GID = compile_expression(r"GID: (?P<gid>[0-9a-fA-F:. ]+)")
_LID = compile_expression(r"LID (?P<lid>\S+)")
_COLUMN = compile_expression(r"[A-Za-z0-9_.%]+(?: [A-Za-z]+)*(?:\[[^\]]{1,12}\])?")
_VERBS = {"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send"}
_UNITS = {"Gb/sec": 1e9 / 8, "MB/sec": 2.0**20, "MiB/sec": 2.0**20}
# What a result depends on, and the table does not say.
_CONDITIONS = ("Transport type", "Link type", "Connection type", "Number of qps", "Mtu")
_NOISE = ("WARNING", "Conflicting CPU frequency", "---", "***", "*")


def looks_like_perftest(content: bytes) -> bool:
    """Whether the head of a table of bandwidths or latencies is near the beginning."""
    head = content[:65_536].decode(errors="replace")
    found = (_HEADER.fullmatch(line.strip()) for line in head.splitlines() if len(line) < 1000)
    return any(match is not None and _kind(match["columns"]) for match in found)


def read_perftest(content: bytes) -> Reading:
    """One measurement a row. Raises `InvalidInput` with every fault and its line."""
    findings = Findings()
    table = _Table(findings)
    for line, text in lines_of(content, findings):
        if len(text) > _MAX_LINE:
            findings.refuse(line, f"has {len(text)} characters; no line of perftest has")
        elif text.strip():
            table.take(line, text.strip())
    return table.reading()


@dataclass(slots=True)
class _Table:
    findings: Findings
    verb: str | None = None
    title: int | None = None
    what: str = ""
    two_way: bool = False
    header: int | None = None
    columns: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, list[str]] = field(default_factory=dict)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    _last_address: str | None = None

    def take(self, line: int, text: str) -> None:
        if found := _TITLE.fullmatch(text):
            if self.title is not None:
                detail = f"begins another test (first on line {self.title}); a file has one"
                self.findings.refuse(line, detail)
            self.title = line
            self.verb, self.what = found["verb"], found["what"]
            self.two_way = found["two"] is not None
        elif found := _HEADER.fullmatch(text):
            self.header = line
            self.columns = [each.strip() for each in _COLUMN.findall(found["columns"])]
        elif self.header is not None and text.split(maxsplit=1)[0].isdigit():
            self._row(line, text)
        elif found := _ADDRESS.fullmatch(text):
            self._last_address = found["which"]
            lid = _LID.search(found["address"])
            self.addresses.setdefault(found["which"], []).append(lid["lid"] if lid else "")
        elif found := _GID.fullmatch(text):
            self.addresses.setdefault(self._last_address or "local", []).append(found["gid"])
        elif text.startswith(_NOISE):
            if not text.startswith(("---", "*")):
                self.findings.leave_out(line, f"a warning of the tool: {shown(text)}")
        else:
            self._facts(line, text)

    def _facts(self, line: int, text: str) -> None:
        found = [(match["key"].strip(), match["value"]) for match in _FACT.finditer(text)]
        if not found:
            self.findings.leave_out(line, f"is no part of the table: {shown(text)}")
        for key, value in found:
            self.facts.setdefault(key, value)

    def _row(self, line: int, text: str) -> None:
        words = text.split()
        if len(words) != len(self.columns) + 2:
            detail = f"has {len(words)} columns, the head of the table {len(self.columns) + 2}"
            self.findings.refuse(line, detail)
        elif not all(_is_number(each) for each in words):
            self.findings.refuse(line, f"is no row of numbers: {shown(text)}")
        elif len(self.rows) >= _MAX_ROWS:
            self.findings.refuse(line, f"is beyond the {_MAX_ROWS} rows that are read")
        else:
            self.rows.append((line, words))

    def reading(self) -> Reading:
        self._check()
        self.findings.raise_faults()
        found = [each for line, words in self.rows for each in self._measurement(line, words)]
        if not found:
            self.findings.refuse(self.header, "begins a table without a row that can be used")
        self.findings.raise_faults()
        return Reading(
            format=FORMAT,
            facts={"rows": len(self.rows), "measurements": len(found)},
            measurements=tuple(found),
            assumptions=tuple(self.findings.assumptions),
            notes=(*self.findings.notes(), *self._conditions()),
            left_out=self.findings.left_out(),
        )

    def _check(self) -> None:
        if self.header is None:
            if not self.findings.faulty:
                self.findings.refuse(None, "the file has no table of perftest")
            return
        if self.title is None or self.verb is None:
            detail = "begins a table, but no line above names the test (`RDMA_Write BW Test`)"
            self.findings.refuse(self.header, detail)
        elif self.verb not in _VERBS:
            self.findings.refuse(self.title, f"is a test of {self.verb}, which moves no messages")
        elif self.two_way:
            detail = "adds up both directions: run it without -b, one way tells of a link"
            self.findings.refuse(self.title, detail)
        elif self.facts.get("Dual-port") == "ON":
            detail = "adds up two ports: run it on one, which tells of a link"
            self.findings.refuse(self.title, detail)
        if not self.rows:
            self.findings.refuse(self.header, "begins a table without rows")
        kind = _kind(" ".join(self.columns))
        if not kind:
            self.findings.refuse(self.header, "has neither an average bandwidth nor a latency")
        elif self.what and kind != self.what:
            detail = f"is the head of a table of {kind}, under the title of a test of {self.what}"
            self.findings.refuse(self.header, detail)

    def _measurement(self, line: int, words: Sequence[str]) -> list[MeasuredTransfer]:
        values = dict(zip(self.columns, words[2:], strict=True))
        rate = latency = None
        for name, text in values.items():
            if name.startswith("BW average["):
                rate = float(text) * _UNITS[name[len("BW average[") : -1]]
        if self.what == "Latency":
            typical = values.get("t_typical[usec]", values.get("t_avg[usec]"))
            latency = float(typical or 0) / 1e6
        if not (rate or latency):
            self.findings.leave_out(line, "measured nothing")
            return []
        device = self.facts.get("Device")
        return [
            MeasuredTransfer(
                tool="perftest",
                collective=_VERBS[self.verb or ""],
                message_bytes=int(words[0]),
                ranks=2,
                scope=self._scope(),
                line=line,
                bus_bytes_per_second=rate,
                latency_seconds=latency,
                devices=(device,) if device is not None else (),
            )
        ]

    def _conditions(self) -> Iterator[str]:
        told = [f"{key} {self.facts[key]}" for key in _CONDITIONS if key in self.facts]
        if told:
            yield f"measured with {', '.join(told)}"

    def _scope(self) -> TransferScope:
        """Between hosts where both addresses are told and differ: else it may be one port."""
        local, remote = self.addresses.get("local"), self.addresses.get("remote")
        if not local or not remote or len(local) != len(remote) or local == remote:
            return TransferScope.UNKNOWN
        return TransferScope.BETWEEN_HOSTS


def _kind(columns: str) -> str:
    """`BW` or `Latency`, by the columns of a table; nothing for another table."""
    for unit in _UNITS:
        if f"BW average[{unit}]" in columns:
            return "BW"
    return "Latency" if "t_typical[usec]" in columns or "t_avg[usec]" in columns else ""


def _is_number(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return 0 <= value < 1e15
