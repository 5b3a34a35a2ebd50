"""What one rank runs, in execution order: the form every schedule family produces."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.core.schedules.program import OpKind

__all__ = ["RankOrder", "backwards", "forwards"]


@dataclass(frozen=True, slots=True, eq=False)
class RankOrder:
    """The operations of one rank, first to last; three arrays of equal length."""

    kind: npt.NDArray[np.int8]  # of OpKind
    stage: npt.NDArray[np.int32]  # global stage
    microbatch: npt.NDArray[np.int32]

    def then(self, other: "RankOrder") -> "RankOrder":
        """This order followed by the other."""
        return RankOrder(
            np.concatenate((self.kind, other.kind)),
            np.concatenate((self.stage, other.stage)),
            np.concatenate((self.microbatch, other.microbatch)),
        )

    def alternating(self, other: "RankOrder") -> "RankOrder":
        """First of this, first of the other, second of this, ...; both are equally long."""
        return RankOrder(
            np.stack((self.kind, other.kind), axis=1).reshape(-1),
            np.stack((self.stage, other.stage), axis=1).reshape(-1),
            np.stack((self.microbatch, other.microbatch), axis=1).reshape(-1),
        )


def forwards(stage: int, first: int, stop: int) -> RankOrder:
    """Forwards of microbatches first .. stop-1 on one stage."""
    return _run(OpKind.FORWARD, stage, first, stop)


def backwards(stage: int, first: int, stop: int) -> RankOrder:
    """Full backwards of microbatches first .. stop-1 on one stage."""
    return _run(OpKind.BACKWARD, stage, first, stop)


def _run(kind: OpKind, stage: int, first: int, stop: int) -> RankOrder:
    microbatch = np.arange(first, stop, dtype=np.int32)
    return RankOrder(
        np.full(len(microbatch), kind, dtype=np.int8),
        np.full(len(microbatch), stage, dtype=np.int32),
        microbatch,
    )
