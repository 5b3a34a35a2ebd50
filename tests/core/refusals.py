"""What a call is refused for, as (code, path) pairs that tests can compare."""

from collections.abc import Callable

import pytest

from service.core.errors import FaultCode, InvalidInput, Path


def refusals(call: Callable[[], object]) -> list[tuple[FaultCode, Path]]:
    """The faults of a call that must be refused, in the order they are told."""
    with pytest.raises(InvalidInput) as refused:
        call()
    return [(fault.code, fault.path) for fault in refused.value.faults]


def refusal_text(call: Callable[[], object]) -> str:
    """What a person reads when the call is refused."""
    with pytest.raises(InvalidInput) as refused:
        call()
    return str(refused.value)
