"""The topology that NCCL and RCCL dump (`NCCL_TOPO_DUMP_FILE`) or are given (`NCCL_TOPO_FILE`).

The inside of one host (or of several, when CPUs carry a `host_hash`): CPUs, the PCI tree below
them, accelerators with their NVLink or xGMI targets, NICs with their ports. Read in
NVIDIA/nccl 5067397c, src/graph/xml.cc and topo.cc; RCCL writes version 2 of the same grammar.

There are full dumps, and stubs that clouds hand out for their virtual machines: CPUs and PCI
functions only, where the class of a function says what it is.
"""

from collections.abc import Iterator
from dataclasses import replace

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.gpu_products import product_of_pci_id
from service.core.topology.readings import (
    FoundDevice,
    FoundHost,
    FoundLink,
    Rate,
    RateOrigin,
    Reading,
)
from service.formats.nccl_devices import (
    DeviceKind,
    connection_rate,
    hexadecimal,
    kind_of,
    nic_ports,
    whole,
)
from service.formats.nccl_nvlinks import nvlinks_of
from service.formats.pasted_text import Findings, refuse_file, shown
from service.formats.pci_tree import PciFunction, PciWiring, lead_to_devices, normal_address, wire
from service.formats.xml_elements import Element, read_xml, root_name

__all__ = ["looks_like_nccl_xml", "read_nccl_xml"]

MAX_CPUS = 64
MAX_FUNCTIONS = 2048
_VERSIONS = {"1", "2"}
# The graph that NCCL searched, which has the same look and is a plan, not a topology.
_GRAPH_ROOT = "graphs"


def looks_like_nccl_xml(content: bytes) -> bool:
    """Whether the first element is one that NCCL writes, its graphs included."""
    return root_name(content) in {"system", _GRAPH_ROOT}


def read_nccl_xml(content: bytes) -> Reading:
    """Read a dump or a stub.

    GPUs are named `gpu0`, ... by their `dev` where each has one of its own, else in the order of
    the file; NICs `nic0`, ... likewise; CPUs by their NUMA node.

    Raises `InvalidInput` with every fault up to `MAX_FAULTS`, each with path `("line", n)`.
    """
    root = read_xml(content)
    if root.name == _GRAPH_ROOT:
        refuse_file(
            root.line,
            "begins a graph that NCCL has chosen (NCCL_GRAPH_DUMP_FILE), not a topology: give the"
            " file of NCCL_TOPO_DUMP_FILE",
        )
    if root.name != "system":
        refuse_file(root.line, f"begins <{root.name[:40]}>; the topology is one <system>")
    version = root.attributes.get("version", "")
    if version not in _VERSIONS:
        refuse_file(root.line, f"has version {shown(version)}; 1 (NCCL) and 2 (RCCL) are read")
    findings = Findings()
    groups: dict[str, list[Element]] = {}
    for child in root.children:
        if child.name == "cpu":
            groups.setdefault(child.attributes.get("host_hash", ""), []).append(child)
        else:
            findings.leave_out(child.line, f"<{child.name[:40]}> outside a <cpu>")
    if not groups:
        refuse_file(root.line, "begins a topology without a <cpu>")
    hosts = []
    for hash_, cpus in groups.items():
        # A file of one host is of any host; of several, each is itself.
        name = f"host-{hash_.removeprefix('0x').lower()}" if len(groups) > 1 else None
        hosts.append(_Host(findings, cpus).read(name))
    findings.raise_faults()
    return Reading(
        format="nccl_xml",
        facts=_facts(hosts),
        hosts=tuple(hosts),
        assumptions=tuple(findings.assumptions),
        left_out=findings.left_out(),
    )


