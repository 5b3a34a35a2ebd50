"""Likeness: terms that follow from plans, and which of them differ."""

from dataclasses import replace
from typing import Any

import pytest

from service.core.models.dtypes import DType
from service.core.plans.contract import Contract, LossScaling
from service.core.plans.likeness import (
    ContractField,
    ContractTerm,
    ContractTermOrigin,
    contract_terms,
    likeness,
)
from service.core.plans.plan import Degrees, GivenStage, Partition, Plan, Workload
from service.core.plans.resolve import resolve
from service.core.plans.training import Optimizer, OptimizerSharding, Training
from tests.core.plans.worlds import chain, chain_profile, given_plan, profiled_plan

Terms = dict[ContractField, ContractTerm]
STAGES = (GivenStage(0.006, 0.012), GivenStage(0.006, 0.012))


def terms_of(plan: Plan, **documents: Any) -> Terms:
    return contract_terms(resolve(plan), **documents)


def texts(terms: Terms) -> dict[str, str]:
    return {term.field.value: term.text for term in terms.values()}


def inline(data: int = 1, **workload: Any) -> Terms:
    degrees = Degrees(pipeline=2, data=data)
    return terms_of(given_plan(*STAGES, degrees=degrees, workload=Workload(**workload)))


def test_a_plan_of_four_lines_says_how_its_batch_is_made_and_when_weights_change() -> None:
    assert texts(inline(microbatches=8)) == {
        "global_batch_construction": "8 microbatches x 1 replica",
        "weight_update": "per_global_batch",
    }


def test_the_batch_and_its_sequences_are_derived() -> None:
    terms = inline(microbatches=8, microbatch_size=2, sequence_length=4096, data=4)
    assert texts(terms) == {
        "global_batch_size": "64",
        "global_batch_construction": "2 samples x 8 microbatches x 4 replicas",
        "held_fixed": "microbatch_size",
        "sequence_lengths": "4096 tokens",
        "weight_update": "per_global_batch",
    }
    assert {term.origin for term in terms.values()} == {ContractTermOrigin.DERIVED}


def test_the_same_batch_made_otherwise_is_unlike_in_its_making_alone() -> None:
    one = inline(microbatches=8, global_batch_size=64, data=4)
    other = inline(microbatches=4, global_batch_size=64, data=4)
    assert likeness([one, other]).unlike == (ContractField.GLOBAL_BATCH_CONSTRUCTION,)
    held = inline(microbatches=8, microbatch_size=2, data=4)
    assert likeness([one, held]).unlike == (ContractField.HELD_FIXED,)
    assert likeness([one, one]).unlike == ()


def test_mixes_of_sequences_are_alike_in_any_order() -> None:
    stages = [GivenStage((0.006,) * 4, (0.012,) * 4)] * 2
    one, same, other = (
        terms_of(given_plan(*stages, workload=Workload(4, microbatch_sequence_lengths=lengths)))
        for lengths in ((512, 1024, 512, 512), (512, 512, 512, 1024), (512, 1024, 1024, 512))
    )
    assert texts(one)["sequence_lengths"] == (
        "512 tokens in 3 microbatches, 1024 tokens in 1 microbatch"
    )
    assert likeness([one, same]).unlike == ()
    assert likeness([one, other]).unlike == (ContractField.SEQUENCE_LENGTHS,)


def test_one_length_is_the_same_however_many_microbatches_have_it() -> None:
    one, other = (
        inline(microbatches=count, global_batch_size=8, sequence_length=512) for count in (4, 8)
    )
    assert likeness([one, other]).unlike == (ContractField.GLOBAL_BATCH_CONSTRUCTION,)


def test_a_model_is_the_same_under_any_name() -> None:
    plan = profiled_plan(Partition(layers_per_stage=(2, 2)), degrees=Degrees(pipeline=2))
    profile = chain_profile(4)

    def priced(layers: int, name: str) -> Terms:
        halves = Partition(layers_per_stage=(2, layers - 2))
        model = chain(layers)
        named = replace(plan, model=name, partition=halves)
        resolved = resolve(named, model=model, profile=chain_profile(layers))
        return contract_terms(resolved, model=model, precision=profile.precision)

    one, renamed, longer = priced(4, "chain@1"), priced(4, "copy@3"), priced(5, "chain@1")
    assert texts(one)["model"] == "chain@1: 4 layers, 0 trained elements"
    assert likeness([one, renamed]).unlike == ()
    assert likeness([one, longer]).unlike == (ContractField.MODEL,)


def test_what_only_one_says_is_unlike_and_what_nobody_says_is_unknown() -> None:
    stated = Contract(loss_scaling=LossScaling.DYNAMIC, random_state="seed 1234")
    silent, said, other = (
        terms_of(given_plan(*STAGES, contract=contract))
        for contract in (Contract(), stated, replace(stated, random_state="seed 1"))
    )
    assert said[ContractField.LOSS_SCALING].origin is ContractTermOrigin.STATED
    assert said[ContractField.LOSS_SCALING].path == ("contract", "loss_scaling")
    found = likeness([silent, said])
    assert found.unlike == (ContractField.LOSS_SCALING, ContractField.RANDOM_STATE)
    assert ContractField.ROUTER_POLICY in found.unknown
    assert likeness([said, other]).unlike == (ContractField.RANDOM_STATE,)
    assert likeness([said, said, silent]).unlike == found.unlike


@pytest.mark.parametrize("kinds", [("1f1b", "pipedream"), ("pipedream", "pipedream_2bw")])
def test_asynchronous_schedules_are_unlike_those_that_drain(kinds: tuple[str, str]) -> None:
    plans = [terms_of(given_plan(*STAGES, kind=kind)) for kind in kinds]
    assert likeness(plans).unlike == (ContractField.WEIGHT_UPDATE,)


def test_how_weights_are_trained_is_a_term_and_how_it_is_shared_out_is_none() -> None:
    adam = Training(Optimizer.ADAM, weight_dtype=DType.BF16)
    plain, sharded, other = (
        terms_of(replace(given_plan(*STAGES), training=training))
        for training in (
            adam,
            replace(adam, optimizer_sharding=OptimizerSharding.OPTIMIZER),
            Training(Optimizer.SGD, weight_dtype=DType.BF16, gradient_dtype=DType.FP32),
        )
    )
    assert texts(plain)["training_dtypes"] == (
        "weights bf16, gradients bf16, master copy fp32, moments fp32 and fp32"
    )
    assert likeness([plain, sharded]).unlike == ()
    assert likeness([plain, other]).unlike == (
        ContractField.TRAINING_DTYPES,
        ContractField.OPTIMIZER,
    )
    assert texts(other)["training_dtypes"] == "weights bf16, gradients fp32, master copy fp32"
    untyped = terms_of(replace(given_plan(*STAGES), training=Training(Optimizer.ADAM)))
    assert likeness([plain, untyped]).unlike == (ContractField.TRAINING_DTYPES,)


def test_weights_without_a_type_of_the_plan_have_those_of_the_model() -> None:
    plan = profiled_plan(Partition(layers_per_stage=(2, 2)), degrees=Degrees(pipeline=2))
    plan = replace(plan, training=Training(Optimizer.SGD))
    model = chain(4, tied=(0, 1))
    resolved = resolve(plan, model=model, profile=chain_profile(4))
    found = texts(contract_terms(resolved, model=model, precision="bf16"))
    assert found["training_dtypes"] == "weights fp32, gradients fp32, no master copy"
    assert found["precision"] == "bf16"
