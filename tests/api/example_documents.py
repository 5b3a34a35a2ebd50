"""The documents of examples/, stored over HTTP."""

import json

import httpx

from service.app.document_kinds import DOCUMENT_TYPES
from service.resources import resource_folder

__all__ = ["store_examples"]


async def store_examples(http: httpx.AsyncClient) -> None:
    """Store every example, each kind after those that it refers to."""
    for kind in DOCUMENT_TYPES:
        for file in sorted((resource_folder("examples") / kind.value).glob("*.json")):
            url = f"/v1/{kind.value}/{file.stem}"
            assert (await http.put(url, json=json.loads(file.read_bytes()))).status_code < 300
