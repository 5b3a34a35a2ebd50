"""InfiniBand fabrics: a small fabric of our own in each listing, with every trap in it."""

from functools import partial
from pathlib import Path

import pytest

from service.core.errors import FaultCode
from service.core.topology.readings import Cable, Reading
from service.formats.ibnetdiscover import looks_like_ibnetdiscover, read_ibnetdiscover
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

FIXTURES = Path(__file__).parent / "fixtures" / "ibnetdiscover"
RECORDS = (FIXTURES / "two-leaves.out").read_bytes()
PORTS = (FIXTURES / "ports.out").read_bytes()
GROUPED = (FIXTURES / "grouped.out").read_bytes()
NET = (FIXTURES / "two-switches.net").read_bytes()
ALL = {"records": RECORDS, "ports": PORTS, "grouped": GROUPED, "net": NET}


def read(content: bytes = RECORDS) -> Reading:
    return read_ibnetdiscover(content)


def between(reading: Reading, source: str, target: str) -> list[Cable]:
    """The cables of two ends, each a switch or a host."""
    wanted = {source, target}
    return [
        cable
        for cable in reading.cables
        if {end.switch or end.host for end in (cable.source, cable.target)} == wanted
    ]


@pytest.mark.parametrize("name", ALL)
def test_each_listing_is_recognised(name: str) -> None:
    assert looks_like_ibnetdiscover(ALL[name])


def test_what_only_looks_alike_is_not_recognised() -> None:
    for other in (b"", b"\n", b"SwitchName=s1 Nodes=n1\n", b"<system/>", b"# Topology file\n"):
        assert not looks_like_ibnetdiscover(other)
        assert refusals(partial(read, other)) == [(FaultCode.UNREADABLE, ())]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            'Ca\t : 0x0b00000000000011 ports 1 devid 0x1021 vendid 0x2c9 "node-a mlx5_0"',
            "run it without -l",
        ),
        (
            '  0x0b00000000000011 14 1[  ] ==( 4X 53.125 Gbps Active/ LinkUp)==> 1 1[  ] "l" ( )',
            "is of iblinkinfo",
        ),
    ],
)
def test_listings_that_are_mistaken_for_these_are_refused_by_name(line: str, reason: str) -> None:
    content = f"CA: node-a mlx5_0:\n{line}\n".encode()
    assert looks_like_ibnetdiscover(content)
    assert refusals(partial(read, content)) == [(FaultCode.UNREADABLE, ("line", 2))]
    assert reason in refusal_text(partial(read, content))


def test_everything_is_counted_once() -> None:
    assert dict(read().facts) == {
        "switches": 4,
        "leaf_switches": 2,
        "adapters": 8,
        "hosts": 4,
        "cables": 13,
        "switch_cables": 5,
        "systems": 10,
        "aggregation_nodes": 1,
        "adapters_without_host": 2,
        "aggregation_node_cables": 1,
        "loopback_cables": 1,
    }


def test_switches_are_named_as_people_do_where_that_tells_them_apart() -> None:
    names = [(switch.name, switch.level) for switch in read().switches]
    assert names == [("leaf-1", 0), ("leaf-2", 0), ("spine-S01-U1", 1), ("spine-S02-U1", 1)]
    first, second = read().switches[2:]
    assert first.system_guid == second.system_guid == "0a00000000000030"
    assert first.guid != second.guid
    again = RECORDS.replace(b"spine:CS7520/S02/U1", b"spine:CS7520/S01/U1")
    names_by_guid = [switch.name for switch in read(again).switches[2:]]
    assert names_by_guid == ["S-0a00000000000030", "S-0a00000000000040"]


def test_parallel_cables_stay_parallel() -> None:
    cables = between(read(), "leaf-1", "spine-S01-U1")
    assert [cable.line for cable in cables] == [18, 19]
    ports = [(cable.source.port_number, cable.target.port_number) for cable in cables]
    assert ports == [(31, 1), (32, 2)]


