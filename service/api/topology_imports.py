"""Importing a cluster from the files that people have of it."""

from typing import Any

import msgspec
from litestar import Request, Response, post
from litestar.openapi.datastructures import ResponseSpec

from service.api.documents import DocumentName, required_name
from service.api.imports import MAX_IMPORT_BYTES, digests_of
from service.api.injection import InjectedServices
from service.api.schemas.topology_imports import (
    TopologyImportAnswer,
    TopologyImportFields,
    stated_of,
    topology_import_answer,
)
from service.app.documents import Change
from service.app.idempotency import Answer, Record
from service.app.topology_imports import (
    ImportedTopology,
    asked_of_files,
    import_topology,
)
from service.formats.documents.fields import or_none
from service.web.forms import read_files_form
from service.web.idempotency import IDEMPOTENT, respond_once
from service.web.openapi import EXAMPLE, FILES, MULTIPART

__all__ = ["MAX_IMPORT_FILES", "import_files"]

MAX_IMPORT_FILES = 16

_EXAMPLE_HOST = """<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:08:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:0f:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:2d:00.0" count="6" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:0c:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x9c63c00300a1b2c4"/>
        </nic>
      </pci>
      <pci busid="0000:2d:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1">
          <nvlink target="0000:0f:00.0" count="6" tclass="0x030200"/>
        </gpu>
      </pci>
    </pci>
  </cpu>
</system>
"""


@post(
    "/{name:str}/imports",
    operation_id="import_topology",
    summary="Import a topology",
    opt={
        **IDEMPOTENT,
        EXAMPLE: {"files": [_EXAMPLE_HOST], "hosts": "2"},
        MULTIPART: TopologyImportFields,
        FILES: MAX_IMPORT_FILES,
    },
    request_max_body_size=MAX_IMPORT_BYTES,
    responses={
        201: ResponseSpec(TopologyImportAnswer, description="Stored as a new revision"),
        200: ResponseSpec(TopologyImportAnswer, description="A dry run, or it was known"),
    },
)
async def import_files(
    request: Request[Any, Any, Any], services: InjectedServices, name: DocumentName
) -> Response[bytes]:
    """Reads files that tell of one cluster and joins them into a topology: the inside of a host is
    taken for all hosts that it stands for (files of unlike hosts say which in `hosts_by_file`),
    fabrics are joined to hosts by the name of an adapter, by its GUID, or by the order of adapters,
    trees of names say which hosts are below which switch, and benchmarks give the links that they
    used their effective rate and latency.

    Bandwidth never appears from nowhere: a link whose rate no file says needs the GPU's product or
    a stated rate, or is marked as assumed with its source. The answer lists what was read, joined,
    assumed and left out with file and line, where files contradict each other, and names that
    were rewritten. Importing the same files again changes nothing.
    """
    topology_name = required_name(name)
    sent, fields = await read_files_form(request, TopologyImportFields, MAX_IMPORT_FILES)
    files, hosts, by_file = asked_of_files(
        [file.content for file in sent],
        or_none(fields.formats),
        or_none(fields.hosts),
        or_none(fields.hosts_by_file),
    )
    stated = stated_of(fields, hosts, by_file)

    async def create(record: Record[ImportedTopology]) -> ImportedTopology:
        return await import_topology(
            services, files, stated, name=topology_name, dry_run=fields.dry_run, record=record
        )

    def answer(imported: ImportedTopology) -> Answer:
        stored = imported.stored
        is_new = stored is not None and stored.change is not Change.UNCHANGED
        body = msgspec.json.encode(topology_import_answer(imported, sent))
        return Answer(201 if is_new else 200, {}, body)

    # Forms of equal parts differ in their boundaries, so the parts are what is asked for.
    asked = (await services.executor.run(digests_of, sent), fields)
    return await respond_once(request, services, asked, create, answer)
