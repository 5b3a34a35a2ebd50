"""Importing expert loads from the files people have, in one transaction or only to look."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from service.app.documents import Checked, Stored, check, store
from service.app.file_formats import choose_format, read_file
from service.app.idempotency import Record, record_nothing
from service.app.ports import DocumentKind
from service.app.routing_formats import ROUTING_FORMATS
from service.app.services import Services
from service.core.errors import Fault, InvalidInput
from service.formats.routing_join import JoinedRouting, join_routings
from service.formats.routing_reading import RoutingReading, StatedRouting

__all__ = ["ImportedRouting", "import_routing", "read_files"]


@dataclass(frozen=True, slots=True)
class ImportedRouting:
    """What was read and joined, and the document made of it; `stored` is None in a dry run."""

    formats: tuple[str, ...]
    readings: tuple[RoutingReading, ...]
    joined: JoinedRouting
    name: str
    checked: Checked
    stored: Stored | None


async def import_routing(
    services: Services,
    contents: Sequence[bytes],
    stated: StatedRouting,
    *,
    format: str | None = None,  # noqa: A002 - as the field is called
    name: str,
    dry_run: bool = False,
    record: Record[ImportedRouting] = record_nothing,
) -> ImportedRouting:
    """Read files into one routing and store it under a name; all are of `format`, or recognised.

    `record` is called in the transaction that stores it. Raises `InvalidInput` with every fault:
    those of a file at `("files", place, "line", n)`, those of what is stated at the field that
    says it.
    """
    found = await services.executor.run(read_files, tuple(contents), format, stated)
    formats, readings = tuple(name for name, _ in found), tuple(each for _, each in found)
    joined = await services.executor.run(join_routings, readings, stated)
    try:
        checked = await check(services, DocumentKind.ROUTING, joined.document)
    except InvalidInput as error:
        # The pointer is into a document the caller never saw; the detail says what is wrong.
        raise InvalidInput(replace(fault, path=("files",)) for fault in error.faults) from error
    imported = ImportedRouting(formats, readings, joined, name, checked, None)
    if dry_run:
        return imported
    async with services.storage.writing() as unit:
        outcome = replace(imported, stored=await store(unit, name, checked))
        await record(unit, outcome)
    return outcome


def read_files(
    contents: tuple[bytes, ...], name: str | None, stated: StatedRouting
) -> list[tuple[str, RoutingReading]]:
    """Every file with its format. Raises `InvalidInput` with the faults of all of them."""
    found, faults = [], []
    for place, content in enumerate(contents):
        try:
            chosen = choose_format(ROUTING_FORMATS, content, name)
            found.append((chosen.name, read_file(chosen, content, stated)))
        except InvalidInput as error:
            faults += [_of_file(fault, place) for fault in error.faults]
    if faults:
        raise InvalidInput(dict.fromkeys(faults))
    return found


def _of_file(fault: Fault, place: int) -> Fault:
    """A fault of the file that is read, seen from among several."""
    if fault.path[:1] != ("file",):
        return fault
    return replace(fault, path=("files", place, *fault.path[1:]))
