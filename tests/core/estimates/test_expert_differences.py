"""Two plans with experts side by side: fields of `moe`, and the layers that take another time."""

from typing import Any

from service.core.estimates.expert_differences import SettingDifference, expert_differences
from service.core.plans.moe.results import Pass
from tests.core.plans.moe.expert_worlds import document, hot, resolved, seen

EVEN = [[64] * 8] * 2


def fields(before: dict[str, Any], after: dict[str, Any]) -> set[tuple[str, Any, Any]]:
    found = expert_differences(
        resolved(document([1], **before)), resolved(document([1], **after))
    ).settings
    return {("/".join(map(str, one.path)), one.before, one.after) for one in found}


def test_fields_are_told_where_a_plan_has_them() -> None:
    capacity = {"overflow": "drop", "capacity_factor": 1.25, "capacity_scope": "source"}
    assert fields({}, capacity) == {
        ("moe/overflow", "dropless", "drop"),
        ("moe/capacity_factor", None, "1.25"),
        ("moe/capacity_scope", None, "source"),
    }
    placed = {"placement": [[0, 1, 2, 3], [4, 5, 6, 7]], "overlap": {"chunks": 2}}
    assert fields(placed, {}) == {
        ("moe/placement", "[[0, 1, 2, 3], [4, 5, 6, 7]]", None),
        ("moe/overlap/chunks", "2", "1"),
    }
    assert fields(placed, placed) == set()


def test_only_layers_that_take_another_time_are_told() -> None:
    before = resolved(document([1, 1]), seen([EVEN, EVEN], top_k=2))
    after = resolved(document([1, 1]), seen([EVEN, hot(1)], top_k=2))
    found = expert_differences(before, after)
    assert found.settings == ()
    ((number, (one, other)),) = found.layers.items()
    assert one is not None
    assert other is not None
    assert (number, one.stage, one.most_rows, other.most_rows) == (1, 1, 512, 1024)
    assert after.moe is not None
    assert other.forward == after.moe.layers[1].takes[Pass.FORWARD]
    assert other.forward > one.forward


def test_a_plan_without_moe_has_nothing_to_tell() -> None:
    with_experts = resolved(document([1]))
    bare = document([1])
    del bare["moe"]
    without = resolved(bare)
    assert expert_differences(without, without).settings == ()
    found = expert_differences(without, with_experts)
    assert SettingDifference(("moe", "overflow"), None, "dropless") in found.settings
    assert [before is None for before, _ in found.layers.values()] == [True]
