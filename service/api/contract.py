"""The published contract: the OpenAPI document and the pages of the problem types.

`generated_files` makes them; they are committed under `openapi/`, and the service serves the
committed document, so that what clients generate code from is what was reviewed.
"""

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from litestar import Litestar, Response, get
from litestar.di import Provide

from service.api.injection import DEPENDENCIES
from service.api.routes import route_handlers
from service.resources import resource_folder
from service.web.access import OPEN
from service.web.openapi import ApiInfo, build_document, render
from service.web.openapi_examples import Recorded, with_examples
from service.web.problem_types import PROBLEM_TYPES, problem_page

__all__ = [
    "OPENAPI_PATH",
    "build_contract",
    "generated_files",
    "get_openapi",
    "published_contract",
]

OPENAPI_PATH = Path("openapi/openapi.json")

INFO = ApiInfo(
    title="Stagefare",
    version=version("stagefare"),
    description=(
        "Stores cluster topologies and measured layer costs, and computes what a distributed "
        "pipeline-training plan costs.\n\n"
        "Units are in the names: `_seconds`, `_bytes`, `_bytes_per_second`, `_flops`; shares in "
        "[0, 1] end in `_fraction`. Absent means unknown, never zero. Unknown fields are refused, "
        'types are strict ("2" is not the integer 2, 2.0 is), and every refusal is a problem '
        "document (RFC 9457) that lists all faults with JSON Pointers."
    ),
    tags={
        "topologies": "Clusters: hosts, switches, links, fabrics",
        "models": "Layers in execution order and the tensors between them",
        "profiles": "Measured costs of layers",
        "routings": "Which experts the tokens of a mixture of experts ask for",
        "plans": "How a model is cut, scheduled and placed",
        "calculations": "What a plan costs, one question at a time",
        "estimates": "All of it at once, stored and addressed by content",
        "queues": "The fluid backlog",
        "tokens": "Who may act for the team",
        "service": "Health, and the contract itself",
    },
)


def build_contract() -> dict[str, Any]:
    """The OpenAPI document of the present code, without examples of answers."""
    app = Litestar(
        route_handlers=[*route_handlers(), get_openapi],
        # Nothing is called: the routes only need to know that there will be something.
        dependencies={name: Provide(lambda: None, sync_to_thread=False) for name in DEPENDENCIES},
        openapi_config=None,
        logging_config=None,
    )
    return build_document(app, INFO)


def generated_files(answers: Mapping[str, Recorded]) -> dict[Path, bytes]:
    """Every generated file under `openapi/`, by path relative to the checkout.

    `answers` are what the examples of the contract were answered with, by operation id.
    """
    pages = {
        Path(f"openapi/problems/{problem_type.slug}.md"): problem_page(problem_type).encode()
        for problem_type in PROBLEM_TYPES
    }
    return {OPENAPI_PATH: render(with_examples(build_contract(), answers)), **pages}


@lru_cache(maxsize=1)
def published_contract() -> bytes:
    """The OpenAPI document as committed and reviewed, which is what the service serves."""
    return (resource_folder("openapi") / OPENAPI_PATH.name).read_bytes()


@get(
    "/openapi.json",
    operation_id="get_openapi",
    summary="The OpenAPI document",
    media_type="application/json",
    tags=["service"],
    opt=OPEN,
    sync_to_thread=False,
)
def get_openapi() -> Response[bytes]:
    """This document, as committed and reviewed."""
    return Response(published_contract(), media_type="application/json")