def _facts(hosts: list[FoundHost]) -> dict[str, int]:
    kinds = [device.kind for host in hosts for device in host.devices]
    nvlinks = [link for host in hosts for link in host.links if link.kind is LinkKind.NVLINK]
    return {
        "hosts": len(hosts),
        "cpus": kinds.count(VertexKind.CPU),
        "gpus": kinds.count(VertexKind.GPU),
        "nics": kinds.count(VertexKind.NIC),
        "pcie_switches": kinds.count(VertexKind.PCIE_SWITCH),
        "nvswitches": kinds.count(VertexKind.NVSWITCH),
        "nvlinks": sum(link.lanes for link in nvlinks),
    }


class _Host:
    """The CPUs of one host, read into devices and links."""

    def __init__(self, findings: Findings, cpus: list[Element]) -> None:
        self._findings = findings
        self._cpus = cpus
        self._gpus: list[tuple[FoundDevice, Element]] = []
        self._nics: list[FoundDevice] = []
        self._addresses: dict[str, PciFunction] = {}
        self._peer_links: list[tuple[PciFunction, Element]] = []
        self._cpu_names: dict[str, str] = {}

    def read(self, name: str | None) -> FoundHost:
        self._require_few()
        self._gpu_names = self._numbered("gpu", self._cpus)
        self._nic_names = self._numbered("net", self._cpus)
        wiring = PciWiring()
        cpus: list[FoundDevice] = []
        links: list[FoundLink] = []
        for index, element in enumerate(self._cpus):
            cpu = self._cpu(index, element)
            cpus.append(cpu)
            functions = self._functions(element, cpu)
            if sum(lead_to_devices([function]) for function in functions) > 1:
                self._findings.assume(
                    "each CPU has one host bridge: the file does not tell several apart, so that"
                    " what is phb here may be node"
                )
            wire(wiring, cpu.name, functions)
            links += self._without_pci(element, cpu)
        if not self._gpus and not self._nics:
            self._findings.raise_faults()
            refuse_file(
                self._cpus[0].line,
                "begins a host in which no GPU and no NIC can be told: its PCI functions have"
                " neither a class nor <gpu> or <nic> in them",
            )
        links += [*wiring.links, *self._sockets(cpus), *self._pci_peers(wiring)]
        at = {gpu.pci_address: gpu for gpu, _ in self._gpus if gpu.pci_address}
        fabric = nvlinks_of(self._findings, self._gpus, at, self._cpu_of)
        switches = [fabric.switch] if fabric.switch is not None else []
        if len(self._gpus) > 1 and not self._gpu_names and not fabric.links:
            self._findings.assume(
                "GPUs are joined by PCIe alone unless another file says more: this one has no <gpu>"
                " elements, as those for virtual machines, and so tells of no NVLink; where there"
                " is one, what is computed between the GPUs of a host bounds nothing (`nvidia-smi"
                " topo -m` tells of it)"
            )
        gpus = [replace(gpu, nvlinks=fabric.count_of.get(gpu.name)) for gpu, _ in self._gpus]
        return FoundHost(
            name=name,
            line=self._cpus[0].line,
            devices=(
                *sorted(gpus, key=_place),
                *sorted(self._nics, key=_place),
                *switches,
                *wiring.switches,
                *cpus,
            ),
            links=tuple(_one_of_each([*fabric.links, *links], self._findings)),
        )

    def _require_few(self) -> None:
        """No more than a host can have; the work below grows with pairs of them."""
        if len(self._cpus) > MAX_CPUS:
            refuse_file(self._cpus[MAX_CPUS].line, f"is beyond the {MAX_CPUS} CPUs of a host")
        functions = [element for cpu in self._cpus for element in _all_named(cpu, "pci", "net")]
        if len(functions) > MAX_FUNCTIONS:
            line = functions[MAX_FUNCTIONS].line
            refuse_file(line, f"is beyond the {MAX_FUNCTIONS} PCI functions and ports of a host")

    def _numbered(self, name: str, cpus: list[Element]) -> dict[int, str]:
        """Names by the identity of elements: their `dev` where those are all different."""
        found = [element for cpu in cpus for element in _all_named(cpu, name)]
        devs = [element.attributes.get("dev", "") for element in found]
        prefix = "gpu" if name == "gpu" else "nic"
        usable = all(dev.isdecimal() and len(dev) < 5 for dev in devs)
        if usable and len(set(devs)) == len(devs):
            return {
                id(element): f"{prefix}{int(dev)}" for element, dev in zip(found, devs, strict=True)
            }
        self._findings.assume(
            f"<{name}> elements without a number of their own are numbered in the order of the file"
        )
        return {id(element): f"{prefix}{index}" for index, element in enumerate(found)}

    def _cpu(self, index: int, element: Element) -> FoundDevice:
        numa = whole(element.attributes.get("numaid", ""))
        numas = [cpu.attributes.get("numaid") for cpu in self._cpus]
        by_numa = numa is not None and 0 <= numa < 10_000 and len(set(numas)) == len(numas)
        family = tuple(element.attributes.get(key, "") for key in ("vendor", "familyid", "modelid"))
        return FoundDevice(
            name=f"cpu{numa if by_numa else index}",
            kind=VertexKind.CPU,
            line=element.line,
            product=" ".join(family) if all(family) else None,
            numa=numa if numa is not None and numa >= 0 else None,
        )

    def _functions(self, parent: Element, cpu: FoundDevice) -> list[PciFunction]:
        """The PCI functions below an element; one address given twice there is one bridge."""
        functions: dict[str, PciFunction] = {}
        for element in parent.children:
            if element.name == "pci":
                self._function(element, cpu, functions)
            elif element.name not in {"nic", "gpu", "pcilink", "c2c", "nvlink", "xgmi"}:
                self._findings.leave_out(element.line, f"<{element.name[:40]}> is not read")
        return list(functions.values())

    def _function(
        self, element: Element, cpu: FoundDevice, siblings: dict[str, PciFunction]
    ) -> None:
        text = element.attributes.get("busid", "")
        address = normal_address(text)
        if address is None:
            self._findings.refuse(
                element.line, f"has busid {shown(text)}; one is like 0000:1b:00.0"
            )
            return
        known = siblings.get(address)
        if known is None and address in self._addresses:
            first = self._addresses[address].line
            self._findings.refuse(element.line, f"has busid {address}, as line {first} has")
            return
        if known is not None and (known.endpoints or kind_of(element) is not DeviceKind.BRIDGE):
            self._findings.refuse(
                element.line, f"has busid {address}, as the device at line {known.line} has"
            )
            return
        if known is not None:
            self._findings.leave_out(
                element.line, f"bridge {address} again: joined to the one at line {known.line}"
            )
            known.children += self._functions(element, cpu)
            return
        rate, doubt = connection_rate(element)
        if doubt:
            self._findings.leave_out(element.line, doubt)
        vendor = hexadecimal(element.attributes.get("vendor", ""))
        device = hexadecimal(element.attributes.get("device", ""))
        identity = (vendor, device) if vendor is not None and device is not None else None
        function = PciFunction(address, element.line, identity, rate)
        siblings[address] = self._addresses[address] = function
        self._fill(function, element, cpu)

    def _fill(self, function: PciFunction, element: Element, cpu: FoundDevice) -> None:
        """What a function is: an accelerator, a NIC, or a bridge with more below it."""
        kind = kind_of(element)
        if kind is DeviceKind.GPU:
            self._gpu(function, element, cpu)
        elif kind is DeviceKind.NIC:
            ports = nic_ports(self._findings, element, function.address, cpu.numa, self._nic_name)
            function.endpoints += ports
            self._nics += ports
        elif kind is DeviceKind.OTHER:
            self._findings.leave_out(
                element.line,
                f"PCI function {function.address} is neither an accelerator, a NIC nor a bridge",
            )
        function.children += self._functions(element, cpu)
        self._peer_links += [(function, link) for link in element.named("pcilink")]

    def _nic_name(self, element: Element | None) -> str:
        """By the number of its <net>; in a stub, by its place in the file."""
        if element is not None and self._nic_names:
            return self._nic_names[id(element)]
        used = {nic.name for nic in self._nics} | set(self._nic_names.values())
        return next(name for n in range(len(used) + 1) if (name := f"nic{n}") not in used)

    def _gpu(self, function: PciFunction, element: Element, cpu: FoundDevice) -> None:
        stated = list(element.named("gpu"))
        if len(stated) > 1:
            self._findings.refuse(stated[1].line, "is a second <gpu> of one PCI function")
        own = stated[0] if stated else element
        if stated:
            name = self._gpu_names[id(own)]
        else:
            used = {gpu.name for gpu, _ in self._gpus} | set(self._gpu_names.values())
            name = next(name for n in range(len(used) + 1) if (name := f"gpu{n}") not in used)
        product = product_of_pci_id(*function.identity) if function.identity else None
        gpu = FoundDevice(
            name=name,
            kind=VertexKind.GPU,
            line=own.line,
            product=product.name if product else None,
            pci_address=function.address,
            numa=cpu.numa,
        )
        function.endpoints.append(gpu)
        self._gpus.append((gpu, own))
        self._cpu_names[name] = cpu.name

    def _cpu_of(self, gpu: str) -> str:
        return self._cpu_names[gpu]

    def _without_pci(self, element: Element, cpu: FoundDevice) -> Iterator[FoundLink]:
        """NICs that hang below a CPU itself: virtual ones, and those of virtual machines."""
        for nic in element.named("nic"):
            for port in nic_ports(self._findings, nic, None, cpu.numa, self._nic_name):
                self._nics.append(port)
                rate = port.port_rate and Rate(
                    port.port_rate.bytes_per_second,
                    RateOrigin.ASSUMED,
                    "the line rate of a NIC whose place on the PCI bus is not given",
                )
                yield FoundLink(
                    source=port.name,
                    target=cpu.name,
                    kind=LinkKind.HOST_BRIDGE,
                    line=port.line,
                    rate=rate,
                )

    def _sockets(self, cpus: list[FoundDevice]) -> Iterator[FoundLink]:
        """Every CPU (NUMA node) reaches every other; the file does not say how fast."""
        for index, one in enumerate(cpus):
            for other in cpus[index + 1 :]:
                yield FoundLink(
                    source=one.name, target=other.name, kind=LinkKind.SOCKET, line=other.line
                )

    def _pci_peers(self, wiring: PciWiring) -> Iterator[FoundLink]:
        for function, link in self._peer_links:
            target = normal_address(link.attributes.get("target", ""))
            one = wiring.vertex_of.get(function.address)
            other = wiring.vertex_of.get(target or "")
            if one is None or other is None or one == other:
                self._findings.leave_out(link.line, "<pcilink> joins no two switches of this file")
                continue
            rate = function.rate and Rate(
                function.rate.bytes_per_second,
                RateOrigin.ASSUMED,
                "the rate of the switch's connection upwards",
            )
            yield FoundLink(source=one, target=other, kind=LinkKind.PCIE, line=link.line, rate=rate)


def _all_named(element: Element, *names: str) -> Iterator[Element]:
    for child in element.children:
        if child.name in names:
            yield child
        yield from _all_named(child, *names)


def _place(device: FoundDevice) -> int:
    return int(device.name[3:])


def _one_of_each(links: list[FoundLink], findings: Findings) -> Iterator[FoundLink]:
    """One link for each pair of ends: NVLink or C2C stands before PCIe between the same two."""
    seen: set[frozenset[str]] = set()
    for link in links:
        ends = frozenset((link.source, link.target))
        if ends in seen:
            findings.leave_out(
                link.line, f"a second link between {link.source} and {link.target} ({link.kind})"
            )
            continue
        seen.add(ends)
        yield link
