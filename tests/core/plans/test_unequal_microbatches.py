"""Plans whose microbatches differ: lists in the plan itself, sequence lengths with a profile."""

from dataclasses import replace

import pytest

from service.core.amounts import SizeClasses, combine
from service.core.errors import Fault, FaultCode, Path
from service.core.models.dtypes import DType
from service.core.models.graph import Layer, Model, Symbol, Tensor, build_model
from service.core.plans import boundaries, measured
from service.core.plans.check import check_plan
from service.core.plans.plan import (
    ActivationChange,
    Degrees,
    GivenStage,
    Partition,
    Placement,
    Plan,
    Schedule,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.profiles.profile import Measurement, Point, Profile, build_profile
from tests.core.plans.worlds import chain, chain_profile, cluster, given_plan, profiled_plan
from tests.core.refusals import refusal_text, refusals

TWO = Workload(2)
SHORT_THEN_LONG = GivenStage((0.001, 0.003), backward_seconds=(0.002, 0.006))
STAGE = GivenStage(0.002, backward_seconds=0.004)
NANO = 1000


def codes(faults: list[Fault]) -> list[tuple[FaultCode, Path]]:
    return [(fault.code, fault.path) for fault in faults]


def test_lists_are_read_by_microbatch() -> None:
    resolved = resolve(given_plan(SHORT_THEN_LONG, STAGE, workload=TWO))
    assert resolved.sizes == SizeClasses(2, (0, 1), (0, 1))
    first, second = resolved.stages
    assert first.forward_picoseconds == (10**9, 3 * 10**9)
    assert first.backward_picoseconds == (2 * 10**9, 6 * 10**9)
    assert second.forward_picoseconds == 2 * 10**9
    assert "microbatches_differ" in {said.code for said in resolved.assumptions}


def test_a_list_of_equal_numbers_is_one_number() -> None:
    listed = given_plan(
        GivenStage((0.002,) * 8, backward_seconds=(0.004,) * 8, boundary_bytes=(5,) * 8), STAGE
    )
    plain = given_plan(replace(STAGE, boundary_bytes=5), STAGE)
    one, other = resolve(listed), resolve(plain)
    assert replace(one, plan=plain) == other


def test_halves_and_pairs_and_recomputes_may_be_lists() -> None:
    stage = GivenStage(
        (0.001, 0.002) * 2,
        backward_input_seconds=(0.001, 0.003) * 2,
        backward_weight_seconds=0.001,
        recompute_seconds=(0.0, 0.001) * 2,
        pair_seconds=(0.003, 0.004) * 2,
    )
    plan = Plan(Degrees(1), Workload(4), Schedule("dualpipe_v", 2), (stage, stage))
    (found, _) = resolve(plan).stages
    milli = 10**9
    assert found.backward_picoseconds == (2 * milli, 4 * milli)
    assert found.backward_input_picoseconds == (milli, 3 * milli)
    assert found.backward_weight_picoseconds == milli
    assert found.recompute_picoseconds == (0, milli)
    assert found.pair_picoseconds == (3 * milli, 4 * milli)


def test_a_pair_is_no_shorter_than_its_own_forward_and_the_shortest_backward() -> None:
    stage = GivenStage(
        (0.001, 0.005, 0.001, 0.001),
        backward_input_seconds=(0.001, 0.003, 0.001, 0.001),
        backward_weight_seconds=0.001,
        pair_seconds=0.002,
    )
    plan = Plan(Degrees(1), Workload(4), Schedule("dualpipe_v", 2), (stage, stage))
    assert refusals(lambda: resolve(plan)) == [
        (FaultCode.INCONSISTENT, ("costs", "stages", stage, "pair_seconds")) for stage in (0, 1)
    ]
    listed = replace(stage, pair_seconds=(0.002, 0.004, 0.002, 0.001))
    plan = replace(plan, stages=(listed, replace(stage, pair_seconds=0.005)))
    path = ("costs", "stages", 0, "pair_seconds")
    # Of microbatches that are alike the first is named: 0 and 2; 3 is not like them.
    assert refusals(lambda: resolve(plan)) == [
        (FaultCode.INCONSISTENT, (*path, 1)),
        (FaultCode.INCONSISTENT, (*path, 3)),
    ]


def test_every_list_of_another_length_is_named() -> None:
    stage = GivenStage(
        (0.001,) * 3,
        backward_seconds=(0.002,) * 2,
        activation_deltas=ActivationChange((1, 1, 1), (-1, -1), -1),
        boundary_bytes=(4,),
        transfer_seconds=(0.1, 0.2, 0.3, 0.4),
    )
    plan = given_plan(stage, STAGE, workload=TWO)
    path = ("costs", "stages", 0)
    wrong = [
        (FaultCode.WRONG_LENGTH, (*path, "forward_seconds")),
        (FaultCode.WRONG_LENGTH, (*path, "activation_deltas", "forward_bytes")),
        (FaultCode.WRONG_LENGTH, (*path, "boundary_bytes")),
        (FaultCode.WRONG_LENGTH, (*path, "transfer_seconds")),
    ]
    assert set(wrong) <= set(refusals(lambda: resolve(plan)))
    assert set(wrong) <= set(codes(check_plan(plan)))
    text = refusal_text(lambda: resolve(plan))
    assert "one number for each of 2 microbatches, or one for all; 3 given" in text


DIFFERENT = Workload(2, microbatch_size=1, microbatch_sequence_lengths=(1024, 512))


def test_one_time_for_different_lengths_is_refused() -> None:
    """Nobody knows which length it was stated for; a list of equal numbers says that it is all."""
    once = GivenStage(0.001, backward_seconds=0.002, recompute_seconds=0.0)
    plan = given_plan(SHORT_THEN_LONG, once, workload=DIFFERENT)
    wrong = [
        (FaultCode.INCONSISTENT, ("costs", "stages", 1, "forward_seconds")),
        (FaultCode.INCONSISTENT, ("costs", "stages", 1, "backward_seconds")),
    ]
    assert refusals(lambda: resolve(plan)) == wrong
    assert codes(check_plan(plan)) == wrong
    text = refusal_text(lambda: resolve(plan))
    assert "a list with a number for each of 2 microbatches, or price the plan with a prof" in text
    alike = replace(plan, workload=replace(DIFFERENT, microbatch_sequence_lengths=(512, 512)))
    assert not check_plan(alike)
    listed = GivenStage((0.001,) * 2, backward_seconds=(0.002,) * 2, recompute_seconds=0.0)
    assert not check_plan(replace(plan, stages=(SHORT_THEN_LONG, listed)))


def test_one_size_for_different_lengths_is_told() -> None:
    first = replace(SHORT_THEN_LONG, boundary_bytes=7, activation_bytes=(1, 2))
    plan = given_plan(first, SHORT_THEN_LONG, workload=DIFFERENT)
    said = {one.code: one.detail for one in resolve(plan).assumptions}
    assert said["one_for_all_lengths"].startswith("boundary_bytes of stages, where")
    sized = replace(first, boundary_bytes=(7, 14))
    listed = resolve(replace(plan, stages=(sized, SHORT_THEN_LONG)))
    assert "one_for_all_lengths" not in {one.code for one in listed.assumptions}


def test_a_bad_entry_is_named_by_its_place() -> None:
    plan = given_plan(
        replace(SHORT_THEN_LONG, transfer_seconds=(0.0, 1e-14)),
        GivenStage((1e6, 0.001), backward_seconds=0.001),
        workload=TWO,
    )
    assert refusals(lambda: resolve(plan)) == [
        (FaultCode.OUT_OF_RANGE, ("costs", "stages", 1, "forward_seconds", 0)),
    ]
    plan = replace(plan, stages=(*(plan.stages or ())[:1], STAGE))
    assert refusals(lambda: resolve(plan)) == [
        (FaultCode.TOO_SMALL_TO_REPRESENT, ("costs", "stages", 0, "transfer_seconds", 1))
    ]


def test_deltas_balance_for_each_microbatch() -> None:
    deltas = ActivationChange((10, 30), (-4, -10), (-6, -21))
    plan = given_plan(replace(STAGE, activation_deltas=deltas), workload=TWO)
    assert refusals(lambda: resolve(plan)) == [
        (FaultCode.INCONSISTENT, ("costs", "stages", 0, "activation_deltas"))
    ]
    assert "not -1 (microbatch 1)" in refusal_text(lambda: resolve(plan))
    deltas = replace(deltas, backward_weight_bytes=(-6, -20))
    (stage,) = resolve(given_plan(replace(STAGE, activation_deltas=deltas), workload=TWO)).stages
    assert stage.activation_bytes == (10, 30)
    assert stage.activation_deltas == ActivationChange((10, 30), (-4, -10), (-6, -20))


def two_hosts(first: GivenStage, workload: Workload = TWO, **placed: str) -> Plan:
    devices = tuple(placed.values()) or ("host0/gpu0", "host1/gpu0")
    return given_plan(
        first, STAGE, topology="two@1", placement=Placement(devices=devices), workload=workload
    )


def test_each_size_is_priced_on_the_path() -> None:
    """12 us and 6 us of latency; 8 GB/s effective, 10 GB/s nominal."""
    stage = replace(STAGE, boundary_bytes=(8_000_000, 0, 4_000_000, 8_000_000))
    (boundary,) = resolve(two_hosts(stage, Workload(4)), cluster=cluster()).boundaries
    assert boundary.forward_bytes == (8_000_000, 0, 4_000_000)

    def near(expected: tuple[int, ...]) -> object:
        return pytest.approx(expected, abs=1)

    assert boundary.forward_picoseconds == near((1_012_000_000, 0, 512_000_000))
    assert boundary.forward_bound_picoseconds == near((806_000_000, 0, 406_000_000))
    assert boundary.backward_picoseconds == boundary.forward_picoseconds
    (pair,) = boundary.pairs
    assert pair.forward_picoseconds == boundary.forward_picoseconds


def test_a_given_time_is_held_against_the_bytes_of_its_microbatch() -> None:
    stage = replace(
        STAGE,
        boundary_bytes=(8_000_000, 4_000_000),
        transfer_seconds=0.5e-3,
        backward_transfer_seconds=(1e-3, 0.3e-3),
    )
    plan = two_hosts(stage)
    path = ("costs", "stages", 0)
    assert refusals(lambda: resolve(plan, cluster=cluster())) == [
        (FaultCode.INCONSISTENT, (*path, "transfer_seconds")),
        (FaultCode.INCONSISTENT, (*path, "backward_transfer_seconds", 1)),
    ]


def test_how_many_sizes_are_priced_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = replace(STAGE, boundary_bytes=(8, 4))
    resolve(two_hosts(stage), cluster=cluster())
    monkeypatch.setattr(boundaries, "MAX_PRICED_SIZES", 3)
    assert refusals(lambda: resolve(two_hosts(stage), cluster=cluster())) == [
        (FaultCode.WORK_BUDGET, ("workload", "microbatches"))
    ]


def blocks(count: int) -> Model:
    """Blocks that hand each other [microbatch, sequence, 4] in bf16."""
    shape = (Symbol.MICROBATCH, Symbol.SEQUENCE, 4)
    return build_model(
        [Layer(f"l{i}", "block") for i in range(count)],
        [
            Tensor(f"t{i}", f"l{i}", (f"l{i + 1}",), shape=shape, dtype=DType.BF16)
            for i in range(count - 1)
        ],
    )


def block_profile(*lengths: int) -> Profile:
    """Every block takes 1 us a token forward and 2 us backward, and keeps 10 bytes a token."""
    return build_profile(
        "gpu",
        None,
        [
            Measurement(
                "l*",
                Point(2, length),
                length * 1e-6,
                backward_seconds=length * 2e-6,
                saved_activation_bytes=10 * length,
            )
            for length in lengths
        ],
    )


LENGTHS = Workload(4, microbatch_size=2, microbatch_sequence_lengths=(64, 16, 64, 32))


def test_each_length_is_a_point_of_the_profile() -> None:
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2), workload=LENGTHS)
    resolved = resolve(plan, model=blocks(3), profile=block_profile(16, 32, 64))
    assert resolved.sizes.of_microbatch == (0, 1, 0, 2)
    assert resolved.sequence_length == (64, 16, 32)
    micro = 10**6
    assert resolved.stages[1].forward_picoseconds == (128 * micro, 32 * micro, 64 * micro)
    assert resolved.stages[1].backward_picoseconds == (256 * micro, 64 * micro, 128 * micro)
    assert resolved.stages[1].activation_bytes == (1280, 320, 640)
    (boundary,) = resolved.boundaries
    assert boundary.forward_bytes == boundary.backward_bytes == (1024, 256, 512)
    assert boundary.tensors is not None
    assert boundary.tensors[0].forward_bytes == (1024, 256, 512)


