"""How a stored routing loads ranks."""

from collections.abc import Callable

import msgspec

from service.app import documents
from service.app.apart import run_apart
from service.app.ports import DocumentKind, Revision
from service.app.services import Services
from service.core.errors import InvalidInput
from service.core.moe.balance_question import (
    BalanceQuestion,
    balance_faults,
    balance_units,
    check_balance_work,
)
from service.core.moe.balance_report import BalanceReport, answer_balance
from service.core.moe.routing import Routing
from service.formats.documents.routing import RoutingDocument, to_core

__all__ = ["balanced"]


async def balanced(
    services: Services,
    reference: str,
    question: BalanceQuestion,
    written: Callable[[Revision, Routing, BalanceReport], bytes],
) -> bytes:
    """The answer, as `written`, computed away from the event loop.

    Raises `NotFound`, `InvalidInput` with every fault, `WorkBudgetExceeded`, and `TooManyAtOnce` or
    `Overloaded` when it would only wait.
    """
    revision = await documents.get(services, DocumentKind.ROUTING, reference)
    size = len(revision.content)
    services.holder.hold_preparation(size)
    routing = await run_apart(size, _read, revision.content)
    faults = await run_apart(size, balance_faults, routing, question)
    if faults:
        raise InvalidInput(faults)
    check_balance_work(routing, question)
    services.holder.hold_work(balance_units(routing, question))

    def answer() -> bytes:
        return written(revision, routing, answer_balance(routing, question))

    return await services.executor.run(answer)


def _read(content: bytes) -> Routing:
    return to_core(msgspec.json.decode(content, type=RoutingDocument))
