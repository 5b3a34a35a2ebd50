"""Exact bytes of the exchanges that DeepEP's tables are about; the page has the bounds."""

import pytest

from service.core.moe.exchange import GroupExchange, price_exchange
from validation.expert_exchanges import (
    COMBINE,
    DISPATCH,
    LOW_LATENCY,
    low_latency_exchange,
    study_of,
)

# GB/s as printed, dispatch and combine; some are rounded down, from times that were not.
PRINTED = {8: (98, 127), 16: (63, 74), 32: (48, 53), 64: (43, 46), 128: (39, 39), 256: (39, 40)}


def sent(exchange: GroupExchange) -> set[int]:
    """What ranks send, their own part included."""
    return set(exchange.stages[0].sum(axis=1).tolist())


@pytest.mark.parametrize(("ranks", "dispatched", "combined"), LOW_LATENCY)
def test_printed_rates_are_of_these_bytes(ranks: int, dispatched: str, combined: str) -> None:
    there, back = (low_latency_exchange(ranks, payload) for payload in (DISPATCH, COMBINE))
    assert sent(there) == {1_014 * 7_408} == {7_511_712}
    assert sent(back) == {1_014 * 14_336} == {14_536_704}
    # Also what each gets back.
    assert set(back.reversed().stages[0].sum(axis=0).tolist()) == {14_536_704}
    rates = 7_511_712 / float(dispatched) / 1e3, 14_536_704 / float(combined) / 1e3
    assert rates == pytest.approx(PRINTED[ranks], abs=0.8)


def test_all_but_the_own_part_travels() -> None:
    """16 ranks in two hosts: 8 of 16 parts cross a NIC, as near as whole messages go."""
    study = study_of(16)
    cost = price_exchange(study, [low_latency_exchange(16, DISPATCH)])
    ports = [
        int(amount)
        for link, amount in zip(cost.loads.links, cost.loads.bytes, strict=True)
        if study.network.links[link].name == "h0/nic3->leaf0"
    ]
    assert ports == [pytest.approx(7_511_712 / 2, rel=0.01)]
