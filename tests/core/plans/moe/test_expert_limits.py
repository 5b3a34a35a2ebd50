"""Plans whose experts would take longer than a time may be."""

from typing import Any

import pytest

from service.core.errors import FaultCode, InvalidInput
from tests.core.plans.moe.expert_worlds import RATES, document, resolved


def refused(**moe: Any) -> tuple[FaultCode, tuple[str | int, ...], str]:
    with pytest.raises(InvalidInput) as caught:
        resolved(document([2], **moe))
    (fault,) = caught.value.faults
    return fault.code, fault.path, fault.detail


def test_a_step_longer_than_a_time_may_be_is_refused() -> None:
    # Products of 126 ns on a 10^18th of a device.
    overlap = {"chunks": 2, "compute_fraction_left": 1e-18}
    code, path, detail = refused(overlap=overlap)
    assert (code, path) == (FaultCode.OUT_OF_RANGE, ("moe",))
    assert "in layer 0 with experts a time in seconds lies between" in detail


def test_layers_that_come_to_more_than_a_time_may_be_are_refused() -> None:
    # In a backward 512 rows of 24,576 FLOPs at half the peak take 62,915 s a layer: that is a time,
    # and two of them are none.
    code, path, detail = refused(compute=RATES | {"peak_flops": 400.0})
    assert (code, path) == (FaultCode.OUT_OF_RANGE, ("moe",))
    assert "the 2 layers with experts of stage 0 take 125829 s in one operation" in detail
