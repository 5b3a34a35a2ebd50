"""One inside of a host from what several tools say of it.

The tool that shows the PCI tree is the base. What the others add is laid over it: accelerators are
matched by their PCI address, else by their number (nvidia-smi, NVML and NCCL number alike), NICs
by address, GUID or name. Where two say different things both are told.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.join_notes import Notes, listed
from service.core.topology.readings import FoundDevice, FoundHost, FoundLink

__all__ = ["Inside", "merge_insides"]


@dataclass(frozen=True, slots=True)
class Inside:
    """Devices and links of one host by their names in it, and which files they come from."""

    files: tuple[int, ...]
    devices: Mapping[str, FoundDevice]
    links: tuple[FoundLink, ...]

    def of_kind(self, kind: VertexKind) -> list[FoundDevice]:
        """The devices of a kind, in order."""
        return [device for device in self.devices.values() if device.kind is kind]


def merge_insides(hosts: Sequence[tuple[int, str, FoundHost]], notes: Notes) -> Inside:
    """Join what files (place, format) say of one host. At least one is given."""
    base_file, base_format, base = max(hosts, key=lambda each: _detail(each[2]))
    devices = {device.name: device for device in base.devices}
    links = list(base.links)
    files = [base_file]
    for file, format_, host in hosts:
        if host is base:
            continue
        files.append(file)
        _Overlay(notes, devices, links, base_format, format_, file, host).lay()
    return Inside(tuple(files), devices, tuple(links))


def _detail(host: FoundHost) -> tuple[int, int]:
    """How much a file shows of the PCI tree, then of anything."""
    placed = sum(device.pci_address is not None for device in host.devices)
    return placed, len(host.links)


class _Overlay:
    """Lays one file over the devices and links of the base, which it changes in place."""

    def __init__(
        self,
        notes: Notes,
        devices: dict[str, FoundDevice],
        links: list[FoundLink],
        base_format: str,
        format_: str,
        file: int,
        host: FoundHost,
    ) -> None:
        self._notes = notes
        self._devices = devices
        self._links = links
        self._formats = base_format, format_
        self._file = file
        self._host = host
        self._name_of: dict[str, str] = {}

    def lay(self) -> None:
        for kind in (VertexKind.GPU, VertexKind.NIC):
            self._match(kind)
        for device in self._host.devices:
            name = self._name_of.get(device.name)
            if name is not None:
                self._devices[name] = self._joined(self._devices[name], device)
        self._nvlinks()

    def _match(self, kind: VertexKind) -> None:
        ours = [device for device in self._devices.values() if device.kind is kind]
        theirs = [device for device in self._host.devices if device.kind is kind]
        if kind is VertexKind.GPU and ours and theirs and len(ours) != len(theirs):
            self._conflict(f"{len(ours)} GPUs", f"{len(theirs)} GPUs")
        lost = []
        for device in theirs:
            match = next((own for own in ours if _is_same(own, device)), None)
            if match is None:
                lost.append(device)
            else:
                self._name_of[device.name] = match.name
        matched = len(theirs) - len(lost)
        if matched:
            how = "number or PCI address" if kind is VertexKind.GPU else "name, GUID or PCI address"
            self._notes.join(
                f"{matched} {kind.value}s of {self._formats[1]} are those of {self._formats[0]}, by"
                f" {how}"
            )
        if lost:
            names = listed(map(_title, lost))
            self._notes.leave_out(
                self._file, lost[0].line, f"{names} are none of {self._formats[0]}'s devices"
            )

    def _joined(self, own: FoundDevice, other: FoundDevice) -> FoundDevice:
        """The base's device with what the other file knows besides."""
        if own.numa is not None and other.numa is not None and own.numa != other.numa:
            self._conflict(
                f"NUMA node {own.numa} for {own.name}", f"NUMA node {other.numa} for {other.name}"
            )
        names = dict.fromkeys((*own.logical_names, *other.logical_names))
        return replace(
            own,
            product=other.product if own.product is None else own.product,
            logical_names=tuple(names),
            port_guid=own.port_guid or other.port_guid,
            port_rate=own.port_rate or other.port_rate,
            numa=other.numa if own.numa is None else own.numa,
            nvlinks=other.nvlinks if own.nvlinks is None else own.nvlinks,
            nvlink_rate=own.nvlink_rate or other.nvlink_rate,
        )

    def _nvlinks(self) -> None:
        """Links between accelerators, where the base has none; else how many each counts."""
        theirs = [link for link in self._host.links if link.kind is LinkKind.NVLINK]
        ours = [link for link in self._links if link.kind is LinkKind.NVLINK]
        if theirs and not ours:
            switches = [d for d in self._host.devices if d.kind is VertexKind.NVSWITCH]
            for switch in switches:
                self._devices[switch.name] = switch
                self._name_of[switch.name] = switch.name
            taken = [
                replace(link, source=self._name_of[link.source], target=self._name_of[link.target])
                for link in theirs
                if {link.source, link.target} <= self._name_of.keys()
            ]
            self._links += taken
            self._notes.join(
                f"{sum(link.lanes for link in taken)} NVLinks of {self._formats[1]} join the"
                f" GPUs of {self._formats[0]}, which says nothing of NVLink"
            )
            return
        self._compare(ours, self._counts(theirs))

    def _counts(self, links: Sequence[FoundLink]) -> dict[str, int]:
        """How many links each accelerator has, by its name in the base, as the other file says."""
        counts: Counter[str] = Counter()
        for link in links:
            for end in (link.source, link.target):
                if end in self._name_of:
                    counts[self._name_of[end]] += link.lanes
        for device in self._host.devices:
            if device.nvlinks is not None and device.name in self._name_of:
                counts[self._name_of[device.name]] = device.nvlinks
        return dict(counts)

    def _compare(self, ours: Sequence[FoundLink], theirs: Mapping[str, int]) -> None:
        """A port on a switch is as wide as the smaller count; private links stay as they are."""
        own: Counter[str] = Counter()
        for link in ours:
            own.update({link.source: link.lanes, link.target: link.lanes})
        for name, count in theirs.items():
            if not own or own[name] == count:
                continue
            self._conflict(f"{own[name]} NVLinks of {name}", f"{count}")
            for place, link in enumerate(self._links):
                ends = {link.source, link.target}
                is_port = link.kind is LinkKind.NVLINK and any(
                    self._devices[end].kind is VertexKind.NVSWITCH for end in ends
                )
                if is_port and name in ends and 0 < count < link.lanes:
                    rate = link.rate and replace(
                        link.rate, bytes_per_second=link.rate.bytes_per_second * count / link.lanes
                    )
                    self._links[place] = replace(link, lanes=count, rate=rate)
                    self._notes.assume(
                        f"{name} has the {count} NVLinks that {self._formats[1]} counts, the fewer"
                    )

    def _conflict(self, ours: str, theirs: str) -> None:
        self._notes.conflict(f"{self._formats[0]} says {ours}, {self._formats[1]} says {theirs}")


def _is_same(own: FoundDevice, other: FoundDevice) -> bool:
    if own.pci_address is not None and other.pci_address is not None:
        same_port = own.port_number in (None, other.port_number) or other.port_number is None
        return own.pci_address == other.pci_address and same_port
    if own.kind is VertexKind.GPU:
        return own.name == other.name
    if own.port_guid is not None and own.port_guid == other.port_guid:
        return own.port_number in (None, other.port_number) or other.port_number is None
    return bool(set(own.logical_names) & set(other.logical_names))


def _title(device: FoundDevice) -> str:
    return device.logical_names[0] if device.logical_names else device.name
