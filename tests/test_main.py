"""What the process is built from."""

import asyncio
import threading

import pytest

from service.main import KernelExecutor


@pytest.mark.parametrize("threads", [1, 2])
async def test_the_executor_knows_what_waits_and_what_works(threads: int) -> None:
    executor = KernelExecutor(threads)
    gate = threading.Event()
    calls = [asyncio.create_task(executor.run(gate.wait, 60)) for _ in range(5)]
    while executor.busy < threads:
        await asyncio.sleep(0.001)
    assert (executor.busy, executor.waiting) == (threads, 5 - threads)
    calls[-1].cancel()
    await asyncio.wait([calls[-1]])
    while executor.waiting > 4 - threads:
        await asyncio.sleep(0.001)
    gate.set()
    await asyncio.gather(*calls[:-1])
    with pytest.raises(ZeroDivisionError):
        await executor.run(lambda: 1 / 0)
    assert (executor.busy, executor.waiting) == (0, 0)
    executor.close()
