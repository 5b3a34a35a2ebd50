"""The formats of models that are read here: a new one is a row of `MODEL_FORMATS`."""

from service.app.file_formats import FileFormat
from service.formats.hugging_face_config import (
    looks_like_hugging_face_config,
    read_hugging_face_config,
)
from service.formats.megatron import looks_like_megatron, read_megatron
from service.formats.model_reading import ModelReading, StatedModel

__all__ = ["MODEL_FORMATS"]

# The arguments of a launch may name a `model_type` of their own, so they are tried first.
MODEL_FORMATS: tuple[FileFormat[StatedModel, ModelReading], ...] = (
    FileFormat(
        "megatron",
        looks_like_megatron,
        read_megatron,
        takes=frozenset({"dtype", "vocabulary_size"}),
    ),
    FileFormat(
        "hugging_face",
        looks_like_hugging_face_config,
        read_hugging_face_config,
        takes=frozenset({"dtype"}),
    ),
)
