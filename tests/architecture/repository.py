"""The repository as its own tests see it."""

import ast
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "committed_files", "parse", "service_modules"]

ROOT = Path(__file__).resolve().parents[2]

# What a copy without git holds besides its sources; the ignored folders of a checkout.
_UNCOMMITTED = frozenset(
    {".git", ".hypothesis", ".mypy_cache", ".ruff_cache", ".stagefare", ".venv", "__pycache__"}
    | {".import_linter_cache", "build", "dist", "node_modules"}
)


@cache
def committed_files() -> tuple[Path, ...]:
    """Every file that is committed or would be, relative to the root, in order."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0 and listing.stdout:
        names = {Path(name) for name in listing.stdout.decode().split("\0") if name}
        return tuple(sorted(name for name in names if (ROOT / name).is_file()))
    return tuple(
        sorted(
            path.relative_to(ROOT)
            for path in ROOT.rglob("*")
            if path.is_file() and not _UNCOMMITTED.intersection(path.relative_to(ROOT).parts)
        )
    )


def service_modules() -> tuple[Path, ...]:
    """Every module of the package, relative to the root."""
    return tuple(sorted(path.relative_to(ROOT) for path in (ROOT / "service").rglob("*.py")))


@cache
def parse(module: Path) -> ast.Module:
    """The syntax tree of a module given relative to the root."""
    return ast.parse((ROOT / module).read_text(encoding="utf-8"), filename=str(module))
