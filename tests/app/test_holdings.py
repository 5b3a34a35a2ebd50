"""What requests hold, by weight: who may have more, who is refused, and when to come back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.app.errors import Overloaded, TooManyAtOnce
from service.app.holdings import (
    PREPARATION_PER_BYTE,
    WORK_PER_SECOND,
    Holdings,
    NotEnough,
    Quota,
)


def holdings(
    *, bodies: tuple[int, int] = (0, 0), work: tuple[float, float] = (0, 0), threads: int = 2
) -> Holdings:
    """(all callers, one caller): bytes, and seconds of a thread's work."""
    of_all, of_caller = (round(seconds * WORK_PER_SECOND) for seconds in work)
    return Holdings(Quota(*bodies), Quota(of_all, of_caller), threads=threads)


def test_a_caller_has_its_share_and_others_have_theirs() -> None:
    quota = Quota(10, 6)
    quota.change("a", 0, 4)
    quota.change("a", 0, 2)
    with pytest.raises(NotEnough) as caught:
        quota.change("a", 0, 3)
    assert (caught.value.beyond, caught.value.of_caller) == (3, True)
    quota.change("b", 0, 4)
    with pytest.raises(NotEnough) as caught:
        quota.change("c", 0, 1)
    assert (caught.value.beyond, caught.value.of_caller) == (1, False)
    assert (quota.held, quota.held_by("a"), quota.held_by("c")) == (10, 6, 0)
    quota.change("a", 4, 0)
    quota.change("c", 0, 4)
    assert quota.held == 10


def test_nothing_is_too_much_for_who_is_alone() -> None:
    quota = Quota(10, 6)
    quota.change("a", 0, 100)
    with pytest.raises(NotEnough):
        quota.change("b", 0, 1)
    quota.change("a", 100, 200)  # what it holds itself is not in its own way
    quota.change("a", 200, 0)
    quota.change("b", 0, 1)
    assert quota.held == 1


def test_less_than_before_is_always_given() -> None:
    quota = Quota(10, 10)
    quota.change("a", 0, 100)
    quota.change("a", 0, 0)
    quota.change("a", 100, 50)
    assert quota.held_by("a") == 50


@given(
    most=st.integers(0, 12),
    most_of_caller=st.integers(0, 12),
    asked=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 9)), max_size=40
    ),
)
def test_the_account_is_that_of_a_ledger_that_adds_everything_up(
    most: int, most_of_caller: int, asked: list[tuple[int, str, int]]
) -> None:
    """Six requests ask in turn, each for the caller that it began with."""
    quota = Quota(most, most_of_caller)
    ledger: dict[int, tuple[str, int]] = {}
    for request, asks, after in asked:
        caller, before = ledger.get(request, (asks, 0))
        others = [entry for number, entry in ledger.items() if number != request]
        of_all = sum(amount for _, amount in others)
        of_caller = sum(amount for name, amount in others if name == caller)
        fits = after <= before or all(
            limit == 0 or held == 0 or held + after <= limit
            for held, limit in ((of_all, most), (of_caller, most_of_caller))
        )
        try:
            quota.change(caller, before, after)
        except NotEnough:
            assert not fits
        else:
            assert fits
            ledger[request] = (caller, after)
        assert quota.held == sum(amount for _, amount in ledger.values())
        for name in "abc":
            held = sum(amount for of, amount in ledger.values() if of == name)
            assert quota.held_by(name) == held
    for caller, amount in ledger.values():
        quota.change(caller, amount, 0)
    assert quota.held == 0
    assert not quota._held  # nobody is remembered


def test_a_body_beyond_the_share_is_refused_with_what_is_held() -> None:
    all_of_them = holdings(bodies=(100, 60))
    one, other = all_of_them.holding("a"), all_of_them.holding("a")
    one.hold_body(50)
    with pytest.raises(TooManyAtOnce, match=r"50 bytes .* all may be 60: this one is 10 too many"):
        other.hold_body(20)
    all_of_them.holding("b").hold_body(50)
    with pytest.raises(Overloaded, match=r"100 bytes .* all may be 100: this one is 1 too many"):
        all_of_them.holding("c").hold_body(1)
    one.release()
    other.hold_body(20)
    assert all_of_them.bodies.held == 70


def test_a_body_that_grows_holds_what_has_come_of_it() -> None:
    all_of_them = holdings(bodies=(100, 100))
    growing, other = all_of_them.holding("a"), all_of_them.holding("b")
    other.hold_body(30)
    for size in (10, 40, 70):
        growing.hold_body(size)
    with pytest.raises(Overloaded):
        growing.hold_body(71)
    assert all_of_them.bodies.held == 100


def test_work_says_when_it_is_expected_to_fit() -> None:
    """Two threads do two seconds of work in a second. 8 + 3 s are 1 s beyond 10 s of all."""
    all_of_them = holdings(work=(10, 9))
    all_of_them.holding("a").hold_work(4 * WORK_PER_SECOND)
    all_of_them.holding("a").hold_work(4 * WORK_PER_SECOND)
    with pytest.raises(TooManyAtOnce, match=r"is 7.0 s of .*; 8.0 s .* all may be 9.0 s") as own:
        all_of_them.holding("a").hold_work(7 * WORK_PER_SECOND)
    assert own.value.retry_after_seconds == 3
    with pytest.raises(Overloaded, match=r"is 3.0 s of .*; 8.0 s .* all may be 10.0 s") as full:
        all_of_them.holding("b").hold_work(3 * WORK_PER_SECOND)
    assert full.value.retry_after_seconds == 1
    one_thread = holdings(work=(10, 9), threads=1)
    one_thread.holding("a").hold_work(9 * WORK_PER_SECOND)
    with pytest.raises(Overloaded) as full:
        one_thread.holding("b").hold_work(6 * WORK_PER_SECOND)
    assert full.value.retry_after_seconds == 5


def test_preparing_comes_before_the_work_and_not_on_top_of_it() -> None:
    all_of_them = holdings(work=(10, 10))
    holding = all_of_them.holding("a")
    holding.hold_preparation(1000)
    holding.hold_preparation(500)
    assert all_of_them.work.held == 1500 * PREPARATION_PER_BYTE
    holding.hold_work(77)
    assert all_of_them.work.held == 77
    holding.release()
    assert (all_of_them.work.held, all_of_them.bodies.held) == (0, 0)


def test_what_is_expected_is_refused_like_what_is_there_and_not_held() -> None:
    all_of_them = holdings(work=(1, 1))
    all_of_them.holding("a").hold_work(WORK_PER_SECOND - PREPARATION_PER_BYTE)
    holding = all_of_them.holding("a")
    holding.expect_preparation(1)
    assert all_of_them.work.held == WORK_PER_SECOND - PREPARATION_PER_BYTE
    with pytest.raises(TooManyAtOnce):
        holding.expect_preparation(2)
    holding.hold_preparation(1)
    with pytest.raises(TooManyAtOnce):
        holding.expect_preparation(1)


def test_a_refusal_leaves_what_was_held_before() -> None:
    all_of_them = holdings(work=(1, 1))
    holding = all_of_them.holding("a")
    holding.hold_work(10)
    all_of_them.holding("a").hold_work(WORK_PER_SECOND - 10)
    with pytest.raises(TooManyAtOnce):
        holding.hold_work(11)
    assert all_of_them.work.held == WORK_PER_SECOND
    holding.release()
    assert all_of_them.work.held == WORK_PER_SECOND - 10
