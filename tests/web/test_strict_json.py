"""Bodies are read strictly, every fault is named, and no body costs more than its size."""

import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType

from service.web import strict_json
from service.web.problem_types import INVALID_BODY, MALFORMED_BODY
from service.web.problems import MAX_LISTED_FAULTS, Problem
from service.web.repeated_keys import object_of, repeated_keys, repeats_a_key
from service.web.strict_json import MAX_DEPTH, check_value, decode_json


class Hop(Struct, tag_field="kind", tag="hop", forbid_unknown_fields=True):
    lanes: Annotated[int, Meta(ge=1, le=9)]


class Leap(Struct, tag_field="kind", tag="leap", forbid_unknown_fields=True):
    label: str


class Body(Struct, forbid_unknown_fields=True, kw_only=True):
    seconds: Annotated[float, Meta(gt=0, le=10)]
    counts: Annotated[dict[str, int], Meta(max_length=20_000)] = {}
    route: Annotated[list[Hop | Leap], Meta(max_length=10)] = []
    name: Annotated[str, Meta(pattern=r"^[a-z]+$(?!\n)", max_length=5)] = "x"
    plan: Leap | Annotated[str, Meta(pattern=r"^[a-z]+$(?!\n)")] | UnsetType = UNSET
    note: int | str | None = None
    anything: Any = None


def refused(body: bytes) -> Problem:
    with pytest.raises(Problem) as caught:
        decode_json(body, Body)
    return caught.value


def pointers(problem: Problem) -> dict[str, str]:
    return {error.pointer: error.code for error in problem.errors}


def test_a_right_body_is_decoded() -> None:
    body = b'{"seconds": 1, "route": [{"kind": "hop", "lanes": 2}], "plan": "abc"}'
    assert decode_json(body, Body) == Body(seconds=1.0, route=[Hop(2)], plan="abc")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8.0", 8),
        ("-8.00", -8),
        ("0.0", 0),
        ("2e9", 2_000_000_000),
        ("2.5E+1", 25),
        ("120e-1", 12),
        ("9007199254740991.0", 2**53 - 1),
    ],
)
def test_a_whole_number_is_an_integer_however_it_is_written(text: str, value: int) -> None:
    body = f'{{"seconds": 2.0, "note": "\\"8.0, 2e9", "counts": {{"a": {text}, "b.0": 1}}}}'
    decoded = decode_json(body.encode(), Body)
    assert decoded == Body(seconds=2.0, note='"8.0, 2e9', counts={"a": value, "b.0": 1})
    assert isinstance(decoded.counts["a"], int)
    assert isinstance(decoded.seconds, float)


@pytest.mark.parametrize(
    "text",
    [
        "2.5",
        "1.00000000000000000001",  # whole only after rounding to a double
        "4503599627370497.5",
        "9007199254740992.0",  # beyond what doubles count without gaps
        "1e17",
        "1e-400",
        "-0.0",
        "8." + "0" * 100_000,
    ],
)
def test_a_number_that_is_whole_only_by_rounding_is_no_integer(text: str) -> None:
    body = b'{"seconds": 1, "route": [{"kind": "hop", "lanes": %b}]}' % text.encode()
    assert list(pointers(refused(body))) == ["/route/0/lanes"]


@given(st.integers(-(2**53) + 1, 2**53 - 1), st.integers(0, 3))
def test_an_integer_with_zeros_behind_the_point_is_the_integer(value: int, zeros: int) -> None:
    text = f"{value}.{'0' * (zeros + 1)}"
    body = f'{{"seconds": 1, "counts": {{"a": {text}}}}}'
    if text.startswith("-0."):
        return
    assert decode_json(body.encode(), Body).counts["a"] == value


def test_a_value_may_hold_whole_numbers_too() -> None:
    assert check_value({"seconds": 2, "counts": {"a": 2.0}}, Body).counts == {"a": 2}


