"""Requests meant to harm, to a service in a process of its own, on each database.

All are refused with a problem document, none fails the service, holds it up or makes it grow. What
connections may do before there is a request is in tests/web/test_protocol.py.
"""

import gzip
import socket
import time

import pytest

from tests.api.wire import (
    JSON,
    MEBIBYTE,
    PATIENCE_SECONDS,
    bomb,
    case,
    check_refusal,
    field,
    request,
    send,
)
from tests.plugins.services import ServiceProcess

MAX_GROWTH_BYTES = 200 * 2**20

PLAN = b"/v1/plans/hostile"
IMPORT = b"/v1/profiles/hostile/imports"
GRAPH = (
    b"node1 -- Conv2d(3, 64) -- forward_compute_time=2.000, backward_compute_time=4.000, "
    b"activation_size=2048.0, parameter_size=400.000\n"
)


def put(body: bytes, headers: bytes = JSON) -> bytes:
    return request(b"PUT", PLAN, headers, body)


def plan(forward: bytes = b"1", more: bytes = b"") -> bytes:
    """A plan of one stage, with something in its place."""
    stage = b'{"forward_seconds": %b, "backward_seconds": 1}' % forward
    rest = b'"schedule": {"kind": "1f1b"}, "workload": {"microbatches": 8}'
    return b'{"costs": {"stages": [%b]}, %b%b}' % (stage, rest, more)


def chunked(*chunks: bytes) -> bytes:
    parts = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return put(parts + b"0\r\n\r\n", JSON + b"Transfer-Encoding: chunked\r\n")


def file(content: bytes = GRAPH, more: bytes = b"") -> bytes:
    return field(b"file", content, b'; filename="graph.txt"' + more)


MICROBATCH = field(b"microbatch_size", b"1")


def form(*parts: bytes, headers: bytes = b"; boundary=X", end: bytes = b"--X--\r\n") -> bytes:
    headers = b"Content-Type: multipart/form-data" + headers + b"\r\n"
    return request(b"POST", IMPORT, headers, b"".join(parts) + end)


def in_charset(charset: bytes, content: bytes) -> bytes:
    more = b"\r\nContent-Type: text/plain; charset=" + charset
    return form(file(), MICROBATCH, field(b"device", content, more))


