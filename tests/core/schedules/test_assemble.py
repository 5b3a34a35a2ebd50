"""From hand-written orders to programs, and the orders that are refused."""

import pytest

from service.core.errors import InvalidInput
from service.core.schedules.assemble import assemble_program
from service.core.schedules.program import Program, RecomputeMode, StageEdge
from tests.core.schedules.plans import read_order


def assemble(*orders: str, stages: int, microbatches: int, edges: str = "01") -> Program:
    """Edges are pairs of digits: `01 12`."""
    return assemble_program(
        "explicit",
        [read_order(order) for order in orders],
        stages=stages,
        microbatches=microbatches,
        stage_edges=tuple(StageEdge(int(pair[0]), int(pair[1])) for pair in edges.split()),
    )


def details(refused: pytest.ExceptionInfo[InvalidInput]) -> list[str]:
    assert all(fault.path == ("schedule", "order") for fault in refused.value.faults)
    return [fault.detail for fault in refused.value.faults]


def test_inputs_cross_ranks_and_stand_in_edge_order() -> None:
    program = assemble("0F0 0B0", "1F0 1B0", "2F0 2B0", stages=3, microbatches=1, edges="12 02 01")
    inputs = {
        i: program.inputs[program.input_offsets[i] : program.input_offsets[i + 1]].tolist()
        for i in range(program.operations)
    }
    # Operations 0..5 are 0F0 0B0 1F0 1B0 2F0 2B0.
    assert inputs == {0: [], 1: [5, 3], 2: [0], 3: [5], 4: [2, 0], 5: []}
    assert program.input_edges.tolist() == [1, 2, 2, 0, 0, 1]
    assert program.rank_offsets.tolist() == [0, 2, 4, 6]
    position = {operation: i for i, operation in enumerate(program.order.tolist())}
    assert sorted(position) == list(range(6))
    assert all(position[source] < position[i] for i in inputs for source in inputs[i])
    assert all(position[i] < position[i + 1] for i in (0, 2, 4))


def test_edges_on_one_rank_are_implied() -> None:
    program = assemble("0F0 1F0 1B0 0B0", stages=2, microbatches=1)
    assert len(program.inputs) == 0
    assert program.chunks_per_rank == 2


def test_arrays_are_read_only() -> None:
    program = assemble("0F0 0B0", "1F0 1B0", stages=2, microbatches=1)
    with pytest.raises(ValueError, match="read-only"):
        program.order[0] = 1


def test_deadlock_names_the_blocked_operation_of_each_rank() -> None:
    with pytest.raises(InvalidInput) as refused:
        assemble(
            "0F0 0F1 0B1 0B0 0F2 0B2",
            "1F0 1B0 1F1 1B1 1F2 1B2",
            "2F0 2F1 2F2 2B2 2B0 2B1",
            stages=3,
            microbatches=3,
            edges="01 12",
        )
    assert details(refused) == [
        (
            "the ranks wait for each other for ever: rank 0 waits at 0B1 for 1B1 of rank 1; "
            "rank 1 waits at 1B0 for 2B0 of rank 2; rank 2 waits at 2F1 for 1F1 of rank 1"
        )
    ]


def test_finished_ranks_are_not_called_blocked() -> None:
    with pytest.raises(InvalidInput) as refused:
        assemble(
            "0F0 0B0 0F1 0B1",
            "1F0 1B0 1F1 1B1",
            "2F1 2F0 2B0 2B1",
            stages=3,
            microbatches=2,
            edges="12",
        )
    assert details(refused) == [
        (
            "the ranks wait for each other for ever: rank 1 waits at 1B0 for 2B0 of rank 2; "
            "rank 2 waits at 2F1 for 1F1 of rank 1"
        )
    ]


def test_a_stage_lives_on_one_rank() -> None:
    with pytest.raises(InvalidInput) as refused:
        assemble("0F0 0B0", "0F1 0B1 1F0 1F1 1B0 1B1", stages=2, microbatches=2)
    assert "rank 0 runs 0F0, rank 1 runs others of stage 0" in details(refused)[0]


@pytest.mark.parametrize(
    ("orders", "expected"),
    [
        (("0F0 0B0", ""), ["every rank runs at least one operation; rank 1 has none"]),
        (
            ("0F0 0B0", "1F0"),
            [
                (
                    "every microbatch has one B, or one I and one W on every stage; "
                    "microbatch 0 on stage 1 does not"
                )
            ],
        ),
        (
            ("0F0 0B0", "1F0 1I0"),
            [
                (
                    "every microbatch has one B, or one I and one W on every stage; "
                    "microbatch 0 on stage 1 does not"
                )
            ],
        ),
        (
            ("0F0 0B0", "1B0"),
            ["every microbatch has one F on every stage; microbatch 0 on stage 1 does not"],
        ),
        (("0F0 0B0 0B0", "1F0 1B0"), ["an operation is run once; 0B0 stands twice"]),
        (
            ("0F0 0R0 0B0", "1F0 1B0"),
            ["every microbatch has no R on every stage; microbatch 0 on stage 0 does not"],
        ),
        (
            ("0B0 0F0", "1F0 1B0"),
            ["0B0 needs 0F0, which its own rank 0 runs later"],
        ),
        (
            ("0F0 0B0", "1F0 1W0 1I0"),
            ["1W0 needs 1I0, which its own rank 1 runs later"],
        ),
        (
            ("1F0 0F0 0B0 1B0",),
            [
                "1F0 needs 0F0, which its own rank 0 runs later",
                "0B0 needs 1B0, which its own rank 0 runs later",
            ],
        ),
        (
            ("0F0 0B0", "1F0 1B0 7F0"),
            ["stages are 0..1 and microbatches 0..0; rank 1 runs kind 0 on stage 7, microbatch 0"],
        ),
    ],
)
def test_orders_that_cannot_run_are_refused(orders: tuple[str, ...], expected: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        assemble(*orders, stages=2, microbatches=1)
    assert details(refused) == expected


def test_split_backward_passes_the_gradient_at_the_end_of_its_first_half() -> None:
    program = assemble("0F0 0I0 0W0", "1F0 1I0 1W0", stages=2, microbatches=1)
    # 0F0 0I0 0W0 1F0 1I0 1W0 are 0..5.
    assert program.inputs.tolist() == [4, 0]
    assert program.input_offsets.tolist() == [0, 0, 1, 1, 2, 2, 2]


def test_recompute_mode_wants_a_recompute_for_every_backward() -> None:
    with pytest.raises(InvalidInput, match="has one R on every stage; microbatch 0 on stage 0"):
        assemble_program(
            "explicit",
            [read_order("0F0 0B0")],
            stages=1,
            microbatches=1,
            recompute=RecomputeMode.AFTER_GRADIENT,
            stage_edges=(),
        )