@pytest.mark.parametrize(
    ("hop", "detail"),
    [
        ({"kind": "walk"}, "this is one of hop, leap; got 'walk'"),
        ({"kind": 1}, "this is one of hop, leap; got 1"),
        ({"kind": "w" * 41}, "this is one of hop, leap; got a string of 41 characters"),
        ({"lanes": 1}, "the field 'kind' is required: one of hop, leap"),
    ],
)
def test_an_unknown_kind_is_told_beside_the_known_ones(hop: dict[str, Any], detail: str) -> None:
    problem = refused(json.dumps({"seconds": 1, "route": [hop]}).encode())
    assert [(error.pointer, error.detail) for error in problem.errors] == [
        ("/route/0/kind", detail)
    ]


def test_all_faults_are_listed_at_once() -> None:
    body = {
        "seconds": -1,
        "counts": {"x": 2.5, "y/~": "2"},
        "surplus": 1,
        "route": [
            {"kind": "hop", "lanes": "2"},
            {"kind": "walk"},
            {"lanes": 1},
            {"kind": "leap", "label": 1, "lanes": 2},
            7,
        ],
        "name": "ABC\n",
        "plan": 7,
        "note": 1.5,
    }
    problem = refused(json.dumps(body).encode())
    assert problem.problem_type is INVALID_BODY
    assert pointers(problem) == {
        "/seconds": "out_of_range",
        "/counts/x": "wrong_type",
        "/counts/y~1~0": "wrong_type",
        "/surplus": "unknown_field",
        "/route/0/lanes": "wrong_type",
        "/route/1/kind": "unknown_value",
        "/route/2/kind": "missing_field",
        "/route/3/label": "wrong_type",
        "/route/3/lanes": "unknown_field",
        "/route/4": "wrong_type",
        "/name": "pattern_mismatch",
        "/plan": "wrong_type",
        "/note": "wrong_type",
    }
    assert problem.detail == "13 faults, all of them listed"


def test_details_say_what_would_be_right() -> None:
    problem = refused(b'{"seconds": 11, "name": "UPPER", "counts": {"a": 2.5}, "other": 1}')
    assert [error.detail for error in problem.errors] == [
        "this is at most 10; got 11",
        "this is an integer; got 2.5",
        "this matches ^[a-z]+$; got 'UPPER'",
        "this field is unknown; known here are: anything, counts, name, note, plan, route, seconds",
    ]


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        (b"{}", "/seconds", "missing_field"),
        (b"[]", "", "wrong_type"),
        (b"null", "", "wrong_type"),
        (b'{"seconds": "2"}', "/seconds", "wrong_type"),
        (b'{"seconds": true}', "/seconds", "wrong_type"),
        (b'{"seconds": null}', "/seconds", "wrong_type"),
        (b'{"seconds": 1e999}', "/seconds", "not_finite"),
        (b'{"seconds": -1e999}', "/seconds", "not_finite"),
        (b'{"seconds": 1' + b"0" * 5000 + b"}", "/seconds", "not_finite"),
        (b'{"seconds": 1, "counts": {"a": 1e400}}', "/counts/a", "not_finite"),
        (b'{"seconds": 1, "counts": {"a": 2.5}}', "/counts/a", "wrong_type"),
        (b'{"seconds": 1, "counts": {"a": "2"}}', "/counts/a", "wrong_type"),
        (b'{"seconds": 1, "counts": {"a": true}}', "/counts/a", "wrong_type"),
        (b'{"seconds": 1, "note": "a\\u0000"}', "/note", "nul_character"),
        (b'{"seconds": 1, "counts": {"a\\u0000": 1}}', "/counts/a\x00", "nul_character"),
        (b'{"seconds": 1, "name": "abc\\n"}', "/name", "pattern_mismatch"),
        (b'{"seconds": 1, "name": "abcdef"}', "/name", "length_out_of_bounds"),
        (b'{"seconds": 1, "route": [{"kind": 1}]}', "/route/0/kind", "unknown_value"),
        (b'{"seconds": 1, "plan": "AB"}', "/plan", "pattern_mismatch"),
        (b'{"seconds": 1, "plan": {"kind": "leap"}}', "/plan/label", "missing_field"),
    ],
)
def test_one_fault_has_one_pointer(body: bytes, pointer: str, code: str) -> None:
    problem = refused(body)
    assert problem.problem_type is INVALID_BODY
    assert pointers(problem) == {pointer: code}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b'{"seconds": 1',
        b'{"seconds": 1,}',
        b'{"seconds": 1} {}',
        b"{'seconds': 1}",
        b'{"seconds": NaN}',
        b'{"seconds": Infinity}',
        b'{"seconds": -Infinity}',
        b'{"seconds": 01}',
        b'{"seconds": 1, "note": "\xff"}',
        b'{"seconds": 1, "note": "a\x00"}',
        b'{"seconds": 1, "note": "a\nb"}',
        b'{"seconds": 1, "note": "\\ud800"}',
        b'{"seconds": 1, "note": "\\udc00\\ud800"}',
        b'{"seconds": 1, "note": "\\ud800\\u0041"}',
        b'\xef\xbb\xbf{"seconds": 1}',
        '{"seconds": 1}'.encode("utf-16"),
        b'{"seconds": "x", "note": NaN}',
        b'{"seconds": "x", ',
    ],
)
def test_what_is_no_json_is_malformed(body: bytes) -> None:
    problem = refused(body)
    assert problem.problem_type is MALFORMED_BODY
    assert pointers(problem) == {"": "malformed"}
    assert len(problem.detail) <= 300