def test_one_length_written_out_is_the_plan_with_that_length() -> None:
    listed = replace(LENGTHS, microbatch_sequence_lengths=(32,) * 4)
    plain = Workload(4, microbatch_size=2, sequence_length=32)
    model, profile = blocks(3), block_profile(32)
    found = [
        resolve(
            profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2), workload=workload),
            model=model,
            profile=profile,
        )
        for workload in (listed, plain)
    ]
    assert replace(found[0], plan=found[1].plan) == found[1]


def test_every_length_that_was_not_measured_is_named() -> None:
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2), workload=LENGTHS)
    call = lambda: resolve(plan, model=blocks(3), profile=block_profile(16))  # noqa: E731
    assert refusals(call) == [(FaultCode.MISSING_PROFILE_POINT, ("costs", "profile"))] * 2
    assert "not measured at microbatch_size 2, sequence_length 64" in refusal_text(call)
    assert "not measured at microbatch_size 2, sequence_length 32" in refusal_text(call)


def test_context_ranks_hold_their_share_of_each_length() -> None:
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2, context=4), workload=LENGTHS)
    resolved = resolve(plan, model=blocks(2), profile=block_profile(4, 8, 16))
    assert resolved.stages[0].forward_picoseconds == (16 * 10**6, 4 * 10**6, 8 * 10**6)
    assert resolved.boundaries[0].forward_bytes == (256, 64, 128)
    (said,) = [said for said in resolved.assumptions if said.code == "context_costs"]
    assert "its own 4 to 16 tokens" in said.detail


