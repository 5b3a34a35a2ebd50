"""Wire types of topology imports: the fields beside the files, and what was made of them."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from service.api.schemas.imports import ImportedPart, imported_part
from service.app.imports import ImportedDocument
from service.app.topology_formats import TOPOLOGY_FORMATS
from service.app.topology_imports import ImportedTopology
from service.core.topology.cluster import LinkKind
from service.core.topology.join import Stated
from service.formats.documents.fields import or_none
from service.web.forms import SentFile

__all__ = [
    "ImportedFile",
    "LeftOutOfFile",
    "RenamedEntry",
    "TopologyImportAnswer",
    "TopologyImportFields",
    "stated_of",
    "topology_import_answer",
]

_Words = Annotated[str, Meta(min_length=1, max_length=127, pattern=r"^[^\x00-\x1f\x7f]+$(?!\n)")]
_Rate = Annotated[float, Meta(ge=1, le=1e15)]


class TopologyImportFields(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The fields of the form beside the parts `files`. Rates are nominal and of one direction, and
    count for links whose rate no file says and no product implies.
    """

    formats: (
        Annotated[
            str,
            Meta(
                max_length=1024,
                pattern=r"^[a-z0-9_, ]*$(?!\n)",
                description="Formats of the files by their order, separated by commas; a file"
                " whose place is empty is recognised by its content. Known are: "
                + ", ".join(each.name for each in TOPOLOGY_FORMATS),
                examples=["nccl_xml,", ",nccl_xml"],
            ),
        ]
        | UnsetType
    ) = UNSET
    hosts: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=16_384,
                pattern=r"^[^\x00-\x1f\x7f]+$(?!\n)",
                description="The hosts that are inside as the files say: how many (named host0,"
                " host1, ...), or their names as a host list. Without it, all hosts that any file"
                " names, or else one.",
                examples=["16", "gpu[001-016]"],
            ),
        ]
        | UnsetType
    ) = UNSET
    hosts_by_file: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=16_384,
                pattern=r"^[^\x00-\x1f\x7f]+$(?!\n)",
                description="The hosts that each file is of, where several files tell of unlike"
                " hosts without naming them: host lists by the order of the files, separated by"
                " semicolons. Files with the same list tell of the same hosts; the place of a file"
                " that names its hosts itself, or is of all others, is empty. With curl, send it by"
                " --form-string: -F drops what stands after a semicolon.",
                examples=["gpu[001-008]; gpu[009-016];"],
            ),
        ]
        | UnsetType
    ) = UNSET
    gpu: (
        Annotated[
            _Words,
            Meta(
                description="The accelerators' product: it says how fast NVLink and PCIe are.",
                examples=["H100 SXM5"],
            ),
        ]
        | UnsetType
    ) = UNSET
    design: (
        Annotated[
            _Words,
            Meta(
                description="The reference design of hosts whose inside no file has.",
                examples=["dgx-h100"],
            ),
        ]
        | UnsetType
    ) = UNSET
    nvlink_bytes_per_second: (
        Annotated[_Rate, Meta(description="Of one NVLink or xGMI link.", examples=[25e9])]
        | UnsetType
    ) = UNSET
    pcie_bytes_per_second: (
        Annotated[_Rate, Meta(description="Of a PCIe connection.", examples=[63e9])] | UnsetType
    ) = UNSET
    host_bridge_bytes_per_second: (
        Annotated[
            _Rate,
            Meta(description="Of PCIe into a CPU; as that of `pcie` when absent."),
        ]
        | UnsetType
    ) = UNSET
    on_chip_bytes_per_second: (
        Annotated[
            _Rate,
            Meta(
                description="Between one of several host bridges and its CPU; as wide as all"
                " that is below the bridge when absent."
            ),
        ]
        | UnsetType
    ) = UNSET
    socket_bytes_per_second: (
        Annotated[_Rate, Meta(description="Between two CPUs, all links together.")] | UnsetType
    ) = UNSET
    network_bytes_per_second: (
        Annotated[
            _Rate, Meta(description="Of one cable from a NIC to its switch.", examples=[50e9])
        ]
        | UnsetType
    ) = UNSET
    fabric_bytes_per_second: (
        Annotated[
            _Rate,
            Meta(
                description=(
                    "Of one cable between two switches; of all of them together in a tree of"
                    " names, which counts no cables."
                ),
                examples=[50e9],
            ),
        ]
        | UnsetType
    ) = UNSET
    other_bytes_per_second: (
        Annotated[_Rate, Meta(description="Of a link of no other kind.")] | UnsetType
    ) = UNSET
    dry_run: Annotated[bool, Meta(description="Read and check only; store nothing.")] = False


