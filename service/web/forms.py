"""Multipart forms: files and a few fields, checked as strictly as a JSON body."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request
from msgspec import NODEFAULT, Meta, Struct
from multipart import MultipartError, MultipartSegment, PushMultipartParser

from service.core.errors import FaultCode
from service.web import problem_types
from service.web.holding import hold_preparation
from service.web.media_types import require_media_type
from service.web.problems import Problem, ProblemError, RequestFaultCode, json_pointer
from service.web.texts import read_text

__all__ = [
    "FILES_FIELD",
    "FILE_FIELD",
    "MULTIPART_MEDIA_TYPE",
    "SentFile",
    "form_type",
    "read_files_form",
    "read_form",
]

F = TypeVar("F", bound=Struct)

FILE_FIELD = "file"
FILES_FIELD = "files"
MULTIPART_MEDIA_TYPE = "multipart/form-data"
MAX_FORM_PARTS = 64
_MOST_OF_A_FILE_NAME = 200

_File = Annotated[
    str,
    Meta(
        description="The file as it is",
        extra_json_schema={"contentMediaType": "application/octet-stream"},
    ),
]


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file of a form; `name` is what its sender calls it, printable and short."""

    name: str
    content: bytes


@lru_cache(maxsize=16)
def form_type(fields_type: type[Struct], most_files: int | None = None) -> type[Struct]:
    """The whole form as one type, to be described; it is read by `read_form`.

    With `most_files` it is a form of 1 to so many files, which `read_files_form` reads.
    """
    files: Any = (FILE_FIELD, _File)
    if most_files is not None:
        many = Annotated[
            list[_File],
            Meta(
                min_length=1,
                max_length=most_files,
                description=f"One part for each file, at most {most_files}",
            ),
        ]
        files = (FILES_FIELD, many)
    return msgspec.defstruct(
        fields_type.__name__.removesuffix("Fields") + "Form",
        [files],
        bases=(fields_type,),
        namespace={"__doc__": "Files and what is said of them."},
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
    )


async def read_form(request: Request[Any, Any, Any], fields_type: type[F]) -> tuple[bytes, F]:
    """The bytes of the part `file`, and the other parts as a msgspec struct.

    Raises `Problem`: 415 for another content type, 400 `malformed-request` for what is no form,
    400 `invalid-body` with every fault of its fields. The framework raises when it is too large,
    and it is refused when reading the file would only wait.
    """
    parts = await _parts_by_name(request)
    errors: list[ProblemError] = []
    content = _file_of(parts.pop(FILE_FIELD, []), errors)
    return content, _checked_fields(parts, fields_type, FILE_FIELD, errors)


async def read_files_form(
    request: Request[Any, Any, Any], fields_type: type[F], most_files: int
) -> tuple[list[SentFile], F]:
    """The parts `files` in their order, and the other parts; raises as `read_form` does."""
    parts = await _parts_by_name(request)
    errors: list[ProblemError] = []
    given = parts.pop(FILES_FIELD, [])
    if not 1 <= len(given) <= most_files:
        detail = f"1 to {most_files} parts {FILES_FIELD!r} are required; got {len(given)}"
        code = FaultCode.OUT_OF_RANGE if given else FaultCode.MISSING_FIELD
        errors.append(_error(FILES_FIELD, code, detail))
    for place, part in enumerate(given):
        if not part.is_file:
            detail = f"each part {FILES_FIELD!r} is a file, with a file name"
            pointer = json_pointer((FILES_FIELD, place))
            wrong = RequestFaultCode.WRONG_TYPE
            errors.append(ProblemError(pointer=pointer, code=wrong, detail=detail))
    fields = _checked_fields(parts, fields_type, FILES_FIELD, errors)
    return [SentFile(part.file_name, bytes(part.content)) for part in given], fields


async def _parts_by_name(request: Request[Any, Any, Any]) -> dict[str, list["_Part"]]:
    require_media_type(request, MULTIPART_MEDIA_TYPE)
    boundary = request.content_type[1].get("boundary", "")
    try:
        given = await _read_parts(request, boundary.encode())
    except (MultipartError, ValueError) as error:  # ValueError: text that has no bytes
        detail = f"the body is not the form that the Content-Type header promises: {error}"
        raise Problem(problem_types.MALFORMED_REQUEST, detail[:300]) from error
    hold_preparation(request, sum(len(part.content) for part in given))
    parts: dict[str, list[_Part]] = {}
    for part in given:
        parts.setdefault(part.name, []).append(part)
    return parts


