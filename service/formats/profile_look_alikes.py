"""Files that stand beside profiles and are none: what each is, and where it belongs."""

from collections.abc import Callable, Sequence

__all__ = ["PROFILE_LOOK_ALIKES"]

_HEAD = 65_536


def _is_object_with(*marks: bytes) -> Callable[[bytes], bool]:
    def found(content: bytes) -> bool:
        head = content[:_HEAD]
        return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and all(m in head for m in marks)

    return found


def _first_line_has(*marks: bytes) -> Callable[[bytes], bool]:
    def found(content: bytes) -> bool:
        line = content[:_HEAD].lstrip().split(b"\n", 1)[0]
        return all(mark in line for mark in marks)

    return found


PROFILE_LOOK_ALIKES: Sequence[tuple[Callable[[bytes], bool], str]] = (
    (
        _is_object_with(b'"fpgas"', b'"nodes"'),
        "a split of dnn-partitioning, without any cost: put it into `partition.stages` of a plan",
    ),
    (
        _is_object_with(b"layernum[", b"_rank"),
        "a memory profile of Galvatron, without any time: a measurement of a layer has its seconds",
    ),
    (
        _is_object_with(b'"pp_deg"', b'"global_bsz"'),
        "a plan of Galvatron, without any cost: its degrees belong into a plan",
    ),
    (
        _is_object_with(b'"allreduce_size_'),
        "all-reduce benchmarks of Galvatron: they were measured of links and belong to a topology",
    ),
    (
        _is_object_with(b'"pp_size_'),
        "point-to-point rates of Galvatron: they were measured of links and belong to a topology",
    ),
    (
        _is_object_with(b'"overlap_coe"'),
        "Galvatron's slowdown of computation that overlaps communication: no cost of a layer",
    ),
    (
        _first_line_has(b"iteration time", b"pipeline parallelism"),
        (
            "iteration times of whole runs (vTrain): no cost of a layer follows, but they "
            "can be held against estimates"
        ),
    ),
    (
        _first_line_has(b"size(B)", b"busbw(GB/s)"),
        "a benchmark of collectives (vTrain): it was measured of links and belongs to a topology",
    ),
    (
        _is_object_with(b'"model_type"'),
        "a Hugging Face config, without any cost: import it with POST /v1/models/{name}/imports",
    ),
)
