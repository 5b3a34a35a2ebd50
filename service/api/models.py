"""Models: the document routes."""

from service.api.documents import document_router
from service.app.ports import DocumentKind

__all__ = ["models"]

EXAMPLE_MODEL = {
    "layers": [
        {
            "name": "embedding",
            "kind": "embedding",
            "parameters": [{"name": "embedding.weight", "count": 134217728, "dtype": "bf16"}],
        },
        {"name": "block.0", "kind": "transformer"},
    ],
    "tensors": [
        {
            "name": "embedding.output",
            "producer": "embedding",
            "consumers": ["block.0"],
            "shape": ["sequence", "microbatch", 4096],
            "dtype": "bf16",
        }
    ],
}

models = document_router(DocumentKind.MODEL, EXAMPLE_MODEL)