def test_half_a_surrogate_pair_behind_a_wrong_type_is_named_too() -> None:
    problem = refused(b'{"seconds": "x", "note": "\\ud800", "\\udc00": 1}')
    assert pointers(problem) == {
        "/seconds": "wrong_type",
        "/note": "malformed",
        "/?": "malformed",
    }
    msgspec.json.encode(list(problem.errors))


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    assert decode_json(b'{"seconds": 1, "note": "\\\\u0000"}', Body).note == "\\u0000"


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("levels", [10_000, 300_000])
def test_deep_nesting_is_refused(opening: bytes, levels: int) -> None:
    problem = refused(opening * levels)
    assert problem.problem_type is MALFORMED_BODY
    assert pointers(problem) == {"": "too_deep"}


def test_the_limit_of_nesting_is_exact_and_ignores_brackets_in_strings() -> None:
    inside = MAX_DEPTH - 1
    note = b'"' + b"[{" * 100 + b'\\"' + b"[" * 100 + b'"'
    body = b'{"seconds": 1, "note": %b, "anything": %b%b}'
    decode_json(body % (note, b"[" * inside, b"]" * inside), Body)
    problem = refused(body % (note, b"[" * (inside + 1), b"]" * (inside + 1)))
    assert pointers(problem) == {"": "too_deep"}


@pytest.mark.parametrize(
    "body",
    [
        b'"' + b'\\"' * 500_000,
        b"[" * 70 + b'"' + b'\\"' * 500_000,
        b'{"a":"' + b"\\" * 1_000_001,
        b"[" * 65 + b'"' + b"\\" * 999_999,
        b"[]," * 300_000,
        b'{"seconds": [' + b"1," * 500_000,
        b'{"counts": {' + b",".join(b'"%d":"x"' % i for i in range(90_000)) + b"}}",
        b'{"route": [' + b'{"kind":"hop","lanes":0},' * 40_000 + b"{}]}",
        b'{"seconds": 1, "note": "' + b"\\u0000" * 100_000 + b'"}',
        b'{"seconds": 1, "counts": {"' + b"k" * 900_000 + b'": "x"}}',
    ],
)
def test_a_hostile_body_is_refused_briefly(body: bytes) -> None:
    problem = refused(body)
    assert 1 <= len(problem.errors) <= MAX_LISTED_FAULTS
    assert len(msgspec.json.encode(list(problem.errors))) < 100_000


def test_many_faults_are_cut_and_the_answer_says_so() -> None:
    body = json.dumps({"seconds": 1, "counts": {f"k{i}": "x" for i in range(500)}}).encode()
    problem = refused(body)
    assert len(problem.errors) == MAX_LISTED_FAULTS
    assert problem.detail == "more than 100 faults, of which the first 100 are listed"


