"""Layers of one plan that recompute each by a policy of its own."""

from dataclasses import replace

from service.core.errors import FaultCode
from service.core.models.graph import Layer, Model, RecordedSize, Tensor, build_model
from service.core.plans.plan import Degrees, GivenStage, Partition, Plan, Schedule, Workload
from service.core.plans.recompute import layer_policies
from service.core.plans.resolve import resolve
from service.core.profiles.measurement import Measurement, Point, Recompute
from service.core.profiles.profile import Profile, build_profile
from tests.core.plans.worlds import given_plan
from tests.core.refusals import refusal_text, refusals

MILLISECOND = 10**9
NAMES = ("block.0.attention", "block.0.mlp", "block.1.attention", "block.1.mlp")


def model() -> Model:
    return build_model(
        [Layer(name, "layer") for name in NAMES],
        [
            Tensor(f"t{i}", NAMES[i], (NAMES[i + 1],), recorded=RecordedSize(8, 1))
            for i in range(len(NAMES) - 1)
        ],
    )


def profile() -> Profile:
    """An MLP takes 2 ms forward and, when dropped, again; it then keeps 1 byte in place of 9."""
    full = Point(1, recompute=Recompute.FULL)
    return build_profile(
        None,
        None,
        [
            Measurement("*.attention", Point(1), 1e-3, 2e-3, saved_activation_bytes=5),
            Measurement("*.mlp", Point(1), 2e-3, 4e-3, saved_activation_bytes=9),
            Measurement(
                "*.mlp", full, 2e-3, 4e-3, recompute_seconds=2e-3, saved_activation_bytes=1
            ),
        ],
    )


def plan(*layers: tuple[str, str], default: str = "none", kind: str = "1f1b") -> Plan:
    return Plan(
        degrees=Degrees(2),
        workload=Workload(4, microbatch_size=1),
        schedule=Schedule(kind),
        model="m",
        profile="p",
        partition=Partition(cuts=(2,)),
        recompute=default,
        recompute_layers=layers,
    )


def test_one_stage_may_recompute_its_mlp_only() -> None:
    resolved = resolve(plan(("block.1.mlp", "full")), model=model(), profile=profile())
    first, second = resolved.stages
    assert (first.recompute_picoseconds, second.recompute_picoseconds) == (0, 2 * MILLISECOND)
    assert (first.activation_bytes, second.activation_bytes) == (5 + 9, 5 + 1)
    assert (first.recomputed_bytes, second.recomputed_bytes) == (0, 8)
    assert first.backward_picoseconds == second.backward_picoseconds == 6 * MILLISECOND


def test_a_pattern_and_a_name_and_the_default() -> None:
    asked = plan(("*.attention", "none"), ("block.0.mlp", "selective"), default="full")
    assert layer_policies(asked, model()) == (
        Recompute.NONE,
        Recompute.SELECTIVE,
        Recompute.NONE,
        Recompute.FULL,
    )
    assert layer_policies(plan(default="full"), model()) == (Recompute.FULL,) * 4


def test_a_name_settles_what_patterns_disagree_about() -> None:
    asked = plan(("*.mlp", "full"), ("block.1*", "none"), ("block.1.mlp", "selective"))
    assert layer_policies(asked, model())[3] is Recompute.SELECTIVE


def test_entries_that_fit_nothing_or_disagree_are_refused_by_name() -> None:
    asked = plan(("*.mlp", "full"), ("block.1*", "none"), ("block.7", "full"), ("head*", "full"))
    call = lambda: layer_policies(asked, model())  # noqa: E731
    assert refusals(call) == [
        (FaultCode.UNKNOWN_NAME, ("recompute", "layers", "block.7")),
        (FaultCode.INCONSISTENT, ("recompute", "layers", "block.1*")),
        (FaultCode.UNKNOWN_NAME, ("recompute", "layers", "head*")),
    ]
    assert "'block.1.mlp' fits this (none) and '*.mlp' (full)" in refusal_text(call)


def test_what_was_not_measured_under_a_policy_is_told_for_those_layers_alone() -> None:
    call = lambda: resolve(  # noqa: E731
        plan(("*.attention", "full"), ("*.mlp", "full")), model=model(), profile=profile()
    )
    assert refusals(call) == [(FaultCode.MISSING_PROFILE_POINT, ("costs", "profile"))]
    assert "'block.0.attention', 'block.1.attention' were not measured" in refusal_text(call)


def test_a_schedule_without_backwards_asks_for_no_recompute() -> None:
    asked = plan(("*.attention", "full"), kind="forward_only")
    resolved = resolve(asked, model=model(), profile=profile())
    assert {stage.recompute_picoseconds for stage in resolved.stages} == {0}
    assert "recompute_ignored" in {said.code for said in resolved.assumptions}


def test_inline_stages_have_no_layers_to_name() -> None:
    given = given_plan(GivenStage(1e-3, backward_seconds=1e-3))
    inline = replace(given, recompute_layers=(("block.*", "full"),))
    assert refusals(lambda: resolve(inline)) == [
        (FaultCode.EXCLUSIVE_FIELDS, ("recompute", "layers"))
    ]
