"""What a browser finds at the address of the service: where to read on."""

from html import escape

from litestar import Response, get

from service.web.access import OPEN
from service.web.openapi import ANSWER_HEADERS
from service.web.pages import page_headers
from service.web.problem_types import PROBLEM_TYPES

__all__ = ["get_front_page"]

# The same for programs, which read no page (RFC 8288; the relations are those of RFC 8631).
_LINK = (
    '</openapi.json>; rel="service-desc"; type="application/json", '
    '</reference>; rel="service-doc"; type="text/html", '
    '</readyz>; rel="status"; type="application/json"'
)
# Nothing runs here, and nothing is loaded.
_HEADERS = {"Link": _LINK, **page_headers()}
_LINKS = (
    ("/reference", "Reference: the contract to read and to try"),
    ("/openapi.json", "The contract, as OpenAPI 3.1"),
    ("/healthz", "Is the process alive"),
    ("/readyz", "Is the service ready"),
)


def _page() -> str:
    links = [
        *_LINKS,
        *((f"/problems/{problem.slug}", f"Problem: {problem.title}") for problem in PROBLEM_TYPES),
    ]
    items = "\n".join(f'<li><a href="{href}">{escape(text)}</a></li>' for href, text in links)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Stagefare</title>
</head>
<body>
<h1>Stagefare</h1>
<p>What a distributed pipeline-training plan costs.</p>
<ul>
{items}
</ul>
</body>
</html>
"""


_PAGE = _page()


@get(
    "/",
    operation_id="get_front_page",
    summary="Where to read on",
    media_type="text/html",
    tags=["service"],
    opt={**OPEN, ANSWER_HEADERS: ("Link",)},
    sync_to_thread=False,
)
def get_front_page() -> Response[str]:
    """A page of links for people; the `Link` header has those that programs follow."""
    return Response(_PAGE, media_type="text/html", headers=_HEADERS)
