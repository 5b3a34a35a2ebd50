"""Buffers of fixed size that kernels for few tokens keep, so that no counts need be exchanged."""

__all__ = ["low_latency_buffer_bytes"]

# A signal of 4 bytes for each expert that a dispatch has arrived, and one for the combine.
_FLAG_BYTES = 2 * 4


def low_latency_buffer_bytes(experts: int, tokens: int, message_bytes: int) -> int:
    """What DeepEP's low-latency kernels hold on each rank, in bytes, before alignment.

    Room for `tokens` messages to each expert, sent and received, twice, so that one exchange may
    begin before the last has been read. `message_bytes` are those of the larger message, of a
    dispatch or a combine, its metadata included. (moe_and_memory.md O6: 128 tokens of 7,168
    elements for 288 experts with 16 bytes of metadata take 2,116,290,816.)
    """
    return 4 * experts * tokens * message_bytes + _FLAG_BYTES * experts
