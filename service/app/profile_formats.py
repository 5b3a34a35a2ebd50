"""The formats of profiles that are read here: a new one is a row of `PROFILE_FORMATS`."""

from dataclasses import asdict

from service.app.file_formats import FileFormat
from service.formats.dnn_partitioning import looks_like_dnn_partitioning, read_dnn_partitioning
from service.formats.galvatron import looks_like_galvatron, read_galvatron
from service.formats.pipedream import looks_like_pipedream, read_pipedream
from service.formats.piper import looks_like_piper, read_piper
from service.formats.profile_csv import looks_like_profile_csv, read_profile_csv
from service.formats.profile_reading import ProfileReading, Stated

__all__ = ["PROFILE_FORMATS"]


def _read_pipedream(content: bytes, stated: Stated) -> ProfileReading:
    found = read_pipedream(
        content,
        microbatch_size=stated.microbatch_size or 1,
        device=stated.device,
        precision=stated.precision,
    )
    return ProfileReading(
        profile=found.profile,
        model=found.model,
        facts=asdict(found.read),
        assumptions=found.assumptions,
        left_out=found.left_out,
    )


_ORIGIN = frozenset({"device", "precision"})
PROFILE_FORMATS: tuple[FileFormat[Stated, ProfileReading], ...] = (
    FileFormat(
        "pipedream",
        looks_like_pipedream,
        _read_pipedream,
        needs={"microbatch_size": 1},
        takes=_ORIGIN,
    ),
    FileFormat("csv", looks_like_profile_csv, read_profile_csv, takes=_ORIGIN),
    FileFormat(
        "dnn_partitioning",
        looks_like_dnn_partitioning,
        read_dnn_partitioning,
        needs={"microbatch_size": 1},
        takes=_ORIGIN,
    ),
    FileFormat(
        "piper",
        looks_like_piper,
        read_piper,
        needs={"microbatch_size": 1, "backward_ratio": 2.0},
        takes=_ORIGIN,
    ),
    FileFormat(
        "galvatron",
        looks_like_galvatron,
        read_galvatron,
        takes=_ORIGIN | {"backward_ratio"},
    ),
)