def test_bytes_recorded_at_no_length_do_not_hold_for_several() -> None:
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2), workload=LENGTHS)
    profile = build_profile(
        "gpu", None, [*block_profile(16, 32, 64).measurements, *chain_profile(2).measurements]
    )
    assert refusals(lambda: resolve(plan, model=chain(2), profile=profile)) == [
        (FaultCode.INCONSISTENT, ("workload", "microbatch_sequence_lengths"))
    ]


def test_how_many_costs_are_looked_up_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "MAX_LOOKUPS", 8)
    plan = profiled_plan(Partition(cuts=(1,)), degrees=Degrees(2), workload=LENGTHS)
    profile = block_profile(16, 32, 64)
    assert refusals(lambda: resolve(plan, model=blocks(3), profile=profile)) == [
        (FaultCode.WORK_BUDGET, ("workload", "microbatch_sequence_lengths"))
    ]
    resolve(plan, model=blocks(2), profile=profile)


def test_amounts_of_stages_follow_the_classes_of_all_lists_together() -> None:
    """Two lists that split the microbatches differently make three classes."""
    stage = GivenStage((0.001, 0.001, 0.002), backward_seconds=(0.001, 0.002, 0.002))
    resolved = resolve(given_plan(stage, workload=Workload(3)))
    assert resolved.sizes.count == 3
    (found,) = resolved.stages
    each = combine(lambda f, b: f + b, found.forward_picoseconds, found.backward_picoseconds)
    assert each == (2 * 10**9, 3 * 10**9, 4 * 10**9)