class ImportedFile(Struct, kw_only=True, frozen=True):
    """One of the files, and what was in it."""

    name: Annotated[str, Meta(description="What its sender calls it")]
    format: Annotated[str, Meta(description="The format it was read as")]
    read: Annotated[dict[str, int], Meta(description="What it holds, counted before joining")]


class LeftOutOfFile(Struct, kw_only=True, frozen=True):
    """Something that a file says and the topology does not hold."""

    file: Annotated[int, Meta(ge=0, description="The file by its place, counted from 0")]
    line: Annotated[int, Meta(ge=1, description="Line of that file, counted from 1")]
    detail: str


class RenamedEntry(Struct, kw_only=True, frozen=True):
    """A host or a switch whose name is not legal here."""

    old: Annotated[str, Meta(description="The name in the file")]
    new: Annotated[str, Meta(description="The name in the topology")]


class TopologyImportAnswer(Struct, kw_only=True, frozen=True):
    """What was read, joined, assumed and left out, and the topology made of it."""

    dry_run: bool
    files: list[ImportedFile]
    joined: Annotated[list[str], Meta(description="What was brought together, and by what")]
    assumptions: Annotated[list[str], Meta(description="What no file says, in sentences")]
    warnings: Annotated[
        list[str],
        Meta(description="What is legal and probably not meant, those of the topology included"),
    ]
    conflicts: Annotated[
        list[str], Meta(description="Where two files say different things: what each says")
    ]
    left_out: list[LeftOutOfFile]
    renamed: list[RenamedEntry]
    topology: ImportedPart


def stated_of(
    fields: TopologyImportFields,
    hosts: tuple[str, ...],
    hosts_of_file: Mapping[int, tuple[str, ...]],
) -> Stated:
    """What the caller says besides the files."""
    rates = {
        LinkKind.NVLINK: fields.nvlink_bytes_per_second,
        LinkKind.PCIE: fields.pcie_bytes_per_second,
        LinkKind.HOST_BRIDGE: fields.host_bridge_bytes_per_second,
        LinkKind.ON_CHIP: fields.on_chip_bytes_per_second,
        LinkKind.SOCKET: fields.socket_bytes_per_second,
        LinkKind.NETWORK: fields.network_bytes_per_second,
        LinkKind.FABRIC: fields.fabric_bytes_per_second,
        LinkKind.OTHER: fields.other_bytes_per_second,
    }
    return Stated(
        hosts=hosts,
        hosts_of_file=hosts_of_file,
        gpu=or_none(fields.gpu),
        design=or_none(fields.design),
        rates={kind: float(rate) for kind, rate in rates.items() if rate is not UNSET},
    )


def topology_import_answer(
    imported: ImportedTopology, files: list[SentFile]
) -> TopologyImportAnswer:
    """An import as it goes over the wire."""
    joined = imported.joined
    warnings: dict[str, Any] = dict.fromkeys(
        (*joined.warnings, *imported.checked.examined.warnings)
    )
    part = ImportedDocument(imported.name, imported.checked, imported.stored)
    return TopologyImportAnswer(
        dry_run=imported.stored is None,
        files=[
            ImportedFile(name=file.name, format=reading.format, read=dict(reading.facts))
            for file, reading in zip(files, imported.readings, strict=True)
        ],
        joined=list(joined.joined),
        assumptions=list(joined.assumptions),
        warnings=list(warnings),
        conflicts=list(joined.conflicts),
        left_out=[
            LeftOutOfFile(file=item.file, line=item.line, detail=item.detail)
            for item in joined.left_out
        ],
        renamed=[RenamedEntry(old=item.old, new=item.new) for item in joined.renamed],
        topology=imported_part(part),
    )
