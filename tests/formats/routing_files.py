"""Reading files of expert loads as an import does; those of others where they are at hand."""

from pathlib import Path

from service.app.routing_imports import read_files
from service.core.moe.routing import Routing
from service.formats.documents.routing import to_core
from service.formats.routing_join import JoinedRouting, join_routings
from service.formats.routing_reading import RoutingReading, StatedRouting

__all__ = ["FIXTURES", "PUBLISHED", "join", "joined", "read_one", "routing_of"]

FIXTURES = Path(__file__).parent / "fixtures" / "routings"
PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "expert_loads"


def read_one(content: bytes | str, **stated: int | bool) -> RoutingReading:
    """What one file says."""
    data = content.encode() if isinstance(content, str) else content
    return read_files((data,), None, StatedRouting(**stated))[0][1]  # type: ignore[arg-type]


def joined(*contents: bytes | str, **stated: int | bool) -> JoinedRouting:
    """What files make together."""
    data = tuple(each.encode() if isinstance(each, str) else each for each in contents)
    said = StatedRouting(**stated)  # type: ignore[arg-type]
    return join_routings([reading for _, reading in read_files(data, None, said)], said)


def join(*names: str, **stated: int | bool) -> JoinedRouting:
    """The same of fixtures by name."""
    return joined(*((FIXTURES / name).read_bytes() for name in names), **stated)


def routing_of(made: JoinedRouting) -> Routing:
    """The routing in the core."""
    return to_core(made.document)
