"""JSON bodies, read strictly: nothing is guessed, and a hostile body costs no more than its size.

The framework reads any content type as JSON, takes the string "2" for an integer, and fails on
deep nesting. `StrictRequest` replaces its reading: bytes go once through msgspec's strict decoder
for the type the handler declares. When that meets 8.0 or 2e9 where an integer belongs, which is one
to JSON Schema and to people, the body is read once more with whole numbers written as integers.
Only when that fails are all faults looked for.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from math import inf, isfinite
from typing import Any, TypeVar, cast

import msgspec
from litestar import Request
from litestar.exceptions import InternalServerException
from litestar.types import Empty
from litestar.utils.scope.state import ScopeState

from service.app.apart import run_apart
from service.core.errors import FaultCode, Path
from service.web import problem_types
from service.web.holding import expect_body, hold_preparation, holding_of
from service.web.media_types import require_media_type
from service.web.negative_zero import has_negative_zero, negative_zeros
from service.web.problem_types import ProblemType
from service.web.problems import (
    MAX_LISTED_FAULTS,
    Problem,
    ProblemError,
    RequestFaultCode,
    json_pointer,
)
from service.web.repeated_keys import JSON_STRING, object_of, repeated_keys, repeats_a_key
from service.web.schema_faults import schema_faults

__all__ = ["MAX_DEPTH", "StrictRequest", "check_value", "decode_json"]

T = TypeVar("T")

JSON_MEDIA_TYPE = "application/json"
# Of which a slow line needs the most for a file; a caller that sends a byte now and then would hold
# its connection for ever.
MAX_BODY_SECONDS = 60
MAX_DEPTH = 64
# Looking for all faults costs some ten microseconds a value. Beyond this many values only the
# first fault is named, so that a large wrong body can't hold up everyone else.
MAX_VALUES_TO_SEARCH = 8_000
# Python refuses to read integers with more digits than this.
MAX_INTEGER_DIGITS = 400

# The escape of a NUL, and not of a backslash before "u0000". Looking for the bytes alone is a
# hundred times quicker than for the expression, which hardly any body has to be held against.
_ESCAPE_OF_NUL = b"\\u0000"
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_CLOSE = {"Connection": "close"}
_NO_NUL = "text holds no NUL character"
# A string, or a number written with a fraction or an exponent and short enough to be a whole number
# below 2^53. Possessive where it could backtrack, so that it stays linear.
_FRACTIONAL = re.compile(
    JSON_STRING.pattern
    + rb"|(?<![\d.eE+-])(?P<number>-?\d{1,16}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,2})?)(?=[\s,\]}]|\Z)",
    re.DOTALL,
)
_GOT_FLOAT = "got `float`"
_END_OF_WHOLE = 2**53
_NOT_A_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
# Bytes that are handled in one step. No other thread runs during a step, the event loop's included.
_STEP_BYTES = 2**16
_MESSAGE_PATH = re.compile(r" - at `\$(?P<path>.*)`$", re.DOTALL)
_MESSAGE_PATH_PART = re.compile(r"\.(?P<field>[A-Za-z_][A-Za-z0-9_]*)|\[(?P<index>\d+)\]")


class StrictRequest(Request[Any, Any, Any]):
    """A request whose `data` parameter is decoded strictly into the type the handler declares."""

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """The bytes of the body as they come; they are held until the request has ended.

        Raises `Problem` when the caller leaves meanwhile (400), or takes too long to send it (408),
        `TooManyAtOnce` or `Overloaded` when they are more than can be held. Where the head says how
        many they will be, nothing of them is read then.
        """
        holding, held, received = holding_of(self), 0, 0
        announced, most = self.content_length, self.route_handler.resolve_request_max_body_size()
        # What is announced as too large is refused as that, when the first part is asked for.
        if announced is not None and (most is None or announced <= most):
            held = announced
            expect_body(self, held)
        deadline = asyncio.get_running_loop().time() + MAX_BODY_SECONDS
        parts = super().stream()
        try:
            while True:
                # Around each part: what is done with a part between two of them is not the
                # caller's time, and a time-out may not reach into it.
                async with asyncio.timeout_at(deadline):
                    part = await anext(parts, None)
                if part is None:
                    return
                received += len(part)
                if received > held:
                    held = received
                    holding.hold_body(held)
                yield part
        except TimeoutError as error:
            detail = f"the body was not there after {MAX_BODY_SECONDS} seconds"
            raise Problem(problem_types.REQUEST_TIMEOUT, detail, headers=_CLOSE) from error
        except InternalServerException as error:  # the framework's word for it
            detail = "the connection was closed before the end of the body"
            raise Problem(problem_types.MALFORMED_REQUEST, detail) from error

    async def body(self) -> bytes:
        """The bytes of the body. Raises `Problem` (413, 415, or 400 when JSON should be there)."""
        if self._data_field is None:
            return await super().body()
        require_media_type(self, JSON_MEDIA_TYPE)
        body = await super().body()
        if not body:  # of which the framework would say that a parameter is missing
            raise _malformed("it is empty")
        return body

    async def json(self) -> Any:
        """The decoded body. Raises `Problem` (400, 413 or 415), or when it would only wait."""
        state = ScopeState.from_scope(self.scope)
        if state.json is Empty:
            body = await self.body()
            field = self._data_field
            wanted: Any = Any if field is None else field.annotation
            hold_preparation(self, len(body))
            # A large body, or the search for the faults of one, would hold up everyone else.
            state.json = await run_apart(len(body), decode_json, body, wanted)
        return state.json

    @property
    def _data_field(self) -> Any:
        """The handler's `data` parameter; None when it declares none."""
        return self.route_handler.parsed_data_field


