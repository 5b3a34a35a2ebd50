"""Work that is short for what people send, and grows with what may be sent.

Reading a plan takes some ten microseconds, which is less than a thread costs, and for the largest
ones some ten milliseconds, in which the event loop would answer nobody else. It does not belong to
the executor: what is answered from storage should not wait behind simulations.

It is pure Python, so more than one thread for it would get nothing done earlier and only take turns
away from the event loop: there is one.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

__all__ = ["SMALL", "run_apart", "written_size"]

T = TypeVar("T")

# What is handled on the event loop, in bytes of JSON or in things looked at.
SMALL = 4096

# Its thread is started with the first use.
_LANE = ThreadPoolExecutor(1, thread_name_prefix="apart")


async def run_apart(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """The function's result, computed in the thread for it when what it handles is not small."""
    if size <= SMALL:
        return function(*arguments)
    return await asyncio.wrap_future(_LANE.submit(function, *arguments))


def written_size(document: msgspec.Struct) -> int:
    """The bytes of a document as JSON. Writing is quicker than all else that is done with it."""
    return len(msgspec.json.encode(document))
