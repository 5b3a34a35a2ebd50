"""The matrix of `nvidia-smi topo -m`, captured or pasted.

A header with the names of devices, then for each of them a row with one token a device: `X` for
itself, `NV<n>` for n NVLinks, else how far PCI traffic goes (`PIX`, `PXB`, `PHB`, `NODE`, `SYS`,
formerly `SOC`). Affinities follow on the rows of GPUs. Drivers underline the header with escape
codes, also into files; columns are parted by tabs, or by blanks after a paste.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from service.core.topology.readings import Reading
from service.formats.pasted_text import Findings, lines_of, refuse_file, shown
from service.formats.topo_matrix import Matrix, MatrixDevice, host_of_matrix, matrix_facts

__all__ = ["MAX_DEVICES", "looks_like_nvidia_smi_topo", "read_nvidia_smi_topo"]

MAX_DEVICES = 256
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}")
_GPU = re.compile(r"GPU[0-9]{1,4}")
_NIC = re.compile(r"NIC[0-9]{1,4}")
_TOKEN = re.compile(r"X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|SOC")
_GLUED = re.compile(r"(?:NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|SOC|X){2,}")
# What the matrices of `topo -p2p` hold, which look alike.
_PEER_TO_PEER = {"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"}
_AFTER_NAMES = {"CPU", "NUMA", "GPU"}
_LEGEND = re.compile(r"(NIC[0-9]{1,4}): *([A-Za-z][A-Za-z0-9_.-]{0,31})")
_FENCE = re.compile(r"```[a-z]*|[^\t]*[$#] *nvidia-smi topo -m")


def looks_like_nvidia_smi_topo(content: bytes) -> bool:
    """Whether one of the first lines is a header of GPUs; matrices of `-p2p` have the same."""
    text = _ESCAPES.sub("", content[:16_384].decode(errors="replace"))
    return any(_header_names(line) for line in text.splitlines()[:40])


def read_nvidia_smi_topo(content: bytes) -> Reading:
    """Read a matrix into the inside of a host.

    GPUs keep their numbers. NICs are `nic0`, ... by their own numbers (`NICk`), else in the order
    of their names. Raises `InvalidInput` with every fault, each with path `("line", n)`.
    """
    findings = Findings()
    reader = _Reader(findings)
    for line, text in lines_of(content, findings):
        reader.take(line, _ESCAPES.sub("", text))
    matrix = reader.finish()
    host = host_of_matrix(matrix, findings)
    return Reading(
        format="nvidia_smi_topo",
        facts=matrix_facts(host),
        hosts=(host,),
        assumptions=tuple(findings.assumptions),
        notes=findings.notes(),
        left_out=findings.left_out(),
    )


def _header_names(text: str) -> list[str]:
    """The names of a header line, empty when it is none."""
    names = []
    tokens = text.split()
    for place, token in enumerate(tokens):
        if token in _AFTER_NAMES:
            break
        if _NAME.fullmatch(token) is None or (place and _TOKEN.fullmatch(token)):
            return []
        names.append(token)
    is_header = names and _GPU.fullmatch(names[0]) and (len(names) > 1 or len(tokens) > 1)
    return names if is_header and not _PEER_TO_PEER.intersection(names) else []


@dataclass(slots=True)
class _Row:
    line: int
    tokens: list[str]
    cpus: str = ""
    numa: int | None = None


@dataclass(slots=True)
class _Reader:
    """Takes lines one by one: the header, its rows, the legends."""

    findings: Findings
    _names: list[str] = field(default_factory=list)
    _header_line: int = 0
    _last_line: int = 1
    _columns: list[str] = field(default_factory=list)
    _rows: dict[str, _Row] = field(default_factory=dict)
    _titles: dict[str, str] = field(default_factory=dict)
    _in_legend: bool = False
    _in_nic_legend: bool = False

    def take(self, line: int, text: str) -> None:
        stripped = text.strip()
        if not stripped:
            return
        self._last_line = line
        if not self._names:
            self._take_header(line, text)
        elif stripped.endswith("Legend:"):
            self._in_legend = True
            self._in_nic_legend = stripped.startswith("NIC")
        elif self._in_legend:
            self._take_legend(line, stripped)
        else:
            self._take_row(line, text)

    def _take_header(self, line: int, text: str) -> None:
        names = _header_names(text)
        if not names:
            if _FENCE.fullmatch(text.strip()) is None:
                self.findings.leave_out(line, f"{shown(text.strip())} before the matrix")
            return
        if len(names) > MAX_DEVICES:
            refuse_file(line, f"names {len(names)} devices; at most {MAX_DEVICES} are read")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            refuse_file(line, f"names {shown(twice[0])} twice")
        self._names, self._header_line = names, line
        # Only tabs keep the empty cells apart.
        self._columns = text.split("\t") if "\t" in text.strip() else []

    def _take_row(self, line: int, text: str) -> None:
        tokens = text.split()
        name, count = tokens[0], len(self._names)
        if _FENCE.fullmatch(text.strip()):
            return
        if name not in self._names:
            self.findings.refuse(line, f"begins with {shown(name)}, which the header does not name")
            return
        if name in self._rows:
            self.findings.refuse(line, f"is a second row of {name}")
            return
        relations = tokens[1 : 1 + count]
        if not self._are_relations(line, relations):
            return
        if len(relations) < count:
            self.findings.refuse(
                line, f"has {len(relations)} relations, and the header names {count} devices"
            )
            return
        self._rows[name] = _Row(line, relations, *self._affinity(text, tokens[1 + count :]))

    def _are_relations(self, line: int, relations: list[str]) -> bool:
        for token in relations:
            if _TOKEN.fullmatch(token):
                continue
            if token in _PEER_TO_PEER:
                refuse_file(
                    line,
                    f"has {shown(token)}, which is of nvidia-smi topo -p2p, whose matrix says what"
                    " may be, not what is joined",
                )
            if _GLUED.fullmatch(token):
                why = "several relations glued together: the table was wrapped when it was pasted"
            else:
                why = "no relation: X, NV<n>, PIX, PXB, PHB, NODE or SYS"
            self.findings.refuse(line, f"has {shown(token)}, which is {why}")
            return False
        return True

    def _affinity(self, text: str, rest: list[str]) -> tuple[str, int | None]:
        """The CPUs and the NUMA node of a row, where its columns can be told apart."""
        if self._columns:
            cells = [cell.strip() for cell in text.split("\t")][1 + len(self._names) :]
            titles = [title.strip() for title in self._columns][1 + len(self._names) :]
            by_title = dict(zip(titles, cells, strict=False))
        elif len(rest) >= 2:
            by_title = {"CPU Affinity": rest[0], "NUMA Affinity": rest[1]}
        else:
            by_title = {"CPU Affinity": rest[0] if rest else ""}
        numa = re.match(r"[0-9]{1,4}", by_title.get("NUMA Affinity", ""))
        return by_title.get("CPU Affinity", ""), None if numa is None else int(numa[0])

    def _take_legend(self, line: int, text: str) -> None:
        found = _LEGEND.fullmatch(text)
        if found is not None and not self._in_nic_legend:
            self.findings.leave_out(line, f"{shown(text)} outside the legend of NICs")
            return
        if found is None:
            if self._in_nic_legend and _FENCE.fullmatch(text) is None:
                self.findings.leave_out(line, f"{shown(text)} in the legend of NICs")
            return
        name, title = found.groups()
        if name not in self._names:
            self.findings.refuse(line, f"explains {name}, which the header does not name")
        elif name in self._titles:
            self.findings.refuse(line, f"explains {name} again")
        else:
            self._titles[name] = title

    def finish(self) -> Matrix:
        """The whole matrix. Raises `InvalidInput` for what is missing or not symmetric."""
        if not self._names:
            refuse_file(self._last_line, "ends a file without a header that names GPUs")
        self.findings.raise_faults()
        absent = [name for name in self._names if name not in self._rows]
        if absent:
            some = ", ".join(absent[:8]) + (", ..." if len(absent) > 8 else "")
            refuse_file(self._last_line, f"ends the matrix without the rows of {some}")
        nics = [name for name in self._names if _NIC.fullmatch(name)]
        unexplained = [name for name in nics if name not in self._titles]
        if self._titles and unexplained:
            refuse_file(self._last_line, f"ends the legend without {', '.join(unexplained[:8])}")
        self._require_symmetry()
        self.findings.raise_faults()
        return Matrix(tuple(self._devices()), self._relations(), self._header_line)

    def _require_symmetry(self) -> None:
        for row, name in enumerate(self._names):
            tokens = self._rows[name].tokens
            if tokens[row] != "X":
                self.findings.refuse(
                    self._rows[name].line, f"has {tokens[row]} where {name} meets itself; it is X"
                )
            for column in range(row):
                other = self._names[column]
                back = self._rows[other].tokens[row]
                if tokens[column] != back or back == "X":
                    self.findings.refuse(
                        self._rows[name].line,
                        f"has {tokens[column]} for {other}, whose own row has {back} for {name}",
                    )

    def _devices(self) -> Sequence[MatrixDevice]:
        return [
            MatrixDevice(
                name=name,
                line=self._rows[name].line,
                is_gpu=_GPU.fullmatch(name) is not None,
                title=self._titles.get(name, None if _NIC.fullmatch(name) else name),
                cpus=self._rows[name].cpus,
                numa=self._rows[name].numa,
            )
            for name in self._names
        ]

    def _relations(self) -> Mapping[tuple[str, str], str]:
        return {
            (one, other): "SYS" if token == "SOC" else token  # noqa: S105 (a word of the matrix)
            for one in self._names
            for other, token in zip(self._names, self._rows[one].tokens, strict=True)
            if one != other
        }