def decode_json(body: bytes, type_: type[T]) -> T:
    """The body as a value of a msgspec type.

    Raises `Problem`: `malformed-body` when it is no JSON the service reads, `invalid-body` with
    every fault when it is JSON of another shape.
    """
    _refuse_deep_nesting(body)
    try:
        value = _decode(body, type_)
        is_ambiguous = repeats_a_key(body)
    except msgspec.ValidationError as error:
        raise _invalid_body(body, type_, str(error)) from error
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise _malformed(str(error)) from error
    if _ESCAPE_OF_NUL in body and _NUL.search(body) is not None:
        if _is_large(body):
            raise _first_of(_fault((), RequestFaultCode.NUL_CHARACTER, _NO_NUL))
        raise _invalid(list(_value_faults(_loose(body))))
    if is_ambiguous:
        read = _loose(body)
        if _is_large(body):
            raise _first_of(next(_repetitions(read)))
        raise _invalid(list(_value_faults(read)))
    if has_negative_zero(body):
        raise _invalid(_signed_zeros(_loose(body)), problem_types.INVALID_INPUT)
    return value


def check_value(value: Any, type_: type[T], at: Path = ()) -> T:
    """A value made from a body that fits its schema (a patched document) as one of a msgspec type.

    Raises `Problem` `invalid-input` with every fault, pointers seen from a document that holds the
    value at `at`. The schema of the body could not have told, so it is not `invalid-body`.
    """
    body = msgspec.json.encode(value)
    try:
        return _decode(body, type_)
    except msgspec.ValidationError as error:
        if _is_large(body):
            fault = _beneath(at, _fault_of_message(str(error)))
            raise _first_of(fault, problem_types.INVALID_INPUT) from error
        faults = [_beneath(at, fault) for fault in _all_faults(value, type_, str(error))]
        raise _invalid(faults, problem_types.INVALID_INPUT) from error


def _decode(body: bytes, type_: type[T]) -> T:
    """The body as the type says, with 8.0 for 8 wherever an integer is asked for."""
    decoder: msgspec.json.Decoder[T] = _decoder(cast("Any", type_))
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        if _GOT_FLOAT not in str(error):
            raise
        # A number field takes an integer too, so all of the body may be rewritten.
        return decoder.decode(_FRACTIONAL.sub(_as_integer, body))


def _as_integer(match: re.Match[bytes]) -> bytes:
    """A number that is whole, without rounding, as JSON writes integers; all else as it stands."""
    text = match["number"]
    if text is None:
        return match[0]
    number = Decimal(text.decode())
    # -0.0 stays: it has no spelling of its own among the integers.
    is_whole = abs(number) < _END_OF_WHOLE and number == int(number)
    return text if not is_whole or (not number and number.is_signed()) else b"%d" % int(number)


@lru_cache(maxsize=256)
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_, strict=True)


