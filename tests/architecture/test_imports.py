"""The rings hold, and each contract is shown to catch what it forbids."""

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT

LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


def lint_imports(folder: Path, contract: str | None = None) -> subprocess.CompletedProcess[str]:
    chosen = [] if contract is None else ["--contract", contract]
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache", *chosen],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its contracts in a folder where violations can be planted."""
    folder = tmp_path_factory.mktemp("planted")
    skip_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "service", folder / "service", ignore=skip_caches)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_all_contracts_hold() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert " 0 broken" in result.stdout


@dataclass(frozen=True)
class Planted:
    """A module `where` that says `statement`, which breaks `contract`."""

    contract: str
    where: str
    statement: str

    @property
    def module(self) -> str:
        """The dotted name, without the package's own `__init__`."""
        return self.where.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


PLANTED = [
    Planted("rings", "service/core/planted.py", "import service.formats"),
    Planted("rings", "service/formats/planted.py", "import service.app.ports"),
    Planted("rings", "service/app/planted.py", "import service.web"),
    Planted("rings", "service/web/planted.py", "import service.store"),
    Planted("rings", "service/store/planted.py", "import service.api"),
    Planted("rings", "service/planted/__init__.py", ""),
    Planted("core-rings", "service/core/topology/planted.py", "import service.core.plans"),
    Planted("core-rings", "service/core/schedules/planted.py", "import service.core.memory"),
    Planted("core-rings", "service/core/models/planted.py", "import service.core.profiles"),
    Planted("core-rings", "service/core/planted/__init__.py", ""),
    Planted("pure", "service/core/topology/planted.py", "from os import environ"),
    Planted("pure", "service/core/plans/planted.py", "def late():\n    import time"),
    Planted("pure", "service/formats/planted.py", "from pathlib import Path"),
    Planted("pure", "service/formats/planted.py", "import service.settings"),
    Planted("core-knows-no-wire", "service/core/plans/planted.py", "import msgspec"),
    Planted("sql", "service/app/planted.py", "from sqlalchemy import select"),
    Planted("sql", "service/api/planted.py", "from service.store import tables"),
    Planted("sql", "service/web/planted.py", "from service.store import tables"),
    Planted("http", "service/store/planted.py", "from litestar import get"),
    Planted("http", "service/app/planted.py", "from litestar import get"),
    Planted("command-line", "service/cli/planted.py", "from sqlalchemy import select"),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: f"{p.contract}: {p.statement or 'new'}")
def test_a_planted_violation_is_caught(copy: Path, planted: Planted) -> None:
    module = copy / planted.where
    before = module.read_text(encoding="utf-8") if module.exists() else None
    module.parent.mkdir(exist_ok=True)
    module.write_text(f"{before or ''}\n{planted.statement}\n", encoding="utf-8")
    try:
        result = lint_imports(copy, planted.contract)
    finally:
        if before is not None:
            module.write_text(before, encoding="utf-8")
        elif planted.statement:
            module.unlink()
        else:
            shutil.rmtree(module.parent)
    assert result.returncode == 1, result.stdout + result.stderr
    assert " 1 broken" in result.stdout
    assert planted.module in result.stdout


def test_no_ring_is_left_out_of_a_contract() -> None:
    """A ring that is added later must be named where a contract lists rings one by one."""
    package = ROOT / "service"
    rings = {path.stem for path in package.iterdir() if not path.name.startswith(("_", "."))}
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    named = {
        contract["id"]: {module.removeprefix("service.") for module in contract["source_modules"]}
        for contract in contracts
        if contract["type"] == "forbidden"
    }
    assert named["sql"] == rings - {"cli", "main", "store"}
    assert named["http"] == rings - {"api", "cli", "main", "ui", "web"}
    assert named["pure"] == {"core", "formats"}
