"""Plans whose memory is compared with published figures, and ways to read their terms."""

from dataclasses import replace

from service.core.estimates.memory import PlanMemory, plan_memory
from service.core.estimates.simulation import plan_program
from service.core.memory.terms import Term
from service.core.models.dimensions import Attention, Experts, Mlp
from service.core.models.dtypes import DType
from service.core.models.graph import Model
from service.core.plans.memory_settings import MemorySettings
from service.core.plans.plan import Degrees, Partition, Plan, Schedule, Workload
from service.core.plans.resolve import resolve
from service.core.plans.tied import TiedParameters
from service.core.plans.training import Optimizer, Training
from service.core.profiles.measurement import Measurement, Point, Recompute
from service.core.profiles.profile import build_profile
from service.formats.documents.model import to_core
from service.formats.transformer_model import Transformer, model_document

__all__ = [
    "MEGATRON",
    "ZERO",
    "bytes_of",
    "gpt",
    "layer_bytes",
    "memory_of",
    "mixtral",
    "state_bytes",
]

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


def mixtral() -> Model:
    """Mixtral 8x7B."""
    each = Mlp(width=14336, gated=True)
    return to_core(
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
    """A plan under 1F1B (interleaved with chunks), scores written down, with dropout.

    Nobody measured what is kept, so it is computed from dimensions. `counts` are layers of each
    stage; without them blocks are laid evenly.
    """
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
    again = None if recompute is Recompute.NONE else 0.1
    times = Measurement("*", point, 1.0, 2.0, recompute_seconds=again)
    profile = build_profile(None, None, [times])
    resolved = resolve(plan, model=model, profile=profile)
    return plan_memory(resolved, plan_program(resolved))


def _even(model: Model, stages: int) -> tuple[int, ...]:
    """Blocks evenly, the embedding before them, final norm and head behind."""
    each = (len(model.layers) - 3) // stages
    counts = [each] * stages
    counts[0] += 1
    counts[-1] += 2
    return tuple(counts)


def state_bytes(memory: PlanMemory, rank: int = 0) -> int:
    """Weights, gradients and optimizer state of a rank."""
    of_state = (Term.WEIGHTS, Term.GRADIENTS, Term.MASTER_WEIGHTS, Term.OPTIMIZER_MOMENTS)
    return sum(term.at_peak for term in memory.ranks[rank].terms if term.term in of_state)


def bytes_of(memory: PlanMemory, term: Term, rank: int = 0) -> int:
    """One term of a rank, at its peak."""
    (found,) = [one.at_peak for one in memory.ranks[rank].terms if one.term is term]
    return found


def layer_bytes(hidden: int, heads: int, degrees: Degrees, recompute: Recompute) -> int:
    """What one block keeps of a microbatch of one sequence of 2048: two blocks less one."""
    two, one = (
        memory_of(
            gpt(hidden, heads, layers),
            degrees,
            microbatch_size=1,
            sequence_length=2048,
            recompute=recompute,
        )
        for layers in (2, 1)
    )
    return bytes_of(two, Term.ACTIVATIONS) - bytes_of(one, Term.ACTIVATIONS)
