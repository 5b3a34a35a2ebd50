"""The `moe` of a plan document: what it says, and what it stands for when it says nothing."""

from typing import Any

import msgspec
import pytest

from service.core.models.dtypes import DType
from service.core.moe.overflow import Capacity, CapacityScope, DropOrder, OverflowPolicy
from service.core.moe.settings import (
    Deduplication,
    Dispatcher,
    ExpertCompute,
    ExpertShape,
    LayerCostsInclude,
    MoeSettings,
    Overlap,
    Payload,
    Payloads,
    ReplicaSplitting,
    RowsSeconds,
)
from service.core.moe.skews import Skew, SkewKind
from service.formats.documents.moe import MoeDocument, moe_to_core


def core(document: dict[str, Any]) -> MoeSettings:
    return moe_to_core(msgspec.convert(document, MoeDocument))


def test_an_empty_one_has_the_defaults() -> None:
    assert core({}) == MoeSettings()


def test_what_a_design_states_flat() -> None:
    found = core(
        {
            "routing": "mixtral-c4@1",
            "capacity_factor": 1.25,
            "capacity_scope": "source",
            "overflow": "drop",
        }
    )
    assert found == MoeSettings(
        capacity=Capacity(OverflowPolicy.DROP, 1.25, CapacityScope.SOURCE), routing="mixtral-c4@1"
    )


def test_a_factor_alone_drops() -> None:
    assert core({"capacity_factor": 1.0}).capacity.overflow is OverflowPolicy.DROP


def test_all_that_it_can_say() -> None:
    found = core(
        {
            "skew": {"kind": "burst", "fraction": 0.5, "expert": 1, "period": 4, "steps": 8},
            "overflow": "pad",
            "capacity_factor": 2,
            "capacity_scope": "global",
            "capacity_minimum": 4,
            "capacity_alignment": 8,
            "drop_order": "probability",
            "placement": [[0, 1], [1, 2]],
            "replica_splitting": "local_first",
            "dispatcher": "all_to_all",
            "deduplication": "node",
            "payloads": {
                "forward_dispatch": {"dtype": "fp8", "scale_block": 128, "metadata_bytes": 16},
                "forward_combine": {},
                "backward_combine": {"dtype": "fp32", "scale_block": 32, "scale_bytes": 1},
            },
            "compute": {
                "curve": [{"rows": 128, "seconds": 1e-5}],
                "tile_rows": 16,
                "launch_seconds": 2e-6,
                "backward_ratio": 1.5,
                "memory_bytes_per_second": 2e12,
                "memory_efficiency": 0.8,
            },
            "overlap": {"chunks": 2, "compute_fraction_left": 0.8, "shared_expert": True},
            "exchange_efficiency": 0.7,
            "layer_costs_include": "experts_and_exchange",
            "rows_percentile": 0.99,
            "shape": {
                "layers_per_stage": [1, 0],
                "hidden_size": 8,
                "experts": 3,
                "top_k": 1,
                "width": 4,
                "gated": False,
                "tokens_per_rank": 5,
            },
        }
    )
    assert found == MoeSettings(
        capacity=Capacity(OverflowPolicy.PAD, 2, CapacityScope.GLOBAL, 4, 8, DropOrder.PROBABILITY),
        skew=Skew(SkewKind.BURST, fraction=0.5, expert=1, period=4, steps=8),
        experts_by_rank=((0, 1), (1, 2)),
        replica_splitting=ReplicaSplitting.LOCAL_FIRST,
        dispatcher=Dispatcher.ALL_TO_ALL,
        deduplication=Deduplication.NODE,
        payloads=Payloads(
            forward_dispatch=Payload(DType.FP8, 128, 4, 16),
            backward_combine=Payload(DType.FP32, 32, 1),
        ),
        compute=ExpertCompute(
            curve=(RowsSeconds(128, 1e-5),),
            tile_rows=16,
            launch_seconds=2e-6,
            backward_ratio=1.5,
            memory_bytes_per_second=2e12,
            memory_efficiency=0.8,
        ),
        overlap=Overlap(2, 0.8, shared_expert=True),
        exchange_efficiency=0.7,
        layer_costs_include=LayerCostsInclude.EXPERTS_AND_EXCHANGE,
        rows_percentile=0.99,
        shape=ExpertShape((1, 0), 8, 3, 1, 4, gated=False, tokens_per_rank=5),
    )


@pytest.mark.parametrize(
    "document",
    [
        {"capacity_factor": 0},
        {"capacity_factor": -1},
        {"exchange_efficiency": 0},
        {"exchange_efficiency": 1.5},
        {"rows_percentile": 0},
        {"overlap": {"chunks": 0}},
        {"placement": []},
        {"overflow": "spill"},
        {"unknown": 1},
    ],
)
def test_what_is_out_of_range_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        core(document)
