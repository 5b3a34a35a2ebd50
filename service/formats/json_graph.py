"""Nodes and edges of a planner's JSON file: `nodes` with an `id`, `edges` with both ends."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from service.formats.documents.fields import MAX_LAYERS
from service.formats.documents.model import MAX_TENSORS
from service.formats.pasted_json import JsonFile
from service.formats.pasted_text import shown

__all__ = ["MAX_EDGES", "GraphEdge", "GraphNode", "read_edges", "read_nodes"]

MAX_EDGES = MAX_TENSORS  # each may be a tensor
_MAX_ID = 10**9


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node: its place in the file, its number there, and its fields."""

    place: int
    id: int
    fields: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What the layers and tensors made of it are called."""
        return f"node{self.id}"

    @property
    def title(self) -> str | None:
        """What the file calls it, if it does."""
        name = self.fields.get("name")
        return name if isinstance(name, str) and name and "\0" not in name else None


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An edge between two nodes, given by their places."""

    place: int
    source: int
    target: int
    fields: Mapping[str, Any]


def read_nodes(file: JsonFile, values: Mapping[str, Any]) -> list[GraphNode]:
    """The nodes in the order of the file; what is wrong with their ids is refused."""
    nodes: list[GraphNode] = []
    places: dict[int, int] = {}
    for place, fields in _entries(file, values, "nodes", MAX_LAYERS):
        if "id" not in fields:
            file.refuse(("nodes", place), "has no 'id'")
            continue
        number = file.whole(("nodes", place, "id"), fields["id"], most=_MAX_ID)
        if number is None:
            continue
        if number in places:
            detail = f"is {number} again, as nodes/{places[number]} is"
            file.refuse(("nodes", place, "id"), detail)
            continue
        name = fields.get("name", "")
        if not isinstance(name, str):
            file.refuse(("nodes", place, "name"), f"is a text; got {shown(str(name))}")
        places[number] = place
        nodes.append(GraphNode(len(nodes), number, fields))
    if not nodes and file.sound:
        file.refuse(("nodes",), "holds no node")
    return nodes


def read_edges(
    file: JsonFile, values: Mapping[str, Any], nodes: list[GraphNode]
) -> list[GraphEdge]:
    """The edges in the order of the file; ends that are no node, and pairs again, are refused."""
    at = {node.id: node.place for node in nodes}
    edges: list[GraphEdge] = []
    seen: dict[tuple[int, int], int] = {}
    for place, fields in _entries(file, values, "edges", MAX_EDGES):
        ends = []
        for key in ("sourceId", "destId"):
            if key not in fields:
                file.refuse(("edges", place), f"has no {key!r}")
                continue
            number = file.whole(("edges", place, key), fields[key], most=_MAX_ID)
            if number is not None and number not in at:
                file.refuse(("edges", place, key), f"is {number}, which no node is")
            elif number is not None:
                ends.append(at[number])
        if len(ends) < 2:
            continue
        source, target = ends
        if source == target:
            file.refuse(("edges", place), "goes from a node to itself")
        elif (source, target) in seen:
            file.refuse(("edges", place), f"joins the nodes of edges/{seen[source, target]} again")
        else:
            seen[source, target] = place
            edges.append(GraphEdge(place, source, target, fields))
    return edges


def _entries(
    file: JsonFile, values: Mapping[str, Any], key: str, most: int
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    found = values.get(key)
    if not isinstance(found, list):
        file.refuse((key,), f"is a list of {key}")
        return
    if len(found) > most:
        file.refuse((key,), f"holds {len(found)} {key}; at most {most}")
        return
    for place, entry in enumerate(found):
        if file.enough:
            return
        fields = file.mapping((key, place), entry)
        if fields is not None:
            yield place, fields