HOSTILE = [
    # JSON
    case("2,000 lists deep", put(b"[" * 2_000), 400, ""),
    case("2,000 lists deep and back", put(b"[" * 2_000 + b"]" * 2_000), 400, ""),
    case("200,000 lists deep", put(b"[" * 200_000), 400, ""),
    case("140,000 objects deep", put(b'{"a":' * 140_000), 400, ""),
    case("a deep patch", request(b"POST", b"/v1/cadence", JSON, b'{"patch":' * 70 + b"1"), 400, ""),
    case("a list of 500,000", put(b"[%b0]" % (b"0," * 499_999)), 400, ""),
    case("a list of 300,000 lists", put(b"[%b0]" % (b"[]," * 300_000)), 400, ""),
    case(
        "an object of 60,000", put(b"{%b}" % b",".join(b'"%d":0' % n for n in range(60_000))), 400
    ),
    case("a long string", put(plan(more=b', "description": "%b"' % (b"x" * 900_000))), 400),
    case("a long key", put(plan(more=b', "%b": 1' % (b"x" * 900_000))), 400),
    case("a long number", put(plan(b"9" * 900_000)), 400, "/costs/stages/0/forward_seconds"),
    case("only escapes", put(plan(more=b', "description": "%b"' % (b"\\u0000" * 150_000))), 400),
    case("NUL", put(plan(more=b', "description": "\0"')), 400, ""),
    case("NUL escaped", put(plan(more=b', "description": "\\u0000"')), 400, "/description"),
    case("half a pair", put(plan(more=b', "description": "\xed\xa0\x80"')), 400, ""),
    case("half a pair escaped", put(plan(more=b', "description": "\\ud800"')), 400, ""),
    case("half a pair in a key", put(plan(more=b', "\\udfff": 1')), 400),
    case("1e308", put(plan(b"1e308")), 400, "/costs/stages/0/forward_seconds"),
    case("1e999", put(plan(b"1e999")), 400, "/costs/stages/0/forward_seconds"),
    case("-1e999", put(plan(b"-1e999")), 400, "/costs/stages/0/forward_seconds"),
    case("-0.0", put(plan(b"-0.0")), 422, "/costs/stages/0/forward_seconds"),
    case(
        "-0.0 to be priced",
        request(b"POST", b"/v1/cadence", JSON, b'{"plan": %b}' % plan(b"-0.0")),
        422,
        "/plan/costs/stages/0/forward_seconds",
    ),
    case("NaN", put(plan(b"NaN")), 400, ""),
    case("-Infinity", put(plan(b"-Infinity")), 400, ""),
    case("a key twice", put(plan(more=b', "workload": {"microbatches": 9}')), 400, "/workload"),
    case(
        "a key twice inside",
        put(plan(b'1, "forward_seconds": 1')),
        400,
        "/costs/stages/0/forward_seconds",
    ),
    case("a key twice, spelt", put(plan(b'1, "forw\\u0061rd_seconds": 1')), 400),
    case("a key 90,000 times", put(b"{%b}" % b",".join([b'"name":0'] * 90_000)), 400),
    case(
        "a key twice in a patch",
        request(b"POST", b"/v1/bubble", JSON, b'{"plan": "p", "patch": {"a": {"b": 1, "b": 2}}}'),
        400,
        "/patch/a/b",
    ),
    case("a mark of byte order", put(b"\xef\xbb\xbf" + plan()), 400, ""),
    case("UTF-16", put(plan().decode().encode("utf-16")), 400, ""),
    case("UTF-7 by name", put(plan(), b"Content-Type: application/json; charset=utf-7\r\n"), 415),
    case("spaces", put(b" " * MEBIBYTE), 400, ""),
    # Formats
    case("XML", put(bomb(), b"Content-Type: application/xml\r\n"), 415),
    case("text", put(plan(), b"Content-Type: text/plain\r\n"), 415),
    case("no type", put(plan(), b""), 415),
    case("two types", put(plan(), JSON + b"Content-Type: text/plain\r\n"), 415),
    case("no text as type", put(plan(), b"Content-Type: \xff\xfe\r\n"), 415),
    case(
        "a gzip bomb", put(gzip.compress(bytes(10**8)), JSON + b"Content-Encoding: gzip\r\n"), 415
    ),
    case(
        "a form as gzip",
        form(file(), MICROBATCH, headers=b"; boundary=X\r\nContent-Encoding: gzip"),
        415,
    ),
    # Forms
    case("an entity bomb", form(file(bomb()), MICROBATCH), 422, "/file"),
    case("NUL in a file", form(file(bytes(MEBIBYTE)), MICROBATCH), 422, "/file"),
    case("one long line", form(file(GRAPH[:-1] + b"9" * MEBIBYTE), MICROBATCH), 422),
    case(
        "a long number in a file",
        form(file(GRAPH.replace(b"2.000", b"9" * MEBIBYTE)), MICROBATCH),
        422,
        "/file/line/1",
    ),
    case("many wrong lines", form(file(GRAPH + b"node1 -- x\n" * 50_000), MICROBATCH), 422),
    case("many parts", form(*[field(b"a", b"1")] * 20_000), 400),
    case("many files", form(*[file()] * 500), 400),
    case("two files of one name", form(file(), file(), MICROBATCH), 400, "/file"),
    case("a file without a name", form(field(b"file", GRAPH), MICROBATCH), 400, "/file"),
    case("a field twice", form(file(), MICROBATCH, MICROBATCH), 400, "/microbatch_size"),
    case("an unknown field", form(file(), MICROBATCH, field(b"__proto__", b"1")), 400),
    case("a part without a name", form(b"--X\r\nContent-Disposition: form-data\r\n\r\n1\r\n"), 400),
    case("a part without headers", form(b"--X\r\n\r\n1\r\n"), 400),
    case("many headers of a part", form(file(more=b"\r\nX: y" * 5_000), MICROBATCH), 400),
    case("a long header of a part", form(file(more=b"\r\nX: " + b"y" * MEBIBYTE)), 400),
    case("no boundary", form(file(), MICROBATCH, headers=b""), 400),
    case("an empty boundary", form(file(), MICROBATCH, headers=b'; boundary=""'), 400),
    case("another boundary", form(file(), MICROBATCH, headers=b"; boundary=Y"), 400),
    case("a long boundary", form(file(), headers=b"; boundary=" + b"X" * 60_000), 400),
    case("no end", form(file(), MICROBATCH, end=b""), 400),
    case("nothing", form(), 400),
    case("deep JSON as a field", form(file(), field(b"microbatch_size", b"[" * MEBIBYTE)), 400),
    case("bytes that are no text", form(file(), MICROBATCH, field(b"device", b"\xff")), 400),
    case("NUL in a field", form(file(), MICROBATCH, field(b"device", b"a\0")), 400, "/device"),
    # Decoding this takes time that grows with the square of its length.
    case("a slow character set", in_charset(b"punycode", b"9" * MEBIBYTE), 400, "/device"),
    case("no character set", in_charset(b"klingon", b"1"), 400, "/device"),
    case("a codec that is none", in_charset(b"zlib", b"1"), 400, "/device"),
    case("half a pair by charset", in_charset(b"unicode_escape", b"\\ud800"), 400, "/device"),
    # Sizes
    case("a body too large", put(b" " * (MEBIBYTE + 1)), 413),
    case("a body too large in chunks", chunked(*[b" " * 2**16] * 20), 413),
    case(
        "a promise too large", request(b"PUT", PLAN, JSON + b"Content-Length: 1000000000\r\n"), 413
    ),
    case("a file too large", form(file(bytes(17 * MEBIBYTE)), MICROBATCH), 413),
    case("many fields too large", form(*[field(b"a", bytes(MEBIBYTE))] * 17), 413),
    # URLs, methods and headers
    case("up", request(b"GET", b"/v1/plans/../../../etc/passwd"), 404),
    case("up escaped", request(b"GET", b"/v1/plans/..%2f..%2fetc%2fpasswd"), 404),
    case("up twice escaped", request(b"GET", b"/v1/plans/%252e%252e%252f"), 404),
    case("up to a problem page", request(b"GET", b"/problems/..%2f..%2fREADME.md"), 404),
    case("a page that is up", request(b"GET", b"/problems/%2e%2e"), 404),
    case("NUL in a path", request(b"GET", b"/problems/not-found%00"), 404),
    case("a path as a name", request(b"PUT", b"/v1/plans/..%5Cx", JSON, plan()), 400),
    case("half a pair as a name", request(b"GET", b"/v1/plans/%ED%A0%80"), 404),
    case("a long path", request(b"GET", b"/v1/plans/" + b"a" * 60_000), 404),
    case("a deep path", request(b"GET", b"/a" * 30_000), 404),
    case("a longer path", request(b"GET", b"/v1/plans/" + b"a" * 10**6), 431),
    case("a long cursor", request(b"GET", b"/v1/plans?cursor=" + b"a" * 60_000), 400),
    case("many parameters", request(b"GET", b"/v1/plans?" + b"a=1&" * 15_000), 400),
    case("parameters that are no text", request(b"GET", b"/v1/plans?limit=%ff&%zz=%00"), 400),
    case("a number of many digits", request(b"GET", b"/v1/plans?limit=" + b"9" * 50_000), 400),
    case("a flood of headers", request(b"GET", b"/healthz", b"X: a\r\n" * 100_000), 431),
    case("a long header", request(b"GET", b"/healthz", b"X: " + b"a" * 10**6 + b"\r\n"), 431),
    case(
        "many formats", request(b"GET", b"/v1/plans", b"Accept: " + b"a/b," * 15_000 + b"\r\n"), 406
    ),
    case("many tags", put(plan(), JSON + b"If-Match: " + b'"a",' * 15_000 + b"\r\n"), 412),
    case("no tags", put(plan(), JSON + b"If-Match: " + b" ," * 30_000 + b"\r\n"), 400),
    case("tags in a row", put(plan(), JSON + b"If-Match: " + b'"a" ' * 15_000 + b"\r\n"), 400),
    case(
        "a long token",
        request(b"GET", b"/v1/plans", b"Authorization: Bearer %b\r\n" % (b"a" * 60_000)),
        401,
    ),
    case("two tokens", request(b"GET", b"/v1/plans", b"Authorization: Bearer a\r\n" * 2), 401),
    case("an unknown method", request(b"BREW", PLAN), 400),
    case("a method that is not taken", request(b"PATCH", PLAN, JSON, b"{}"), 405),
    case("TRACE", request(b"TRACE", PLAN), 405),
    case(
        "CONNECT",
        b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        400,
    ),
    case("a lower-case method", request(b"get", b"/v1/plans"), 400),
    case(
        "two lengths of a body",
        put(
            b"0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
            JSON + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        ),
        400,
    ),
    case(
        "a length that is none",
        put(b"2\r\n{}\r\n", JSON + b"Content-Length: 0x2\r\nTransfer-Encoding: x\r\n"),
        400,
    ),
    case(
        "a chunk of many bytes",
        put(b"f" * 40 + b"\r\n", JSON + b"Transfer-Encoding: chunked\r\n"),
        400,
    ),
    case(
        "a host that is none",
        b"GET /v1/plans HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n",
        400,
    ),
    case("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 50, 400),
]


@pytest.mark.parametrize(("sent", "status", "pointer"), HOSTILE)
def test_a_hostile_request_is_refused(
    service: ServiceProcess, sent: bytes, status: int, pointer: str | None
) -> None:
    check_refusal(send(service, sent), status, pointer)
    assert send(service, request(b"GET", b"/v1/plans")).body == b'{"items":[]}'


def test_a_body_in_endless_chunks_is_cut_off(service: ServiceProcess) -> None:
    head = put(b"", JSON + b"Transfer-Encoding: chunked\r\n")
    answer = send(service, head + b"10000\r\n%b\r\n" % (b" " * 2**16) * 500)
    assert answer.status == 413


def test_a_slow_caller_holds_nobody_up(service: ServiceProcess) -> None:
    waiting = []
    for _ in range(200):
        wire = socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_SECONDS)
        wire.sendall(request(b"PUT", PLAN, JSON + b"Content-Length: 1000\r\n") + b"{")
        waiting.append(wire)
    assert send(service, request(b"GET", b"/v1/plans")).status == 200
    for wire in waiting:
        wire.close()


