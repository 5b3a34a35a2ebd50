"""What a plan costs in a batch of 256 against alone, for plans that share an order.

    python -m benchmarks.batches

Everything but HTTP and the database: reading the plan, pricing and explaining it, writing the
answer. Each number is the best of several repetitions, alone and in a batch by turns in one run.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from service.api.estimates import render_estimate
from service.app.estimate_batches import create_many
from service.app.estimates import EstimateOutcome, EstimateQuestion, create
from service.app.pricing import PlanQuestion
from service.app.services import Services
from service.core.schedules.simulate import warm_up
from service.formats.documents.plan import PlanDocument
from tests.app.fakes import fake_services

SIZES = ((4, 16), (16, 256))
PLANS = 256
REPEATS = 5


def decode(value: Any) -> PlanDocument:
    """A plan from plain values."""
    return msgspec.convert(value, PlanDocument)


def questions(ranks: int, microbatches: int, salt: int) -> list[EstimateQuestion]:
    """1F1B plans of one order whose stages and transfers take other times."""
    found = []
    for number in range(PLANS):
        stages: list[dict[str, float]] = [
            {
                "forward_seconds": 0.006 + 1e-5 * ((7 * stage + number) % 11),
                "backward_seconds": 0.012 + 1e-6 * number + 1e-9 * salt,
            }
            for stage in range(ranks)
        ]
        for stage in stages[:-1]:
            stage["transfer_seconds"] = 1e-4 * (number % 3)
        plan = {
            "costs": {"stages": stages},
            "schedule": {"kind": "1f1b"},
            "workload": {"microbatches": microbatches},
        }
        found.append(EstimateQuestion(PlanQuestion(decode(plan))))
    return found


async def alone(services: Services, asked: Sequence[EstimateQuestion]) -> list[bytes]:
    """Every plan asked for by itself."""
    return [
        (await create(services, question, decode, render_estimate)).stored.answer
        for question in asked
    ]


async def together(services: Services, asked: Sequence[EstimateQuestion]) -> list[bytes]:
    """All plans in one batch."""
    outcomes = await create_many(services, asked, decode, render_estimate)
    return [one.stored.answer for one in outcomes if isinstance(one, EstimateOutcome)]


def run_afresh(
    way: Callable[[Services, Sequence[EstimateQuestion]], Coroutine[Any, Any, list[bytes]]],
    asked: Sequence[EstimateQuestion],
) -> tuple[float, list[bytes]]:
    """Seconds and answers of one run on services where nothing is stored yet."""
    services = fake_services()
    begin = time.perf_counter()
    answers = asyncio.run(way(services, asked))
    return time.perf_counter() - begin, answers


def main() -> None:
    """Print one line a size."""
    warm_up()
    print("ranks x microbatches    alone   in a batch    ratio   (one plan, microseconds)")
    for ranks, microbatches in SIZES:
        one = many = float("inf")
        for salt in range(REPEATS):
            asked = questions(ranks, microbatches, salt)
            seconds, expected = run_afresh(alone, asked)
            one = min(one, seconds / PLANS)
            seconds, answers = run_afresh(together, asked)
            many = min(many, seconds / PLANS)
            if answers != expected:
                raise RuntimeError("a batch answers otherwise than its plans alone")
        print(
            f"{ranks:>10} x {microbatches:<9} {one * 1e6:>7.0f} {many * 1e6:>12.0f}"
            f" {many / one:>8.2f}"
        )


if __name__ == "__main__":
    main()
