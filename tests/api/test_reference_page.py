"""The interactive reference works where no other host can be reached, under a strict policy."""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx
import pytest

FILES = {
    "/reference": "text/html",
    "/reference/reference.js": "text/javascript",
    "/reference/swagger-ui-bundle.js": "text/javascript",
    "/reference/swagger-ui.css": "text/css",
    "/reference/favicon-32x32.png": "image/png",
}


class Links(HTMLParser):
    """What a page refers to, and what it would run or draw in place."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.targets += [value for name in ("src", "href") if (value := given.get(name))]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.inline.append(tag)
        self.inline += [name for name in given if name == "style" or name.startswith("on")]


@pytest.mark.parametrize(("path", "media_type"), FILES.items())
async def test_each_file_is_served_under_the_policy(
    client: httpx.AsyncClient, path: str, media_type: str
) -> None:
    answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].partition(";")[0] == media_type
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = dict(
        directive.split(" ", 1)
        for directive in answer.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    again = await client.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_the_page_refers_to_this_service_only(client: httpx.AsyncClient) -> None:
    page = Links()
    page.feed((await client.get("/reference")).text)
    assert page.inline == []
    assert page.targets
    for target in page.targets:
        assert urljoin("http://here/reference", target).startswith("http://here/")
        assert (await client.get(target)).status_code == 200


async def test_nothing_it_loads_fetches_from_elsewhere(client: httpx.AsyncClient) -> None:
    # Namespaces and texts hold addresses too; only these forms load something.
    styles = (await client.get("/reference/swagger-ui.css")).text
    assert re.findall(r"@import|url\((?![\"']?data:)[^)]*\)", styles) == []
    own = (await client.get("/reference/reference.js")).text
    assert re.findall(r"https?:|//[a-z]", own) == []
    assert "validatorUrl: null" in own


async def test_a_request_that_is_tried_shares_no_key_with_other_readers(
    client: httpx.AsyncClient,
) -> None:
    # The page fills fields in from examples and defaults, and opens them as soon as a request is.
    contract = (await client.get("/openapi.json")).json()
    keys = [
        parameter
        for operations in contract["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", [])
        if parameter.get("name") == "Idempotency-Key"
    ]
    keys += [
        parameter
        for parameter in contract["components"].get("parameters", {}).values()
        if parameter["name"] == "Idempotency-Key"
    ]
    assert keys
    filling = {"example", "examples", "default"}
    assert all(not filling & {*parameter, *parameter["schema"]} for parameter in keys)
    assert "tryItOutEnabled: true" in (await client.get("/reference/reference.js")).text


async def test_nothing_else_lies_below_it(client: httpx.AsyncClient) -> None:
    for path in ("/reference/", "/reference/swagger-ui.js", "/reference/../openapi.json%00"):
        assert (await client.get(path)).status_code in {200, 404}
    assert (await client.get("/reference/swagger-ui-bundle.js.map")).status_code == 404


async def test_it_is_open_where_tokens_are_needed(client: httpx.AsyncClient) -> None:
    wrong = {"Authorization": "Bearer nothing"}
    assert (await client.get("/v1/plans", headers=wrong)).status_code == 401
    assert (await client.get("/reference", headers=wrong)).status_code == 200
