"""`config.json` of Hugging Face transformers: the dimensions of a decoder, read into a model.

A config of these classes is written with what differs from the class's own defaults, so what may
be absent has the default of its class, which the reading lists. What changes no count is left out.
"""

from collections.abc import Mapping
from typing import Any

from service.core.errors import Fault, FaultCode
from service.core.models.dtypes import DType
from service.formats.hugging_face_types import MODEL_TYPES, Fields
from service.formats.model_reading import ModelReading, StatedModel
from service.formats.pasted_json import JsonFile, read_json
from service.formats.pasted_text import shown
from service.formats.transformer_model import (
    Transformer,
    active_parameter_count,
    model_document,
    parameter_count,
    too_large,
)

__all__ = ["looks_like_hugging_face_config", "read_hugging_face_config"]

_DTYPES = {
    "bfloat16": DType.BF16,
    "float16": DType.FP16,
    "float32": DType.FP32,
    "float64": DType.FP64,
}


def looks_like_hugging_face_config(content: bytes) -> bool:
    """Whether it is a JSON object that names a `model_type`."""
    return content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and b'"model_type"' in content


def read_hugging_face_config(content: bytes, stated: StatedModel) -> ModelReading:
    """Read a `config.json` of one of the types in `MODEL_TYPES`.

    Raises `InvalidInput` with every fault, each with its line (counted from 1) as path
    `("line", n)`; at `("dtype",)` when neither the file nor `stated` says what weights are made of.
    """
    file = read_json(content)
    values = file.mapping((), file.root)
    if values is None:
        raise file.refusal()
    reading = _Reading(file, values, stated)
    model = reading.transformer()
    if model is not None and (name := too_large(model)) is not None:
        file.refuse((), f"makes {name} larger than 2^53 - 1 elements")
    if model is None or not file.sound:
        raise file.refusal(reading.asked)
    return ModelReading(
        model=model_document(model),
        plan=None,
        facts=_facts(values, model),
        assumptions=tuple(reading.assumptions),
        left_out=file.left_out(),
    )


def _facts(values: Mapping[str, Any], model: Transformer) -> dict[str, Any]:
    return {
        "model_type": values["model_type"],
        "architectures": values.get("architectures") or [],
        "blocks": len(model.blocks),
        "hidden_size": model.hidden,
        "vocabulary_size": model.vocabulary,
        "parameters": parameter_count(model),
        "active_parameters": active_parameter_count(model),
    }


class _Reading:
    """One config on its way to a transformer. `asked` are faults of what the caller stated."""

    def __init__(self, file: JsonFile, values: Mapping[str, Any], stated: StatedModel) -> None:
        self.assumptions: list[str] = []
        self.asked: list[Fault] = []
        self._file = file
        self._values = values
        self._stated = stated

    def transformer(self) -> Transformer | None:
        """The model, or None with a fault."""
        model_type = self._values.get("model_type")
        read = MODEL_TYPES.get(model_type) if isinstance(model_type, str) else None
        if read is None:
            known = ", ".join(MODEL_TYPES)
            detail = f"is one of {known}; got {shown(str(model_type))}"
            self._file.refuse(("model_type",), detail)
            return None
        fields = Fields(self._file, self._values, self.assumptions)
        self._check_head(fields)
        shape = read(fields)
        dtype = self._dtype(fields)
        fields.leave_out_the_rest()
        if dtype is None or not self._file.sound:
            return None
        self.assumptions.append(
            f"what passes between layers is {dtype.value}, as the weights are; tokens are int64"
        )
        if shape.tied:
            self.assumptions.append(
                "the head is the embedding again: one weight, in the tied group `embedding`"
            )
        return Transformer(
            hidden=shape.hidden,
            vocabulary=shape.vocabulary,
            positions=shape.positions,
            attention=shape.attention,
            blocks=shape.blocks,
            norm_bias=shape.norm_bias,
            tied=shape.tied,
            dtype=dtype,
        )

    def _check_head(self, fields: Fields) -> None:
        """The head is the one of a language model; others have other weights."""
        if not fields.has("architectures"):
            return
        named = self._values["architectures"]
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            self._file.refuse(("architectures",), "is a list of names of classes")
            return
        for place, name in enumerate(named):
            if not name.endswith(("ForCausalLM", "LMHeadModel")):
                detail = f"ends in ForCausalLM or LMHeadModel; {shown(name)} has another head"
                self._file.refuse(("architectures", place), detail)

    def _dtype(self, fields: Fields) -> DType | None:
        key = "dtype" if fields.has("dtype") else "torch_dtype"
        text = fields.text(key)
        said = None if text is None else _DTYPES.get(text.removeprefix("torch."))
        if text is not None and said is None:
            self._file.refuse((key,), f"is one of {', '.join(_DTYPES)}; got {shown(text)}")
            return None
        if said is None and self._stated.dtype is None:
            detail = "the file does not say what weights are made of: state it"
            self.asked.append(Fault(FaultCode.MISSING_FIELD, ("dtype",), detail))
        elif said is not None and self._stated.dtype not in (None, said):
            detail = f"weights are {self._stated.dtype}, as the import stated"
            self._file.leave_out((key,), detail)
        return self._stated.dtype or said
