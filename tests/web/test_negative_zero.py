"""-0.0 is found in any spelling, and only where it is a number."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.web.negative_zero import has_negative_zero, is_negative_zero, negative_zeros
from service.web.problems import Problem
from service.web.strict_json import decode_json

ZEROS = ["-0", "-0.0", "-0.000", "-0e0", "-0.0E+7", "-0e-3", "-1e-400", "-5.5E-999"]


@pytest.mark.parametrize("text", ZEROS)
def test_every_spelling_is_refused_where_it_stands(text: str) -> None:
    body = f'{{"a": [1, {text}], "-0.0": "-0.0, \\"-0", "b": {text}}}'.encode()
    with pytest.raises(Problem) as caught:
        decode_json(body, dict)
    assert caught.value.problem_type.status == 422
    assert [(error.pointer, error.code) for error in caught.value.errors] == [
        ("/a/1", "out_of_range"),
        ("/b", "out_of_range"),
    ]


@pytest.mark.parametrize(
    "body",
    [b"0", b"[0.0, -1, -0.1, -10e-2, 1e-0, 2e-000]", b'{"-0": "-0.0"}', b'"a\\"-0"', b"-0.00001"],
)
def test_other_numbers_and_texts_pass(body: bytes) -> None:
    assert not has_negative_zero(body)
    assert decode_json(body, object) == json.loads(body)


@given(
    st.recursive(
        st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0]) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_the_quick_look_agrees_with_the_value(value: object) -> None:
    assert has_negative_zero(json.dumps(value).encode()) == bool(list(negative_zeros(value)))


def test_only_one_float_is_negative_zero() -> None:
    assert is_negative_zero(-0.0)
    assert not any(is_negative_zero(other) for other in (0.0, 0, -1e-300, "-0.0", None))


def test_a_body_of_very_many_lists_the_first() -> None:
    with pytest.raises(Problem) as caught:
        decode_json(b"[" + b"-0," * 500 + b"-0]", list)
    assert len(caught.value.errors) == 100
    assert caught.value.detail.startswith("more than 100 faults")
