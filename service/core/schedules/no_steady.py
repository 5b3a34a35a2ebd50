"""Why there is no pace of a steady state: a closed list, told with every answer that lacks one."""

from enum import StrEnum

from service.core.schedules.build import refuses_microbatches
from service.core.schedules.program import Program

__all__ = ["NoSteady", "no_longer_program"]


class NoSteady(StrEnum):
    """The first of these that holds."""

    # zb_auto, v_half, v_min: each rank's order is found by trying, and has no rule that goes on.
    ORDER_MADE_BY_TRYING = "order_made_by_trying"
    # explicit: nobody says how the order would go on.
    ORDER_WRITTEN_OUT = "order_written_out"
    # looped_bfs: the microbatches of a chunk are one block, however many there are.
    ORDER_OF_WHOLE_ITERATIONS = "order_of_whole_iterations"
    # The slowest stages of forwards and of backwards need not wait for one another.
    PHASES_APART = "phases_apart"
    MICROBATCHES_DO_NOT_REPEAT = "microbatches_do_not_repeat"
    # The schedule allows no longer iteration with such groups of microbatches.
    GROUPS_DO_NOT_GO_ON = "groups_do_not_go_on"
    # Too many stages, or a period of too many microbatches, to be searched or simulated.
    TOO_LARGE = "too_large"
    # In link mode: a long simulated iteration did not come to repeat itself.
    QUEUES_DO_NOT_REPEAT = "queues_do_not_repeat"


def no_longer_program(program: Program, microbatches: int) -> NoSteady:
    """Why there is no program of the same schedule with so many microbatches."""
    refused = refuses_microbatches(program, microbatches)
    return NoSteady.GROUPS_DO_NOT_GO_ON if refused else NoSteady.TOO_LARGE
