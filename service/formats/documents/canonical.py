"""The one byte form of a document, and the digest that names it.

Keys are sorted, absent fields stay absent and no default is written: defaults belong to the
conversion to the core, where a new model version may change them without touching documents.
"""

from hashlib import sha256
from math import copysign, isfinite

import msgspec

from service.core.errors import Fault, FaultCode, InvalidInput, Path

__all__ = ["canonical_bytes", "digest"]


def canonical_bytes(document: msgspec.Struct) -> bytes:
    """Compact JSON with sorted keys; equal documents have equal bytes.

    Raises `InvalidInput` naming every number that JSON can't carry or that has two spellings
    (NaN, infinities, -0.0).
    """
    plain = msgspec.to_builtins(document, order="sorted")
    faults = _bad_numbers(plain)
    if faults:
        raise InvalidInput(faults)
    return msgspec.json.encode(plain)


def digest(kind: str, content: bytes) -> str:
    """`sha256:` and 64 hex digits over the kind and the content.

    The kind is inside the hash, so that equal bytes of two kinds have different digests.
    """
    return "sha256:" + sha256(kind.encode() + b"\0" + content).hexdigest()


def _bad_numbers(plain: object) -> list[Fault]:
    faults = []
    waiting: list[tuple[Path, object]] = [((), plain)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(((*path, key), item) for key, item in reversed(value.items()))
        elif isinstance(value, list | tuple):
            looked_at = [(at, item) for at, item in enumerate(value) if not _has_integers(item)]
            waiting.extend(((*path, index), item) for index, item in reversed(looked_at))
        elif isinstance(value, float):
            if not isfinite(value):
                detail = f"{value} is no finite number"
                faults.append(Fault(FaultCode.OUT_OF_RANGE, path, detail))
            elif value == 0 and copysign(1, value) < 0:
                faults.append(Fault(FaultCode.OUT_OF_RANGE, path, "-0.0: write 0"))
    return faults


def _has_integers(value: object) -> bool:
    """Whether it is an integer or a list of integers, which is most of a large document."""
    kind = type(value)
    return kind is int or (kind in (list, tuple) and set(map(type, value)) == {int})  # type: ignore[call-overload]
