"""At the end of a run: lines that tests recorded for the reader, from all processes."""

from typing import Any

__all__ = ["SUMMARY", "pytest_terminal_summary"]

# The name under which a test records a line: record_property(SUMMARY, "44 of 44 operations").
SUMMARY = "summary"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the lines of passed tests; a failed one shows what it has to say itself."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == SUMMARY and report.when == "call":
                terminalreporter.write_line(str(value))
