"""What published figures of memory do not tell apart; they themselves stand in `validation`."""

from dataclasses import replace

from service.core.memory.static import static_state
from service.core.memory.terms import Term
from service.core.models.dtypes import DType
from service.core.plans.plan import Degrees
from service.core.plans.rank_weights import HeldWeights
from service.core.plans.training import MasterCopy
from service.core.profiles.measurement import Recompute
from validation.memory_plans import MEGATRON, bytes_of, gpt, memory_of


def test_logits_are_there_in_16_bits_in_full_and_as_a_gradient() -> None:
    """Megatron-LM's report counts those of 22 B once, in full."""
    memory = memory_of(
        gpt(6144, 64, 48),
        Degrees(1, tensor=8, sequence_parallel=True),
        microbatch_size=4,
        sequence_length=2048,
        recompute=Recompute.SELECTIVE,
    )
    in_full = 4 * 2048 * 4 * 51200 // 8
    assert bytes_of(memory, Term.LOGITS) == in_full * 10 // 4


def test_every_uneven_stage_has_its_own_layers() -> None:
    """Eight blocks of 3,136 as 1, 2, 2, 3; an embedding of 512 at both ends, a norm of 32."""
    memory = memory_of(
        gpt(16, 4, 8, vocabulary=32),
        Degrees(4),
        microbatch_size=1,
        sequence_length=8,
        counts=(2, 2, 2, 5),
    )
    held = [bytes_of(memory, Term.WEIGHTS, rank) // 2 for rank in range(4)]
    assert held == [3136 + 512, 2 * 3136, 2 * 3136, 3 * 3136 + 32 + 512]


def test_moments_in_sixteen_bits() -> None:
    """Megatron-LM's precision-aware optimizer: the 12 of the sharded part become 8."""
    held = [HeldWeights(1000, None, 1, 1)]
    aware = replace(MEGATRON, moment_dtypes=(DType.BF16, DType.BF16))
    state = static_state(held, aware)
    assert state.master_weights + state.optimizer_moments == 8000
    none = replace(MEGATRON, master_dtype=MasterCopy.NONE)
    assert static_state(held, none).master_weights == 0
