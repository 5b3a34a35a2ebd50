"""Importing a cluster from the files people have, in one transaction or only to look."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.app.documents import Checked, Stored, check, store
from service.app.idempotency import Record, record_nothing
from service.app.ports import DocumentKind
from service.app.services import Services
from service.app.topology_formats import format_of
from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.expand import MAX_HOSTS
from service.core.topology.hostlist import expand_hostlist
from service.core.topology.join import Joined, Stated, join
from service.core.topology.readings import Reading
from service.formats.documents.topology import TopologyDocument
from service.formats.documents.topology_from_core import from_core

__all__ = [
    "ImportedTopology",
    "TopologyFile",
    "hosts_by_file",
    "import_topology",
    "named_hosts",
    "topology_files",
]


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """A file; without a format it is recognised by its content."""

    content: bytes
    format: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedTopology:
    """What was read and joined, and the document made of it; `stored` is None in a dry run."""

    readings: tuple[Reading, ...]
    joined: Joined
    name: str
    checked: Checked
    stored: Stored | None


def topology_files(contents: Sequence[bytes], formats: str | None) -> list[TopologyFile]:
    """Files with the formats that stand at their places in a list separated by commas.

    Raises `InvalidInput` when the list names more than there are files.
    """
    named = [] if formats is None else [name.strip() or None for name in formats.split(",")]
    if len(named) > len(contents):
        detail = f"formats stand in the order of the files, of which there are {len(contents)}"
        raise InvalidInput([Fault(FaultCode.WRONG_LENGTH, ("formats",), detail)])
    named += [None] * (len(contents) - len(named))
    return [TopologyFile(*each) for each in zip(contents, named, strict=True)]


def hosts_by_file(text: str | None, count: int) -> dict[int, tuple[str, ...]]:
    """Hosts by the place of the file that stands for them, from lists separated by semicolons.

    Raises `InvalidInput` when there are more lists than the `count` of files, and for what is no
    host list.
    """
    lists = [] if text is None else [each.strip() for each in text.split(";")]
    if len(lists) > count:
        detail = f"host lists stand in the order of the files, of which there are {count}"
        raise InvalidInput([Fault(FaultCode.WRONG_LENGTH, ("hosts_by_file",), detail)])
    return {place: named_hosts(each, "hosts_by_file") for place, each in enumerate(lists) if each}


def named_hosts(text: str | None, field: str = "hosts") -> tuple[str, ...]:
    """The hosts that a number (`16` stands for host0 to host15) or a host list means.

    Raises `InvalidInput` for no hosts, too many, and a name that stands twice, at `field`.
    """
    if text is None:
        return ()
    if text.isdecimal() and len(text) < 10:
        count = int(text)
        if not 1 <= count <= MAX_HOSTS:
            detail = f"a topology has 1 to {MAX_HOSTS} hosts; got {count}"
            raise InvalidInput([Fault(FaultCode.OUT_OF_RANGE, (field,), detail)])
        return tuple(f"host{index}" for index in range(count))
    try:
        hosts = expand_hostlist(text, at_most=MAX_HOSTS)
    except InvalidInput as error:
        raise InvalidInput(fault.under(field) for fault in error.faults) from error
    twice = [name for name, times in Counter(hosts).items() if times > 1]
    if twice:
        detail = f"a host is named once; {twice[0][:80]!r} stands twice"
        raise InvalidInput([Fault(FaultCode.DUPLICATE_NAME, (field,), detail)])
    return hosts


async def import_topology(
    services: Services,
    files: Sequence[TopologyFile],
    stated: Stated,
    *,
    name: str,
    dry_run: bool = False,
    record: Record[ImportedTopology] = record_nothing,
) -> ImportedTopology:
    """Read files and join them into one topology, and store it under a name.

    `record` is called in the transaction that stores it. Raises `InvalidInput` with every fault:
    those of a file at `("files", place, "line", n)`, those of what is stated at the field that
    says it.
    """
    readings = await services.executor.run(_read, tuple(files))
    joined, document = await services.executor.run(_join, readings, stated)
    checked = await _checked(services, document)
    if dry_run:
        return ImportedTopology(readings, joined, name, checked, None)
    async with services.storage.writing() as unit:
        stored = await store(unit, name, checked)
        outcome = ImportedTopology(readings, joined, name, checked, stored)
        await record(unit, outcome)
    return outcome


def _read(files: tuple[TopologyFile, ...]) -> tuple[Reading, ...]:
    """Every file, or the faults of all of them."""
    readings, faults = [], []
    for place, file in enumerate(files):
        try:
            readings.append(format_of(file.content, file.format).read(file.content))
        except InvalidInput as error:
            faults += [fault.under("files", place) for fault in error.faults]
    if faults:
        raise InvalidInput(faults)
    return tuple(readings)


def _join(readings: tuple[Reading, ...], stated: Stated) -> tuple[Joined, TopologyDocument]:
    joined = join(readings, stated)
    # Whoever prices a plan on this never sees the answer to the import.
    taken = tuple(dict.fromkeys((*joined.assumptions, *joined.conflicts)))
    try:
        return joined, from_core(replace(joined.spec, assumptions=taken))
    except InvalidInput as error:
        raise _of_all_files(error) from error


async def _checked(services: Services, document: Any) -> Checked:
    try:
        return await check(services, DocumentKind.TOPOLOGY, document)
    except InvalidInput as error:
        raise _of_all_files(error) from error


def _of_all_files(error: InvalidInput) -> InvalidInput:
    """The pointer is into a document the caller never saw; the detail says what is wrong."""
    faults: list[Fault] = [replace(fault, path=("files",)) for fault in error.faults]
    return InvalidInput(faults)
