"""Fair sharing by hand, and what must hold of it for any messages."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.topology.flows import fair_sharing
from service.core.topology.flows.fair_sharing import fair_rates, share_fairly


def ends(paths: list[list[int]], sizes: list[float], rates: list[float]) -> list[float]:
    found = share_fairly(
        paths,
        np.array(sizes),
        np.arange(len(rates), dtype=np.int32),
        np.array(rates),
    )
    assert found is not None
    return [float(end) for end in found]


def test_two_messages_on_one_link_and_what_the_first_leaves() -> None:
    """10 B/s shared by 20 and 60 bytes: the first ends at 4, the other has 40 left for 4 more."""
    assert ends([[0], [0]], [20.0, 60.0], [10.0]) == [4.0, 8.0]


def test_a_message_held_up_elsewhere_leaves_its_share_to_others() -> None:
    """Link 1 gives 2 of 10 B/s to the first message, so the second has 8 on link 0."""
    assert ends([[0, 1], [0]], [2.0, 8.0], [10.0, 2.0]) == [1.0, 1.0]


def test_three_links_in_a_row() -> None:
    """The textbook case: one message over both links, one over each; all have half of 1 B/s."""
    rates, rounds = fair_rates(
        np.array([0, 0, 1, 2]),
        np.array([0, 1, 0, 1], dtype=np.int32),
        np.ones(4),
        np.ones(3, dtype=np.bool_),
    )
    assert rates.tolist() == [0.5, 0.5, 0.5]
    assert rounds == 1


def test_a_capacity_that_is_taken_up_twice_counts_twice() -> None:
    """A path over a half-duplex link and back: 10 bytes at 10 B/s hold it for two seconds."""
    found = share_fairly(
        [[0, 1]], np.array([10.0]), np.array([0, 0], dtype=np.int32), np.array([10.0, 10.0])
    )
    assert found is not None
    assert found.tolist() == [2.0]


def test_nothing_to_send_and_nowhere_to_go() -> None:
    assert ends([[0], []], [0.0, 5.0], [10.0]) == [0.0, 0.0]
    assert ends([], [], []) == []


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_sharing, "MAX_ROUND_ENTRIES", 5)
    sizes = np.array([1.0, 2.0, 3.0])
    found = share_fairly([[0]] * 3, sizes, np.zeros(1, dtype=np.int32), np.ones(1))
    assert found is None


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_rates_are_max_min_fair(number: int) -> None:
    """Each message has a full capacity on its way on which no other message is faster."""
    random = Random(number)
    links = random.randint(1, 6)
    paths = [
        random.sample(range(links), random.randint(1, links)) for _ in range(random.randint(1, 8))
    ]
    capacity = np.array([random.choice((1.0, 2.0, 5.0, 7.5)) for _ in range(links)])
    flow = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
    resource = np.array([link for path in paths for link in path], dtype=np.int32)
    rates, _ = fair_rates(
        flow, resource, 1 / capacity[resource], np.ones(len(paths), dtype=np.bool_)
    )
    used = np.bincount(resource, rates[flow], links)
    assert (used <= capacity * (1 + 1e-9)).all()
    for path, rate in zip(paths, rates, strict=True):
        assert any(
            used[link] >= capacity[link] * (1 - 1e-9)
            and all(
                rate >= other * (1 - 1e-9)
                for way, other in zip(paths, rates, strict=True)
                if link in way
            )
            for link in path
        )
