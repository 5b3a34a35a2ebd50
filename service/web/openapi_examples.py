"""Answers put into an OpenAPI document as its examples.

The document itself has an example of each body a client sends; what comes back is known only when
it has been sent.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

__all__ = ["Recorded", "with_examples"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """How the example of one operation was answered.

    `path` has the values of the parameters in the path; `body` is the JSON value or the text of the
    answer, None where there is none to show.
    """

    status: int
    path: Mapping[str, str]
    body: Any = None


def with_examples(document: Mapping[str, Any], recorded: Mapping[str, Recorded]) -> dict[str, Any]:
    """A copy of the document in which each operation shows the answer recorded under its id.

    Raises KeyError for an answer with a status or a parameter the operation does not have.
    """
    shown = deepcopy(dict(document))
    for methods in shown["paths"].values():
        for operation in methods.values():
            if (example := recorded.get(operation["operationId"])) is not None:
                _show(operation, example)
    return shown


def _show(operation: dict[str, Any], example: Recorded) -> None:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            parameter["example"] = example.path[parameter["name"]]
    response = operation["responses"][str(example.status)]
    if example.body is not None:
        (media,) = response["content"].values()
        media["example"] = example.body
