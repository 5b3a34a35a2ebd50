"""Requests as they go over the wire, whatever is in them, to a service in a process of its own."""

import json
import re
import socket
from contextlib import suppress
from typing import NamedTuple

import pytest

from tests.plugins.services import ServiceProcess

__all__ = [
    "JSON",
    "MEBIBYTE",
    "PATIENCE_SECONDS",
    "Answer",
    "bomb",
    "case",
    "check_refusal",
    "field",
    "request",
    "send",
]

# A refusal takes milliseconds; this is far more, for machines that do other things.
PATIENCE_SECONDS = 30
MEBIBYTE = 2**20
JSON = b"Content-Type: application/json\r\n"


class Answer(NamedTuple):
    """What came back."""

    status: int
    head: bytes
    body: bytes


def request(method: bytes, path: bytes, headers: bytes = b"", body: bytes = b"") -> bytes:
    """A request as it goes over the wire, whatever is in it."""
    head = b"%b %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%b" % (method, path, headers)
    if body and b"ransfer-Encoding" not in headers:
        head += b"Content-Length: %d\r\n" % len(body)
    return head + b"\r\n" + body


def field(name: bytes, content: bytes, more: bytes = b"") -> bytes:
    disposition = b'Content-Disposition: form-data; name="%b"' % name
    return b"--X\r\n%b%b\r\n\r\n%b\r\n" % (disposition, more, content)


def bomb() -> bytes:
    """XML whose last entity stands for 10 ** 20 letters."""
    entities = b"".join(
        b'<!ENTITY e%d "%b">' % (level + 1, b"&e%d;" % level * 10) for level in range(19)
    )
    return b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "a">%b]><x>&e19;</x>' % entities


def case(name: str, sent: bytes, status: int, pointer: str | None = None) -> object:
    return pytest.param(sent, status, pointer, id=name)


def send(service: ServiceProcess, sent: bytes) -> Answer:
    """What the service answers, also to a request that it does not read to its end."""
    received = b""
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_SECONDS) as wire:
        with suppress(ConnectionError):  # it has answered already
            wire.sendall(sent)
        with suppress(ConnectionError):  # what it did not read
            while part := wire.recv(2**16):
                received += part
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), f"no answer: {received[:100]!r}"
    return Answer(int(head[9:12]), head, body)


def check_refusal(answer: Answer, status: int, pointer: str | None) -> None:
    """A problem document of this status, with a fault at `pointer` when that is given."""
    assert answer.status == status, answer.body[:500]
    # A refusal does not send the hostile body back; `instance` has the path, which a head bounds.
    assert len(answer.body) < 70_000
    assert b"content-type: application/problem+json" in answer.head.lower()
    problem = json.loads(answer.body)
    assert problem["status"] == status
    assert re.fullmatch(r"/problems/[a-z-]+", problem["type"])
    assert len(answer.body) < 100_000
    if pointer is not None:
        assert pointer in {error["pointer"] for error in problem["errors"]}
