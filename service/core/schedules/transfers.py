"""How values get from rank to rank: what each transfer takes, and who waits meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from service.core.schedules.bundles import Bundles
from service.core.schedules.own_bundles import OwnBundles, lengthened, own_bundles
from service.core.schedules.program import OpKind, Program
from service.core.schedules.program_links import ProgramLinks
from service.core.schedules.simulate import Run, simulate
from service.core.schedules.stage_times import StageTimes, at_microbatches, edge_latencies

__all__ = ["LinkTransfers", "TransferMode", "Transfers"]

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.integer]


class TransferMode(StrEnum):
    """How transfers are charged.

    `latency`: each takes its own time, and nobody waits but who needs the value. `blocking`: and
    the sender's rank is held until it has arrived. `link`: it occupies links, on which transfers
    queue.
    """

    LATENCY = "latency"
    BLOCKING = "blocking"
    LINK = "link"


@dataclass(frozen=True, slots=True, eq=False)
class LinkTransfers:
    """The bundle of each transfer: `forward` and `backward` are kinds of `bundles`.

    Both are (stage edges, microbatches or 1). `served` are the same bundles without the links that
    never decide anything: what is simulated. `own` are those of operations themselves.
    """

    bundles: Bundles
    served: Bundles
    forward: Int32Array
    backward: Int32Array
    own: OwnBundles | None = None

    @classmethod
    def of(
        cls,
        bundles: Bundles,
        forward: Int32Array,
        backward: Int32Array,
        own: OwnBundles | None = None,
    ) -> "LinkTransfers":
        """With the links that decide something found out."""
        return cls(bundles, bundles.without_hidden_links(), forward, backward, own)

    def on(self, program: Program, durations: Int64Array) -> ProgramLinks:
        """Which bundle is whose in a program whose operations take these picoseconds."""
        forward, backward = (
            np.asarray(given, dtype=np.int64) for given in (self.forward, self.backward)
        )
        kinds = edge_latencies(program, forward, backward).astype(np.int32)
        if self.own is None:
            return ProgramLinks(program, self.bundles, self.served, kinds)
        own, bundles, served = own_bundles(program, self.own, durations, self.bundles, self.served)
        return ProgramLinks(program, bundles, served, np.concatenate((kinds, own)))


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """Picoseconds of each transfer, alone: (stage edges, microbatches or 1) there and back.

    `links` is there exactly in `link` mode.
    """

    mode: TransferMode
    forward: Int64Array
    backward: Int64Array
    links: LinkTransfers | None = None

    @classmethod
    def over_links(cls, links: LinkTransfers) -> "Transfers":
        """In `link` mode, each taking alone what its bundle takes alone."""
        alone = links.bundles.alone
        return cls(TransferMode.LINK, alone[links.forward], alone[links.backward], links)

    @property
    def holds_senders(self) -> bool:
        """Whether a rank is held until what it sends has arrived."""
        return self.mode is TransferMode.BLOCKING

    def latencies(self, program: Program) -> Int64Array:
        """(inputs,) picoseconds of each input's transfer alone."""
        return edge_latencies(program, self.forward, self.backward)

    def lengthened(self, program: Program, times: StageTimes) -> StageTimes:
        """The times of operations that take no less than their own bundles take alone."""
        if self.links is None or self.links.own is None:
            return times
        return lengthened(program, self.links.own, self.links.bundles, times)

    def run(self, program: Program, durations: Int64Array) -> Run:
        """Simulate with these transfers, as `simulate` or `simulate_links` do."""
        if self.links is None:
            latencies = self.latencies(program)
            return simulate(program, durations, latencies, blocking=self.holds_senders)
        return self.links.on(program, durations).run(durations)

    def at_microbatches(self, microbatches: IntArray) -> "Transfers":
        """Those of these microbatches, in their order."""
        forward, backward = (
            at_microbatches(given, microbatches) for given in (self.forward, self.backward)
        )
        if self.links is None:
            return Transfers(self.mode, forward, backward)
        own = self.links.own
        links = LinkTransfers(
            self.links.bundles,
            self.links.served,
            at_microbatches(self.links.forward, microbatches),
            at_microbatches(self.links.backward, microbatches),
            None if own is None else own.at_microbatches(microbatches),
        )
        return Transfers(self.mode, forward, backward, links)

    def without_contention(self) -> "Transfers":
        """Each alone on its links; in the other modes the same."""
        if self.links is None:
            return self
        return Transfers(TransferMode.LATENCY, self.forward, self.backward)

    def without_exchanges(self) -> "Transfers":
        """What operations exchange themselves occupies no link; in the other modes the same.

        Operations take what they take alone: times are to be those of `lengthened`.
        """
        if self.links is None or self.links.own is None:
            return self
        return replace(self, links=replace(self.links, own=None))

    def without_transfers(self) -> "Transfers":
        """Transfers occupy no link and take what they take alone; exchanges stay as they are."""
        if self.links is None:
            return self
        forward, backward = self.links.forward, self.links.backward
        kinds, number = np.unique(
            np.concatenate((forward.ravel(), backward.ravel())), return_inverse=True
        )
        further = [(-1, -1, time) for time in self.links.bundles.alone[kinds].tolist()]
        moved = (self.links.bundles.kinds + number.ravel()).astype(np.int32)
        links = LinkTransfers(
            self.links.bundles.joined(further),
            self.links.served.joined(further),
            moved[: forward.size].reshape(forward.shape),
            moved[forward.size :].reshape(backward.shape),
            self.links.own,
        )
        return replace(self, links=links)

    def with_times(self, edges: Sequence[int], times: Int64Array, *, gradient: bool) -> "Transfers":
        """Those over these edges, one way, take these picoseconds alone.

        `times` is (edges that change, microbatches or 1), as wide as these are.

        Over links the occupied times and the latency change in proportion.
        """
        present = self.backward if gradient else self.forward
        changed = present.copy()
        changed[edges] = times
        forward, backward = (self.forward, changed) if gradient else (changed, self.backward)
        if self.links is None:
            return Transfers(self.mode, forward, backward)
        kinds = self.links.backward if gradient else self.links.forward
        new_kinds = kinds.copy()
        wanted = sorted(
            {
                (int(kind), int(time))
                for kind, time in zip(kinds[edges].ravel(), changed[edges].ravel(), strict=True)
            }
        )
        first = self.links.bundles.kinds
        number = {pair: first + place for place, pair in enumerate(wanted)}
        new_kinds[edges] = [
            [number[int(kind), int(time)] for kind, time in zip(row, new, strict=True)]
            for row, new in zip(kinds[edges], changed[edges], strict=True)
        ]
        links = LinkTransfers(
            self.links.bundles.extended(wanted),
            # What is proportional hides what it did.
            self.links.served.extended(wanted),
            self.links.forward if gradient else new_kinds,
            new_kinds if gradient else self.links.backward,
            self.links.own,
        )
        return Transfers.over_links(links)

    def with_operation_times(self, kind: OpKind, stage: int, times: Int64Array) -> "Transfers":
        """Where operations of this kind on this stage take other times, (microbatches or 1) ps.

        Their own bundles occupy links as long as they did and arrive when the operations end, or
        when the last link is done with them.
        """
        own = None if self.links is None else self.links.own
        if self.links is None or own is None or kind not in own.of_kinds:
            return self
        numbers = own.of_kinds[kind][stage]
        wanted = np.stack(np.broadcast_arrays(numbers, times), axis=1)
        rows, number = np.unique(wanted, axis=0, return_inverse=True)
        further = [(kind_of, -1, time) for kind_of, time in rows.tolist()]
        changed = np.where(wanted[:, 0] < 0, -1, self.links.bundles.kinds + number.ravel())
        links = LinkTransfers(
            self.links.bundles.joined(further),
            self.links.served.joined(further),
            self.links.forward,
            self.links.backward,
            own.replaced(kind, stage, changed.astype(np.int32)),
        )
        return Transfers(self.mode, self.forward, self.backward, links)
