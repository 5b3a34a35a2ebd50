"""Hetu-Galvatron's layer times, from the difference of two layer counts."""

import json
from collections.abc import Iterator

from service.core.units import PICOSECONDS_PER_SECOND
from service.formats.documents import profile as profiles
from service.formats.galvatron import OTHER_LAYER, read_galvatron
from service.formats.profile_reading import Stated
from validation.rows import Files, Row, Section, within

__all__ = ["SECTIONS"]

_FILE = (
    "profiles/Hetu-Galvatron/galvatron/models/gpt/configs/"
    "computation_profiling_bf16_llama2-7b_all.json"
)
_SEQUENCE_LENGTH = 2048


def _rows(files: Files) -> Iterator[Row]:
    """The times that the authors derived stay out of the import, which holds them against its own;
    here they are the published ones.
    """
    content = files.read(_FILE)
    times = json.loads(content)
    measured = {key: value for key, value in times.items() if not key.startswith("layertype_")}
    reading = read_galvatron(json.dumps(measured, indent=1).encode(), Stated())
    profile = profiles.to_core(reading.profile)
    for key, published in times.items():
        if not key.startswith("layertype_"):
            continue
        kind, size = key.removeprefix("layertype_").split("_")[:2]
        samples = int(size.removeprefix("bsz"))
        layer = OTHER_LAYER if kind == "other" else "block.0"
        cost = profile.lookup(layer, samples, _SEQUENCE_LENGTH)
        of_sample = cost.forward_picoseconds / samples / PICOSECONDS_PER_SECOND * 1000
        what = "all that is no block" if kind == "other" else "a block"
        yield Row(
            f"{what}, {samples} samples of {_SEQUENCE_LENGTH} tokens", f"{published!r}", of_sample
        )


SECTIONS = (
    Section(
        name="galvatron",
        title="Layer times of Galvatron",
        source=(
            "`computation_profiling_bf16_llama2-7b_all.json` of PKU-DAIR/Hetu-Galvatron: the "
            "`layertype_` keys, which its profiler derived, in ms of a forward and a sample."
        ),
        text="""
The `layernum[2]` and `layernum[4]` keys imported: a block is half the difference of the two runs,
and the rest is what two blocks leave of the shorter one. A second file of the same folder
(`..._seqlen2048_all.json`) has 24.496 ms for `layernum[2]_bsz1_seq2048`, which is 15.079 ms here.
It holds one layer count alone and is refused; a profile keeps both of its times in its
description.
""",
        what="layer and shape",
        unit="ms",
        rule=within(
            1e-6,
            "the same two runs on both sides; ours is rounded to whole picoseconds.",
        ),
        rows_of_files=lambda files: tuple(_rows(files)),
    ),
)
