"""Simulations that last until a test lets them end."""

import asyncio
import threading
from typing import Any

import pytest

from service.app import pricing
from service.core.estimates.simulation import simulate_plans

__all__ = ["Kernels"]


class Kernels:
    """Holds every simulation until it is told to go on; threads that simulate at the moment."""

    def __init__(self) -> None:
        self.going = threading.Semaphore(0)
        self.may_end = threading.Event()

    async def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.going.acquire, timeout=60)

    def hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on."""
        simulate = simulate_plans

        def simulate_when_told(*arguments: Any, **options: Any) -> Any:
            self.going.release()
            assert self.may_end.wait(60)
            return simulate(*arguments, **options)

        monkeypatch.setattr(pricing, "simulate_plans", simulate_when_told)
