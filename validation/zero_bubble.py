"""The Zero Bubble paper's table of bubble rates, beside plans of its stage times."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.core.plans.plan import ActivationChange
from validation.priced import bubble_of, equal_stages, simulated
from validation.rows import Row, Section, at_most, printed

__all__ = ["SECTIONS", "SEQUENCE_LENGTH", "TABLE", "Case"]

MICROSECOND = 1e-6
SEQUENCE_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of one line: times in microseconds; size and heads of the model, for its memory."""

    ranks: int
    microbatches: int
    forward: int
    backward_input: int
    backward_weight: int
    latency: int
    hidden: int
    heads: int

    def __str__(self) -> str:
        times = f"F {self.forward}, I {self.backward_input}, W {self.backward_weight}"
        return f"P {self.ranks}, M {self.microbatches}, {times}, c {self.latency} us"


# Rates of 1F1B, ZB-H1 and ZB-H2, where they are at hand, then of ZB-1p and ZB-2p, as printed.
TABLE = (
    (Case(8, 24, 18522, 18086, 9337, 601, 2304, 24), ".2431 .1585 .1083 .1585 .0433"),
    (Case(8, 32, 18513, 18086, 9331, 626, 2304, 24), "- - - .1242 .0039"),
    (Case(8, 64, 18546, 18097, 9321, 762, 2304, 24), ".1240 .0674 .0444 .0674 .0026"),
    (Case(8, 24, 29718, 29444, 19927, 527, 4096, 32), "- - - .1323 .0029"),
    (Case(8, 32, 29802, 29428, 19530, 577, 4096, 32), ".1898 .1045 .0559 .1045 .0022"),
    (Case(8, 64, 29935, 29621, 19388, 535, 4096, 32), "- - - .0554 .0010"),
    (Case(16, 48, 11347, 11248, 8132, 377, 5120, 40), ".2552 .1397 .0672 .1397 .0066"),
    (Case(16, 64, 11307, 11254, 8101, 379, 5120, 40), "- - - .1088 .0054"),
    (Case(16, 128, 11325, 11308, 8109, 378, 5120, 40), ".1251 .0576 .0266 .0576 .0028"),
    (Case(32, 96, 10419, 10207, 7715, 408, 6144, 48), "- - - .1421 .0038"),
    (Case(32, 128, 10408, 10204, 7703, 408, 6144, 48), ".2168 .1106 .0490 .1106 .0029"),
    (Case(32, 256, 10402, 10248, 7698, 460, 6144, 48), "- - - .0594 .0018"),
)
BY_HAND = (("1F1B", "1f1b"), ("ZB-H1", "zb_h1"), ("ZB-H2", "zb_h2"))


def _rate(case: Case, kind: str, limit: int | None = None) -> float:
    """The share of the cost that no rank works: the makespan, or the span without a barrier."""
    made = 34 * case.hidden + 5 * case.heads * SEQUENCE_LENGTH
    freed = -32 * case.hidden  # by the weight half
    stages = equal_stages(
        case.ranks,
        (case.forward, case.backward_input, case.backward_weight),
        MICROSECOND,
        transfer_seconds=case.latency * MICROSECOND,
        activation_deltas=ActivationChange(made, -made - freed, freed),
    )
    of = simulated(kind, stages, case.microbatches, memory_limit_activations=limit)
    bubble = bubble_of(of)
    return bubble.idle_fraction if kind in ("1f1b", "zb_h1") else bubble.span_idle_fraction


def _by_hand() -> Iterator[Row]:
    for case, rates in TABLE:
        for (name, kind), rate in zip(BY_HAND, rates.split(), strict=False):
            if rate != "-":
                yield Row(f"{name}: {case}", f"0{rate}", _rate(case, kind))


def _searched() -> Iterator[Row]:
    for case, rates in TABLE:
        for times, rate in enumerate(rates.split()[len(BY_HAND) :], start=1):
            ours = _rate(case, "zb_auto", times * case.ranks)
            yield Row(f"ZB-{times}p: {case}", f"0{rate}", ours)


_SOURCE = (
    "Zero Bubble Pipeline Parallelism (arXiv 2401.10241): the lists of inputs and results in "
    "`megatron/core/pipeline_parallel/efficiency.py` of the authors' repository, branch `arxiv`."
)

SECTIONS = (
    Section(
        name="zero_bubble_by_hand",
        title="Bubble rates of schedules written by hand",
        source=_SOURCE,
        text="""
Plans of P equal stages and M microbatches with the measured stage times; a hop takes c and occupies
nothing. The rate is the share of the makespan (ZB-H2: of the span, as the paper has no barrier
between iterations) in which no rank works.
""",
        what="schedule and inputs",
        unit="share",
        rule=printed(
            "the orders and the semantics of a hop are the authors', so nothing is left open."
        ),
        rows=lambda: tuple(_by_hand()),
    ),
    Section(
        name="zero_bubble_searched",
        title="Bubble rates of searched schedules",
        source=_SOURCE,
        text="""
The same, where the order is searched for under a limit of P (ZB-1p) or 2P (ZB-2p) activations.
A forward keeps 34 h + 5 a x 1024, of which the weight half frees 32 h and the input half the rest.
""",
        what="search and inputs",
        unit="share",
        rule=at_most(
            "both are searches: one that finds a better order within the same limit is no error, "
            "one that finds a worse order is."
        ),
        rows=lambda: tuple(_searched()),
    ),
)
