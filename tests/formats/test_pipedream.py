"""PipeDream's graph.txt: a small file of our own, and what damaged files are refused for."""

from pathlib import Path

import msgspec
import pytest

from service.core.errors import FaultCode
from service.core.models.cuts import SkipRouting
from service.core.plans.plan import Degrees, Partition, Plan, ResolvedPlan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.formats import pipedream_graph
from service.formats.documents import model as model_document
from service.formats.documents import profile as profile_document
from service.formats.documents.canonical import canonical_bytes
from service.formats.documents.model import ModelDocument
from service.formats.documents.profile import ProfileDocument
from service.formats.pasted_text import MAX_FAULTS, MAX_LEFT_OUT
from service.formats.pipedream import PipeDreamImport, looks_like_pipedream, read_pipedream
from service.formats.pipedream_graph import MAX_SIZES
from tests.core.refusals import refusal_text, refusals

SMALL = (Path(__file__).parent / "fixtures" / "two-branches.graph.txt").read_bytes()
COSTS = "forward_compute_time=1.000, backward_compute_time=2.000, "
SIZES = "activation_size=8.0, parameter_size=4.000"


def read(content: bytes = SMALL) -> PipeDreamImport:
    return read_pipedream(content, microbatch_size=4)


def priced(stages: tuple[tuple[str, ...], ...], routing: SkipRouting) -> ResolvedPlan:
    found = read()
    plan = Plan(
        degrees=Degrees(len(stages)),
        workload=Workload(microbatches=8, microbatch_size=4),
        schedule=Schedule("1f1b"),
        model="small@1",
        profile="small-gpu@1",
        partition=Partition(stages=stages, skip_routing=routing),
    )
    return resolve(
        plan,
        model=model_document.to_core(found.model),
        profile=profile_document.to_core(found.profile),
    )


def test_the_file_is_recognised_by_its_content() -> None:
    assert looks_like_pipedream(SMALL)
    assert looks_like_pipedream(b"\n  \n" + SMALL)
    assert not looks_like_pipedream(b"")
    assert not looks_like_pipedream(b"{}")
    assert not looks_like_pipedream(b"a -- b\n")


def test_execution_order_keeps_to_the_node_lines_where_it_can() -> None:
    layers = [layer.name for layer in read().model.layers]
    # node3 stands first and waits for node1; node2 stands late and waits for nothing.
    assert layers == [f"node{n}" for n in (1, 3, 4, 5, 6, 2, 7, 8, 9, 10)]


def test_times_are_seconds_and_inputs_are_left_out() -> None:
    found = read()
    costs = {m.layer: (m.forward_seconds, m.backward_seconds) for m in found.profile.measurements}
    assert costs["node4"] == (0.002, 0.003)
    assert costs["node5"] == (0.0, 0.0)
    assert "node1" not in costs
    assert "node2" not in costs
    assert {m.microbatch_size for m in found.profile.measurements} == {4}
    assert (found.read.forward_seconds, found.read.backward_seconds) == (0.0035, 0.0065)
    assert (found.read.layers, found.read.input_layers, found.read.edges) == (10, 2, 12)
    assert found.read.parameter_bytes == 3200 + 2304 + 256
    (loader,) = found.left_out
    assert loader.line == 2
    assert "0.01225 s" in loader.detail


def test_each_entry_of_a_list_is_a_tensor_of_its_own() -> None:
    tensors = {tensor.name: tensor for tensor in read().model.tensors}
    assert (tensors["node4.0"].bytes, tensors["node4.0"].consumers) == (6400, ["node5"])
    assert (tensors["node4.1"].bytes, tensors["node4.1"].consumers) == (128, ["node6"])
    assert (tensors["node4.2"].bytes, tensors["node4.2"].consumers) == (64, [])
    assert tensors["node3"].consumers == ["node4", "node8"]


def test_an_entry_of_what_is_no_list_is_the_whole() -> None:
    lines = [f"n -- hidden -- {COSTS}{SIZES}", f"m -- __getitem__(3) -- {COSTS}{SIZES}"]
    tensors = read("\n".join([*lines, "\tn -- m"]).encode()).model.tensors
    assert [(tensor.name, tensor.consumers) for tensor in tensors] == [("n", ["m"]), ("m", [])]


def test_gradients_follow_the_parameters() -> None:
    tensors = {tensor.name: tensor.requires_gradient for tensor in read().model.tensors}
    without = {name for name, gradient in tensors.items() if not gradient}
    assert without == {"node1", "node2", "node9"}


def test_the_documents_are_valid_and_say_what_was_assumed() -> None:
    found = read_pipedream(SMALL, microbatch_size=4, device="V100", precision="fp32")
    for document, kind in ((found.model, ModelDocument), (found.profile, ProfileDocument)):
        assert msgspec.json.decode(canonical_bytes(document), type=kind) == document
    core = model_document.to_core(found.model)
    assert core.parameter_count == (3200 + 2304 + 256) // 4
    assert profile_document.to_core(found.profile).device == "V100"
    said = " ".join(found.assumptions)
    assert "microbatch_size 4 only" in said
    assert "fp32" in said
    assert "0 bytes (lines 7)" in said


