"""As much time as there are cycles."""

from pathlib import Path

import pytest

CYCLE_SECONDS = 30


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test here the time that all its cycles may take."""
    seconds = 120 + CYCLE_SECONDS * config.getoption("--crash-cycles")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(seconds))
