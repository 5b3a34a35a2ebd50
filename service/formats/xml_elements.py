"""XML as elements with their lines, read so that no file can make it work for long.

Entities, internal subsets and references to undeclared entities are refused; a DOCTYPE that only
names an external subset (hwloc writes one) is read over, and nothing is ever fetched. Depth and
number of elements are bounded, and the text is UTF-8 whatever the file says of itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from service.core.errors import Fault, FaultCode, InvalidInput

__all__ = ["MAX_DEPTH", "MAX_ELEMENTS", "Element", "read_xml", "root_name"]

MAX_DEPTH = 128
MAX_ELEMENTS = 200_000


@dataclass(slots=True)
class Element:
    """One element; `line` counts from 1 and is where its tag begins."""

    name: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def named(self, *names: str) -> Iterator["Element"]:
        """The children of these names, in order."""
        return (child for child in self.children if child.name in names)


def read_xml(content: bytes) -> Element:
    """The root of a file. Raises `InvalidInput` with path `("line", n)` for what is refused."""
    return _Reader().read(content)


def root_name(content: bytes) -> str | None:
    """The name of the first element, None when there is none in the first 64 KiB or it is broken.

    What stands before it may be damaged; `read_xml` says so.
    """
    reader = _Reader(only_root=True)
    try:
        reader.read(content[:65_536])
    except InvalidInput:
        pass
    except _Found as found:
        return found.name
    return None


class _Found(Exception):
    def __init__(self, name: str) -> None:
        self.name = name


class _Reader:
    """Takes what the parser finds, and puts elements into each other."""

    def __init__(self, *, only_root: bool = False) -> None:
        self._only_root = only_root
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self._root: Element | None = None
        self._count = 0
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.EntityDeclHandler = self._entity
        self._parser.SkippedEntityHandler = self._skipped

    def read(self, content: bytes) -> Element:
        try:
            self._parser.Parse(content, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            self._refuse(f"is no XML: {reason}", error.lineno)
        if self._root is None:
            self._refuse("ends without an element")
        return self._root

    def _refuse(self, detail: str, line: int | None = None) -> NoReturn:
        where = line or self._parser.CurrentLineNumber
        raise InvalidInput([Fault(FaultCode.UNREADABLE, ("line", where), f"line {where} {detail}")])

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._only_root:
            raise _Found(name)
        self._count += 1
        if self._count > MAX_ELEMENTS:
            self._refuse(f"is beyond the {MAX_ELEMENTS} elements that are read")
        if len(self._open) >= MAX_DEPTH:
            self._refuse(f"is deeper than the {MAX_DEPTH} elements in each other that are read")
        element = Element(name, attributes, self._parser.CurrentLineNumber)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)
        self._texts.append([])

    def _end(self, _name: str) -> None:
        self._open.pop().text = "".join(self._texts.pop())

    def _text(self, text: str) -> None:
        if self._texts:
            self._texts[-1].append(text)

    def _doctype(self, _name: str, _system: str | None, _public: str | None, subset: int) -> None:
        if subset:
            self._refuse("has a document type with declarations of its own, which are not read")

    def _entity(self, *_declaration: object) -> None:
        self._refuse("declares an entity, which is not read")

    def _skipped(self, name: str, _is_parameter: bool) -> None:
        self._refuse(f"has &{name[:40]};, which the file does not explain")
