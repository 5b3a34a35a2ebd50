"""The matrix of `nvidia-smi topo -m`: small matrices with every trap, and damaged ones."""

from pathlib import Path

import pytest

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.readings import FoundDevice, FoundHost
from service.formats.nvidia_smi_topo import looks_like_nvidia_smi_topo, read_nvidia_smi_topo
from tests.core.refusals import refusal_text, refusals
from tests.formats.damage import lines_without_effect, read_damaged

FIXTURES = Path(__file__).parent / "fixtures" / "hosts"
MESH = (FIXTURES / "mesh-old-tokens.topo.txt").read_bytes()
NVSWITCH = (FIXTURES / "nvswitch-permuted.topo.txt").read_bytes()
BOTH = pytest.mark.parametrize("content", [MESH, NVSWITCH], ids=["mesh", "nvswitch"])


def host(content: bytes) -> FoundHost:
    (found,) = read_nvidia_smi_topo(content).hosts
    return found


def device(content: bytes, name: str) -> FoundDevice:
    return next(device for device in host(content).devices if device.name == name)


def links(content: bytes, kind: LinkKind) -> dict[tuple[str, str], int]:
    return {
        (link.source, link.target): link.lanes for link in host(content).links if link.kind is kind
    }


def matrix(*rows: str) -> bytes:
    """A matrix of GPUs with tabs, its header first."""
    return "\n".join("\t".join(row.split()) for row in rows).encode()


@BOTH
def test_files_are_recognised_by_their_header(content: bytes) -> None:
    assert looks_like_nvidia_smi_topo(content)
    assert looks_like_nvidia_smi_topo(b"$ nvidia-smi topo -m\n" + content)
    assert not looks_like_nvidia_smi_topo(b"GPU 0: NVIDIA H100 (UUID: GPU-1)")
    assert not looks_like_nvidia_smi_topo(b"GPU0")
    assert not looks_like_nvidia_smi_topo(b"")


def test_private_links_of_a_mesh() -> None:
    assert links(MESH, LinkKind.NVLINK) == {
        ("gpu0", "gpu1"): 2,
        ("gpu0", "gpu2"): 1,
        ("gpu1", "gpu3"): 1,
        ("gpu2", "gpu3"): 2,
    }
    assert read_nvidia_smi_topo(MESH).facts["nvlinks"] == 6


def test_more_links_than_any_product_has_are_a_port_on_a_switch() -> None:
    assert links(NVSWITCH, LinkKind.NVLINK) == {(f"gpu{k}", "nvswitch0"): 18 for k in range(3)}
    assert any("non-blocking" in text for text in read_nvidia_smi_topo(NVSWITCH).assumptions)
    # Of two GPUs a switch can't be told from a pair: only the product has the number of links.
    pair = matrix("GPU0 GPU1", "GPU0 X NV18", "GPU1 NV18 X")
    assert links(pair, LinkKind.NVLINK) == {("gpu0", "gpu1"): 18}


def test_host_bridges_are_told_apart_by_node() -> None:
    rows = (
        "GPU0 GPU1 GPU2 NIC0 NIC1",
        "GPU0 X PHB NODE PIX NODE",
        "GPU1 PHB X NODE PHB NODE",
        "GPU2 NODE NODE X NODE PHB",
        "NIC0 PIX PHB NODE X NODE",
        "NIC1 NODE NODE PHB NODE X",
    )
    content = matrix(*rows)
    assert links(content, LinkKind.HOST_BRIDGE).keys() == {
        ("pcie0", "bridge0"),
        ("gpu1", "bridge0"),
        ("gpu2", "bridge1"),
        ("nic1", "bridge1"),
    }
    assert links(content, LinkKind.ON_CHIP).keys() == {("bridge0", "cpu0"), ("bridge1", "cpu0")}
    assert any("PHB or nearer share" in text for text in read_nvidia_smi_topo(content).assumptions)
    # A CPU with one alone stands for it.
    one = matrix("GPU0 GPU1", "GPU0 X PHB", "GPU1 PHB X")
    assert links(one, LinkKind.HOST_BRIDGE).keys() == {("gpu0", "cpu0"), ("gpu1", "cpu0")}
    assert not links(one, LinkKind.ON_CHIP)


def test_relations_that_affinities_contradict_are_told() -> None:
    rows = (
        "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity",
        "GPU0\tX\tSYS\tNODE\t0-3\t0",
        "GPU1\tSYS\tX\tSYS\t0-3\t0",
        "GPU2\tNODE\tSYS\tX\t4-7\t1",
    )
    content = "\n".join(rows).encode()
    apart, together = read_nvidia_smi_topo(content).notes
    assert "SYS for 1 pairs (GPU0 and GPU1, ...)" in apart
    assert "PHB or NODE for 1 pairs (GPU0 and GPU2, ...)" in together
    # The affinities are taken: two of one CPU, on bridges of their own.
    assert links(content, LinkKind.ON_CHIP).keys() == {("bridge0", "cpu0"), ("bridge1", "cpu0")}
    assert links(content, LinkKind.SOCKET).keys() == {("cpu0", "cpu1")}


def test_columns_without_numbers_are_named_in_the_order_of_their_names() -> None:
    names = {d.name: d.logical_names for d in host(MESH).devices if d.kind is VertexKind.NIC}
    assert names == {"nic0": ("mlx5_0",), "nic1": ("mlx5_2",), "nic2": ("mlx5_10",)}


def test_the_legend_says_what_a_nic_is() -> None:
    assert device(NVSWITCH, "nic0").logical_names == ("mlx5_7",)
    assert device(NVSWITCH, "nic1").logical_names == ("mlx5_4",)


