"""What every module of the package keeps to, where no linter looks."""

import ast
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, committed_files, parse, service_modules

LONGEST_FILE = 400

# Files that were looked at and hold one thing all the same, with the length they may grow to.
REVIEWED_LONG_FILES: dict[str, int] = {}

# Names that say nothing about what is inside, and so gather what belongs elsewhere.
EMPTY_NAMES = {"base.py", "common.py", "helpers.py", "misc.py", "utils.py"}

# The ways in which a pure module could still reach the world without an import.
IMPURE_BUILTINS = {"breakpoint", "compile", "eval", "exec", "input", "open", "print", "__import__"}
CLOCK_READS = {"now", "today", "utcnow", "fromtimestamp"}

PURE = [m for m in service_modules() if m.parts[1] in {"core", "formats"}]
# A package's __init__.py that only says what the package is has nothing to export.
WITH_NAMES = [m for m in service_modules() if m.name != "__init__.py" or len(parse(m).body) > 1]


def exported(module: Path) -> list[str] | None:
    """The names in `__all__`, or None without one."""
    for node in parse(module).body:
        if isinstance(node, ast.Assign):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if "__all__" in targets:
                return list(ast.literal_eval(node.value))
    return None


def defined(module: Path) -> dict[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    return {
        node.name: node
        for node in parse(module).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("module", WITH_NAMES, ids=str)
def test_it_says_what_it_offers(module: Path) -> None:
    names = exported(module)
    assert names is not None, f"{module} has no __all__"
    assert not [name for name in names if name.startswith("_")]
    # A decorated function may be there for its decorator: a command, a route.
    public = {
        name
        for name, node in defined(module).items()
        if not name.startswith("_") and (isinstance(node, ast.ClassDef) or not node.decorator_list)
    }
    unexported = sorted(public - set(names))
    assert not unexported, "a public name is exported, or starts with an underscore"


@pytest.mark.parametrize("module", service_modules(), ids=str)
def test_it_is_documented(module: Path) -> None:
    assert ast.get_docstring(parse(module)), f"{module} does not say what it is"
    definitions = defined(module)
    silent = [
        name
        for name in exported(module) or []
        if name in definitions and not ast.get_docstring(definitions[name])
    ]
    assert not silent, f"public and without a docstring in {module}: {silent}"


def test_no_file_holds_two_things() -> None:
    too_long = []
    for module in service_modules():
        lines = len((ROOT / module).read_text(encoding="utf-8").splitlines())
        if lines > REVIEWED_LONG_FILES.get(str(module), LONGEST_FILE):
            too_long.append(f"{module}: {lines} lines")
    assert not too_long, too_long


def test_reviewed_long_files_are_still_long() -> None:
    for name in REVIEWED_LONG_FILES:
        lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
        assert lines > LONGEST_FILE, f"{name} needs no exception any more"


def test_file_names_say_what_is_inside() -> None:
    assert not [str(name) for name in committed_files() if name.name in EMPTY_NAMES]


def test_every_folder_of_the_package_is_a_package() -> None:
    """A folder without __init__.py would be invisible to the import contracts."""
    folders = {module.parent for module in service_modules()}
    assert not [str(f) for f in folders if not (ROOT / f / "__init__.py").is_file()]


@pytest.mark.parametrize("module", PURE, ids=str)
def test_a_pure_module_does_not_reach_the_world_by_builtins(module: Path) -> None:
    reached = []
    for node in ast.walk(parse(module)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if (isinstance(called, ast.Name) and called.id in IMPURE_BUILTINS) or (
            isinstance(called, ast.Attribute) and called.attr in CLOCK_READS
        ):
            reached.append(f"line {node.lineno}: {ast.unparse(called)}")
    assert not reached, reached


@pytest.mark.parametrize("module", service_modules(), ids=str)
def test_annotations_exist_at_run_time(module: Path) -> None:
    """Structs and route handlers are resolved at run time; deferred annotations break them late."""
    deferred = [
        node.lineno
        for node in parse(module).body
        if isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(name.name == "annotations" for name in node.names)
    ]
    assert not deferred