def _refuse_deep_nesting(body: bytes) -> None:
    """Raise when brackets outside strings nest deeper than `MAX_DEPTH`; linear in the body."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for part in _outside_strings(body):
        for bracket in part.translate(None, _NOT_A_BRACKET):
            depth += 1 if bracket in b"[{" else -1
            if depth > MAX_DEPTH:
                detail = f"the body nests deeper than {MAX_DEPTH} levels"
                fault = ProblemError(pointer="", code=RequestFaultCode.TOO_DEEP, detail=detail)
                raise Problem(problem_types.MALFORMED_BODY, detail, [fault])


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """What stands outside the strings of a JSON body, in parts."""
    is_inside, left = False, b""
    for start in range(0, len(body), _STEP_BYTES):
        part = left + body[start : start + _STEP_BYTES]
        # The first half of an escape waits for the other one.
        is_split = (len(part) - len(part.rstrip(b"\\"))) % 2
        part, left = (part[:-1], part[-1:]) if is_split else (part, b"")
        pieces = part.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(pieces[is_inside::2])
        is_inside ^= len(pieces) % 2 == 0


def _invalid_body(body: bytes, type_: Any, message: str) -> Problem:
    """The refusal of a body that msgspec refused with `message`."""
    if _is_large(body):
        return _first_of(_fault_of_message(message))
    return _invalid(_all_faults(_loose(body), type_, message))


def _is_large(body: bytes) -> bool:
    return sum(map(body.count, (b",", b":", b"["))) > MAX_VALUES_TO_SEARCH


def _first_of(
    fault: ProblemError, problem_type: ProblemType = problem_types.INVALID_BODY
) -> Problem:
    detail = f"{fault.detail}; this is too large to look for further faults"
    return Problem(problem_type, detail, [fault])


def _beneath(at: Path, fault: ProblemError) -> ProblemError:
    return msgspec.structs.replace(fault, pointer=json_pointer(at) + fault.pointer)


def _all_faults(value: Any, type_: Any, message: str) -> list[ProblemError]:
    faults = list(_value_faults(value))
    places = {fault.pointer for fault in faults}
    faults += [fault for fault in schema_faults(value, type_) if fault.pointer not in places]
    return faults or [_fault_of_message(message)]


def _loose(body: bytes) -> Any:
    """The body as plain Python values; numbers beyond floats become infinite, and an object that
    gives a key twice knows it.

    Only called for bodies of bounded depth. Raises `Problem` when it is no JSON after all, which
    happens when the first fault stands before a syntax error.
    """
    try:
        return json.loads(
            body.decode(),
            object_pairs_hook=object_of,
            parse_constant=_refuse_constant,
            parse_int=_integer,
        )
    except (ValueError, RecursionError) as error:
        raise _malformed(str(error)) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _integer(text: str) -> int | float:
    if text == "-0":
        return -0.0
    return int(text) if len(text) <= MAX_INTEGER_DIGITS else inf


def _value_faults(value: Any) -> Iterable[ProblemError]:
    """What no schema says: repeated keys, numbers that are not finite, text that is none."""
    yield from _repetitions(value)
    pending: list[tuple[Path, Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        if isinstance(item, dict):
            for key, entry in item.items():
                yield from _string_faults((*path, key), key)
                pending.append(((*path, key), entry))
        elif isinstance(item, list):
            pending += [((*path, index), entry) for index, entry in enumerate(item)]
        elif isinstance(item, str):
            yield from _string_faults(path, item)
        elif isinstance(item, float) and not isfinite(item):
            detail = "this number is beyond the range of a double"
            yield _fault(path, RequestFaultCode.NOT_FINITE, detail)


def _repetitions(value: Any) -> Iterator[ProblemError]:
    for path in repeated_keys(value):
        detail = "a key stands once in an object, and this one stands there again"
        yield _fault(path, RequestFaultCode.REPEATED_KEY, detail)


def _signed_zeros(value: Any) -> list[ProblemError]:
    return [
        _fault(path, FaultCode.OUT_OF_RANGE, "-0.0: write 0")
        for path in islice(negative_zeros(value), MAX_LISTED_FAULTS + 1)
    ]


def _string_faults(path: Path, text: str) -> Iterable[ProblemError]:
    if "\0" in text:
        yield _fault(path, RequestFaultCode.NUL_CHARACTER, _NO_NUL)
    elif not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        detail = "this holds half of a surrogate pair"
        yield _fault(path, RequestFaultCode.MALFORMED, detail)


def _fault_of_message(message: str) -> ProblemError:
    """msgspec's own first fault, where the schema sees none or the body is too large to search."""
    path: list[str | int] = []
    detail = message
    if (match := _MESSAGE_PATH.search(message)) is not None:
        detail = message[: match.start()]
        position = 0
        # A map's key is not in the message: the pointer ends at the map.
        while (part := _MESSAGE_PATH_PART.match(match["path"], position)) is not None:
            path.append(part["field"] if part["field"] is not None else int(part["index"]))
            position = part.end()
    return _fault(tuple(path), RequestFaultCode.INVALID_VALUE, detail.replace("`", ""))


def _fault(path: Path, code: RequestFaultCode | FaultCode, detail: str) -> ProblemError:
    return ProblemError(pointer=json_pointer(path), code=code, detail=detail)


def _invalid(
    faults: list[ProblemError], problem_type: ProblemType = problem_types.INVALID_BODY
) -> Problem:
    if len(faults) <= MAX_LISTED_FAULTS:
        return Problem.listing(problem_type, faults)
    # The search stops just above the number that is listed.
    listed = faults[:MAX_LISTED_FAULTS]
    detail = f"more than {len(listed)} faults, of which the first {len(listed)} are listed"
    return Problem(problem_type, detail, listed)


def _malformed(reason: str) -> Problem:
    detail = f"the body is not JSON: {reason}"[:300]
    fault = ProblemError(pointer="", code=RequestFaultCode.MALFORMED, detail=detail)
    return Problem(problem_types.MALFORMED_BODY, detail, [fault])
