"""Memory that others have published, by the functions that answers are made with."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from service.core.amounts import Amount
from service.core.estimates.memory import PlanMemory, plan_memory
from service.core.estimates.simulation import plan_program
from service.core.memory.static import static_state, whole_weights
from service.core.memory.terms import Term
from service.core.models.dimensions import Attention, Experts, Mlp
from service.core.models.dtypes import DType
from service.core.models.graph import Layer, Model, Parameter, Tensor, build_model
from service.core.plans.memory_settings import MemorySettings
from service.core.plans.plan import Degrees, Partition, Plan, Schedule, Workload
from service.core.plans.rank_weights import HeldWeights
from service.core.plans.resolve import resolve
from service.core.plans.tied import TiedParameters
from service.core.plans.training import MasterCopy, Optimizer, OptimizerSharding, Training
from service.core.profiles.measurement import Measurement, Point, Recompute
from service.core.profiles.profile import Profile, build_profile
from service.formats.documents.model import to_core
from service.formats.transformer_model import Transformer, model_document

GIB = 2**30
MIB = 2**20

# Weights and gradients of 2 and 4 bytes, 12 for the optimizer: what Megatron-LM reports.
MEGATRON = Training(Optimizer.ADAM, weight_dtype=DType.BF16, gradient_dtype=DType.FP32)
# The mixed precision of the ZeRO paper: gradients of 2 bytes.
ZERO = replace(MEGATRON, gradient_dtype=DType.FP16, weight_dtype=DType.FP16)


def gpt(
    hidden: int, heads: int, layers: int, *, vocabulary: int = 51200, head_size: int = 0
) -> Model:
    """As Megatron-LM's report counts it: LayerNorm, no biases, one embedding at both ends."""
    size = head_size or hidden // heads
    return to_core(
        model_document(
            Transformer(
                hidden=hidden,
                vocabulary=vocabulary,
                positions=0,
                attention=Attention(heads=heads, key_value_heads=heads, head_size=size),
                blocks=(Mlp(width=4 * hidden, gated=False),) * layers,
                norm_bias=True,
                tied=True,
                dtype=DType.BF16,
            )
        )
    )


def profile(point: Point) -> Profile:
    """Times that matter to nothing here, of every layer; nobody measured what is kept."""
    again = 0.1 if point.recompute is not Recompute.NONE else None
    return build_profile(None, None, [Measurement("*", point, 1.0, 2.0, recompute_seconds=again)])


def memory_of(
    model: Model,
    degrees: Degrees,
    *,
    microbatch_size: int,
    sequence_length: int,
    microbatches: int = 1,
    recompute: Recompute = Recompute.NONE,
    training: Training = MEGATRON,
    chunks: int = 1,
    counts: tuple[int, ...] | None = None,
) -> PlanMemory:
    """A plan under 1F1B (interleaved with chunks), scores written down, with dropout."""
    plan = Plan(
        degrees=degrees,
        workload=Workload(
            microbatches, microbatch_size=microbatch_size, sequence_length=sequence_length
        ),
        schedule=Schedule("1f1b" if chunks == 1 else "interleaved_1f1b", chunks_per_rank=chunks),
        model="model@1",
        profile="profile@1",
        partition=Partition(
            layers_per_stage=counts or _even(model, degrees.pipeline * chunks),
            tied_parameters=TiedParameters.DUPLICATE,
        ),
        recompute=recompute.value,
        training=training,
        memory=MemorySettings(flash_attention=False, dropout=True),
    )
    point = Point(microbatch_size, sequence_length, degrees.tensor, recompute)
    resolved = resolve(plan, model=model, profile=profile(point))
    return plan_memory(resolved, plan_program(resolved))


def _even(model: Model, stages: int) -> tuple[int, ...]:
    """Blocks evenly, the embedding before them, final norm and head behind."""
    each = (len(model.layers) - 3) // stages
    counts = [each] * stages
    counts[0] += 1
    counts[-1] += 2
    return tuple(counts)


def states(memory: PlanMemory, rank: int = 0) -> int:
    """Weights, gradients and optimizer state of a rank."""
    of_state = (Term.WEIGHTS, Term.GRADIENTS, Term.MASTER_WEIGHTS, Term.OPTIMIZER_MOMENTS)
    return sum(term.at_peak for term in memory.ranks[rank].terms if term.term in of_state)


def term(memory: PlanMemory, name: Term, rank: int = 0) -> int:
    (found,) = [one.at_peak for one in memory.ranks[rank].terms if one.term is name]
    return found


def of_rank(elements: int, replicas: int = 1) -> list[HeldWeights]:
    return [HeldWeights(elements, None, 1, replicas)]


