"""Keeps the present contract as that of the present version, to compare later ones with.

    python tools/release_contract.py

Run at a release, when the version in pyproject.toml and the section in CHANGELOG.md are made.
Running it again for the same version replaces the file, which is right only until that version is
given out.
"""

import json
import sys

from tools.contract_changes import GENERATED, RELEASED, ROOT

__all__ = ["main"]


def main() -> int:
    """Copy the generated document to `openapi/released/<version>.json`."""
    content = GENERATED.read_bytes()
    path = RELEASED / f"{json.loads(content)['info']['version']}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
