"""Folders that travel with the package: `migrations`, `openapi`, `examples`.

In a checkout they lie at the top, where people look for them; in an installed wheel they lie in
`service/_resources`.
"""

import json
from pathlib import Path
from typing import Any

__all__ = ["example_document", "resource_folder"]

_PACKAGE = Path(__file__).resolve().parent


def resource_folder(name: str) -> Path:
    """The folder `name`, from the installed package or else from the checkout around it.

    Raises FileNotFoundError naming both places when it is in neither.
    """
    places = (_PACKAGE / "_resources" / name, _PACKAGE.parent / name)
    for place in places:
        if place.is_dir():
            return place
    looked_in = " and ".join(str(place) for place in places)
    raise FileNotFoundError(f"no folder {name!r}: looked in {looked_in}")


def example_document(kind: str, name: str) -> dict[str, Any]:
    """A document of `examples/`, by its kind (`plans`) and its name."""
    path = resource_folder("examples") / kind / f"{name}.json"
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document