def test_a_large_body_names_its_first_fault_and_says_that_it_looked_no_further() -> None:
    body = json.dumps({"seconds": 1, "counts": {f"k{i}": "x" for i in range(30_000)}}).encode()
    problem = refused(body)
    assert pointers(problem) == {"/counts": "invalid_value"}
    assert problem.detail.endswith("too large to look for further faults")


def test_a_value_is_checked_like_a_body_and_its_pointers_have_a_prefix() -> None:
    assert check_value({"seconds": 2.5}, Body) == Body(seconds=2.5)
    with pytest.raises(Problem) as caught:
        check_value({"counts": {"a": 2.5}}, Body, ("patch", 0))
    assert pointers(caught.value) == {
        "/patch/0/counts/a": "wrong_type",
        "/patch/0/seconds": "missing_field",
    }


@pytest.mark.parametrize(("slashes", "is_nul"), [(1, True), (2, False), (3, True), (4, False)])
def test_only_the_escape_of_a_nul_is_one(slashes: int, is_nul: bool) -> None:
    body = b'{"seconds": 1, "anything": "x%bu0000"}' % (b"\\" * slashes)
    if is_nul:
        assert pointers(refused(body)) == {"/anything": "nul_character"}
    else:
        assert decode_json(body, Body).anything == "x" + "\\" * (slashes // 2) + "u0000"


def test_a_nul_in_a_large_body_is_refused_without_looking_for_its_place() -> None:
    body = b'{"seconds": 1, "anything": ["\\u0000"%b]}' % (b", 0" * 9000)
    assert pointers(refused(body)) == {"": "nul_character"}


def test_a_large_value_is_told_its_first_fault_only() -> None:
    large = {"seconds": 1.0, "counts": {f"k{n}": n for n in range(9000)}, "route": 1, "name": 2}
    with pytest.raises(Problem) as caught:
        check_value(large, Body, ("patch",))
    (pointer,) = pointers(caught.value)
    assert pointer in {"/patch/route", "/patch/name"}
    assert "too large" in caught.value.detail


# Keys that stand twice: decoders take the last one silently


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"seconds": 1, "seconds": 1}', "/seconds"),
        (b'{"seconds": 1, "seconds": 1, "seconds": 2}', "/seconds"),
        (b'{"seconds": 1, "s\\u0065conds": 1}', "/seconds"),
        (b'{"seconds": 1, "counts": {"a": 1, "b": 2, "a": 3}}', "/counts/a"),
        (b'{"seconds": 1, "counts": {"": 1, "": 3}}', "/counts/"),
        (b'{"seconds": 1, "counts": {":": 1, ":": 3}}', "/counts/:"),
        (b'{"seconds": 1, "counts": {"a/b~": 1, "a\\/b~": 3}}', "/counts/a~1b~0"),
        (b'{"seconds": 1, "route": [{"kind": "hop", "lanes": 1, "lanes": 1}]}', "/route/0/lanes"),
        (b'{"seconds": 1, "route": [{"kind": "hop", "kind": "hop", "lanes": 1}]}', "/route/0/kind"),
        (b'{"seconds": 1, "anything": [[], [{}, {"x": {"y": [], "y": 1}}]]}', "/anything/1/1/x/y"),
        # What is written again has as many colons as the body, in other places.
        (b'{"seconds": 1, "note": "\\u003a", "note": "\\u003A"}', "/note"),
        (b'{"seconds": 1, "seconds": 2, "note": "\\u003a"}', "/seconds"),
        (b'{"seconds": 1, "note": "\\\\u003a:", "note": ":\\\\\\u003a"}', "/note"),
    ],
)
def test_a_key_that_stands_twice_is_pointed_at(body: bytes, pointer: str) -> None:
    problem = refused(body)
    assert problem.problem_type is INVALID_BODY
    assert pointers(problem) == {pointer: "repeated_key"}


def test_keys_that_stand_twice_are_listed_with_all_other_faults() -> None:
    problem = refused(b'{"seconds": 0, "counts": {"a": 1, "a": 2}, "other": 1, "name": "\\u0000"}')
    assert pointers(problem) == {
        "/seconds": "out_of_range",
        "/counts/a": "repeated_key",
        "/other": "unknown_field",
        "/name": "nul_character",
    }


