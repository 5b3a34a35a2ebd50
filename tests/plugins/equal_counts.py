"""At the end of a run: as many tests have passed on PostgreSQL as on SQLite, or the run fails."""

from collections import Counter
from typing import Any

import pytest

__all__ = ["passed_by_backend", "pytest_sessionfinish", "pytest_terminal_summary"]

BACKENDS = ("sqlite", "postgresql")


def passed_by_backend(nodeids: list[str]) -> dict[str, int]:
    """How many of the passed tests ran on each database, by the parameter in their names."""
    parameters = [nodeid.rpartition("[")[2].rstrip("]").split("-") for nodeid in nodeids]
    counts = Counter(part for parts in parameters for part in parts if part in BACKENDS)
    return {backend: counts[backend] for backend in BACKENDS}


def _counts(config: pytest.Config) -> dict[str, int]:
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    reports = [] if reporter is None else reporter.stats.get("passed", [])
    return passed_by_backend([report.nodeid for report in reports if report.when == "call"])


def _is_selection(config: pytest.Config) -> bool:
    """Whether only some tests were asked for, so that one database alone may be meant."""
    return bool(
        config.option.keyword or config.option.markexpr or config.args_source.name == "ARGS"
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a whole run in which the two databases did not see the same tests pass."""
    config = session.config
    if hasattr(config, "workerinput") or _is_selection(config):
        return
    if len(set(_counts(config).values())) > 1 and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print both counts."""
    counts = _counts(config)
    if any(counts.values()):
        line = ", ".join(f"{count} passed on {backend}" for backend, count in counts.items())
        terminalreporter.write_line(f"databases: {line}")
