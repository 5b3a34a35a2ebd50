"""Models: the document routes and the import of models that other tools describe."""

import json
from typing import Any

from litestar import Request, Response, post
from litestar.openapi.datastructures import ResponseSpec

from service.api.documents import DocumentName, document_router, required_name
from service.api.imports import MAX_IMPORT_BYTES, respond_to_import
from service.api.injection import InjectedServices
from service.api.schemas.imports import (
    ModelImportAnswer,
    ModelImportFields,
    model_import_answer,
)
from service.app.idempotency import Record
from service.app.imports import Imported, ImportFile, import_model, planned
from service.app.ports import DocumentKind
from service.formats.documents.fields import or_none
from service.formats.model_reading import StatedModel
from service.web.forms import read_form
from service.web.idempotency import IDEMPOTENT
from service.web.openapi import EXAMPLE, MULTIPART

__all__ = ["models"]

_EXAMPLE_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 8192,
}
_EXAMPLE_IMPORT = {"file": json.dumps(_EXAMPLE_CONFIG, indent=2)}


@post(
    "/{name:str}/imports",
    operation_id="import_model",
    summary="Import a model",
    opt={**IDEMPOTENT, EXAMPLE: _EXAMPLE_IMPORT, MULTIPART: ModelImportFields},
    request_max_body_size=MAX_IMPORT_BYTES,
    responses={
        201: ResponseSpec(ModelImportAnswer, description="A document was stored as a new revision"),
        200: ResponseSpec(ModelImportAnswer, description="A dry run, or nothing in it was new"),
    },
)
async def import_file(
    request: Request[Any, Any, Any], services: InjectedServices, name: DocumentName
) -> Response[bytes]:
    """Reads the dimensions of a transformer into a model: embedding, blocks, final norm and head,
    each weight with its count. The answer lists what was read, assumed and left out; what is
    refused is listed with line numbers. Importing the same file again changes nothing.

    Read are a Hugging Face `config.json` of a decoder, and the arguments of a Megatron-style launch
    as a script has them or as JSON. Those make a plan too, from degrees, batch and schedule, when
    `profile` names what prices it, or `plan_name` alone asks for assumed costs.
    docs/profile-formats.md has both.
    """
    model_name = required_name(name)
    content, fields = await read_form(request, ModelImportFields)
    stated = StatedModel(
        dtype=or_none(fields.dtype), vocabulary_size=or_none(fields.vocabulary_size)
    )
    plan = planned(model_name, or_none(fields.plan_name), or_none(fields.profile))
    file = ImportFile(content, stated, or_none(fields.format))

    async def create(record: Record[Imported]) -> Imported:
        return await import_model(
            services,
            file,
            model_name=model_name,
            plan=plan,
            dry_run=fields.dry_run,
            record=record,
        )

    return await respond_to_import(request, services, content, fields, create, model_import_answer)


models = document_router(DocumentKind.MODEL, "gpt-24-blocks", [import_file])
