"""The formats of expert loads that are read here: a new one is a row of `ROUTING_FORMATS`."""

from service.app.file_formats import FileFormat
from service.formats.routing_csv import looks_like_routing_csv, read_routing_csv
from service.formats.routing_json import looks_like_routing_json, read_routing_json
from service.formats.routing_jsonl import looks_like_routing_jsonl, read_routing_jsonl
from service.formats.routing_reading import RoutingReading, StatedRouting

__all__ = ["ROUTING_FORMATS"]

_ALL = frozenset({"experts", "top_k", "loads", "replicated", "drop_warm_up"})
ROUTING_FORMATS: tuple[FileFormat[StatedRouting, RoutingReading], ...] = (
    # Lines of objects begin as an object does, so they are asked for first.
    FileFormat("jsonl", looks_like_routing_jsonl, read_routing_jsonl, takes=_ALL),
    FileFormat("json", looks_like_routing_json, read_routing_json, takes=_ALL),
    FileFormat("csv", looks_like_routing_csv, read_routing_csv, takes=_ALL),
)