def test_boundary_bytes_by_hand() -> None:
    """Stages: input, embedding | LSTM and its first entry | the rest.

    The embedding's output (6400) goes to the LSTM and, as a residual, to the Add at the end: it
    is charged once for each boundary it passes. Behind the LSTM only its entries 0 (through node5:
    6400) and 1 (node4.1, 128, to node6 on the last stage) are used; entry 2 goes nowhere. Input1
    has 0 bytes in the file.
    """
    stages = (
        ("node1", "node3"),
        ("node2", "node4", "node5"),
        ("node6", "node7", "node8", "node9", "node10"),
    )
    relayed = priced(stages, SkipRouting.RELAY).boundaries
    assert [(b.source, b.target, b.forward_bytes, b.backward_bytes) for b in relayed] == [
        (0, 1, 6400, 6400),
        (1, 2, 6400 + 6400 + 128, 6400 + 6400 + 128),
    ]
    straight = priced(stages, SkipRouting.DIRECT).boundaries
    assert [(b.source, b.target, b.forward_bytes) for b in straight] == [
        (0, 1, 6400),
        (0, 2, 6400),
        (1, 2, 6400 + 128),
    ]


def test_a_tensor_is_charged_once_for_a_stage_and_not_for_each_edge() -> None:
    """node8 feeds node9 and node10 on one stage; the integer of Size has no gradient."""
    head = ("node1", "node2", "node3", "node4", "node5", "node6", "node7", "node8")
    (boundary,) = priced((head, ("node9", "node10")), SkipRouting.RELAY).boundaries
    assert (boundary.forward_bytes, boundary.backward_bytes) == (6400, 6400)
    (boundary,) = priced(((*head, "node9"), ("node10",)), SkipRouting.RELAY).boundaries
    assert (boundary.forward_bytes, boundary.backward_bytes) == (6404, 6400)


def test_windows_line_ends_and_stage_marks_are_read() -> None:
    line = f"node1 -- Conv2d(3, 8) -- {COSTS}{SIZES} -- stage_id=2\r\n"
    found = read((line + f"node2 -- a -- b -- {COSTS}{SIZES}\r\n\tnode1 -- node2\r\n").encode())
    assert [layer.name for layer in found.model.layers] == ["node1", "node2"]
    assert found.model.layers[1].description == "a -- b"
    assert [item.line for item in found.left_out] == [1]


def test_a_repeated_edge_counts_once() -> None:
    found = read(SMALL + b"\n\tnode8 -- node9\n")
    assert found.read.edges == 12
    assert "twice" in found.left_out[-1].detail
    assert found.model == read().model


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b"", None, "no node line"),
        (b"\n\n", None, "no node line"),
        (b"hello", 1, "neither"),
        (f"n -- x -- {COSTS}activation_size=8.0".encode(), 1, "parameter_size"),
        (f"n -- x -- {COSTS}{SIZES}, more=1".encode(), 1, "exactly"),
        (f"n -- x -- {COSTS}activation_size=-8.0, parameter_size=0".encode(), 1, "at least 0"),
        (f"n -- x -- {COSTS}activation_size=nan, parameter_size=0".encode(), 1, "no number"),
        (f"n -- x -- {COSTS}activation_size=1e999, parameter_size=0".encode(), 1, "no number"),
        (f"n -- x -- {COSTS}activation_size=0.5, parameter_size=0".encode(), 1, "whole"),
        (f"n -- x -- {COSTS}activation_size=[1; 2, parameter_size=0".encode(), 1, "close"),
        (f"n -- x -- {COSTS}activation_size=[], parameter_size=0".encode(), 1, "no number"),
        (f"n -- x -- {COSTS}activation_size=8, parameter_size=2".encode(), 1, "fp32"),
        (f"n* -- x -- {COSTS}{SIZES}".encode(), 1, "letters"),
        (f"n -- Input -- {COSTS}{SIZES}".encode(), 1, "Input node"),
        (f"n -- x -- {COSTS}{SIZES}\nn -- y -- {COSTS}{SIZES}".encode(), 2, "first on line 1"),
        (f"n -- x -- {COSTS}{SIZES}\n\tn -- m".encode(), 2, "'m'"),
        (f"n -- x -- {COSTS}{SIZES}\n\tn -- n".encode(), 1, "cycle"),
        (b"\xff\xfe", 1, "UTF-8"),
        (f"n -- x\0 -- {COSTS}{SIZES}".encode(), 1, "NUL"),
        (SMALL.replace(b"__getitem__(1)", b"__getitem__(3)"), 6, "element 3"),
        (
            f"n -- x -- forward_compute_time=999999999, backward_compute_time=0, {SIZES}".encode(),
            1,
            "100000 s",
        ),
    ],
)
def test_damage_is_refused_with_its_line(content: bytes, line: int | None, said: str) -> None:
    path = () if line is None else ("line", line)
    assert refusals(lambda: read(content)) == [(FaultCode.UNREADABLE, path)]
    assert said in refusal_text(lambda: read(content))


