"""What is wrong with the `moe` of a plan: each fault at its pointer, and none of a good one."""

from typing import Any

import msgspec
import pytest

from service.core.errors import FaultCode, Path
from service.core.plans.check import check_plan
from service.formats.documents.plan import PlanDocument, to_core

STAGE = {"forward_seconds": 0.01, "backward_seconds": 0.02}
SHAPE = {"layers_per_stage": [1, 2], "hidden_size": 64, "experts": 8, "top_k": 2, "width": 32}
RATES = {"peak_flops": 1e14, "memory_bytes_per_second": 1e12}
GIVEN: dict[str, Any] = {
    "costs": {"stages": [STAGE, STAGE]},
    "workload": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 256},
    "parallelism": {"pipeline": 2, "data": 4, "expert": 4},
    "schedule": {"kind": "1f1b"},
    "moe": {"shape": SHAPE, "compute": RATES, "layer_costs_include": "nothing"},
}
OF_MODEL: dict[str, Any] = GIVEN | {
    "costs": {"model": "moe@1", "assumed": {}},
    "partition": {"layers_per_stage": [2, 2]},
    "topology": "two-hosts@1",
    "moe": {"capacity_factor": 1.25, "capacity_scope": "source", "overflow": "drop"},
}


def told(document: dict[str, Any], **moe: Any) -> list[tuple[FaultCode, Path]]:
    """Of the document with these fields of `moe`, None for those that are taken out."""
    stated = {k: v for k, v in (document["moe"] | moe).items() if v is not None}
    plan = to_core(msgspec.convert(document | {"moe": stated}, PlanDocument))
    return [(fault.code, fault.path) for fault in check_plan(plan)]


@pytest.mark.parametrize("document", [GIVEN, OF_MODEL])
def test_good_ones_have_no_fault(document: dict[str, Any]) -> None:
    assert told(document) == []


@pytest.mark.parametrize(
    ("moe", "code", "path"),
    [
        (
            {"routing": "seen@1", "skew": {"kind": "zipf", "exponent": 1}},
            FaultCode.EXCLUSIVE_FIELDS,
            ("moe", "skew"),
        ),
        ({"routing_layers": [0]}, FaultCode.EXCLUSIVE_FIELDS, ("moe", "routing_layers")),
        ({"capacity_scope": None}, FaultCode.MISSING_FIELD, ("moe", "capacity_scope")),
        ({"capacity_factor": None}, FaultCode.MISSING_FIELD, ("moe", "capacity_factor")),
        (
            {"overflow": "fallback"},
            FaultCode.MISSING_FIELD,
            ("moe", "fallback_seconds_per_row"),
        ),
        (
            {"fallback_seconds_per_row": 1e-9},
            FaultCode.EXCLUSIVE_FIELDS,
            ("moe", "fallback_seconds_per_row"),
        ),
        (
            {"dispatcher": "all_gather", "deduplication": "rank"},
            FaultCode.EXCLUSIVE_FIELDS,
            ("moe", "deduplication"),
        ),
        (
            {"overlap": {"compute_fraction_left": 0.5}},
            FaultCode.INCONSISTENT,
            ("moe", "overlap", "compute_fraction_left"),
        ),
        (
            {"payloads": {"forward_combine": {"dtype": "int8"}}},
            FaultCode.INCONSISTENT,
            ("moe", "payloads", "forward_combine", "dtype"),
        ),
        (
            {"compute": {"curve": [{"rows": 1, "seconds": 1}], "peak_flops": 1e12}},
            FaultCode.EXCLUSIVE_FIELDS,
            ("moe", "compute", "peak_flops"),
        ),
        (
            {"compute": {"curve": [{"rows": 8, "seconds": 1}, {"rows": 8, "seconds": 2}]}},
            FaultCode.INCONSISTENT,
            ("moe", "compute", "curve", 1, "rows"),
        ),
        ({"placement": [[0, 1], [2, 3]]}, FaultCode.WRONG_LENGTH, ("moe", "placement")),
        ({"shape": SHAPE}, FaultCode.EXCLUSIVE_FIELDS, ("moe", "shape")),
        (
            {"layer_costs_include": "nothing"},
            FaultCode.INCONSISTENT,
            ("moe", "layer_costs_include"),
        ),
    ],
)
def test_each_contradiction_is_told_where_it_stands(
    moe: dict[str, Any], code: FaultCode, path: Path
) -> None:
    assert told(OF_MODEL, **moe) == [(code, path)]


def test_a_policy_without_capacity_takes_nothing_of_one() -> None:
    found = told(OF_MODEL, overflow="dropless", capacity_minimum=4, capacity_alignment=8)
    names = ("capacity_factor", "capacity_scope", "capacity_minimum", "capacity_alignment")
    assert found == [(FaultCode.EXCLUSIVE_FIELDS, ("moe", name)) for name in names]


@pytest.mark.parametrize(
    ("moe", "code", "path"),
    [
        ({"shape": None}, FaultCode.MISSING_FIELD, ("moe", "shape")),
        (
            {"shape": SHAPE | {"layers_per_stage": [1]}},
            FaultCode.WRONG_LENGTH,
            ("moe", "shape", "layers_per_stage"),
        ),
        (
            {"shape": SHAPE | {"layers_per_stage": [0, 0]}},
            FaultCode.INCONSISTENT,
            ("moe", "shape", "layers_per_stage"),
        ),
        ({"shape": SHAPE | {"top_k": 9}}, FaultCode.INCONSISTENT, ("moe", "shape", "top_k")),
        (
            {"shape": SHAPE | {"tokens_per_rank": 7}},
            FaultCode.EXCLUSIVE_FIELDS,
            ("moe", "shape", "tokens_per_rank"),
        ),
        (
            {"routing": "seen@1", "routing_layers": [0, 1]},
            FaultCode.WRONG_LENGTH,
            ("moe", "routing_layers"),
        ),
        ({"layer_costs_include": None}, FaultCode.MISSING_FIELD, ("moe", "layer_costs_include")),
        (
            {"compute": {"peak_flops": 1e14}},
            FaultCode.MISSING_FIELD,
            ("moe", "compute", "memory_bytes_per_second"),
        ),
    ],
)
def test_plans_without_a_model_say_what_their_experts_are(
    moe: dict[str, Any], code: FaultCode, path: Path
) -> None:
    assert told(GIVEN, **moe) == [(code, path)]


def test_tokens_of_a_plan_without_lengths_are_stated() -> None:
    short = GIVEN | {"workload": {"microbatches": 4}}
    missing = [(FaultCode.MISSING_FIELD, ("moe", "shape", "tokens_per_rank"))]
    assert told(short) == missing
    assert told(short, shape=SHAPE | {"tokens_per_rank": 256}) == []


def test_tensor_parallel_ranks_would_send_the_same_tokens() -> None:
    both = GIVEN | {"parallelism": GIVEN["parallelism"] | {"tensor": 2}}
    assert told(both) == [(FaultCode.INCONSISTENT, ("parallelism", "sequence_parallel"))]
    apart = {**both["parallelism"], "sequence_parallel": True}
    assert told(GIVEN | {"parallelism": apart}) == []
