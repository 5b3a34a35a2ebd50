"""What holds for every test: fixed randomness, and no network below the rings that speak it."""

import socket
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

TESTS = Path(__file__).resolve().parent

# Rings whose tests have no business with a socket. (The event loop makes one for itself, so this
# also says that their code needs no loop.)
WITHOUT_SOCKETS = (TESTS / "core", TESTS / "formats")

# The one seed of random cases; change it to look elsewhere, and commit what was found as a case.
SEED = 20260729

pytest_plugins = [
    "tests.plugins.databases",
    "tests.plugins.equal_counts",
    "tests.plugins.services",
    "tests.plugins.summaries",
]

settings.register_profile("stagefare", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("stagefare")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-golden",
        action="store_true",
        help="write golden numbers anew; say why in CHANGELOG.md and raise the model version",
    )
    parser.addoption(
        "--crash-cycles",
        type=int,
        default=10,
        help="how often tests/crash kills the service on each database",
    )


def pytest_report_header() -> str:
    return f"randomness: hypothesis is derandomized, the fixture `seed` is {SEED}"


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed for `numpy.random.default_rng` and `random.Random` in tests."""
    return SEED


@pytest.fixture(autouse=True)
def no_sockets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse sockets to the tests of pure rings."""
    if not any(request.path.is_relative_to(folder) for folder in WITHOUT_SOCKETS):
        return

    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        pytest.fail("core and formats open no sockets")

    monkeypatch.setattr(socket.socket, "__init__", refuse)
