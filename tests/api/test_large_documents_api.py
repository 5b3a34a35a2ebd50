"""What an import made, or an answer showed, can be stored again, whatever its size."""

from dataclasses import replace

import httpx
import pytest

from service.app.document_kinds import DOCUMENT_TYPES
from service.app.ports import DocumentKind

MEBIBYTE = 2**20
NODES = 6_000


def graph() -> bytes:
    """A PipeDream graph, whose long names make a model and a profile of more than a mebibyte."""
    costs = "forward_compute_time=1, backward_compute_time=2, activation_size=4, parameter_size=8"
    long = "x" * 100
    lines = [f"node{number}{long} -- Linear -- {costs}\n" for number in range(NODES)]
    lines += [f"\tnode{number}{long} -- node{number + 1}{long}\n" for number in range(NODES - 1)]
    return "".join(lines).encode()


def links() -> bytes:
    """An ns-3 list of devices that hang on switches, each link with a rate of its own."""
    devices, switches = 4_000, 400
    head = [f"{devices + switches} {switches} {devices}"]
    head.append(" ".join(str(devices + number) for number in range(switches)))
    cables = [
        f"{number} {devices + number % switches} {100 + number}Gbps 0.0005ms 0"
        for number in range(devices)
    ]
    return "\n".join([*head, *cables, ""]).encode()


@pytest.mark.parametrize(
    ("imported", "content", "fields", "stored"),
    [
        ("profiles", graph(), {"microbatch_size": "1"}, ("models", "profiles")),
        ("topologies", links(), {}, ("topologies",)),
    ],
    ids=["a model and a profile", "a topology"],
)
async def test_what_an_import_made_can_be_put_back(
    client: httpx.AsyncClient,
    imported: str,
    content: bytes,
    fields: dict[str, str],
    stored: tuple[str, ...],
) -> None:
    field = "files" if imported == "topologies" else "file"
    files = {field: ("made.txt", content)}
    answer = await client.post(f"/v1/{imported}/made/imports", files=files, data=fields)
    assert answer.status_code == 201, answer.text
    for kind in stored:
        read = await client.get(f"/v1/{kind}/made")
        assert len(read.content) > MEBIBYTE
        document = read.json()["document"]
        again = await client.put(f"/v1/{kind}/made", json=document)
        assert (again.status_code, again.json()["revision"]) == (200, 1), again.text[:1000]
        other = await client.put(f"/v1/{kind}/other", json=document)
        assert (other.status_code, other.json()["digest"]) == (201, read.json()["digest"])


async def test_what_could_not_be_put_back_is_not_stored(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = DocumentKind.TOPOLOGY
    monkeypatch.setitem(DOCUMENT_TYPES, kind, replace(DOCUMENT_TYPES[kind], most_bytes=1000))
    files = {"files": ("made.txt", links())}
    refused = await client.post("/v1/topologies/made/imports", files=files)
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["pointer"] == "/files"
    assert "it may have 1000" in error["detail"]
    assert (await client.get("/v1/topologies/made")).status_code == 404
    large = {"hosts": [{"name": f"h{number}", "design": "dgx-h100"} for number in range(99)]}
    refused = await client.put("/v1/topologies/made", json=large)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == ""


async def test_a_plan_has_the_size_that_people_write(client: httpx.AsyncClient) -> None:
    too_large = await client.put("/v1/plans/large", json={"description": "x" * MEBIBYTE})
    assert too_large.status_code == 413
