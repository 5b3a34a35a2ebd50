"""The pages that explain the problem types."""

from typing import Annotated

from litestar import get
from litestar.params import FromPath
from msgspec import Meta

from service.app.errors import NotFound
from service.web.access import OPEN
from service.web.problem_types import PROBLEM_TYPES, problem_page

__all__ = ["get_problem_page"]

_PAGES = {problem_type.slug: problem_page(problem_type) for problem_type in PROBLEM_TYPES}


@get(
    "/problems/{slug:str}",
    operation_id="get_problem_page",
    summary="Read about a problem type",
    media_type="text/plain",
    tags=["service"],
    opt=OPEN,
    sync_to_thread=False,
)
def get_problem_page(
    slug: FromPath[
        Annotated[
            str,
            Meta(
                max_length=100,
                description="Last part of the problem's type.",
                examples=["not-found"],
            ),
        ]
    ],
) -> str:
    """What a problem type means and what to do about it, as text."""
    if slug not in _PAGES:
        raise NotFound(f"no problem type {slug[:100]!r}; there are: {', '.join(sorted(_PAGES))}")
    return _PAGES[slug]
