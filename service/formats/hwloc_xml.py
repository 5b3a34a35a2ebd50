"""The inside of a host as hwloc writes it (`lstopo host.xml`), versions 1 to 3.

Nested objects: packages, below them host bridges, bridges and PCI devices, and what the system
calls those (OSDev). Version 2 and later add matrices; that of NVLink bandwidth (MB/s of data) has
the NVLinks. Everything else (caches, cores) says nothing of traffic between devices.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.gpu_products import find_product, product_of_pci_id
from service.core.topology.readings import (
    FoundDevice,
    FoundHost,
    FoundLink,
    Rate,
    RateOrigin,
    Reading,
)
from service.formats.hwloc_nvlinks import nvlinks_of_matrix
from service.formats.pasted_text import Findings, refuse_file, shown
from service.formats.pci_tree import (
    PciFunction,
    PciWiring,
    card_of,
    connection_of_rate,
    lead_to_devices,
    normal_address,
    wire,
)
from service.formats.xml_elements import Element, read_xml, root_name

__all__ = ["MAX_DEVICES", "looks_like_hwloc_xml", "read_hwloc_xml"]

MAX_DEVICES = 2048
_MAX_PACKAGES = 64
_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\].*")
_SPEED = re.compile(r"[0-9]{1,4}(\.[0-9]{1,9})?")
_GUID = re.compile(r"(?:[0-9a-f]{4}:){3}[0-9a-f]{4}")
_ACCELERATOR_CLASSES = {0x0302, 0x0380, 0x1200}
_DISPLAY_CLASS = 0x0300
_ACCELERATOR_NAMES = re.compile(r"(cuda|nvml|rsmi|opencl|ze|ve)[0-9].*")
# What links of devices that do nothing say.
_IDLE_GIGATRANSFERS = 5.0


def looks_like_hwloc_xml(content: bytes) -> bool:
    """Whether the first element is hwloc's."""
    return root_name(content) == "topology"


def read_hwloc_xml(content: bytes) -> Reading:
    """Read an export.

    GPUs are `gpu0`, ... by their number in NVML, CUDA or ROCm where all have one, else in the order
    of the file, as NICs (one for each PCI function) are.

    Raises `InvalidInput` with every fault, each with path `("line", n)`.
    """
    root = read_xml(content)
    if root.name != "topology":
        refuse_file(root.line, f"begins <{root.name[:40]}>; hwloc's export is one <topology>")
    findings = Findings()
    host, counted = _Reader(findings, root).read()
    findings.raise_faults()
    kinds = [device.kind for device in host.devices]
    nvlinks = [link for link in host.links if link.kind is LinkKind.NVLINK]
    return Reading(
        format="hwloc_xml",
        facts={
            "hosts": 1,
            "cpus": kinds.count(VertexKind.CPU),
            "gpus": kinds.count(VertexKind.GPU),
            "nics": kinds.count(VertexKind.NIC),
            "pcie_switches": kinds.count(VertexKind.PCIE_SWITCH),
            "nvswitches": kinds.count(VertexKind.NVSWITCH),
            "nvlinks": sum(link.lanes for link in nvlinks),
            "other_devices": counted,
        },
        hosts=(host,),
        assumptions=tuple(findings.assumptions),
        notes=findings.notes(),
        left_out=findings.left_out(),
    )


def _objects(element: Element) -> Iterator[Element]:
    return element.named("object")


def _type(element: Element) -> str:
    return element.attributes.get("type", "")


@dataclass(slots=True)
class _Package:
    """A CPU and the host bridges below it."""

    device: FoundDevice
    bridges: list[Element] = field(default_factory=list)


