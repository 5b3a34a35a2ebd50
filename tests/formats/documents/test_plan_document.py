"""The plan document: the examples of the contract, its defaults and its bounds."""

import json

import msgspec
import pytest

from service.core.models.dtypes import DType
from service.core.plans.check import check_plan
from service.core.plans.gradient_reduction import (
    GradientReduction,
    ReductionAlgorithm,
    ReductionOverlap,
)
from service.core.plans.plan import (
    ActivationChange,
    Degrees,
    Dimension,
    GivenStage,
    Partition,
    Placement,
    Plan,
    Schedule,
    SkipRouting,
    Workload,
)
from service.core.plans.resolve import resolve
from service.core.plans.training import MasterCopy, Optimizer, OptimizerSharding, Training
from service.core.schedules.program import PairMode
from service.core.schedules.transfers import TransferMode
from service.formats.documents.plan import PlanDocument, to_core

SMALLEST = """
{"costs": {"stages": [{"forward_seconds": 0.006, "backward_seconds": 0.012},
                      {"forward_seconds": 0.006, "backward_seconds": 0.012}]},
 "schedule": {"kind": "1f1b"}, "workload": {"microbatches": 8}}
"""
LARGE = """
{
  "description": "all that a plan can say",
  "topology": "two-dgx-h100@1",
  "costs": {"model": "gpt-48@1", "profile": "gpt-48-h100@3"},
  "workload": {"sequence_length": 4096, "microbatches": 16, "global_batch_size": 32},
  "parallelism": {"pipeline": 4, "tensor": 2, "data": 2, "context": 1, "sequence_parallel": true,
                  "expert": 2, "expert_tensor": 2},
  "partition": {"layers_per_stage": [13, 12, 12, 13], "skip_routing": "direct"},
  "schedule": {"kind": "1f1b", "chunks_per_rank": 1, "transfer_mode": "latency",
               "recompute_before_gradient": true},
  "placement": {"order": ["tensor", "data", "pipeline"], "devices": ["host0/gpu*", "host1/gpu*"]},
  "recompute": {"default": "selective"},
  "training": {"optimizer": "adam", "weight_dtype": "bf16", "gradient_dtype": "fp32",
               "master_dtype": "none", "optimizer_state_dtypes": ["bf16", "fp32"],
               "optimizer_sharding": "gradients",
               "gradient_reduction": {"algorithm": "sharded", "overlap": "buckets",
                                      "bucket_bytes": 100000000},
               "optimizer_step_seconds": [0.1, 0.2, 0.2, 0.1], "tokens": 300000000000}
}
"""


def read(text: str) -> PlanDocument:
    return msgspec.json.decode(text, type=PlanDocument)


def changed(path: str, value: object) -> str:
    """The smallest plan with one value set at a dotted path."""
    document = json.loads(SMALLEST)
    *parents, last = path.split(".")
    here = document
    for name in parents:
        here = here[int(name)] if isinstance(here, list) else here.setdefault(name, {})
    here[last] = value
    return json.dumps(document)


def test_the_smallest_plan_is_complete() -> None:
    plan = to_core(read(SMALLEST))
    assert plan.degrees == Degrees(pipeline=2)
    assert plan.workload == Workload(microbatches=8)
    assert plan.schedule == Schedule("1f1b")
    assert plan.placement == Placement()
    assert plan.recompute == "none"
    assert check_plan(plan) == []
    assert len(resolve(plan).stages) == 2


def test_everything_a_plan_can_say_arrives() -> None:
    assert to_core(read(LARGE)) == Plan(
        degrees=Degrees(
            pipeline=4, tensor=2, data=2, sequence_parallel=True, expert=2, expert_tensor=2
        ),
        workload=Workload(16, global_batch_size=32, sequence_length=4096),
        schedule=Schedule(
            "1f1b", transfer_mode=TransferMode.LATENCY, recompute_before_gradient=True
        ),
        model="gpt-48@1",
        profile="gpt-48-h100@3",
        partition=Partition(layers_per_stage=(13, 12, 12, 13), skip_routing=SkipRouting.DIRECT),
        topology="two-dgx-h100@1",
        placement=Placement(
            order=(Dimension.TENSOR, Dimension.DATA, Dimension.PIPELINE),
            devices=("host0/gpu*", "host1/gpu*"),
        ),
        recompute="selective",
        training=Training(
            Optimizer.ADAM,
            weight_dtype=DType.BF16,
            gradient_dtype=DType.FP32,
            master_dtype=MasterCopy.NONE,
            moment_dtypes=(DType.BF16, DType.FP32),
            optimizer_sharding=OptimizerSharding.GRADIENTS,
            gradient_reduction=GradientReduction(
                ReductionAlgorithm.SHARDED, ReductionOverlap.BUCKETS, bucket_bytes=100_000_000
            ),
            optimizer_step_seconds=(0.1, 0.2, 0.2, 0.1),
            tokens=300_000_000_000,
        ),
    )


