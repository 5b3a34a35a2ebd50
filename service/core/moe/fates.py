"""What became of assignments, in numbers that add up over steps and layers."""

from collections.abc import Iterable
from dataclasses import dataclass

from service.core.moe.assignments import Assignments
from service.core.moe.served import Admitted

__all__ = ["Fates", "all_fates", "fates_of"]


@dataclass(frozen=True, slots=True)
class Fates:
    """Of all `assigned`: those that are not served as asked, and how. Fractions of none are 0.

    Of `rows` that travel and are computed `padding` are those that nobody asked for.
    """

    assigned: int = 0
    dropped: int = 0
    fallback: int = 0
    rerouted: int = 0
    rows: int = 0
    padding: int = 0

    def __add__(self, other: "Fates") -> "Fates":
        return Fates(
            self.assigned + other.assigned,
            self.dropped + other.dropped,
            self.fallback + other.fallback,
            self.rerouted + other.rerouted,
            self.rows + other.rows,
            self.padding + other.padding,
        )

    @property
    def dropped_fraction(self) -> float:
        """Of the assignments: nobody serves them."""
        return self.dropped / max(1, self.assigned)

    @property
    def fallback_fraction(self) -> float:
        """Of the assignments: the source's own path serves them."""
        return self.fallback / max(1, self.assigned)

    @property
    def rerouted_fraction(self) -> float:
        """Of the assignments: another expert serves them."""
        return self.rerouted / max(1, self.assigned)

    @property
    def padded_fraction(self) -> float:
        """Of the rows: padding."""
        return self.padding / max(1, self.rows)


def fates_of(admitted: Admitted, assignments: Assignments) -> Fates:
    """Of what a capacity made of assignments."""
    rows = int(admitted.wire.sum())
    return Fates(
        assigned=assignments.total,
        dropped=int(admitted.dropped.sum()),
        fallback=int(admitted.fallback.sum()),
        rerouted=int(admitted.rerouted.sum()),
        rows=rows,
        padding=rows - int(admitted.kept.sum()),
    )


def all_fates(fates: Iterable[Fates]) -> Fates:
    """Their sum."""
    return sum(fates, Fates())
