"""Tables of nccl-tests and perftest, and what of them can be believed."""

from functools import partial
from pathlib import Path

import pytest

from service.core.topology.readings import Reading, TransferScope
from service.formats.nccl_tests import looks_like_nccl_tests, read_nccl_tests
from service.formats.perftest import looks_like_perftest, read_perftest
from tests.core.refusals import refusal_text
from tests.formats.damage import lines_without_effect, read_damaged

FIXTURES = Path(__file__).parent / "fixtures" / "benchmarks"
READERS = {
    "all_reduce.txt": read_nccl_tests,
    "alltoall_two_hosts.txt": read_nccl_tests,
    "old_broadcast.txt": read_nccl_tests,
    "write_bw.txt": read_perftest,
    "read_lat.txt": read_perftest,
}


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def read(name: str) -> Reading:
    return READERS[name](fixture(name).encode())


def edited(name: str, old: str, new: str) -> partial[Reading]:
    content = fixture(name)
    assert old in content
    return partial(READERS[name], content.replace(old, new, 1).encode())


@pytest.mark.parametrize("name", READERS)
def test_each_table_is_recognised(name: str) -> None:
    content = fixture(name).encode()
    is_nccl = READERS[name] is read_nccl_tests
    assert looks_like_nccl_tests(content) == is_nccl
    assert looks_like_perftest(content) != is_nccl


@pytest.mark.parametrize("content", [b"", b"# size count\n", b"#bytes #iterations\n"])
def test_what_only_looks_alike_is_not_recognised(content: bytes) -> None:
    assert not looks_like_nccl_tests(content)
    assert not looks_like_perftest(content)
    assert "no table" in refusal_text(partial(read_nccl_tests, content))
    assert refusal_text(partial(read_perftest, content))


def test_bus_rates_of_a_host() -> None:
    found = read("all_reduce.txt")
    assert dict(found.facts) == {"ranks": 4, "hosts": 1, "rows": 2}
    rates = [(m.message_bytes, m.bus_bytes_per_second, m.line) for m in found.measurements]
    assert rates == [(1048576, 150e9, 14), (4194304, 225.02e9, 16)]
    (first, second) = found.measurements
    assert (first.collective, first.ranks) == ("all_reduce", 4)
    assert first.scope is TransferScope.INSIDE_HOST
    assert second.algorithm_bytes_per_second == 150.01e9
    assert second.devices == tuple(f"node-a/gpu{number}" for number in range(4))
    assert found.notes == ("GPUs are NVIDIA A100-SXM4-80GB",)


def test_wrong_values_are_no_measurement() -> None:
    (noise, wrong) = read("all_reduce.txt").left_out
    assert (noise.line, noise.detail[:7]) == (1, "2 lines")
    assert (wrong.line, "wrong values (0, 3)" in wrong.detail) == (15, True)


def test_the_columns_decide_where_nothing_names_the_collective() -> None:
    found = read("alltoall_two_hosts.txt")
    (measured,) = found.measurements
    assert (measured.collective, measured.scope) == ("alltoall", TransferScope.BETWEEN_HOSTS)
    assert any("table is of alltoall" in text for text in found.assumptions)
    gathered = edited("alltoall_two_hosts.txt", "N/A", "  0")()
    assert gathered.measurements[0].collective == "all_gather"


def test_old_tables_have_an_error_column_and_no_redop() -> None:
    (measured,) = read("old_broadcast.txt").measurements
    assert (measured.collective, measured.bus_bytes_per_second) == ("broadcast", 20.97e9)


def test_units_of_perftest() -> None:
    found = read("write_bw.txt")
    small, large = found.measurements
    assert (large.message_bytes, large.bus_bytes_per_second) == (65536, 392.40e9 / 8)
    assert (small.collective, small.devices, small.ranks) == ("write", ("mlx5_3",), 2)
    assert large.scope is TransferScope.BETWEEN_HOSTS
    assert [item.line for item in found.left_out] == [10, 13]
    mebibytes = edited("write_bw.txt", "BW average[Gb/sec]", "BW average[MB/sec]")()
    assert mebibytes.measurements[1].bus_bytes_per_second == pytest.approx(392.40 * 2**20)


