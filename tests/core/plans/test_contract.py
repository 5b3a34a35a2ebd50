"""Contracts: what a plan states, held against its schedule and against itself."""

from dataclasses import replace

import pytest

from service.core.errors import FaultCode
from service.core.moe.overflow import OverflowPolicy
from service.core.plans.check import check_plan
from service.core.plans.contract import (
    Contract,
    LossScaling,
    WeightUpdate,
    weight_update_of,
)
from service.core.plans.plan import GivenStage
from service.core.plans.resolve import resolve
from service.core.plans.schedule import plan_family, plan_shape
from tests.core.plans.worlds import given_plan

STAGES = (GivenStage(0.006, 0.012), GivenStage(0.006, 0.012))


@pytest.mark.parametrize(
    ("kind", "update"),
    [
        ("forward_only", WeightUpdate.NONE),
        ("1f1b", WeightUpdate.PER_GLOBAL_BATCH),
        ("gpipe", WeightUpdate.PER_GLOBAL_BATCH),
        ("pipedream_2bw", WeightUpdate.PER_GLOBAL_BATCH_DELAYED),
        ("pipedream", WeightUpdate.PER_MICROBATCH),
    ],
)
def test_when_weights_change_follows_from_the_schedule(kind: str, update: WeightUpdate) -> None:
    plan = given_plan(*STAGES, kind=kind)
    assert weight_update_of(plan_family(plan), plan_shape(plan)) is update
    for stated in WeightUpdate:
        faults = check_plan(replace(plan, contract=Contract(weight_update=stated)))
        if stated is update:
            assert faults == []
            continue
        (fault,) = faults
        assert (fault.code, fault.path) == (FaultCode.INCONSISTENT, ("contract", "weight_update"))
        assert update.value in fault.detail


@pytest.mark.parametrize("overflow", OverflowPolicy)
def test_what_drops_nothing_has_no_capacity_and_no_drops(overflow: OverflowPolicy) -> None:
    contract = Contract(overflow=overflow, capacity_factor=1.25, dropped_token_fraction=0.01)
    faults = check_plan(given_plan(*STAGES, contract=contract))
    wrong = {fault.path: fault.code for fault in faults}
    if overflow in {OverflowPolicy.DROPLESS, OverflowPolicy.DROPLESS_PADDED}:
        assert wrong == {
            ("contract", "capacity_factor"): FaultCode.EXCLUSIVE_FIELDS,
            ("contract", "dropped_token_fraction"): FaultCode.INCONSISTENT,
        }
    else:
        assert wrong == {}


def test_a_contract_changes_no_number_and_says_so() -> None:
    plain = resolve(given_plan(*STAGES))
    trained = resolve(given_plan(*STAGES, contract=Contract(loss_scaling=LossScaling.DYNAMIC)))
    routed = resolve(given_plan(*STAGES, contract=Contract(router_policy="top2")))
    assert trained.stages == routed.stages == plain.stages
    assert trained.not_represented == plain.not_represented
    (said,) = set(routed.not_represented) - set(plain.not_represented)
    assert said.code == "expert_routing"
