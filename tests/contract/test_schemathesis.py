"""Thousands of requests made from the contract by schemathesis; each answer is held against it.

What it has found once is replayed for good by test_past_findings.py.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.resources import resource_folder
from tests.contract.conftest import LiveService
from tests.plugins.summaries import SUMMARY

CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
# What the storage can make different: valid requests, drawn ones, and sequences of them. The
# coverage phase, most of the cases, tries every way around each schema, which is refused before
# anything is read; on one database it tells all it can.
PHASES = {
    "sqlite": {"examples", "coverage", "fuzzing", "stateful"},
    "postgresql": {"examples", "fuzzing", "stateful"},
}
# Cases an operation in each phase that draws at random; the coverage phase has its own number.
MAX_EXAMPLES = 8


def run_schemathesis(
    document: Path, service: LiveService, report: Path, seed: int, *more: str
) -> tuple[dict[str, Any], str]:
    """The report of one run, and what it printed."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIGURATION)),
        *("run", str(document), "--url", service.url, "--checks", "all", "--no-color"),
        *("--seed", str(seed), "--max-examples", str(MAX_EXAMPLES)),
        *("--report", "json", "--report-json-path", str(report), *more),
    ]
    done = subprocess.run(
        command,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": str(HOOKS),
            "STAGEFARE_CONTRACT_TOKEN": service.token,
        },
        cwd=report.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.is_file(), done.stdout + done.stderr
    read: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return read, done.stdout


# A busy machine may take minutes for what a quiet one does in one.
@pytest.mark.timeout(1200)
def test_every_operation_answers_as_the_contract_says(
    live_service: LiveService,
    tmp_path: Path,
    seed: int,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    document = resource_folder("openapi") / "openapi.json"
    paths = json.loads(document.read_bytes())["paths"]
    operations = sum(len(methods) for methods in paths.values())
    database = request.node.callspec.params["database_url"]
    report, printed = run_schemathesis(
        document,
        live_service,
        tmp_path / "report.json",
        seed,
        "--phases",
        ",".join(sorted(PHASES[database])),
    )
    tested, cases = report["operations"]["tested"], report["test_cases"]
    record_property(
        SUMMARY,
        f"schemathesis on {database}: {tested} of {operations} operations, "
        f"{cases['generated']} cases, seed {report['seed']}",
    )
    assert report["failures"] == [], printed
    assert report["errors"] == [], printed
    assert report["exit_code"] == 0, printed
    assert tested == operations, printed
    assert report["seed"] == seed
    assert report["warnings"]["missing_auth"] == []
    done = {name for name, phase in report["phases"].items() if phase["status"] == "success"}
    assert done == PHASES[database], printed


def test_an_answer_that_breaks_the_contract_is_found(
    live_service: LiveService, tmp_path: Path, seed: int
) -> None:
    """The run above would see it: here the contract promises what the service does not do."""
    contract = json.loads((resource_folder("openapi") / "openapi.json").read_bytes())
    health = contract["paths"]["/healthz"]["get"]
    contract["paths"] = {"/healthz": {"get": health}}
    contract["components"]["schemas"]["Health"]["properties"]["status"] = {"const": "asleep"}
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(contract), encoding="utf-8")
    report, printed = run_schemathesis(broken, live_service, tmp_path / "report.json", seed)
    assert [failure["type"] for failure in report["failures"]] == ["JsonSchemaError"], printed
    assert report["exit_code"] == 1
