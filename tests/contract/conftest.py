"""The service with the example documents and an administrator's token, on each database in turn."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from service.app.access import create_token
from service.app.ports import Scope
from service.main import create_app, open_services
from service.resources import resource_folder
from service.settings import Settings, read_settings
from tests.contract.live import serving

TEAM = "crew"


@dataclass(frozen=True, slots=True)
class LiveService:
    """A running service: where it is, and a token with every scope."""

    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """What a request needs to be let in."""
        return {"Authorization": f"Bearer {self.token}"}


@pytest.fixture
def empty_service(database_url: str, tmp_path: Path) -> Iterator[LiveService]:
    """A service that holds nothing but its administrator's token."""
    settings = read_settings(
        {
            "STAGEFARE_DATA_DIR": str(tmp_path),
            "STAGEFARE_DATABASE_URL": database_url,
            "STAGEFARE_REQUESTS_PER_MINUTE": "0",  # a generator of requests is hasty
        }
    )
    with ThreadPoolExecutor(max_workers=1) as executor:
        token = executor.submit(lambda: asyncio.run(_admin_token(settings))).result()
    with serving(create_app(settings)) as url:
        yield LiveService(url, token)


@pytest.fixture
def live_service(empty_service: LiveService) -> LiveService:
    """A service that holds every document of examples/."""
    _store_examples(empty_service)
    return empty_service


async def _admin_token(settings: Settings) -> str:
    async with open_services(settings, TEAM) as services:
        return (await create_token(services, Scope)).text


def _store_examples(service: LiveService) -> None:
    with httpx.Client(base_url=service.url, headers=service.headers) as http:
        for kind in ("topologies", "models", "profiles", "routings", "plans"):
            for file in sorted((resource_folder("examples") / kind).glob("*.json")):
                answer = http.put(
                    f"/v1/{kind}/{file.stem}",
                    content=file.read_bytes(),
                    headers={"Content-Type": "application/json"},
                )
                assert answer.status_code == 201, answer.text