def test_latency_is_the_typical_one() -> None:
    (measured,) = read("read_lat.txt").measurements
    assert measured.latency_seconds == pytest.approx(2.06e-6)
    assert (measured.collective, measured.message_bytes) == ("read", 2)
    assert measured.bus_bytes_per_second is None


def test_a_port_that_writes_to_itself_is_not_between_hosts() -> None:
    content = fixture("write_bw.txt").replace("LID 0x03", "LID 0x02").encode()
    assert {m.scope for m in read_perftest(content).measurements} == {TransferScope.UNKNOWN}


@pytest.mark.parametrize("name", READERS)
def test_no_line_is_without_effect(name: str) -> None:
    aside = ("#  ", "# T", "# n", "# O", "# A", "# U", "---") if "all_r" in name else ("---",)
    found = lines_without_effect(
        READERS[name],
        fixture(name).encode(),
        aside=lambda line: line.startswith(aside) and "Rank" not in line and "size" not in line,
    )
    assert [n for n in found if fixture(name).split("\n")[n - 1] != "#"] == []


@pytest.mark.parametrize("name", READERS)
def test_damaged_tables_are_read_or_refused(name: str) -> None:
    assert read_damaged(READERS[name], fixture(name).encode(), seed=3) < 300


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("all_reduce.txt", "#  Rank  1 ", "#  Rnk  1 ", "rank 1 is missing"),
        ("all_reduce.txt", "#  Rank  1 ", "#  Rank  0 ", "gives rank 0 again"),
        ("all_reduce.txt", "all_reduce_perf", "all_gather_perf", "is of another"),
        ("all_reduce.txt", "all_reduce_perf", "reduce_perf", "names reduce; a table of one of"),
        ("all_reduce.txt", "float     sum", "float", "columns, the head of the table 13"),
        ("all_reduce.txt", "  100.00  ", "  1e0x00  ", "is no row of the table"),
        ("alltoall_two_hosts.txt", "N/A", "  3", "without a row that can be used"),
        ("alltoall_two_hosts.txt", "  23.75", "  47.50", "sendrecv"),
        ("alltoall_two_hosts.txt", "  23.75", "  30.00", "no collective that is known"),
        ("old_broadcast.txt", "# Rank 0 Pid", "# Rnk 0 Pid", "rank 0 is missing"),
        ("write_bw.txt", "RDMA_Write BW Test", "", "no line above names the test"),
        ("write_bw.txt", "Write BW Test", "Write Bidirectional BW Test", "adds up both directions"),
        ("write_bw.txt", ": OFF", ": ON ", "adds up two ports"),
        ("write_bw.txt", "RDMA_Write BW", "RDMA_Write Latency", "a table of BW, under the title"),
        ("write_bw.txt", "392.51             392.40", "392.51", "columns, the head of the table 5"),
        ("write_bw.txt", "392.40", "39x.40", "no row of numbers"),
        ("read_lat.txt", "RDMA_Read", "Atomic", "moves no messages"),
    ],
)
def test_what_is_wrong_is_told(name: str, old: str, new: str, reason: str) -> None:
    if reason == "sendrecv":
        content = fixture(name).replace("23.75", "47.50").replace("23.70", "47.39")
        assert read_nccl_tests(content.encode()).measurements[0].collective == "sendrecv"
        return
    assert reason in refusal_text(edited(name, old, new))


def test_a_second_table_is_refused() -> None:
    for name in ("all_reduce.txt", "write_bw.txt"):
        content = fixture(name).encode()
        assert "(first on line" in refusal_text(partial(READERS[name], content + content))