def test_ends_that_disagree_run_at_the_lower_rate() -> None:
    (cable,) = between(read(), "leaf-2", "spine-S01-U1")
    assert cable.rate is not None
    assert (cable.rate.bytes_per_second, cable.rate.source) == (25e9, "InfiniBand 4x HDR")
    assert any("4x NDR (line 31) and 4x HDR (line 41)" in note for note in read().notes)
    wider = RECORDS.replace(b"lid 2 4xHDR", b"lid 2 1xNDR")
    (cable,) = between(read(wider), "leaf-2", "spine-S01-U1")
    assert cable.rate is not None
    assert cable.rate.bytes_per_second == 12.5e9


def test_a_rate_that_is_missing_stays_unknown() -> None:
    (cable,) = between(read(), "leaf-2", "node-c")
    assert cable.rate is None
    assert any(item.line == 30 and "1 of 11 cables" in item.detail for item in read().left_out)
    one_end = RECORDS.replace(b"lid 1 4x???", b"lid 1 4xEDR")
    (cable,) = between(read(one_end), "leaf-2", "node-c")
    assert cable.rate is not None
    assert cable.rate.bytes_per_second == 12.5e9
    no_rate = RECORDS.replace(b" 4x???", b"")
    assert between(read(no_rate), "leaf-2", "node-c")[0].rate is None


def test_adapters_are_known_by_what_the_file_says_of_them() -> None:
    (cable,) = between(read(), "leaf-2", "node-b")
    end = cable.target
    assert (end.host, end.adapter, end.port_guid) == ("node-b", "HCA-1", "0b0000000000a014")
    (first, second) = between(read(), "leaf-1", "node-a")
    assert first.target.system_guid == second.target.system_guid == "0b00000000000011"
    assert first.target.port_guid != second.target.port_guid
    nameless = [
        cable.target for cable in read().cables if cable.target.port_guid == "0b0000000000a013"
    ]
    assert [(end.host, end.adapter) for end in nameless] == [(None, None)]


def test_descriptions_that_two_adapters_share_tell_nothing() -> None:
    double = read(RECORDS.replace(b"node-c mlx5_0", b"node-b HCA-1"))
    assert between(double, "leaf-2", "node-b") == []
    assert any("2 adapters call themselves node-b HCA-1" in item.detail for item in double.left_out)
    assert double.facts["adapters_without_host"] == 4


def test_aggregation_nodes_and_loops_join_no_hosts() -> None:
    found = read()
    assert all(cable.source.switch != cable.target.switch for cable in found.cables)
    assert any("SHARP" in note for note in found.notes)
    lines = {item.line for item in found.left_out}
    assert {1, 2, 16, 21} <= lines
    assert "Aggregation" not in str(found.cables)


def test_a_host_without_a_cable_is_known_all_the_same() -> None:
    assert [(each.host, each.switch) for each in read().attached] == [("node-d", None)]


def test_oversubscription_is_that_of_the_cables() -> None:
    # leaf-1: three hosts at 50 GB/s over three uplinks at 50; of leaf-2 one rate is unknown.
    assert any("1.000 to 1.000; highest at leaf-1" in note for note in read().notes)
    # Known it is 25 + 25 + 50 to hosts, and 25 + 25 up.
    known = read(RECORDS.replace(b"4x???", b"4xNDR"))
    assert any("1.000 to 2.000; highest at leaf-2" in note for note in known.notes)


def test_grouped_output_lists_chassis_switches_twice() -> None:
    found = read(GROUPED)
    assert (found.facts["switches"], found.facts["chassis"]) == (2, 1)
    assert found.facts["cables"] == 3
    assert len(between(found, "S-0a00000000000030", "line-1")) == 2
    changed = GROUPED.replace(b"4xQDR\n\n# Chassis", b"4xDDR\n\n# Chassis", 1)
    assert "lists other ports of" in refusal_text(lambda: read(changed))


def test_the_list_of_ports_says_the_same() -> None:
    found = read(PORTS)
    assert dict(found.facts) == {
        "switches": 3,
        "leaf_switches": 1,
        "adapters": 3,
        "hosts": 2,
        "cables": 5,
        "switch_cables": 2,
        "nodes_without_record": 1,
        "cables_seen_from_one_end": 1,
        "unconnected_ports": 2,
    }
    # Two ports of one adapter: each is known by its own GUID.
    ports = [(c.source.adapter, c.source.port_number) for c in between(found, "leaf", "node-a")]
    assert ports == [("HCA-1", 1), ("HCA-1", 2)]