def test_one_key_in_two_objects_is_no_repetition() -> None:
    body = (
        b'{"seconds": 1, "note": "a:\\u003a\\\\u003a", "anything": [{"a": ":"}, {"a": {"a": 1}}]}'
    )
    assert decode_json(body, Body).note == "a::\\u003a"


def test_a_repeated_key_in_a_large_body_is_pointed_at_too() -> None:
    body = b'{"seconds": 1, "anything": [%b{"b": [{"a": 1, "a": 2}]}]}' % (b'{"a": 0}, ' * 9000)
    problem = refused(body)
    assert pointers(problem) == {"/anything/9000/b/0/a": "repeated_key"}
    assert problem.detail.endswith("too large to look for further faults")


def gives_a_key_twice(value: Any) -> bool:
    """By reading it slowly, with a list of pairs for each object."""
    if isinstance(value, tuple):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(gives_a_key_twice(each) for _, each in value)
    return isinstance(value, list) and any(map(gives_a_key_twice, value))


pieces = st.sampled_from(['"', ":", "\\", "\\u003a", "\\u003A", '\\"', "\\\\", "a", "é", " "])
few_keys = st.lists(pieces.filter(lambda piece: piece not in {'"', "\\"}), max_size=3).map("".join)


def written(depth: int) -> st.SearchStrategy[str]:
    """JSON text whose objects may give a key twice, in any spelling."""
    plain = st.sampled_from(["0", "null", "-1.5e3"]) | few_keys.map(lambda text: f'"{text}"')
    if depth == 0:
        return plain
    entries = st.tuples(few_keys, written(depth - 1)).map(lambda each: f'"{each[0]}" : {each[1]}')
    objects = st.lists(entries, max_size=4).map(lambda all_: "{" + ",".join(all_) + "}")
    lists = st.lists(written(depth - 1), max_size=3).map(lambda all_: "[" + ",".join(all_) + "]")
    return plain | objects | lists


@given(written(3))
def test_whether_a_key_stands_twice_agrees_with_reading_slowly(text: str) -> None:
    expected = gives_a_key_twice(json.loads(text, object_pairs_hook=tuple))
    assert repeats_a_key(text.encode()) == expected
    # One inside an entry that a later one replaced has no place any more, but then that one has.
    found = list(repeated_keys(json.loads(text, object_pairs_hook=object_of)))
    assert bool(found) == expected


def levels(value: Any) -> int:
    """How deep a JSON value nests."""
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(levels, inner), default=0)


marks = st.text('[]{}"\\,:ua0', max_size=12)
marked = st.recursive(
    marks, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(marks, inner, max_size=3)
)


@given(value=marked, step_bytes=st.integers(1, 40))
def test_depth_is_counted_outside_strings_wherever_a_step_ends(value: Any, step_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "MAX_DEPTH", 2)
        patch.setattr(strict_json, "_STEP_BYTES", step_bytes)
        body = json.dumps(value).encode()
        if levels(value) <= 2:
            assert decode_json(body, object) == value
        else:
            assert pointers(refused(body)) == {"": "too_deep"}


names = st.sampled_from(["seconds", "counts", "route", "name", "plan", "note", "kind", "lanes"])


def nested(depth: int) -> st.SearchStrategy[Any]:
    """JSON values up to some levels deep."""
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    if depth == 0:
        return plain
    inner = nested(depth - 1)
    objects = st.dictionaries(names | st.text(max_size=3), inner, max_size=4)
    return plain | st.lists(inner, max_size=3) | objects


json_values = nested(3)


def outcome(body: bytes) -> Body | Problem:
    try:
        return decode_json(body, Body)
    except Problem as problem:
        return problem


def assert_decoded_or_explained(body: bytes) -> None:
    result = outcome(body)
    if isinstance(result, Problem):
        assert result.errors
        assert all(error.detail for error in result.errors)
        msgspec.json.encode(list(result.errors))
    else:
        assert result == msgspec.json.decode(body, type=Body)


@given(json_values)
def test_any_json_is_decoded_or_refused_with_faults(value: Any) -> None:
    assert_decoded_or_explained(json.dumps(value).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    assert_decoded_or_explained(body)
