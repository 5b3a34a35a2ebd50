"""What a matrix calls a pair is what the path is called in the cluster that is made of it."""

from pathlib import Path

from tests.app.path_words import differing_words

FIXTURES = Path(__file__).resolve().parents[1] / "formats" / "fixtures" / "hosts"
BRIDGES = """\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\tX\tPHB\tNODE\tSYS\tPXB\tNODE\t0-3\t0
GPU1\tPHB\tX\tNODE\tSYS\tPHB\tNODE\t0-3\t0
GPU2\tNODE\tNODE\tX\tSYS\tNODE\tPIX\t0-3\t0
GPU3\tSYS\tSYS\tSYS\tX\tSYS\tSYS\t4-7\t1
NIC0\tPXB\tPHB\tNODE\tSYS\tX\tNODE
NIC1\tNODE\tNODE\tPIX\tSYS\tNODE\tX
"""


def test_every_word_is_found_again() -> None:
    assert differing_words(BRIDGES.encode(), "H100 SXM5") == {}
    old = (FIXTURES / "mesh-old-tokens.topo.txt").read_bytes()
    assert differing_words(old, "V100 SXM2") == {}


def test_words_tell_cpus_apart_where_there_are_no_affinities() -> None:
    bare = "\n".join("\t".join(row.split("\t")[:7]) for row in BRIDGES.splitlines())
    assert differing_words(bare.encode(), "H100 SXM5") == {}


def test_a_word_that_affinities_contradict_is_not() -> None:
    permuted = (FIXTURES / "nvswitch-permuted.topo.txt").read_bytes()
    found = differing_words(permuted, "H100 SXM5")
    pairs = {("GPU2", "NIC0"), ("GPU2", "NIC1")}
    assert found.keys() == pairs | {pair[::-1] for pair in pairs}
    assert set(found.values()) == {("NODE", "sys")}