def total(training: Training, sharding: OptimizerSharding, elements: int, replicas: int) -> int:
    trained = replace(training, optimizer_sharding=sharding)
    return static_state(of_rank(elements, replicas), trained).total


def test_megatron_report_22b() -> None:
    """Run by us with Megatron-LM d98e8a6: 49,651,605,504 bytes; 10,022.01 MiB of activations."""
    memory = memory_of(
        gpt(6144, 64, 48),
        Degrees(1, tensor=8, sequence_parallel=True),
        microbatch_size=4,
        sequence_length=2048,
        recompute=Recompute.SELECTIVE,
    )
    assert states(memory) == 49_651_605_504
    # It counts logits once, in full precision; and shares token ids among tensor ranks.
    logits = 4 * 2048 * 4 * 51200 // 8
    ids = 8 * 2048 * 4
    found = term(memory, Term.ACTIVATIONS) - ids + ids // 8 + logits
    assert found / MIB == pytest.approx(10_022.01, abs=0.005)
    assert term(memory, Term.LOGITS) == logits * 10 // 4  # in 16 bits, in full, and a gradient


def test_megatron_report_175b() -> None:
    """The same of 96 layers on 8 x 8: 50,348,611,584 bytes; 9,816.02 MiB, interleaved 12,679.02."""
    model = gpt(12288, 96, 96)
    degrees = Degrees(8, tensor=8, sequence_parallel=True)

    def of(chunks: int) -> PlanMemory:
        return memory_of(
            model,
            degrees,
            microbatch_size=1,
            sequence_length=2048,
            microbatches=64,
            recompute=Recompute.SELECTIVE,
            chunks=chunks,
        )

    memory = of(1)
    # It spreads the final norm evenly over the stages; it is on the last.
    assert states(memory) + 18 * 2 * 12288 // 8 == 50_348_611_584
    ids = 8 * 2048
    found = term(memory, Term.ACTIVATIONS) - 8 * (ids - ids // 8)
    assert found / MIB == pytest.approx(9816.02, abs=0.005)
    # It takes what the embedding keeps times the same penalty of 1 + 7/24; we count it apart.
    layers = 31 * 4 * 102
    interleaved = term(of(3), Term.ACTIVATIONS) / MIB
    assert layers < interleaved < 12_679.02 + 20
    assert layers == pytest.approx(12_679.02, rel=0.003)


def test_megatron_report_mixtral() -> None:
    """8x7B on pipeline 4, expert 8, 64 ranks: 20,063,312,640 bytes with a distributed optimizer."""
    each = Mlp(width=14336, gated=True)
    model = to_core(
        model_document(
            Transformer(
                hidden=4096,
                vocabulary=32000,
                positions=0,
                attention=Attention(heads=32, key_value_heads=8, head_size=128),
                blocks=(Experts(count=8, active=2, each=each),) * 32,
                norm_bias=False,
                tied=False,
                dtype=DType.BF16,
            )
        )
    )
    assert model.parameter_count / 1e9 == pytest.approx(46.70, abs=0.005)
    degrees = Degrees(4, data=16, expert=8)
    assert degrees.expert_replicas == 2
    memory = memory_of(
        model,
        degrees,
        microbatch_size=1,
        sequence_length=4096,
        training=replace(MEGATRON, optimizer_sharding=OptimizerSharding.OPTIMIZER),
    )
    # A final norm spread over four stages, at 6 + 12 / 16 bytes.
    assert states(memory) + 4096 // 4 * 27 // 4 == 20_063_312_640


def test_megatron_unit_test() -> None:
    """Heads of 4 elements: 187,200 bytes; 124,800 over two ranks; activations 27,008 bytes."""
    wide = gpt(16, 8, 2, vocabulary=128, head_size=4)
    assert states(memory_of(wide, Degrees(1), microbatch_size=2, sequence_length=8)) == 187_200
    sharded = replace(MEGATRON, optimizer_sharding=OptimizerSharding.OPTIMIZER)
    halved = memory_of(
        wide, Degrees(1, data=2), training=sharded, microbatch_size=2, sequence_length=8
    )
    assert states(halved) == 124_800
    # Its activations take heads for h / a elements, whatever they have.
    memory = memory_of(
        gpt(16, 8, 2, vocabulary=128),
        Degrees(1),
        recompute=Recompute.SELECTIVE,
        microbatch_size=2,
        sequence_length=8,
    )
    logits = 4 * 16 * 128
    assert term(memory, Term.ACTIVATIONS) + logits == 27_008
    # Without sequence parallelism it halves what the ends keep, and adds five per cent.
    ends = 4 * 16 * 16 + logits
    assert (term(memory, Term.ACTIVATIONS) + logits - ends // 2) * Fraction(21, 20) == 23_520


@pytest.mark.parametrize(
    ("sharding", "gigabytes"),
    list(zip(OptimizerSharding, (120, 31.4, 16.6, 1.9), strict=True)),
)
def test_zero_paper(sharding: OptimizerSharding, gigabytes: float) -> None:
    """Rajbhandari et al. (2020), figure 1: 7.5 billion parameters on 64 ranks."""
    found = total(ZERO, sharding, 7_500_000_000, 64)
    assert found / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_deepspeed_estimates() -> None:
    """Printed as GB, meaning GiB; its optimizer works on gradients in full during its step."""
    elements = 2_851_000_000
    # ZeRO-2 as documented is 4 + 16 / d, what ZeRO-1 holds at its step; the code now has 2 + 18/d.
    for sharding, printed in (
        (OptimizerSharding.OPTIMIZER, 15.93),
        (OptimizerSharding.GRADIENTS, 11.28),
    ):
        state = static_state(of_rank(elements, 8), replace(ZERO, optimizer_sharding=sharding))
        found = (state.total + state.step_gradients) / GIB
        assert found == pytest.approx(printed, abs=0.005)
    # ZeRO-3: 18 / d, and the largest layer whole twice, in 2 bytes.
    largest = 2 * whole_weights(of_rank(32_000_000), ZERO)
    found = total(MEGATRON, OptimizerSharding.PARAMETERS, elements, 8) + largest
    assert found / GIB == pytest.approx(6.09, abs=0.005)
    assert largest / GIB == pytest.approx(0.12, abs=0.005)


def test_deepspeed_zero_3_of_t5_large() -> None:
    """737.67 M parameters, the largest layer 32.90 M, on four ranks: 3291, 125 and 477 MiB."""
    largest = 2 * whole_weights(of_rank(32_900_000), ZERO)
    everything = total(MEGATRON, OptimizerSharding.PARAMETERS, 737_670_000, 4) + largest
    assert everything / MIB == pytest.approx(3291, abs=1)
    assert largest / MIB == pytest.approx(125, abs=1)
    # With the optimizer on the host its largest layer and the 16-bit share stay.
    shares = whole_weights(of_rank(737_670_000, 4), ZERO, OptimizerSharding.PARAMETERS)
    assert (shares + largest) / MIB == pytest.approx(477, abs=1)


def test_accelerate_estimate_of_bert() -> None:
    """bert-base-cased in full precision: 413.18 MiB; four times that, 1.61 GiB, with Adam."""
    full = Training(Optimizer.ADAM, weight_dtype=DType.FP32)
    elements = round(413.18 * MIB / 4)
    state = static_state(of_rank(elements), full)
    assert state.weights / MIB == pytest.approx(413.18, abs=0.005)
    assert state.master_weights == state.step_gradients == 0
    assert state.total == 4 * state.weights
    assert state.total / GIB == pytest.approx(1.61, abs=0.005)


def test_torchtitan_from_8_to_128_ranks() -> None:
    """8B with FSDP, measured 82.4 and 67.0 GiB: 15.4 less, of which 14.0 are states split on."""
    plain = replace(MEGATRON, gradient_dtype=DType.BF16)
    held = [total(plain, OptimizerSharding.PARAMETERS, 8_030_000_000, n) for n in (8, 128)]
    explained = (held[0] - held[1]) / GIB
    assert explained == pytest.approx(14.0, abs=0.05)
    assert explained < 82.4 - 67.0


def test_uneven_stages_are_counted_layer_by_layer() -> None:
    """Megatron-Bridge PR 5077: layers of 3160 as [1, 2, 2, 3], 472 at the end: 9952, not 6792."""
    names = [f"l{number}" for number in range(8)]
    ends = {"l7": (Parameter("end", 472, DType.BF16),)}
    model = build_model(
        [
            Layer(name, "block", (Parameter(f"{name}.w", 3160, DType.BF16), *ends.get(name, ())))
            for name in names
        ],
        [
            Tensor(f"t.{one}", one, (other,), shape=(1,), dtype=DType.BF16)
            for one, other in pairwise(names)
        ],
    )
    memory = memory_of(model, Degrees(4), microbatch_size=1, sequence_length=8, counts=(1, 2, 2, 3))
    held: list[Amount] = [term(memory, Term.WEIGHTS, rank) // 2 for rank in range(4)]
    assert held == [3160, 6320, 6320, 9952]


def test_moments_in_sixteen_bits() -> None:
    """Megatron-LM's precision-aware optimizer: the 12 of the sharded part become 8."""
    aware = replace(MEGATRON, moment_dtypes=(DType.BF16, DType.BF16))
    state = static_state(of_rank(1000), aware)
    assert state.master_weights + state.optimizer_moments == 8000
    none = replace(MEGATRON, master_dtype=MasterCopy.NONE)
    assert static_state(of_rank(1000), none).master_weights == 0
