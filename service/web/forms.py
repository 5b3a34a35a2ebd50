"""Multipart forms: one file and a few fields, checked as strictly as a JSON body."""

from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request
from litestar.datastructures import UploadFile
from litestar.exceptions import ClientException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from msgspec import NODEFAULT, Meta, Struct

from service.core.errors import FaultCode
from service.web import problem_types
from service.web.problems import Problem, ProblemError, RequestFaultCode, json_pointer
from service.web.texts import read_text

__all__ = ["FILE_FIELD", "MULTIPART_MEDIA_TYPE", "form_type", "read_form"]

F = TypeVar("F", bound=Struct)

FILE_FIELD = "file"
MULTIPART_MEDIA_TYPE = "multipart/form-data"

_File = Annotated[
    str,
    Meta(
        description="The file as it is",
        extra_json_schema={"contentMediaType": "application/octet-stream"},
    ),
]


@lru_cache(maxsize=16)
def form_type(fields_type: type[Struct]) -> type[Struct]:
    """The whole form as one type, to be described; it is read by `read_form`."""
    return msgspec.defstruct(
        fields_type.__name__.removesuffix("Fields") + "Form",
        [(FILE_FIELD, _File)],
        bases=(fields_type,),
        namespace={"__doc__": "A file and what is said of it."},
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
    )


async def read_form(request: Request[Any, Any, Any], fields_type: type[F]) -> tuple[bytes, F]:
    """The bytes of the part `file`, and the other parts as a msgspec struct.

    Raises `Problem`: 415 for another content type, 400 `malformed-request` for what is no form,
    400 `invalid-body` with every fault of its fields, 413 when it is too large.
    """
    media_type = request.content_type[0]
    if media_type.lower() != MULTIPART_MEDIA_TYPE:
        raise Problem(
            problem_types.UNSUPPORTED_MEDIA_TYPE,
            f"this route reads {MULTIPART_MEDIA_TYPE}; the Content-Type header says "
            f"{media_type[:100]!r}",
            headers={"Accept-Post": MULTIPART_MEDIA_TYPE},
        )
    try:
        form = await request.form()
        for name, part in form.multi_items():
            # Some character sets hold halves of surrogate pairs, which are no text.
            (name + part if isinstance(part, str) else name).encode()
    except RequestEntityTooLarge:  # which is a ClientException too
        raise
    except (ClientException, ValueError, LookupError) as error:
        # Also a part in a character set that does not exist, or with bytes that are not of it.
        detail = "the body is not the multipart form that the Content-Type header promises"
        raise Problem(problem_types.MALFORMED_REQUEST, detail) from error
    parts: dict[str, list[Any]] = {}
    for name, part in form.multi_items():
        parts.setdefault(name, []).append(part)
    errors: list[ProblemError] = []
    content = await _read_file(parts.pop(FILE_FIELD, []), errors)
    fields = _read_fields(parts, fields_type, errors)
    if errors:
        raise Problem.listing(problem_types.INVALID_BODY, errors)
    return content, msgspec.convert(fields, fields_type)


async def _read_file(parts: list[Any], errors: list[ProblemError]) -> bytes:
    if not parts:
        detail = f"the part {FILE_FIELD!r} is required"
        errors.append(_error(FILE_FIELD, FaultCode.MISSING_FIELD, detail))
    elif len(parts) > 1 or not isinstance(parts[0], UploadFile):
        detail = f"the part {FILE_FIELD!r} is one file, with a file name"
        errors.append(_error(FILE_FIELD, RequestFaultCode.WRONG_TYPE, detail))
    else:
        return await parts[0].read()
    return b""


def _read_fields(
    parts: dict[str, list[Any]], fields_type: type[Struct], errors: list[ProblemError]
) -> dict[str, Any]:
    known = {field.encode_name: field for field in msgspec.structs.fields(fields_type)}
    values: dict[str, Any] = {}
    for name, given in parts.items():
        if name not in known:
            names = ", ".join([FILE_FIELD, *known])
            detail = f"this field is unknown; known here are: {names}"
            errors.append(_error(name, RequestFaultCode.UNKNOWN_FIELD, detail))
        elif len(given) > 1 or not isinstance(given[0], str):
            detail = f"the field {name!r} is given once, as text"
            errors.append(_error(name, RequestFaultCode.WRONG_TYPE, detail))
        else:
            values[name], faults = read_text(given[0], known[name].type)
            errors += [_error(name, fault.code, f"{name}: {fault.detail}") for fault in faults]
    errors += [
        _error(name, FaultCode.MISSING_FIELD, f"the field {name!r} is required")
        for name, field in known.items()
        if name not in parts and field.default is NODEFAULT and field.default_factory is NODEFAULT
    ]
    return values


def _error(name: str, code: str, detail: str) -> ProblemError:
    return ProblemError(pointer=json_pointer((name,)), code=code, detail=detail)
