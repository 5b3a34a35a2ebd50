"""The ways between two devices of a stored topology."""

from collections.abc import Iterator

import msgspec
from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from service.api.documents import DocumentReference
from service.api.injection import InjectedServices
from service.api.schemas.paths import PathsAnswer, PathsRequest, paths_answer
from service.api.topology_queries import allocated_at
from service.app import documents, topology_work
from service.app.ports import DocumentKind, Scope
from service.app.weights import Weight
from service.core.errors import InvalidInput, Path
from service.core.plans.allocation import outside_faults
from service.core.topology.cluster import Cluster
from service.core.topology.pair_paths import find_pair_paths
from service.web.access import needs
from service.web.openapi import EXAMPLE

__all__ = ["find_paths"]

_EXAMPLE = {
    "source": "host0/gpu0",
    "target": "host1/gpu3",
    "message_bytes": 16_777_216,
    "concurrent": [
        {"source": "host0/gpu3", "target": "host1/gpu3"},
        {"source": "host0/gpu0", "target": "host0/gpu1"},
    ],
    "allocation": {"hosts": "host[0-1]"},
}


@post(
    "/{name:str}/paths",
    operation_id="find_paths",
    summary="The ways between two devices",
    status_code=200,
    opt={**needs(Scope.READ), EXAMPLE: _EXAMPLE},
    responses={200: ResponseSpec(PathsAnswer, description="The paths, the pinned one first")},
)
async def find_paths(
    services: InjectedServices, name: DocumentReference, data: JSONBody[PathsRequest]
) -> Response[bytes]:
    """The pinned path, those as near and as wide, and those on which another GPU forwards.

    Each with its links, its type in the words of `nvidia-smi topo -m` and of fabrics, its
    bottleneck, its lower bound and its prediction, and what it shares with the pairs that send at
    the same time. Devices that can't reach each other are a result, not an error. With an
    allocation the answer also has what can cross its middle.
    """
    revision = await documents.get(services, DocumentKind.TOPOLOGY, name)
    expansion = await topology_work.expanded(services, revision)

    def weigh(cluster: Cluster) -> Weight:
        is_part = data.allocation is not msgspec.UNSET
        return topology_work.paths(cluster, data.source, len(data.concurrent), is_part=is_part)

    def find() -> bytes:
        cluster = expansion.cluster
        allocation = None
        if data.allocation is not msgspec.UNSET:
            allocation = allocated_at(cluster, data.allocation, ("allocation",))
            if faults := outside_faults(cluster, allocation, _named(data)):
                raise InvalidInput(faults)
        found = find_pair_paths(
            cluster,
            (data.source, data.target),
            [(pair.source, pair.target) for pair in data.concurrent],
            data.max_alternatives,
        )
        return msgspec.json.encode(paths_answer(revision, expansion, data, found, allocation))

    content = await topology_work.answered(services, revision, expansion, weigh, find)
    return Response(content, media_type="application/json")


def _named(data: PathsRequest) -> Iterator[tuple[Path, str]]:
    """Every device that is named, and where."""
    yield ("source",), data.source
    yield ("target",), data.target
    for number, pair in enumerate(data.concurrent):
        yield ("concurrent", number, "source"), pair.source
        yield ("concurrent", number, "target"), pair.target