def test_files_that_are_begun_and_not_ended_are_bounded(service: ServiceProcess) -> None:
    """Four of 15 MiB are the share of a caller; what more there is, is refused unread."""
    before, size = service.resident_bytes(), 15 * MEBIBYTE
    headers = b"Content-Type: multipart/form-data; boundary=X\r\nContent-Length: %d\r\n" % size
    head = request(b"POST", IMPORT, headers)
    begun = b"--X\r\n" + b'Content-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    waiting = []
    for number in range(4):
        wire = socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_SECONDS)
        wire.sendall(head + begun)
        waiting.append(wire)
        wait_for_bodies(service, (number + 1) * size)
    for wire in waiting:
        wire.sendall(bytes(14 * MEBIBYTE))
    for _ in range(16):
        answer = send(service, head + begun)
        assert answer.status == 429
        assert b"retry-after: 1" in answer.head.lower()
    assert service.resident_bytes() - before < MAX_GROWTH_BYTES
    assert send(service, request(b"GET", b"/v1/plans")).status == 200
    for wire in waiting:
        wire.close()
    wait_for_bodies(service, 0)
    assert send(service, form(file(), MICROBATCH, end=b"")).status == 400


def wait_for_bodies(service: ServiceProcess, size_bytes: int) -> None:
    """Until the bodies of so many bytes are held, as the metrics tell."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        lines = send(service, request(b"GET", b"/metrics")).body.splitlines()
        said = [line.split()[1] for line in lines if line.startswith(b"stagefare_request_body_byt")]
        if [float(number) for number in said] == [size_bytes]:
            return
        time.sleep(0.01)
    pytest.fail(f"there were never {size_bytes} bytes of bodies")


def test_what_was_no_request_is_counted(service: ServiceProcess) -> None:
    for sent in (b"\x16\x03\x01\x02", request(b"GET", b"/v1/plans/" + b"a" * 10**6)):
        assert send(service, sent).status in (400, 431)
    metrics = send(service, request(b"GET", b"/metrics")).body
    for status in (b"400", b"431"):
        labels = b'{method="unread",route="unread",status="%b"} ' % status
        assert b"stagefare_http_requests_total" + labels in metrics


def test_memory_stays_bounded(service: ServiceProcess) -> None:
    """What one round of it all leaves behind, the next ones do not add to."""
    all_sent = [each.values[0] for each in HOSTILE]  # type: ignore[attr-defined]
    before = service.resident_bytes()
    slowest = 0.0
    for _ in range(3):
        for sent in all_sent:
            started = time.monotonic()
            send(service, sent)
            slowest = max(slowest, time.monotonic() - started)
    grown = service.resident_bytes() - before
    print(f"memory grew by {grown / MEBIBYTE:.0f} MiB; slowest refusal {slowest:.2f} s")  # noqa: T201
    assert grown < MAX_GROWTH_BYTES


def test_what_looks_hostile_and_is_not_is_served(service: ServiceProcess) -> None:
    """So that the refusals above are known to be of what is wrong with them."""
    assert send(service, form(file(), MICROBATCH)).status == 201
    assert send(service, chunked(plan())).status == 201
    odd = JSON.replace(b"json", b"json; charset=UTF-8") + b"Content-Encoding: identity\r\n"
    assert (
        send(service, put(plan(more=b', "description": "\\u003a:\\ud83d\\ude00"'), odd)).status
        == 200
    )
    utf8 = field(b"device", "é".encode(), b"\r\nContent-Type: text/plain; charset=UTF-8")
    assert send(service, form(file(), MICROBATCH, utf8)).status == 201