def test_a_file_cut_short_is_refused() -> None:
    whole = SMALL.index(b"\tnode1")
    with pytest.raises(Exception, match="line 10"):
        read(SMALL[: whole - 20])


def test_every_fault_is_told_and_their_number_is_bounded() -> None:
    damaged = SMALL.replace(b"activation_size=128.0", b"activation_size=x")
    damaged = damaged.replace(b"node9 -- node10", b"node9 -- node77")
    assert refusals(lambda: read(damaged)) == [
        (FaultCode.UNREADABLE, ("line", 6)),
        (FaultCode.UNREADABLE, ("line", 14)),
        (FaultCode.UNREADABLE, ("line", 16)),
        (FaultCode.UNREADABLE, ("line", 22)),
    ]
    assert len(refusals(lambda: read(b"x\n" * 100_000))) == MAX_FAULTS + 1


def test_edges_that_are_repeated_without_end_are_counted_and_not_listed() -> None:
    edge = b"\n\tnode8 -- node9"
    found = read(SMALL + edge * (MAX_LEFT_OUT + 500))
    assert len(found.left_out) == MAX_LEFT_OUT + 1
    listed, more = found.left_out[-2:]
    assert listed.detail == "edge node8 -- node9 stands there twice"
    before = len(read().left_out)
    assert more.detail == f"and {before + 500} more such lines"
    assert more.line == listed.line


def test_a_file_has_so_many_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = SMALL.count(b"\n") + 1
    monkeypatch.setattr(pipedream_graph, "MAX_LINES", lines)
    assert read() == read(SMALL)
    path = ("line", lines + 1)
    assert refusals(lambda: read(SMALL + b"\n\n")) == [(FaultCode.UNREADABLE, path)]
    assert f"beyond the {lines} lines" in refusal_text(lambda: read(SMALL + b"\n\n"))


def test_sizes_are_counted_before_they_are_read() -> None:
    """A list of what are no sizes, on the line that has one too many."""
    head = (
        f"n -- m\nn -- x -- {COSTS}activation_size=[{'1; ' * (MAX_SIZES - 2)}1], parameter_size=0\n"
    )
    lines = (
        f"m -- x -- {COSTS}activation_size={size}, parameter_size=0" for size in ("1", "[x;x]")
    )
    fits, is_beyond = (head + line for line in lines)
    assert read(fits.encode()).read.tensors == MAX_SIZES
    assert refusals(lambda: read(is_beyond.encode())) == [(FaultCode.WORK_BUDGET, ())]
    assert "line 3" in refusal_text(lambda: read(is_beyond.encode()))


@pytest.mark.parametrize(
    "line",
    [
        "n -- " + "m" * 10**6,
        "n -- x -- " + ", ".join(f"k{number}=1" for number in range(10**5)),
        "n" * 10**6 + f" -- x -- {COSTS}{SIZES}",
        f"n -- x -- {COSTS}activation_size={'x' * 10**6}, parameter_size=0",
        f"n -- x -- {COSTS}activation_size=0.{'1' * 9}, parameter_size=0",
    ],
    ids=["edge", "costs", "name", "size", "fraction"],
)
def test_a_refusal_is_short_whatever_it_refuses(line: str) -> None:
    assert len(refusal_text(lambda: read(line.encode()))) < 400


def test_inputs_alone_have_no_cost() -> None:
    content = f"n -- Input -- {COSTS}activation_size=8.0, parameter_size=0.0".encode()
    assert refusals(lambda: read(content)) == [(FaultCode.TOO_FEW_LAYERS, ())]


def test_lists_taken_whole_by_many_are_bounded() -> None:
    sizes = "; ".join(["1"] * 5000)
    lines = [f"n0 -- x -- {COSTS}activation_size=[{sizes}], parameter_size=0.0"]
    lines += [f"n{i} -- y -- {COSTS}{SIZES}" for i in range(1, 300)]
    lines += [f"\tn0 -- n{i}" for i in range(1, 300)]
    assert refusals(lambda: read("\n".join(lines).encode())) == [(FaultCode.WORK_BUDGET, ())]


def test_a_small_file_can_not_become_a_huge_model() -> None:
    """A thousand tensors that name a thousand consumers with a hundred characters each."""
    name, sizes = "n" * 100, "; ".join(["1"] * 1000)
    lines = [f"{name}0 -- x -- {COSTS}activation_size=[{sizes}], parameter_size=0.0"]
    lines += [f"{name}{i} -- y -- {COSTS}{SIZES}" for i in range(1, 1001)]
    lines += [f"\t{name}0 -- {name}{i}" for i in range(1, 1001)]
    content = "\n".join(lines).encode()
    assert len(content) < 2**19
    assert refusals(lambda: read(content)) == [(FaultCode.WORK_BUDGET, ())]


def test_what_the_import_states_is_checked_too() -> None:
    assert refusals(lambda: read_pipedream(b"hello", microbatch_size=0)) == [
        (FaultCode.OUT_OF_RANGE, ("microbatch_size",)),
        (FaultCode.UNREADABLE, ("line", 1)),
    ]