class _Reader:
    """Takes one export apart."""

    def __init__(self, findings: Findings, root: Element) -> None:
        self._findings = findings
        self._root = root
        self._packages: list[_Package] = []
        self._gpus: list[tuple[FoundDevice, str]] = []
        self._nics: list[FoundDevice] = []
        self._bridges: list[FoundDevice] = []
        self._on_chip: list[FoundLink] = []
        self._addresses: dict[str, int] = {}
        self._of_object: dict[str, str] = {}
        self._others = 0
        self._seen = 0

    def read(self) -> tuple[FoundHost, int]:
        machines = list(_objects(self._root))
        if not machines:
            refuse_file(self._root.line, "begins a topology without objects")
        homeless: list[Element] = []
        for machine in machines:
            self._find_packages(machine, None, homeless)
        if not self._packages:
            cpu = FoundDevice(name="cpu0", kind=VertexKind.CPU, line=machines[0].line)
            self._packages.append(_Package(cpu))
        if homeless:
            self._packages[0].bridges += homeless
            if len(self._packages) > 1:
                self._findings.assume(
                    "host bridges that the file puts below no package are below the first"
                )
        wiring = PciWiring()
        for package in self._packages:
            found = [
                (bridge, functions)
                for bridge in package.bridges
                if lead_to_devices(functions := self._functions(bridge, package.device))
            ]
            for bridge, functions in found:
                above = package.device.name
                if len(found) > 1:
                    above = self._host_bridge(bridge, above)
                wire(wiring, above, functions)
        self._findings.raise_faults()
        if not self._gpus and not self._nics:
            refuse_file(
                self._root.line,
                "begins a topology without accelerators and NICs: export"
                " it with I/O devices (lstopo --whole-io)",
            )
        return self._host(wiring), self._others

    def _host_bridge(self, element: Element, cpu: str) -> str:
        """One of several host bridges of a package, by its name."""
        name = f"bridge{len(self._bridges)}"
        kind = VertexKind.HOST_BRIDGE
        self._bridges.append(FoundDevice(name=name, kind=kind, line=element.line))
        self._on_chip.append(
            FoundLink(source=name, target=cpu, kind=LinkKind.ON_CHIP, line=element.line)
        )
        return name

    def _host(self, wiring: PciWiring) -> FoundHost:
        renamed = self._numbers()
        gpus = sorted(
            (replace(gpu, name=renamed[gpu.name]) for gpu, _ in self._gpus),
            key=lambda gpu: int(gpu.name[3:]),
        )
        by_object = {key: renamed.get(name, name) for key, name in self._of_object.items()}
        products = {gpu.name: gpu.product for gpu in gpus}
        nvlinks, switches = nvlinks_of_matrix(self._findings, self._root, by_object, products)
        links = [
            replace(link, source=renamed.get(link.source, link.source)) for link in wiring.links
        ]
        cpus = [package.device for package in self._packages]
        sockets = [
            FoundLink(source=one.name, target=other.name, kind=LinkKind.SOCKET, line=other.line)
            for place, one in enumerate(cpus)
            for other in cpus[place + 1 :]
        ]
        return FoundHost(
            name=None,
            line=self._root.line,
            devices=(*gpus, *self._nics, *switches, *wiring.switches, *self._bridges, *cpus),
            links=(*nvlinks, *links, *self._on_chip, *sockets),
        )

    def _numbers(self) -> dict[str, str]:
        """Names of GPUs by their numbers in a system's library, where all have different ones."""
        for library in ("nvml", "rsmi", "cuda"):
            numbers = [re.search(rf"\b{library}([0-9]{{1,4}})\b", names) for _, names in self._gpus]
            found = [number[1] for number in numbers if number is not None]
            if found and len(set(found)) == len(self._gpus):
                return {
                    gpu.name: f"gpu{int(number)}"
                    for (gpu, _), number in zip(self._gpus, found, strict=True)
                }
        return {gpu.name: gpu.name for gpu, _ in self._gpus}

    def _find_packages(
        self, element: Element, package: _Package | None, homeless: list[Element]
    ) -> None:
        """Packages and the host bridges in them, wherever groups and NUMA nodes stand between."""
        for child in _objects(element):
            inside = package
            if _type(child) in {"Package", "Socket"}:
                inside = _Package(self._cpu(child))
                self._packages.append(inside)
                if len(self._packages) > _MAX_PACKAGES:
                    refuse_file(child.line, f"is beyond the {_MAX_PACKAGES} packages of a host")
            if _type(child) == "Bridge":
                (homeless if inside is None else inside.bridges).append(child)
            elif _type(child) != "PU":
                self._find_packages(child, inside, homeless)

    def _cpu(self, element: Element) -> FoundDevice:
        infos = _infos(element)
        family = [infos.get(f"CPU{part}", "") for part in ("Vendor", "FamilyNumber", "ModelNumber")]
        number = len(self._packages)
        numas = [child for child in _objects(element) if _type(child) == "NUMANode"]
        numa = numas[0].attributes.get("os_index", "") if numas else ""
        return FoundDevice(
            name=f"cpu{number}",
            kind=VertexKind.CPU,
            line=element.line,
            product=" ".join(family) if all(family) else None,
            numa=int(numa) if re.fullmatch(r"[0-9]{1,4}", numa) else None,
        )

    def _functions(self, bridge: Element, cpu: FoundDevice) -> list[PciFunction]:
        """The PCI functions below a bridge."""
        functions = []
        for child in _objects(bridge):
            if _type(child) not in {"Bridge", "PCIDev"}:
                continue
            function = self._function(child)
            if function is None:
                continue
            if _type(child) == "PCIDev":
                self._device(function, child, cpu)
            function.children += self._functions(child, cpu)
            functions.append(function)
        return functions

    def _function(self, element: Element) -> PciFunction | None:
        text = element.attributes.get("pci_busid", "")
        address = normal_address(text)
        found = _TYPE.fullmatch(element.attributes.get("pci_type", ""))
        if address is None or found is None:
            self._findings.refuse(
                element.line,
                f"has pci_busid {shown(text)} and pci_type"
                f" {shown(element.attributes.get('pci_type', ''))}; they are like 0000:1b:00.0 and"
                " 0302 [10de:2330]",
            )
            return None
        self._seen += 1
        if self._seen > MAX_DEVICES:
            refuse_file(element.line, f"is beyond the {MAX_DEVICES} PCI functions of a host")
        identity = int(found[2], 16), int(found[3], 16)
        return PciFunction(address, element.line, identity, self._rate(element))

    def _rate(self, element: Element) -> Rate | None:
        text = element.attributes.get("pci_link_speed", "0")
        if _SPEED.fullmatch(text) is None:
            self._findings.refuse(
                element.line, f"has pci_link_speed {shown(text)}; it is a number, in GB/s"
            )
            return None
        gigabytes = float(text)
        if gigabytes <= 0:
            return None
        known = connection_of_rate(gigabytes * 1e9)
        if known is None:
            return Rate(gigabytes * 1e9, RateOrigin.READ, f"hwloc shows {gigabytes:g} GB/s")
        gigatransfers, lanes, exact = known
        if gigatransfers <= _IDLE_GIGATRANSFERS:
            self._findings.leave_out(
                element.line,
                f"pci_link_speed {text} is that of {gigatransfers:g} GT/s, of an idle or emulated"
                " link: not believed",
            )
            return None
        source = f"hwloc shows {gigabytes:g} GB/s, which is {gigatransfers:g} GT/s x{lanes}"
        return Rate(exact, RateOrigin.READ, source)

    def _device(self, function: PciFunction, element: Element, cpu: FoundDevice) -> None:
        """What a PCI device is, by its class and by what the system has for it."""
        systems = [child for child in _objects(element) if _type(child) == "OSDev"]
        names = [system.attributes.get("name", "") for system in systems]
        class_ = int(element.attributes["pci_type"][:4], 16)
        computes = any(_ACCELERATOR_NAMES.fullmatch(name) for name in names)
        if class_ in _ACCELERATOR_CLASSES or (class_ == _DISPLAY_CLASS and computes):
            device = self._gpu(function, systems, cpu)
            self._gpus.append((device, " ".join(names)))
        elif class_ >> 8 == 0x02:
            device = self._nic(function, systems, names, cpu)
            self._nics.append(device)
        else:
            self._others += 1
            self._note_object(element, function.address)
            return
        first = self._addresses.setdefault(function.address, element.line)
        if first != element.line:
            self._findings.refuse(
                element.line, f"has pci_busid {function.address}, as line {first} has"
            )
        function.endpoints.append(device)
        self._note_object(element, device.name)
        for system in systems:
            self._note_object(system, device.name)

    def _note_object(self, element: Element, name: str) -> None:
        """Matrices name objects by their type and number."""
        index = element.attributes.get("gp_index")
        if index is not None:
            self._of_object[f"{_type(element)}:{index}"] = name

    def _gpu(self, function: PciFunction, systems: list[Element], cpu: FoundDevice) -> FoundDevice:
        infos = {key: value for system in systems for key, value in _infos(system).items()}
        model = infos.get("GPUModel")
        known = None if model is None else find_product(model)
        if known is None and function.identity is not None:
            known = product_of_pci_id(*function.identity)
        return FoundDevice(
            name=f"gpu{len(self._gpus)}",
            kind=VertexKind.GPU,
            line=function.line,
            product=known.name if known is not None else model and model[:120],
            pci_address=function.address,
            numa=cpu.numa,
        )

    def _nic(
        self, function: PciFunction, systems: list[Element], names: list[str], cpu: FoundDevice
    ) -> FoundDevice:
        infos = {key: value for system in systems for key, value in _infos(system).items()}
        guid = infos.get("Port1GID0", "")[-19:] or infos.get("NodeGUID", "")
        return FoundDevice(
            name=f"nic{len(self._nics)}",
            kind=VertexKind.NIC,
            line=function.line,
            pci_address=function.address,
            logical_names=tuple(name for name in names if name),
            port_guid=guid.replace(":", "") if _GUID.fullmatch(guid) else None,
            card=card_of(function.address),
            numa=cpu.numa,
        )


def _infos(element: Element) -> Mapping[str, str]:
    return {
        info.attributes.get("name", ""): info.attributes.get("value", "")
        for info in element.named("info")
    }
