"""Host list expressions, worked by hand."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode
from service.core.topology.hostlist import MAX_HOST_NAMES, expand_hostlist
from tests.core.refusals import refusal_text, refusals


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("tux[0-3,12,18-20]", ["tux0", "tux1", "tux2", "tux3", "tux12", "tux18", "tux19", "tux20"]),
        ("c-n[001-003],n[019-020]", ["c-n001", "c-n002", "c-n003", "n019", "n020"]),
        ("a[1-2]b[1-2]", ["a1b1", "a1b2", "a2b1", "a2b2"]),
        ("[1101-1102]", ["1101", "1102"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        (" n[1, 3] , x.y_z ", ["n1", "n3", "x.y_z"]),
        ("n1,n1", ["n1", "n1"]),
        ("switch.1.[9-10]", ["switch.1.9", "switch.1.10"]),
        ("10.140.71.103", ["10.140.71.103"]),
    ],
)
def test_names_in_the_order_of_the_expression(text: str, names: list[str]) -> None:
    assert list(expand_hostlist(text)) == names


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "at least one host"),
        ("  ", "at least one host"),
        ("a,,b", "have a name between them"),
        ("a,", "have a name between them"),
        ("n[1-", "does not close"),
        ("n[1-2]]", "closes that was not opened"),
        ("n[[1]]", "opens within a bracket"),
        ("n[]", "numbers and ranges"),
        ("n[a-c]", "numbers and ranges"),
        ("n[5-2]", "goes up"),
        ("n[1-2-3]", "numbers and ranges"),
        ("n 1", "letters, digits"),
        ("n{1..3}", "letters, digits"),
        ("n" * 300, "at most 255 characters"),
    ],
)
def test_what_is_no_host_list_is_refused(text: str, reason: str) -> None:
    assert refusals(partial(expand_hostlist, text)) == [(FaultCode.UNREADABLE, ())]
    assert reason in refusal_text(partial(expand_hostlist, text))


@pytest.mark.parametrize("text", ["n[0-999999999999]", "a[1-9999]b[1-9999]", "n[1-120001]"])
def test_too_many_names_are_refused_before_they_are_made(text: str) -> None:
    assert refusals(partial(expand_hostlist, text)) == [(FaultCode.OUT_OF_RANGE, ())]


def test_as_many_names_as_allowed() -> None:
    assert len(expand_hostlist(f"n[1-{MAX_HOST_NAMES}]")) == MAX_HOST_NAMES
    assert len(expand_hostlist("n[1-3]", at_most=3)) == 3
    assert refusals(partial(expand_hostlist, "n[1-3]", at_most=2)) == [(FaultCode.OUT_OF_RANGE, ())]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 120), st.integers(0, 30), st.integers(1, 4)
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_range_is_its_numbers_one_by_one(parts: list[tuple[str, int, int, int]]) -> None:
    text = ",".join(
        f"{prefix}[{str(first).zfill(width)}-{first + more}]"
        for prefix, first, more, width in parts
    )
    spelled = [
        prefix + "0" * (max(width, len(str(first))) - len(str(number))) + str(number)
        for prefix, first, more, width in parts
        for number in range(first, first + more + 1)
    ]
    assert list(expand_hostlist(text)) == spelled
