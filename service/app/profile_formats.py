"""The formats of profiles that are read here: a new one is a row of `PROFILE_FORMATS`."""

from dataclasses import asdict

from service.app.file_formats import FileFormat
from service.formats.pipedream import looks_like_pipedream, read_pipedream
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
)
