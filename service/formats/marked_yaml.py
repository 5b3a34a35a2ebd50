"""YAML and JSON as values with their lines, read so that no file can make it work for long.

JSON is read as the YAML it also is. Anchors, aliases, tags and merge keys are refused, and so are
keys given twice; depth and the number of values are bounded before anything is made of them.
"""

from dataclasses import dataclass

import yaml

from service.formats.pasted_text import Findings, shown

__all__ = ["MAX_DEPTH", "MAX_VALUES", "Marked", "first_document", "read_documents"]

MAX_DEPTH = 64
MAX_VALUES = 1_000_000

# The same rules twice over: where the C library is at hand it is ten times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Marked:
    """A value and the line it begins on; a list or mapping under a key begins where the key is.

    `value` is a text as it is written, a list, or a mapping by key. `plain` is a text without
    quotes, which YAML may mean as a number, a truth value or nothing (`is_null`).
    """

    line: int
    value: "str | list[Marked] | dict[str, Marked]"
    plain: bool = False

    @property
    def text(self) -> str | None:
        """The text, None where there is something else or nothing."""
        return self.value if isinstance(self.value, str) and not self.is_null else None

    @property
    def is_null(self) -> bool:
        """Whether nothing stands there."""
        return self.plain and self.value in ("", "~", "null", "Null", "NULL")

    @property
    def items(self) -> "list[Marked]":
        """The entries of a list; nothing where there is something else."""
        return self.value if isinstance(self.value, list) else []

    @property
    def fields(self) -> "dict[str, Marked]":
        """The entries of a mapping; nothing where there is something else."""
        return self.value if isinstance(self.value, dict) else {}

    def require_known(self, findings: Findings, *keys: str) -> None:
        """Refuse what is no mapping (nothing is legal), and whatever in one has another key."""
        if not isinstance(self.value, dict) and not self.is_null:
            findings.refuse(self.line, f"is a mapping with {', '.join(keys)}")
        for key, value in self.fields.items():
            if key not in keys:
                findings.refuse(value.line, f"gives {shown(key)}; known here are {', '.join(keys)}")

    def get(self, *keys: str) -> "Marked | None":
        """What stands at the end of these keys of mappings within each other, if anything does."""
        found: Marked | None = self
        for key in keys:
            found = found.fields.get(key) if found is not None else None
        return None if found is None or found.is_null else found


def read_documents(content: bytes, findings: Findings) -> list[Marked]:
    """The documents of a file that hold something; what is broken ends the reading, refused."""
    try:
        text = content.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        findings.refuse(content.count(b"\n", 0, error.start) + 1, "is not UTF-8 text")
        return []
    reader = _Reader(findings)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if not reader.take(event):
                break
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = getattr(error, "position", None)
        if mark is not None:
            line = mark.line + 1
        else:
            line = text.count("\n", 0, position) + 1 if isinstance(position, int) else 1
        problem = getattr(error, "problem", None) or getattr(error, "reason", None)
        findings.refuse(line, f"is no YAML: {problem or 'it can not be read'}")
    return [document for document in reader.documents if not document.is_null]


def first_document(content: bytes) -> Marked | None:
    """The beginning of the first document for a look at its keys; None when there is none.

    What is broken or missing behind the beginning does not matter here.
    """
    findings = Findings()
    reader = _Reader(findings)
    head = content.removeprefix(b"\xef\xbb\xbf")[:65_536].decode(errors="replace")
    try:
        for event in yaml.parse(head, Loader=_LOADER):
            if not reader.take(event) or len(reader.documents) > 1:
                break
    except yaml.YAMLError:
        pass
    return reader.documents[0] if reader.documents else None


class _Reader:
    """Takes events one by one and puts values into each other."""

    def __init__(self, findings: Findings) -> None:
        self.documents: list[Marked] = []
        self._findings = findings
        self._open: list[Marked] = []
        # The key that waits for its value, for each open mapping; None elsewhere.
        self._keys: list[Marked | None] = []
        self._count = 0

    def take(self, event: yaml.Event) -> bool:
        """Whether to go on."""
        if isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
            self._keys.pop()
            return True
        if not isinstance(event, yaml.NodeEvent):
            return True
        line = event.start_mark.line + 1
        refused = self._refusal(event)
        if refused is not None:
            self._findings.refuse(line, refused)
            return False
        if isinstance(event, yaml.ScalarEvent):
            return self._put(Marked(line, event.value, plain=not event.style))
        empty: list[Marked] | dict[str, Marked]
        empty = {} if isinstance(event, yaml.MappingStartEvent) else []
        node = Marked(line, empty)
        if not self._put(node):
            return False
        self._open.append(node)
        self._keys.append(None)
        return True

    def _refusal(self, event: yaml.NodeEvent) -> str | None:
        self._count += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            return "has an anchor or an alias, which are not read: write the value out"
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            return f"has the tag {shown(tag)}; tags are not read"
        if self._count > MAX_VALUES:
            return f"is beyond the {MAX_VALUES} values that are read of a file"
        if len(self._open) >= MAX_DEPTH:
            return f"is more than {MAX_DEPTH} deep"
        return None

    def _put(self, node: Marked) -> bool:
        if not self._open:
            self.documents.append(node)
            return True
        holder = self._open[-1].value
        if isinstance(holder, list):
            holder.append(node)
        elif isinstance(holder, dict):
            key = self._keys[-1]
            if key is None:
                return self._key(node, holder)
            if not isinstance(node.value, str):
                node.line = key.line
            holder[str(key.value)] = node
            self._keys[-1] = None
        return True

    def _key(self, node: Marked, holder: dict[str, Marked]) -> bool:
        if not isinstance(node.value, str):
            self._findings.refuse(node.line, "has a key that is no text")
            return False
        if node.value == "<<" and node.plain:
            self._findings.refuse(node.line, "has a merge key, which is not read")
            return False
        if node.value in holder:
            first = holder[node.value].line
            detail = f"gives {shown(node.value)} again (first on line {first})"
            self._findings.refuse(node.line, detail)
            return False
        self._keys[-1] = node
        return True
