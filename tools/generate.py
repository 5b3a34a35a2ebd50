"""Writes every generated file of the repository, or says which ones are out of date.

    python tools/generate.py            write what has changed, remove what is no longer made
    python tools/generate.py --check    change nothing; fail and name each file that would change

To add files, write a function that returns their bytes by path and give it a `Source` below.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.contract_examples import generated_files as contract_files
from tools.readme import generated_files as readme_files
from tools.reference_designs import generated_files as reference_design_files
from tools.worked_examples import generated_files as worked_example_files
from validation.page import generated_files as validation_files

__all__ = ["SOURCES", "Source", "main", "stale_files"]

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Source:
    """Files that one function makes, and the folders below the root that hold nothing else."""

    files: Callable[[], Mapping[Path, bytes]]
    folders: tuple[str, ...] = ()


SOURCES = (
    Source(contract_files, folders=("openapi/problems",)),
    Source(worked_example_files, folders=("docs/images/worked-examples",)),
    Source(readme_files),
    Source(reference_design_files),
    Source(validation_files),
)


def stale_files(root: Path, sources: tuple[Source, ...]) -> dict[Path, bytes | None]:
    """What must be written (bytes) or removed (None) for `root` to be up to date, in order.

    Raises ValueError when two sources make the same file.
    """
    wanted: dict[Path, bytes] = {}
    for source in sources:
        for name, content in source.files().items():
            if name in wanted:
                raise ValueError(f"two sources make {name}")
            wanted[name] = content
    present = {
        path.relative_to(root)
        for source in sources
        for folder in source.folders
        for path in (root / folder).rglob("*")
        if path.is_file()
    }
    stale: dict[Path, bytes | None] = dict.fromkeys(present - wanted.keys())
    for name, content in wanted.items():
        path = root / name
        if not path.is_file() or path.read_bytes() != content:
            stale[name] = content
    return dict(sorted(stale.items()))


def main(arguments: list[str] | None = None) -> int:
    """Generate or check; 1 when a check found something to do."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail if stale")
    check_only = parser.parse_args(arguments).check
    stale = stale_files(ROOT, SOURCES)
    for name, content in stale.items():
        if check_only:
            what = "is no longer generated" if content is None else "is out of date"
            print(f"{name} {what}: run python tools/generate.py")
        elif content is None:
            (ROOT / name).unlink()
            print(f"removed {name}")
        else:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_bytes(content)
            print(f"wrote {name}")
    return 1 if check_only and stale else 0


if __name__ == "__main__":
    sys.exit(main())
