"""Work that is short for what people send, and grows with what may be sent.

Reading a plan takes some ten microseconds, which is less than a thread costs, and for the largest
ones some ten milliseconds, in which the event loop would answer nobody else. It does not belong to
the executor: what is answered from storage should not wait behind simulations.

It is pure Python, so several threads for it would get nothing done earlier and only take turns away
from the event loop: there is one for what is usual, and one for what is large, which the usual does
not wait for.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

__all__ = ["SMALL", "USUAL", "run_apart", "written_size"]

T = TypeVar("T")

# What is handled on the event loop, in bytes of JSON or in things looked at.
SMALL = 4096

# Up to this size it takes some ten milliseconds at the most.
USUAL = 2**16

# Their threads are started with the first use.
_FOR_USUAL = ThreadPoolExecutor(1, thread_name_prefix="apart")
_FOR_LARGE = ThreadPoolExecutor(1, thread_name_prefix="apart-large")


async def run_apart(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """The function's result, computed in a thread for it when what it handles is not small."""
    if size <= SMALL:
        return function(*arguments)
    pool = _FOR_USUAL if size <= USUAL else _FOR_LARGE
    return await asyncio.wrap_future(pool.submit(function, *arguments))


def written_size(document: msgspec.Struct) -> int:
    """The bytes of a document as JSON. Writing is quicker than all else that is done with it."""
    return len(msgspec.json.encode(document))