def test_a_net_file_has_neither_guids_nor_rates() -> None:
    found = read(NET)
    assert dict(found.facts) == {
        "switches": 2,
        "leaf_switches": 2,
        "adapters": 3,
        "hosts": 3,
        "cables": 5,
        "switch_cables": 2,
        "cables_seen_from_one_end": 1,
    }
    assert len(between(found, "S1", "S2")) == 2
    assert all(cable.rate is None for cable in found.cables)
    assert (found.cables[0].target.host, found.cables[0].target.adapter) == ("H1", "hca")
    assert all(end.port_guid is None for c in found.cables for end in (c.source, c.target))


@pytest.mark.parametrize("name", ALL)
def test_no_line_is_without_effect(name: str) -> None:
    headings = ("#", "Non-Chassis Nodes")
    found = lines_without_effect(read, ALL[name], aside=lambda line: line.startswith(headings))
    assert found == []


@pytest.mark.parametrize("name", ALL)
def test_damaged_files_are_read_or_refused(name: str) -> None:
    still_read = read_damaged(read, ALL[name], seed=5)
    assert 0 < still_read < 300


def test_a_file_without_switches_is_legal() -> None:
    one = b'vendid=0x2c9\ndevid=0x1021\ncaguid=0xb1\nCa\t1 "H-00000000000000b1"\t\t# "n1 mlx5_0"\n'
    found = read(one)
    assert (found.switches, found.cables) == ((), ())
    assert [each.host for each in found.attached] == ["n1"]
    assert any("no switch" in note for note in found.notes)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        (b"[31]\t", b"[30]\t", 39, "lacks that port: lines are missing"),
        (b'"S-0a00000000000030"[1]\t', b'"S-0a00000000000030"[2]\t', 18, "joins that elsewhere"),
        (b"devid=0xd2f0\n", b"\n", 12, "without devid above it"),
        (b"switchguid=0xa00000000000010", b"switchguid=0xa00000000000011", 12, "is another"),
        (b"[1]\t", b"[42]\t", 13, "port 42 of a node of 41 ports"),
        (b"[2]\t", b"[1]\t", 14, "port 1 again (first on line 13)"),
        (b"(b0000000000a011) ", b"", 13, "without the GUID of its port"),
        (b"(b0000000000a011) ", b"(b0000000000a0ff) ", 13, "gives port GUID 0b0000000000a0ff"),
        (b"4xNDR", b"4yNDR", 13, "gives no width and speed"),
        (b'"H-0b00000000000011"', b'"H-0b0000000000001"', 13, "is neither"),
        (b'# "node-a mlx5_0" lid 11', b"# node-a lid 11", 13, "ends in what no port line has"),
        (b"Switch\t41", b"Ca\t41", 12, "without caguid"),
        (b'\t\t# "MF0;leaf-1', b' # "' + b"x" * 1000, 12, "characters; no line of the tool has"),
    ],
)
def test_damage_is_refused_with_its_line(old: bytes, new: bytes, line: int, reason: str) -> None:
    assert old in RECORDS
    content = RECORDS.replace(old, new, 1)
    assert (FaultCode.UNREADABLE, ("line", line)) in refusals(lambda: read(content))
    assert reason in refusal_text(lambda: read(content))


def test_a_prompt_is_left_out_at_the_top_only() -> None:
    prompt = b"[root@head ~]# /usr/sbin/ibnetdiscover\n"
    assert read(prompt + RECORDS).left_out[0].line == 1
    assert "is neither" in refusal_text(lambda: read(RECORDS + b"\n" + prompt))


def test_a_fabric_beyond_the_limit_is_refused_before_it_is_joined() -> None:
    node = "vendid=0x1\ndevid=0x2\nswitchguid=0x{0:x}(1)\n" + 'Switch\t200 "S-{0:016x}"\t\t# "x"\n'
    port = '[{0}]\t"S-{1:016x}"[1]\t\t# "y" lid 1 4xNDR\n'
    content = "".join(
        node.format(number) + "".join(port.format(p, 10**6 * p + number) for p in range(1, 200))
        for number in range(1, 610)
    )
    assert refusals(lambda: read(content.encode())) == [(FaultCode.OUT_OF_RANGE, ())]
