"""What holds of stage times with experts, whatever the settings."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.estimates.work import work_of
from service.core.plans.moe.results import Pass
from tests.core.plans.moe.expert_worlds import document, resolved

WAYS = st.fixed_dictionaries(
    {},
    optional={
        "dispatcher": st.just("all_gather"),
        "overlap": st.fixed_dictionaries(
            {"chunks": st.integers(2, 4)}, optional={"compute_fraction_left": st.just(0.75)}
        ),
        "overflow": st.sampled_from(["dropless", "dropless_padded"]),
        "payloads": st.just({"forward_dispatch": {"dtype": "fp8", "scale_block": 32}}),
        "exchange_efficiency": st.floats(0.1, 1),
    },
)


@given(WAYS, st.sampled_from(["1f1b", "gpipe"]))
@settings(max_examples=12, deadline=None)
def test_even_tokens_change_nothing_where_costs_contain_all(
    ways: dict[str, Any], kind: str
) -> None:
    asked = document([1, 2], layer_costs_include="experts_and_exchange", **ways)
    asked["schedule"] = {"kind": kind}
    plain = {name: value for name, value in asked.items() if name != "moe"}
    plan, before = resolved(asked), resolved(plain)
    assert [one.forward_picoseconds for one in plan.stages] == [
        one.forward_picoseconds for one in before.stages
    ]
    assert [one.backward_picoseconds for one in plan.stages] == [
        one.backward_picoseconds for one in before.stages
    ]


@given(WAYS, st.floats(0, 1), st.integers(0, 7))
@settings(max_examples=12, deadline=None)
def test_what_is_contained_is_the_only_difference(
    ways: dict[str, Any], fraction: float, expert: int
) -> None:
    """Costs that contain nothing, less those that contain all, are what even tokens take."""
    skew = {"kind": "hot_expert", "fraction": fraction, "expert": expert}
    nothing = resolved(document([2], skew=skew, **ways))
    everything = resolved(
        document([2], skew=skew, layer_costs_include="experts_and_exchange", **ways)
    )
    even = resolved(document([2], **ways))
    assert nothing.moe is not None
    assert everything.moe is not None
    assert even.moe is not None
    stage = everything.moe.stages[0]
    assert stage.takes == nothing.moe.stages[0].takes
    assert stage.contained == even.moe.stages[0].takes
    assert stage.takes[Pass.RECOMPUTE] == 0


def test_a_routed_plan_is_the_work_of_its_even_twin_too() -> None:
    even, hot = document([1]), document([1], skew={"kind": "hot_expert", "fraction": 0.5})
    plain = work_of(resolved(even).plan).total
    assert work_of(resolved(hot).plan).total > plain
    unrouted = document([1], skew={"kind": "uniform"})
    assert work_of(resolved(unrouted).plan).total == plain
