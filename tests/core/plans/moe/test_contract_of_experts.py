"""What `moe` says of the training: terms that follow from it, and contracts that say otherwise."""

from typing import Any

import pytest

from service.core.errors import FaultCode
from service.core.plans.likeness import (
    ContractField,
    ContractTermOrigin,
    contract_terms,
    likeness,
)
from service.core.plans.plan import ResolvedPlan
from tests.core.plans.moe.expert_worlds import document, hot, resolved, seen
from tests.core.refusals import refusals

# Of 512 assignments of a rank to 8 experts 80 are the capacity: two hot experts take 160.
DROP = {"overflow": "drop", "capacity_factor": 1.25, "capacity_scope": "source"}
HOT = seen([hot(0)], top_k=2)
DROPPED = (512 - 160) / 512


def plan(routing: Any = None, contract: Any = None, **moe: Any) -> ResolvedPlan:
    stated = {} if contract is None else {"contract": contract}
    return resolved(document([1], **moe) | stated, routing)


def texts(of: ResolvedPlan, **more: Any) -> dict[str, tuple[str, tuple[Any, ...]]]:
    """Of the terms that follow from `moe`, with their places."""
    return {
        term.field.value: (term.text, term.path)
        for term in contract_terms(of, **more).values()
        if term.path[0] == "moe"
    }


def test_terms_follow_from_moe_with_their_places() -> None:
    assert texts(plan(HOT, **DROP)) == {
        "router_policy": ("top2", ("moe",)),
        "routing": ("seen@1: source_expert", ("moe", "routing")),
        "overflow": ("drop", ("moe", "overflow")),
        "capacity_factor": ("1.25", ("moe", "capacity_factor")),
        "capacity_scope": ("source", ("moe", "capacity_scope")),
        "drop_order": ("position", ("moe", "drop_order")),
        "dropped_token_fraction": (str(DROPPED), ("moe",)),
    }
    assert texts(plan()) == {
        "router_policy": ("top2", ("moe",)),
        "routing": ("evenly", ("moe",)),
        "overflow": ("dropless", ("moe", "overflow")),
        "dropped_token_fraction": ("0.0", ("moe",)),
    }


def test_plans_under_different_routings_are_unlike() -> None:
    terms = [
        contract_terms(one, routing_digest=digest)
        for one, digest in (
            (plan(HOT), "a"),
            (plan(HOT), "b"),
            (plan(), None),
            (plan(skew={"kind": "zipf", "exponent": 1.0}), None),
            (plan(skew={"kind": "uniform"}), None),
        )
    ]
    routing = (ContractField.ROUTING,)
    assert likeness([terms[0], terms[0]]).unlike == ()
    assert all(likeness([terms[0], other]).unlike == routing for other in terms[1:])
    assert likeness([terms[2], terms[3]]).unlike == routing
    assert likeness([terms[2], terms[4]]).unlike == ()


@pytest.mark.parametrize(
    ("changed", "unlike"),
    [
        ({"capacity_factor": 2.0}, {"capacity_factor", "dropped_token_fraction"}),
        ({"capacity_scope": "global"}, {"capacity_scope"}),
        ({"drop_order": "probability"}, {"drop_order"}),
        ({"capacity_minimum": 4}, {"capacity_factor"}),
        ({"overflow": "pad"}, {"overflow"}),
        ({"exchange_efficiency": 0.5}, set()),
    ],
)
def test_what_changes_the_training_is_unlike(changed: dict[str, Any], unlike: set[str]) -> None:
    one, other = plan(HOT, **DROP), plan(HOT, **{**DROP, **changed})
    found = likeness([contract_terms(one), contract_terms(other)])
    assert {field.value for field in found.unlike} == unlike


def test_a_contract_that_says_the_same_is_no_other_contract() -> None:
    contract = {
        "router_policy": "top-2",
        "overflow": "drop",
        "capacity_factor": 1.25,
        "dropped_token_fraction": 0.69,
    }
    stated = contract_terms(plan(HOT, contract, **DROP))
    assert stated[ContractField.OVERFLOW].origin is ContractTermOrigin.DERIVED
    assert stated[ContractField.DROPPED_FRACTION].text == str(DROPPED)
    # What is said in words of the plan's own is compared as it stands.
    assert stated[ContractField.ROUTER_POLICY].text == "top-2"
    unlike = likeness([stated, contract_terms(plan(HOT, **DROP))]).unlike
    assert unlike == (ContractField.ROUTER_POLICY,)


def test_a_contract_that_says_otherwise_is_refused() -> None:
    contract = {
        "router_policy": "top1",
        "overflow": "pad",
        "capacity_factor": 1.0,
        "dropped_token_fraction": 0.5,
    }
    paths = {("contract", name) for name in contract}
    wrong = refusals(lambda: plan(HOT, contract, **DROP))
    assert set(wrong) == {(FaultCode.INCONSISTENT, path) for path in paths}
    wrong = refusals(lambda: plan(HOT, {"capacity_factor": 1.0}))
    assert wrong == [(FaultCode.INCONSISTENT, ("contract", "capacity_factor"))]
