"""Orders that are written out: read, refused with what is wrong, and run."""

import random
from functools import partial

import pytest

from service.core.errors import Fault, FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.schedules.build import build_program
from service.core.schedules.catalogue import SCHEDULES
from service.core.schedules.program import OpKind, PairMode, Program, RecomputeMode
from service.core.schedules.shape import Backward, Shape
from tests.core.schedules.event_simulator import random_legal_plan
from tests.core.schedules.plans import plan_edges, plan_order, write_order
from tests.core.schedules.reference_orders import shapes_of


def build(*order: str, microbatches: int, ranks: int | None = None) -> Program:
    return build_program(
        "explicit", len(order) if ranks is None else ranks, microbatches, order=order
    )


def faults(*order: str, microbatches: int, ranks: int | None = None) -> tuple[Fault, ...]:
    with pytest.raises(InvalidInput) as refused:
        build(*order, microbatches=microbatches, ranks=ranks)
    return refused.value.faults


def test_an_order_is_run_as_written() -> None:
    order = ("0F0 0F1 0I0 0W0 0B1", "1F0 1B0 1F1 1B1")
    program = build(*order, microbatches=2)
    assert [write_order(program, rank) for rank in range(2)] == list(order)
    assert program.stage_ranks.tolist() == [[0, 1]]


def test_stages_live_where_they_are_run() -> None:
    program = build("0F0 2F0 2B0 0B0", "1F0 1B0", microbatches=1)
    assert program.stage_ranks.tolist() == [[0, 1, 0]]
    assert program.stages == 3


@pytest.mark.parametrize("schedule", [n for n, f in SCHEDULES.items() if f.directions == 1])
def test_every_named_order_can_be_written_out(schedule: str) -> None:
    if schedule == "explicit":
        return
    for ranks, microbatches, chunks, _ in shapes_of(schedule, largest=3):
        for mode in PairMode:
            named = build_program(
                schedule, ranks, microbatches, chunks_per_rank=chunks, pair_mode=mode
            )
            order = tuple(write_order(named, rank) for rank in range(ranks))
            written = build_program(
                "explicit", ranks, microbatches, pair_mode=PairMode.FUSED, order=order
            )
            assert [write_order(written, rank) for rank in range(ranks)] == list(order)
            assert written.inputs.tolist() == named.inputs.tolist()


def test_pairs_are_run_as_the_mode_says() -> None:
    order = ("0F0 1F0 0F1&1B0 1F1 0B0 1B1 0B1",)
    for mode, kinds in (
        (PairMode.SERIAL, {OpKind.FORWARD, OpKind.BACKWARD}),
        (PairMode.FUSED, {OpKind.FORWARD, OpKind.BACKWARD, OpKind.FORWARD_BACKWARD}),
    ):
        program = build_program("explicit", 1, 2, order=order, pair_mode=mode)
        assert set(program.kind.tolist()) == kinds


def test_a_pair_is_of_two_microbatches() -> None:
    order = ("0F0&0B0",)
    assert write_order(build(*order, microbatches=1), 0) == "0F0 0B0"
    with pytest.raises(InvalidInput, match="pair two microbatches"):
        build_program("explicit", 1, 1, order=order, pair_mode=PairMode.FUSED)


def test_recomputations_are_added_unless_the_order_has_them() -> None:
    mode = RecomputeMode.BEFORE_GRADIENT
    added = build_program("explicit", 1, 2, order=("0F0 0F1 0B0 0B1",), recompute=mode)
    assert write_order(added, 0) == "0F0 0F1 0R0 0B0 0R1 0B1"
    own = "0F0 0R0 0F1 0R1 0B0 0B1"
    placed = build_program("explicit", 1, 2, order=(own,), recompute=mode)
    assert write_order(placed, 0) == own


def test_what_cannot_be_read_is_named_with_its_rank() -> None:
    found = faults("0F0 F1 0B0", "1F0 0X0 1B0 0F1&1F0", microbatches=1)
    assert [(fault.code, fault.path) for fault in found] == [
        (FaultCode.UNREADABLE, ("schedule", "order", 0)),
        (FaultCode.UNREADABLE, ("schedule", "order", 1)),
        (FaultCode.UNREADABLE, ("schedule", "order", 1)),
    ]
    assert found[0].detail.endswith("got F1")


@pytest.mark.parametrize(
    ("order", "microbatches", "detail"),
    [
        (("0F0 0B0", "2F0 2B0"), 1, "there is no stage 1"),
        (("", ""), 1, "there is no stage 0"),
        (("0F0 0B0",), 2, "1 microbatches"),
        (("0F0 0B0",), 2**31, "have 2147483648 forwards; the order has 1"),
        (("0F0 0F999999999 0B0",), 2, "microbatches 0..1"),
        (("0F0 0F0 0B0",), 2, "0F0 stands twice"),
        (("0B0 0F0",), 1, "0B0 needs 0F0, which its own rank 0 runs later"),
        (("0F0 0B0", "1F0"), 1, "has one B, or one I and one W"),
        (("0F0 0B0 0F1 0B1", "1F1 1F0 1B0 1B1"), 2, "wait for each other for ever"),
    ],
)
def test_orders_that_cannot_run_are_refused(
    order: tuple[str, ...], microbatches: int, detail: str
) -> None:
    if detail == "1 microbatches":
        detail = "2 microbatches on 1 stages have 2 forwards; the order has 1"
    found = faults(*order, microbatches=microbatches)
    assert any(detail in fault.detail for fault in found), found


def test_an_order_is_needed_and_has_a_text_for_each_rank() -> None:
    with pytest.raises(InvalidInput) as refused:
        build_program("explicit", 2, 1)
    assert refused.value.faults[0].code is FaultCode.MISSING_FIELD
    found = faults("0F0 0B0", microbatches=1, ranks=2)
    assert [fault.code for fault in found] == [FaultCode.WRONG_LENGTH]


def test_what_the_backwards_are_follows_from_the_order() -> None:
    family = SCHEDULES["explicit"]
    for text, expected in (
        ("0F0", Backward.NONE),
        ("0F0 0B0", Backward.WHOLE),
        ("0F0 0I0 0W0", Backward.SPLIT),
    ):
        assert family.backward(Shape(1, 1, order=(text,))) is expected


def test_long_orders_are_refused_as_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.core.schedules.build.MAX_OPERATIONS", 10)
    with pytest.raises(WorkBudgetExceeded):
        build(" ".join(f"0F{m} 0B{m}" for m in range(9)), microbatches=9)


def test_random_legal_orders_are_accepted_and_random_sequences_are_judged(seed: int) -> None:
    rng = random.Random(seed)
    refusals: list[Fault] = []
    for _ in range(300):
        plan = random_legal_plan(rng)
        microbatches = 1 + max(m for order in plan.orders for *_, m in order)
        edges = plan_edges(plan)
        mode = RecomputeMode(plan.recompute)
        text = plan_order(plan)
        run = partial(build_program, "explicit", len(text), microbatches, recompute=mode)
        program = run(order=text, stage_edges=edges)
        assert [write_order(program, rank) for rank in range(len(text))] == list(text)

        shuffled = [order.split() for order in text]
        for words in shuffled:
            rng.shuffle(words)
        try:
            run(order=tuple(" ".join(words) for words in shuffled), stage_edges=edges)
        except InvalidInput as invalid:
            refusals += invalid.faults
    assert len(refusals) > 300
    assert all(fault.path[:2] == ("schedule", "order") for fault in refusals)
