"""Plans: the document routes. What a plan costs is asked of the calculations."""

from service.api.documents import document_router
from service.app.ports import DocumentKind

__all__ = ["plans"]

EXAMPLE_PLAN = {
    "costs": {
        "stages": [
            {"forward_seconds": 0.006, "backward_seconds": 0.012},
            {"forward_seconds": 0.006, "backward_seconds": 0.012},
        ]
    },
    "schedule": {"kind": "1f1b"},
    "workload": {"microbatches": 8},
}

plans = document_router(DocumentKind.PLAN, EXAMPLE_PLAN)
