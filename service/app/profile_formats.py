"""The formats of profiles that are read here: a new one is a row of `_FORMATS`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from service.core.errors import Fault, FaultCode, InvalidInput
from service.formats.pipedream import looks_like_pipedream, read_pipedream
from service.formats.profile_reading import ProfileReading, Stated

__all__ = ["PROFILE_FORMATS", "ProfileFormat", "profile_format", "read_profile"]


@dataclass(frozen=True, slots=True)
class ProfileFormat:
    """One format: how it is recognised, how it is read, and what the caller states beside it.

    `needs` holds the options that must be stated, each with a value to read on with when it is
    absent, so that the faults of the file are told too; `takes` those that may be.
    """

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[bytes, Stated], ProfileReading]
    needs: Mapping[str, Any] = field(default_factory=dict)
    takes: frozenset[str] = frozenset()


def _read_pipedream(content: bytes, stated: Stated) -> ProfileReading:
    found = read_pipedream(
        content,
        microbatch_size=stated.microbatch_size or 1,
        device=stated.device,
        precision=stated.precision,
    )
    return ProfileReading(
        profile=found.profile,
        model=found.model,
        facts=asdict(found.read),
        assumptions=found.assumptions,
        left_out=found.left_out,
    )


_ORIGIN = frozenset({"device", "precision"})
_FORMATS = (
    ProfileFormat(
        "pipedream",
        looks_like_pipedream,
        _read_pipedream,
        needs={"microbatch_size": 1},
        takes=_ORIGIN,
    ),
)
PROFILE_FORMATS = tuple(each.name for each in _FORMATS)


def profile_format(content: bytes, name: str | None) -> ProfileFormat:
    """The format of that name, or that of the content. Raises `InvalidInput` when it is none."""
    known = ", ".join(PROFILE_FORMATS)
    if name is not None:
        named = next((each for each in _FORMATS if each.name == name), None)
        if named is None:
            detail = f"{name!r} is no format of profiles; known are: {known}"
            raise InvalidInput([Fault(FaultCode.NOT_SUPPORTED, ("format",), detail)])
        return named
    recognised = next((each for each in _FORMATS if each.recognises(content)), None)
    if recognised is None:
        detail = f"the file is in no format that is read here; known are: {known}"
        raise InvalidInput([Fault(FaultCode.UNREADABLE, ("file",), detail)])
    return recognised


def read_profile(chosen: ProfileFormat, content: bytes, stated: Stated) -> ProfileReading:
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


def _missing(chosen: ProfileFormat, stated: Stated) -> list[str]:
    return [option for option in chosen.needs if getattr(stated, option) is None]


def _option_faults(chosen: ProfileFormat, stated: Stated) -> Iterator[Fault]:
    for option in _missing(chosen, stated):
        detail = f"a {chosen.name} file does not say this: state it"
        yield Fault(FaultCode.MISSING_FIELD, (option,), detail)
    for option, value in asdict(stated).items():
        if value is not None and option not in chosen.takes and option not in chosen.needs:
            detail = f"has no meaning beside a {chosen.name} file: leave it out"
            yield Fault(FaultCode.NOT_SUPPORTED, (option,), detail)


def _in_file(fault: Fault) -> Fault:
    """A fault of a line belongs to the file; one of an option stands where the option does."""
    if fault.path and fault.path[0] != "line":
        return fault
    return replace(fault, path=("file", *fault.path))
