"""Files and questions about clusters that are meant to harm are refused, whatever they are.

Others are answered meanwhile.
"""

import json
import threading
import time
from collections.abc import Iterator
from random import Random

import pytest

from tests.api.wire import (
    JSON,
    MEBIBYTE,
    bomb,
    case,
    check_refusal,
    field,
    request,
    send,
)
from tests.plugins.services import ServiceProcess

IMPORT = b"/v1/topologies/hostile/imports"
CLUSTER = b"/v1/topologies/cluster"
DOCUMENT = {
    "hosts": [{"name": "host", "count": 2, "design": "dgx-h100"}],
    "fabric": {"kind": "rail_optimised", "spines": 2},
}
LINE = b"leaf1 1 400Gbps 0.0005ms 0\n"


def files(*contents: bytes, **fields: bytes) -> bytes:
    parts = [field(b"files", content, b'; filename="x"') for content in contents]
    parts += [field(name.encode(), content) for name, content in fields.items()]
    headers = b"Content-Type: multipart/form-data; boundary=X\r\n"
    return request(b"POST", IMPORT, headers, b"".join(parts) + b"--X--\r\n")


def flows(body: bytes) -> bytes:
    return request(b"POST", CLUSTER + b"/flows", JSON, body)


def paths(body: bytes) -> bytes:
    return request(b"POST", CLUSTER + b"/paths", JSON, body)


def shown(query: bytes) -> bytes:
    return request(b"GET", CLUSTER + b"/graph.svg?" + query)


FLOW = b'{"source":"host0/gpu0","target":"host1/gpu0","message_bytes":%b}'
HOSTILE = [
    # Files
    case("random bytes", files(Random(1).randbytes(MEBIBYTE)), 422, "/files/0"),
    case("nothing in a file", files(b""), 422, "/files/0"),
    case("NUL", files(bytes(MEBIBYTE)), 422, "/files/0"),
    case("XML that grows", files(bomb().replace(b"<x>", b"<system>")), 422),
    case("deep XML", files(b"<system>" * 50_000), 422),
    case("XML that ends early", files(b'<system version="1"><cpu numaid="0"><pci busid="0'), 422),
    case("deep JSON", files(b'{"nodes":' * 50_000), 422),
    case("deep YAML", files(b"topology: " + b"[" * 50_000, formats=b"astra_sim"), 422),
    case("YAML of aliases", files(b"a: &a [1]\nb: [*a]\n", formats=b"slurm_yaml"), 422),
    case("a wrong format", files(LINE, formats=b"a" * 60_000), 400, "/formats"),
    case("a format that is none", files(LINE, formats=b"../../etc/passwd"), 400, "/formats"),
    case("many files", files(*[LINE] * 17), 400),
    case("a long line", files(b'Switch\t8 "S-' + b"0" * MEBIBYTE), 422),
    case("a huge host list", files(b"NodeName=a[0-999999999]\n", formats=b"slurm_conf"), 422),
    case(
        "a host list that multiplies",
        files(b"SwitchName=s Nodes=" + b"[0-999]" * 9, formats=b"slurm_conf"),
        422,
    ),
    case("hosts that multiply", files(LINE, hosts=b"a[0-999]b[0-999]"), 422, "/hosts"),
    case(
        "a count of links that is not there",
        files(b"1000000000 1 1000000000\n1\n0 1 400Gbps 0.0005ms 0\n", formats=b"ns3_links"),
        422,
    ),
    # Questions
    case("deep", flows(b'{"flows":' * 70), 400),
    case("too many flows", flows(b'{"flows":[%b]}' % b",".join([FLOW % b"1"] * 4097)), 400),
    case("flows of all sizes", flows(b'{"flows":[%b]}' % (FLOW % b"1e300")), 400),
    case("a flow of less than nothing", flows(b'{"flows":[%b]}' % (FLOW % b"-1")), 400),
    case(
        "devices that multiply",
        flows(
            b'{"collective":{"kind":"all_to_all","message_bytes":1,"devices":["%b"]}}'
            % (b"[0-99]" * 20)
        ),
        422,
        "/collective/devices/0",
    ),
    case(
        "unknown devices",
        flows(b'{"flows":[%b]}' % b",".join([(FLOW % b"1").replace(b"gpu0", b"x")] * 4096)),
        422,
        "/flows/0/source",
    ),
    case(
        "a matrix that is none",
        flows(
            b'{"collective":{"kind":"all_to_all","devices":["host0/gpu*"],"demand_matrix":%b}}'
            % (b"[" + b",".join([b"[%b1]" % (b"1," * 127)] * 128) + b"]")
        ),
        422,
        "/collective/demand_matrix",
    ),
    case("a path to nowhere", paths(b'{"source":"%b","target":"x"}' % (b"a" * 60_000)), 400),
    case("a load of markup", shown(b"load=%3Cscript%3E,%3C/script%3E"), 422, "/load"),
    case("a load too long", shown(b"load=" + b"a,b;" * 15_000), 400),
    case("a host that is markup", shown(b"host=%3Cimg%20src=x%3E"), 422, "/host"),
]


@pytest.fixture
def with_cluster(service: ServiceProcess) -> Iterator[ServiceProcess]:
    stored = send(service, request(b"PUT", CLUSTER, JSON, json.dumps(DOCUMENT).encode()))
    assert stored.status in (200, 201), stored.body
    yield service
    assert send(service, request(b"GET", CLUSTER)).status == 200


@pytest.mark.parametrize(("sent", "status", "pointer"), HOSTILE)
def test_a_hostile_file_or_question_is_refused(
    with_cluster: ServiceProcess, sent: bytes, status: int, pointer: str | None
) -> None:
    check_refusal(send(with_cluster, sent), status, pointer)


JUNK = {
    "random bytes": (Random(2).randbytes(12 * MEBIBYTE), b""),
    "numbers": (b"1 2 3\n" * (2 * MEBIBYTE), b"nvidia_smi_topo"),
    "JSON": (b"[" + b"0," * (6 * MEBIBYTE) + b"0]", b"netq"),
    "objects": (b'{"nodes":[%b0]}' % (b'{"a":1},' * MEBIBYTE), b""),
}


@pytest.mark.parametrize(("junk", "named"), JUNK.values(), ids=JUNK)
def test_junk_of_many_megabytes_holds_nobody_up(
    with_cluster: ServiceProcess, junk: bytes, named: bytes
) -> None:
    """Others are answered while it is received and read, whatever format it is said to be."""
    answers: list[int] = []

    def send_it() -> None:
        answers.append(send(with_cluster, files(junk, formats=named)).status)

    sender = threading.Thread(target=send_it)
    sender.start()
    slowest = 0.0
    while sender.is_alive():
        begin = time.monotonic()
        # Which gives up after `PATIENCE_SECONDS`.
        assert send(with_cluster, request(b"GET", b"/healthz")).status == 200
        slowest = max(slowest, time.monotonic() - begin)
        time.sleep(0.02)
    sender.join()
    assert answers == [422]
    print(f"the slowest answer beside it took {slowest:.2f} s")  # noqa: T201
