"""Formats of files, each one row: how it is recognised and read, and what is stated beside it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from service.core.errors import Fault, FaultCode, InvalidInput

__all__ = ["FileFormat", "choose_format", "find_format", "read_file"]

S = TypeVar("S", bound=Any)  # a dataclass of options, None where nothing is stated
R = TypeVar("R")

_MAX_WORDS = 127


class _Row(Protocol):
    """What a format is found by."""

    @property
    def name(self) -> str: ...

    @property
    def recognises(self) -> Callable[[bytes], bool]: ...


Row = TypeVar("Row", bound=_Row)


@dataclass(frozen=True, slots=True)
class FileFormat(Generic[S, R]):
    """One format.

    `needs` holds the options that must be stated, each with a value to read on with when it is
    absent, so that the faults of the file are told too; `takes` those that may be.
    """

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[bytes, S], R]
    needs: Mapping[str, Any] = field(default_factory=dict)
    takes: frozenset[str] = frozenset()


def find_format(formats: Sequence[Row], content: bytes, name: str | None) -> Row | None:
    """The format of that name; without one the first that recognises the content."""
    if name is not None:
        return next((each for each in formats if each.name == name), None)
    return next((each for each in formats if each.recognises(content)), None)


def choose_format(
    formats: Sequence[FileFormat[S, R]],
    content: bytes,
    name: str | None,
    look_alikes: Sequence[tuple[Callable[[bytes], bool], str]] = (),
) -> FileFormat[S, R]:
    """The format of that name, or that of the content.

    Raises `InvalidInput` when it is none; with what the file is where a row of `look_alikes` knows
    it.
    """
    found = find_format(formats, content, name)
    if found is not None:
        return found
    known = ", ".join(each.name for each in formats)
    if name is not None:
        detail = f"{name!r} is no format that is read here; known are: {known}"
        raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, ("format",), detail)])
    known_as = next((text for looks, text in look_alikes if looks(content)), None)
    what = "in no format that is read here" if known_as is None else known_as
    detail = f"the file is {what}; known are: {known}"
    raise InvalidInput([Fault(FaultCode.UNREADABLE, ("file",), detail)])


def read_file(chosen: FileFormat[S, R], content: bytes, stated: S) -> R:
    """Read a file in a format.

    Raises `InvalidInput` with every fault: of the file at `("file", "line", n)`, of what is stated
    at the option.
    """
    faults = list(_option_faults(chosen, stated))
    missing = {option: chosen.needs[option] for option in _missing(chosen, stated)}
    try:
        reading = chosen.read(content, replace(stated, **missing))
    except InvalidInput as error:
        faults += map(_in_file, error.faults)
    if faults:
        raise InvalidInput(faults)
    return reading


def _missing(chosen: FileFormat[S, R], stated: S) -> list[str]:
    return [option for option in chosen.needs if getattr(stated, option) is None]


def _option_faults(chosen: FileFormat[S, R], stated: S) -> Iterator[Fault]:
    for option in _missing(chosen, stated):
        detail = f"a {chosen.name} file does not say this: state it"
        yield Fault(FaultCode.MISSING_FIELD, (option,), detail)
    for option, value in asdict(stated).items():
        if value is not None and option not in chosen.takes and option not in chosen.needs:
            detail = f"has no meaning beside a {chosen.name} file: leave it out"
            yield Fault(FaultCode.NOT_SUPPORTED, (option,), detail)
        elif isinstance(value, str) and not _is_text(value):
            detail = f"1 to {_MAX_WORDS} characters, no NUL or half of a surrogate pair"
            yield Fault(FaultCode.OUT_OF_RANGE, (option,), detail)


def _is_text(text: str) -> bool:
    halves = any("\ud800" <= character <= "\udfff" for character in text)
    return 1 <= len(text) <= _MAX_WORDS and "\0" not in text and not halves


def _in_file(fault: Fault) -> Fault:
    """A fault of a line belongs to the file; one of an option stands where the option does."""
    if fault.path and fault.path[0] != "line":
        return fault
    return replace(fault, path=("file", *fault.path))
