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
    "asked_of_files",
    "import_topology",
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


def asked_of_files(
    contents: Sequence[bytes], formats: str | None, hosts: str | None, lists: str | None
) -> tuple[list[TopologyFile], tuple[str, ...], dict[int, tuple[str, ...]]]:
    """The files with their formats, the hosts that are stated for all of them, and those of each.

    `formats` stand in the order of the files, separated by commas, and so do host `lists`,
    separated by semicolons; what is empty is not said. Raises `InvalidInput` with every fault: more
    of either than there are files, and what is no host list.
    """
    faults: list[Fault] = []
    named = [] if formats is None else [name.strip() or None for name in formats.split(",")]
    given = [] if lists is None else [each.strip() for each in lists.split(";")]
    for what, field, told in (
        ("formats", "formats", named),
        ("host lists", "hosts_by_file", given),
    ):
        if len(told) > len(contents):
            detail = f"{what} stand in the order of the files, of which there are {len(contents)}"
            faults.append(Fault(FaultCode.WRONG_LENGTH, (field,), detail))
    found: dict[int | None, tuple[str, ...]] = {}
    for place, text in (*enumerate(given), (None, hosts)):
        try:
            found[place] = _named_hosts(text or None, "hosts" if place is None else "hosts_by_file")
        except InvalidInput as error:
            faults += error.faults
    if faults:
        raise InvalidInput(faults)
    named += [None] * (len(contents) - len(named))
    files = [TopologyFile(*each) for each in zip(contents, named, strict=True)]
    by_file = {place: of_file for place, of_file in found.items() if place is not None and of_file}
    return files, found[None], by_file


def _named_hosts(text: str | None, field: str) -> tuple[str, ...]:
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
