"""What a file tells of a cluster, before several of them are joined into one.

Every importer makes a `Reading`: whatever its format is able to say, with what is not said left
absent (a rate that is unknown is None, never a guess). `service.core.topology.join` makes one
cluster of several readings, fills gaps from what the caller states, and refuses what stays open.

Rates are bytes per second in one direction. A line counts from 1 and belongs to the file the
reading came from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from service.core.errors import LeftOut
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind

__all__ = [
    "AttachedHost",
    "Cable",
    "CableEnd",
    "FoundDevice",
    "FoundHost",
    "FoundLink",
    "FoundSwitch",
    "MeasuredTransfer",
    "NvlinkDomain",
    "Rate",
    "RateOrigin",
    "Reading",
    "TransferScope",
]


@dataclass(frozen=True, slots=True)
class Rate:
    """The nominal rate of all lanes of a link together, and where it comes from, in words."""

    bytes_per_second: float
    origin: RateOrigin
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDevice:
    """A device or a switch inside a host, named within it (`gpu0`, `nic3`, `pcie1`, `cpu0`).

    `logical_names` are what the system calls it (`mlx5_0`, `eth0`), `pci_address` is
    `0000:1b:00.0`. `port_guid` has 16 lower-case hexadecimal
    digits. Devices of one `card` share its connection to the host, and cards of one `slot` theirs.
    `nvlinks` counts the links of a GPU that are up, `nvlink_rate` is that of one of them.
    """

    name: str
    kind: VertexKind
    line: int
    product: str | None = None
    pci_address: str | None = None
    logical_names: tuple[str, ...] = ()
    port_number: int | None = None
    port_guid: str | None = None
    port_rate: Rate | None = None
    card: str | None = None
    slot: str | None = None
    rail: int | None = None
    numa: int | None = None
    nvlinks: int | None = None
    nvlink_rate: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLink:
    """A link of two named ends inside a host, the same in both directions.

    Without a `rate` it is to be found from the GPU's product or from what the caller states for
    its kind. `lanes` counts parallel NVLinks or cables (not PCIe lanes).
    """

    source: str
    target: str
    kind: LinkKind
    line: int
    lanes: int = 1
    rate: Rate | None = None
    effective_bytes_per_second: float | None = None
    latency_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHost:
    """The inside of one host; without a name it stands for any host it is joined to."""

    name: str | None
    line: int
    devices: tuple[FoundDevice, ...]
    links: tuple[FoundLink, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSwitch:
    """A switch outside any host. `name` is unique in its reading, `title` what people call it.

    `level` counts tiers from the hosts up (0 is a leaf) where it is known. Switches of one
    `system_guid` are chips of one chassis.
    """

    name: str
    line: int
    title: str | None = None
    guid: str | None = None
    system_guid: str | None = None
    level: int | None = None
    rail: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CableEnd:
    """One end of a cable: a switch by its name in the reading, or a device of a host.

    Of a device whatever the file says is given: the host's name; in `adapter` what the system calls
    it (`mlx5_5`, `HCA-1`) or, where the reading holds the inside of that host, its name there
    (`gpu3`); the GUID of its port. An adapter whose host is unknown has only GUIDs. Adapters of one
    `system_guid` are on one card.
    """

    switch: str | None = None
    host: str | None = None
    adapter: str | None = None
    port_guid: str | None = None
    port_number: int | None = None
    system_guid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """A cable between two ends; parallel cables are several of them."""

    source: CableEnd
    target: CableEnd
    line: int
    rate: Rate | None = None
    latency_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedHost:
    """A host that a file without adapters puts below a switch (Slurm, topograph, Kubernetes).

    `switch` is None for a host that is known but below none.
    """

    host: str
    switch: str | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NvlinkDomain:
    """Hosts whose GPUs share NVSwitches (a block of GB200 hosts, a clique)."""

    name: str
    hosts: tuple[str, ...]
    line: int


class TransferScope(StrEnum):
    """What a measurement was of, and so which links it speaks for."""

    INSIDE_HOST = "inside_host"
    BETWEEN_HOSTS = "between_hosts"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTransfer:
    """One row of a benchmark.

    `collective` is `sendrecv`, `all_reduce`, `all_gather`, `reduce_scatter`, `alltoall`,
    `broadcast`, `write`, `read` or `send`; `bus_bytes_per_second` is the rate per rank that can be
    held against a link's; absent where only latency was measured.
    """

    tool: str
    collective: str
    message_bytes: int
    ranks: int
    scope: TransferScope
    line: int
    bus_bytes_per_second: float | None = None
    algorithm_bytes_per_second: float | None = None
    latency_seconds: float | None = None
    devices: tuple[str, ...] = ()
    date: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that one file told.

    `facts` counts what was in it (`gpus`, `nics`, `switches`, `cables`, `hosts`, ...), before
    anything was joined. `tree_only` marks formats that name which switch is above which without
    saying by how many cables or at what rate; there a `Cable` stands for "is joined to".
    """

    format: str
    facts: Mapping[str, int]
    hosts: tuple[FoundHost, ...] = ()
    switches: tuple[FoundSwitch, ...] = ()
    cables: tuple[Cable, ...] = ()
    attached: tuple[AttachedHost, ...] = ()
    domains: tuple[NvlinkDomain, ...] = ()
    measurements: tuple[MeasuredTransfer, ...] = ()
    tree_only: bool = False
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