def test_every_field_of_a_stage_arrives() -> None:
    fields = [
        "forward_seconds",
        "backward_seconds",
        "backward_input_seconds",
        "backward_weight_seconds",
        "recompute_seconds",
        "activation_bytes",
        "boundary_bytes",
        "backward_boundary_bytes",
        "transfer_seconds",
        "backward_transfer_seconds",
        "parameter_count",
        "expert_parameter_count",
    ]
    values = {field: number for number, field in enumerate(fields, start=1)}
    stages = to_core(read(changed("costs.stages", [values]))).stages
    assert stages is not None
    assert {field: getattr(stages[0], field) for field in fields} == values


@pytest.mark.parametrize(
    ("costs", "partition", "chunks", "pipeline"),
    [
        ({"stages": [{"forward_seconds": 1}] * 6}, None, 2, 3),
        ({"stages": [{"forward_seconds": 1}] * 5}, None, 2, 2),
        ({"model": "m", "profile": "p"}, {"layers_per_stage": [1, 2, 3]}, 1, 3),
        ({"model": "m", "profile": "p"}, {"cuts": [4, 8]}, 1, 3),
        ({"model": "m", "profile": "p"}, {"stages": [["a"], ["b"]]}, 1, 2),
        ({"model": "m", "profile": "p"}, {}, 1, 1),
        ({}, None, 1, 1),
    ],
)
def test_pipeline_follows_from_the_stages_when_absent(
    costs: dict[str, object], partition: dict[str, object] | None, chunks: int, pipeline: int
) -> None:
    document = {
        "costs": costs,
        "workload": {"microbatches": 1},
        "schedule": {"kind": "gpipe", "chunks_per_rank": chunks},
    }
    if partition is not None:
        document["partition"] = partition
    assert to_core(read(json.dumps(document))).degrees.pipeline == pipeline


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("workload.microbatches", 2**31),
        ("workload.global_batch_size", 2**53 - 1),
        ("costs.stages.0.forward_seconds", 0),
        ("costs.stages.0.boundary_bytes", 0),
        ("parallelism.tensor", 4096),
        ("topology", "a" * 63 + "@1"),
        ("partition", {"layers_per_stage": [0, 3]}),  # told as an empty stage, not as a bad shape
    ],
)
def test_values_at_the_edge_are_read(path: str, value: object) -> None:
    assert read(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("workload.microbatches", 0),
        ("workload.microbatches", 2**31 + 1),
        ("workload.microbatches", "8"),
        ("workload.microbatches", 8.5),
        ("workload.microbatches", None),
        ("workload.global_batch_size", 2**53),
        ("workload.samples", 1),
        ("costs.stages", []),
        ("costs.stages", [{"forward_seconds": 1}] * 4097),
        ("costs.stages.0.forward_seconds", -1),
        ("costs.stages.0.forward_seconds", 1e6),
        ("costs.stages.0.forward_seconds", "1"),
        ("costs.stages.0.boundary_bytes", -1),
        ("costs.stages.0.boundary_bytes", 1.5),
        ("parallelism.pipeline", 0),
        ("parallelism.expert", 0),
        ("schedule.kind", "1F1B"),
        ("schedule.transfer_mode", "torus"),
        ("recompute.default", "everything"),
        ("topology", "Upper"),
        ("topology", "a\n"),
        ("topology", "a@0"),
        ("topology", "a" * 64),
        ("description", "a\0b"),
        ("partition", {"skip_routing": "teleport"}),
        ("placement", {"order": []}),
        ("placement", {"devices": ["host 0"]}),
        ("placement", {"devices": ["host0/gpu0\n"]}),
        ("contract", {"overflow": "spill"}),
        ("contract", {"dropped_token_fraction": 1.5}),
        ("contract", {"random_state": "two\nlines"}),
        ("moe", {"capacity": {}}),
    ],
)
def test_what_the_schema_refuses(path: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(changed(path, value))


def test_training_says_its_optimizer_at_least() -> None:
    assert to_core(read(changed("training", {"optimizer": "sgd"}))).training == Training(
        Optimizer.SGD
    )
    for unreadable in ({}, {"optimizer": "newton"}, {"optimizer": "adam", "master_dtype": "int8"}):
        with pytest.raises(msgspec.ValidationError, match="training"):
            read(changed("training", unreadable))


@pytest.mark.parametrize("part", ["costs", "workload", "schedule"])
def test_the_three_parts_of_every_plan(part: str) -> None:
    document = json.loads(SMALLEST)
    del document[part]
    with pytest.raises(msgspec.ValidationError, match=part):
        read(json.dumps(document))


def test_schedule_fields_arrive_with_the_defaults_of_their_kind() -> None:
    def schedule(**fields: object) -> Schedule:
        return to_core(read(changed("schedule", fields))).schedule

    assert schedule(kind="zb_v") == Schedule("zb_v", chunks_per_rank=2)
    assert schedule(kind="zb_v", chunks_per_rank=1).chunks_per_rank == 1
    grouped = schedule(kind="interleaved_1f1b", chunks_per_rank=3, group_size=5)
    assert grouped == Schedule("interleaved_1f1b", chunks_per_rank=3, group_size=5)
    assert schedule(kind="dualpipe", pair_mode="fused").pair_mode is PairMode.FUSED
    order = ["0F0 2F0 2B0 0B0", "1F0 1B0"]
    written = to_core(read(changed("schedule", {"kind": "explicit", "order": order})))
    assert written.schedule.order == tuple(order)
    assert written.degrees.pipeline == 2


def test_pipeline_ranks_follow_from_the_stages_of_a_v() -> None:
    document = json.loads(SMALLEST)
    document["costs"]["stages"] *= 4
    document["schedule"] = {"kind": "dualpipe_v"}
    assert to_core(read(json.dumps(document))).degrees.pipeline == 4


def test_costs_of_a_stage_arrive() -> None:
    stage = {
        "forward_seconds": 1,
        "backward_input_seconds": 2,
        "backward_weight_seconds": 3,
        "pair_seconds": 5.5,
        "activation_deltas": {
            "forward_bytes": 10,
            "backward_input_bytes": 2,
            "backward_weight_bytes": -15,
            "recompute_bytes": 3,
        },
    }
    (found,) = to_core(read(changed("costs.stages", [stage]))).stages or ()
    assert found == GivenStage(
        1.0,
        backward_input_seconds=2.0,
        backward_weight_seconds=3.0,
        pair_seconds=5.5,
        activation_deltas=ActivationChange(10, 2, -15, 3),
    )


@pytest.mark.parametrize("text", ["0F0\n", "0F0,0B0", "0f0", "0X0", "F" * 1_000_001])
def test_an_order_holds_words_of_operations_alone(text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"schedule.order"):
        read(changed("schedule", {"kind": "explicit", "order": [text]}))


def test_each_field_of_a_stage_is_a_number_or_a_list() -> None:
    stage = {
        "forward_seconds": [0.001, 0.003],
        "backward_seconds": 0.004,
        "activation_deltas": {
            "forward_bytes": [10, 30],
            "backward_input_bytes": 0,
            "backward_weight_bytes": [-10, -30],
        },
        "boundary_bytes": [5, 15],
    }
    (read_stage,) = to_core(read(changed("costs.stages", [stage]))).stages or ()
    assert read_stage == GivenStage(
        forward_seconds=(0.001, 0.003),
        backward_seconds=0.004,
        activation_deltas=ActivationChange((10, 30), 0, (-10, -30)),
        boundary_bytes=(5, 15),
    )
    workload = {"microbatches": 2, "microbatch_sequence_lengths": [1024, 512]}
    plan = to_core(read(changed("workload", workload)))
    assert plan.workload == Workload(2, microbatch_sequence_lengths=(1024, 512))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("costs.stages.0.forward_seconds", []),
        ("costs.stages.0.forward_seconds", [0.001, -0.001]),
        ("costs.stages.0.forward_seconds", [[0.001]]),
        ("costs.stages.0.boundary_bytes", [1, 0.5]),
        ("costs.stages.0.boundary_bytes", [1] * 65_537),
        ("workload.microbatch_sequence_lengths", []),
        ("workload.microbatch_sequence_lengths", [0]),
        ("workload.microbatch_sequence_lengths", 1024),
    ],
)
def test_lists_by_microbatch_are_bounded(path: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(changed(path, value))