def _checked_fields(
    parts: dict[str, list["_Part"]],
    fields_type: type[F],
    file_field: str,
    errors: list[ProblemError],
) -> F:
    """The fields as their type. Raises `Problem` when these, or anything before, are at fault."""
    fields = _fields_of(parts, fields_type, file_field, errors)
    if errors:
        raise Problem.listing(problem_types.INVALID_BODY, errors)
    return msgspec.convert(fields, fields_type)


async def _read_parts(request: Request[Any, Any, Any], boundary: bytes) -> list["_Part"]:
    """The parts of a form as they come, in memory: the size of the body is bounded."""
    parts: list[_Part] = []
    # Leaving the block says whether the last boundary was there.
    with PushMultipartParser(boundary, max_segment_count=MAX_FORM_PARTS) as parser:
        async for chunk in request.stream():
            for event in parser.parse(chunk) if chunk else ():
                if isinstance(event, MultipartSegment):
                    parts.append(_Part(event))
                elif event is not None:
                    parts[-1].content += event
    return parts


class _Part:
    """One part of a form."""

    def __init__(self, segment: MultipartSegment) -> None:
        self.name = segment.name or ""
        self.is_file = bool(segment.filename)
        name = "".join(c if c.isprintable() else "?" for c in segment.filename or "")
        self.file_name = name[:_MOST_OF_A_FILE_NAME]
        self.content = bytearray()
        self._charset = segment.charset

    def text(self) -> str:
        """What a field says. ValueError with what would be right when it is not text in UTF-8.

        Other character sets are refused by name: some of Python's take minutes for a long text,
        and some hold halves of surrogate pairs.
        """
        if (self._charset or "utf-8").lower() not in {"utf-8", "us-ascii"}:
            raise ValueError(f"a field is text in UTF-8, not in {self._charset!r:.100}")
        try:
            return self.content.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"a field is text in UTF-8: {error.reason}") from error


def _file_of(parts: list[_Part], errors: list[ProblemError]) -> bytes:
    if not parts:
        detail = f"the part {FILE_FIELD!r} is required"
        errors.append(_error(FILE_FIELD, FaultCode.MISSING_FIELD, detail))
    elif len(parts) > 1 or not parts[0].is_file:
        detail = f"the part {FILE_FIELD!r} is one file, with a file name"
        errors.append(_error(FILE_FIELD, RequestFaultCode.WRONG_TYPE, detail))
    else:
        return bytes(parts[0].content)
    return b""


def _fields_of(
    parts: dict[str, list[_Part]],
    fields_type: type[Struct],
    file_field: str,
    errors: list[ProblemError],
) -> dict[str, Any]:
    known = {field.encode_name: field for field in msgspec.structs.fields(fields_type)}
    values: dict[str, Any] = {}
    for name, given in parts.items():
        if name not in known:
            names = ", ".join([file_field, *known])
            detail = f"this field is unknown; known here are: {names}"
            errors.append(_error(name, RequestFaultCode.UNKNOWN_FIELD, detail))
        elif len(given) > 1 or given[0].is_file:
            detail = f"the field {name!r} is given once, as text"
            errors.append(_error(name, RequestFaultCode.WRONG_TYPE, detail))
        else:
            try:
                text = given[0].text()
            except ValueError as error:
                errors.append(_error(name, RequestFaultCode.MALFORMED, f"{name}: {error}"))
                continue
            values[name], faults = read_text(text, known[name].type)
            errors += [_error(name, fault.code, f"{name}: {fault.detail}") for fault in faults]
    errors += [
        _error(name, FaultCode.MISSING_FIELD, f"the field {name!r} is required")
        for name, field in known.items()
        if name not in parts and field.default is NODEFAULT and field.default_factory is NODEFAULT
    ]
    return values


def _error(name: str, code: str, detail: str) -> ProblemError:
    return ProblemError(pointer=json_pointer((name,)), code=code, detail=detail)
