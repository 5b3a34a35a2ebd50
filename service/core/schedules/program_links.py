"""Which bundle each message and each operation of a program is, in link mode."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.bundles import Bundles
from service.core.schedules.link_run import simulate_links
from service.core.schedules.program import OpKind, Program, StageEdge
from service.core.schedules.simulate import Run
from service.core.schedules.stage_times import input_microbatches

__all__ = ["Carried", "ProgramLinks", "carried"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class ProgramLinks:
    """`kinds` of `bundles`: of each input, and where `own` is true of each operation itself.

    Bundle i is that of input i of the program, bundle inputs + o what operation o exchanges itself,
    -1 where that is nothing. `served` are the same bundles without the links that never decide
    anything: what is simulated.
    """

    program: Program
    bundles: Bundles
    served: Bundles
    kinds: Int32Array  # (inputs,) or (inputs + operations,)

    @property
    def messages(self) -> int:
        """How many bundles are those of inputs: the first ones."""
        return len(self.program.inputs)

    @property
    def own(self) -> bool:
        """Whether any operation has a bundle of its own."""
        return len(self.kinds) > self.messages

    @property
    def input_kinds(self) -> Int32Array:
        """(inputs,) of each input."""
        return self.kinds[: self.messages]

    @property
    def own_kinds(self) -> Int32Array:
        """(operations,) of each operation itself; (0,) where none has any."""
        return self.kinds[self.messages :]

    @property
    def present(self) -> Int64Array:
        """The numbers of all bundles that there are."""
        return np.flatnonzero(self.kinds >= 0)

    def turns(self, bundles: Bundles) -> int:
        """On how many links all bundles are served together; `bundles` are one of the two here."""
        return int(bundles.sizes[self.kinds[self.present]].sum())

    def run(self, durations: Int64Array) -> Run:
        """Simulate the program, whose operations take these picoseconds."""
        own = self.own_kinds if self.own else None
        return simulate_links(self.program, durations, self.served, self.input_kinds, own)


@dataclass(frozen=True, slots=True)
class Carried:
    """What a bundle is: a value that crosses `edge`, or what `operation` exchanges itself.

    `operation` is the one that sends it, `stage` and `microbatch` those of what is sent; a pair's
    own bundle has those of its forward. `backward` says that it is a gradient, or of a backward.
    """

    operation: int
    stage: int
    microbatch: int
    backward: bool
    edge: StageEdge | None

    @property
    def ends(self) -> tuple[int, int]:
        """Source and target stage of the edge; of an operation's own bundle its stage, twice."""
        return (
            (self.stage, self.stage) if self.edge is None else (self.edge.source, self.edge.target)
        )


def carried(program: Program, bundle: int) -> Carried:
    """What one bundle of a program is."""
    messages = len(program.inputs)
    if bundle >= messages:
        operation = bundle - messages
        return Carried(
            operation,
            int(program.stage[operation]),
            int(program.microbatch[operation]),
            program.kind.item(operation) in (OpKind.BACKWARD, OpKind.BACKWARD_INPUT),
            None,
        )
    gradient = bool(program.input_gradient[bundle])
    edge = program.stage_edges[program.input_edges[bundle]]
    return Carried(
        int(program.inputs[bundle]),
        edge.target if gradient else edge.source,
        int(input_microbatches(program)[bundle]),
        gradient,
        edge,
    )