def test_what_is_near_shares_a_switch() -> None:
    # gpu0, nic0 and nic1 are PIX; gpu1 is PXB to the NICs, so behind a bridge of its own.
    below: dict[str, set[str]] = {}
    for one, other in links(MESH, LinkKind.PCIE):
        below.setdefault(other, set()).add(one)
    assert {frozenset(members) for members in below.values()} == {
        frozenset({"gpu0", "nic0", "nic1"}),
        frozenset({"gpu1"}),
        frozenset({"pcie0", "pcie1"}),
    }
    assert links(NVSWITCH, LinkKind.PCIE).keys() == {
        ("gpu0", "pcie0"),
        ("nic1", "pcie0"),
        ("gpu1", "pcie1"),
        ("nic0", "pcie1"),
    }


def test_cpus_are_those_of_the_affinity() -> None:
    assert links(MESH, LinkKind.HOST_BRIDGE).keys() == {
        ("pcie2", "cpu0"),
        ("gpu2", "cpu1"),
        ("gpu3", "cpu1"),
        ("nic2", "cpu1"),  # it has none, and is PHB to gpu2 and gpu3
    }
    assert links(MESH, LinkKind.SOCKET).keys() == {("cpu0", "cpu1")}
    # NODE between two NUMA nodes: some drivers say so, and the column is right.
    assert device(NVSWITCH, "gpu2").numa == 1
    assert ("gpu2", "cpu1") in links(NVSWITCH, LinkKind.HOST_BRIDGE)


def test_ties_are_told() -> None:
    (note,) = read_nvidia_smi_topo(MESH).notes
    assert note.endswith("gpu0 to nic0 and nic1 (PIX); gpu1 to nic0 and nic1 (PXB)")


def test_a_nic_that_is_near_to_no_one_numa_node_is_told() -> None:
    content = (
        b"\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        b"GPU0\t X \tSYS\tNODE\t\t0\t\tN/A\n"
        b"GPU1\tSYS\t X \tNODE\t1\t1\t\tN/A\n"
        b"NIC0\tNODE\tNODE\t X \t\t\t\t\n"
    )
    assert device(content, "gpu0").numa == 0  # the cell before it is empty
    (note,) = read_nvidia_smi_topo(content).notes
    assert note.startswith("nic0: NODE to devices of 2 NUMA nodes")


def test_numa_may_be_a_list_and_gpus_may_have_nodes_of_their_own() -> None:
    content = (
        b"      GPU0  GPU1  CPU Affinity  NUMA Affinity  GPU NUMA ID\n"
        b"GPU0   X    NV6   0-71          0,5-11         4\n"
        b"GPU1  NV6    X    72-143        1,13-19        12\n"
    )
    assert [device(content, f"gpu{k}").numa for k in range(2)] == [0, 1]


def test_one_gpu_has_no_peers() -> None:
    content = b"\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-27\t0\t\tN/A\n"
    assert read_nvidia_smi_topo(content).facts["gpus"] == 1


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (matrix("GPU0 GPU1", "GPU0 X OK", "GPU1 OK X"), 2, "topo -p2p"),
        (matrix("GPU0 GPU1", "GPU0 X CNS", "GPU1 CNS X"), 2, "topo -p2p"),
        (matrix("GPU0 GPU1 GPU2", "GPU0 X NODENODE"), 2, "glued together"),
        (matrix("GPU0 GPU1 GPU2", "GPU0 X NODE"), 2, "has 2 relations"),
        (matrix("GPU0 GPU1", "GPU0 X near"), 2, "no relation"),
        (matrix("GPU0 GPU1", "GPU0 X SYS"), 2, "without the rows of GPU1"),
        (matrix("GPU0 GPU1", "GPU0 X SYS", "GPU1 PIX X"), 3, "has PIX for GPU0"),
        (matrix("GPU0 GPU1", "GPU0 SYS SYS", "GPU1 SYS X"), 2, "meets itself"),
        (matrix("GPU0 GPU1", "GPU0 X SYS", "GPU0 X SYS"), 3, "second row"),
        (matrix("GPU0 GPU1", "GPU2 X SYS"), 2, "the header does not name"),
        (matrix("GPU0 GPU0", "GPU0 X X"), 1, "twice"),
        (NVSWITCH.replace(b"  NIC0: mlx5_7\n", b""), 16, "without NIC0"),
        (NVSWITCH.replace(b"NIC0: mlx5_7", b"NIC9: mlx5_7"), 16, "does not name"),
        (b"Legend:\n X = Self\n", 2, "without a header"),
        (b"", 1, "without a header"),
    ],
)
def test_what_is_no_whole_matrix_is_refused_with_its_line(
    content: bytes, line: int, says: str
) -> None:
    assert (FaultCode.UNREADABLE, ("line", line)) in refusals(lambda: read_nvidia_smi_topo(content))
    assert says in refusal_text(lambda: read_nvidia_smi_topo(content))


def test_a_matrix_beyond_what_hosts_have_is_refused() -> None:
    names = " ".join(f"GPU{k}" for k in range(300))
    assert "at most 256" in refusal_text(lambda: read_nvidia_smi_topo(matrix(names)))


@BOTH
def test_every_line_matters(content: bytes) -> None:
    # The words of the legend explain the tokens to people.
    unread = lines_without_effect(
        read_nvidia_smi_topo, content, aside=lambda line: " = " in line or line == "Legend:"
    )
    assert unread == []


@BOTH
def test_damage_is_read_or_refused(content: bytes, seed: int) -> None:
    assert 0 < read_damaged(read_nvidia_smi_topo, content, seed=seed) < 300
