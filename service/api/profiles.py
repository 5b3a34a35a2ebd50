"""Profiles: the document routes and the import of profiles made by other tools."""

from typing import Any

from litestar import Request, Response, post
from litestar.openapi.datastructures import ResponseSpec

from service.api.documents import DocumentName, document_router, required_name
from service.api.imports import MAX_IMPORT_BYTES, respond_to_import
from service.api.injection import InjectedServices
from service.api.schemas.imports import ImportAnswer, ProfileImportFields, import_answer
from service.app.idempotency import Record
from service.app.imports import Imported, ImportFile, import_profile
from service.app.ports import DocumentKind
from service.formats.documents.fields import or_none
from service.formats.profile_reading import Stated
from service.web.forms import read_form
from service.web.idempotency import IDEMPOTENT
from service.web.openapi import EXAMPLE, MULTIPART

__all__ = ["profiles"]

_EXAMPLE_IMPORT = {
    "file": (
        "node1 -- Linear(in_features=512, out_features=512) -- forward_compute_time=2.000, "
        "backward_compute_time=4.000, activation_size=131072.0, parameter_size=1050624.0\n"
        "node2 -- Linear(in_features=512, out_features=10) -- forward_compute_time=0.500, "
        "backward_compute_time=1.000, activation_size=2560.0, parameter_size=20520.0\n"
        "\tnode1 -- node2\n"
    ),
    "microbatch_size": 64,
}


@post(
    "/{name:str}/imports",
    operation_id="import_profile",
    summary="Import a profile",
    opt={**IDEMPOTENT, EXAMPLE: _EXAMPLE_IMPORT, MULTIPART: ProfileImportFields},
    request_max_body_size=MAX_IMPORT_BYTES,
    responses={
        201: ResponseSpec(ImportAnswer, description="A document was stored as a new revision"),
        200: ResponseSpec(ImportAnswer, description="A dry run, or nothing in it was new"),
    },
)
async def import_file(
    request: Request[Any, Any, Any], services: InjectedServices, name: DocumentName
) -> Response[bytes]:
    """Reads a profile as another tool wrote it into a profile, and a model where the file holds
    one, stored together or not at all. What a format can't say is asked for by the name of its
    field. The answer lists what was read, assumed and left out; what is refused is listed with line
    numbers. Importing the same file again changes nothing.

    Read are PipeDream's `graph.txt`, the inputs of dnn-partitioning and of Piper (JSON),
    Hetu-Galvatron's computation profiles (JSON), and CSV whose header names the fields of a
    measurement: `layer`, `microbatch_size` and `forward_seconds`, and as far as they are known
    `device`, `precision`, `sequence_length`, `tensor_parallel`, `recompute`, `backward_seconds` (or
    `backward_input_seconds` and `backward_weight_seconds`), `recompute_seconds`,
    `tensor_parallel_communication_seconds` (or, pass by pass, how long collectives take and what of
    that is exposed), `saved_activation_bytes`, `workspace_bytes`, `samples` and
    `relative_deviation`; an empty cell is unknown. docs/profile-formats.md has each format.
    """
    profile_name = required_name(name)
    content, fields = await read_form(request, ProfileImportFields)
    stated = Stated(
        microbatch_size=or_none(fields.microbatch_size),
        backward_ratio=or_none(fields.backward_ratio),
        device=or_none(fields.device),
        precision=or_none(fields.precision),
    )
    file = ImportFile(content, stated, or_none(fields.format))

    async def create(record: Record[Imported]) -> Imported:
        return await import_profile(
            services,
            file,
            profile_name=profile_name,
            model_name=or_none(fields.model_name),
            dry_run=fields.dry_run,
            record=record,
        )

    return await respond_to_import(request, services, content, fields, create, import_answer)


profiles = document_router(DocumentKind.PROFILE, "gpt-24-blocks-h100", [import_file])
