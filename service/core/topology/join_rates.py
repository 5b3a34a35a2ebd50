"""Where the nominal rate of each link comes from when several sources are joined.

In this order: what a file says, what follows from a product that a file or the caller names, what
the caller states for links of a kind, what can be assumed with a source. A link for which none of
these is known is refused: bandwidth never appears from nowhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from service.core.errors import FaultCode
from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.cpu_links import socket_link
from service.core.topology.gpu_products import GpuProduct, find_product
from service.core.topology.join_notes import Notes, listed
from service.core.topology.readings import FoundDevice, FoundLink, Rate

__all__ = ["KnownRate", "RateSources", "rate_field"]

_PCIE_KINDS = (LinkKind.PCIE, LinkKind.HOST_BRIDGE)
_STATED = "stated for links of this kind"


def rate_field(kind: LinkKind) -> str:
    """The name under which a caller states the rate of links of a kind."""
    return f"{kind.value}_bytes_per_second"


@dataclass(frozen=True, slots=True)
class KnownRate:
    """A nominal rate with its origin, and the effective one where it comes with it."""

    rate: Rate
    effective_bytes_per_second: float | None = None


@dataclass(slots=True)
class RateSources:
    """What the caller states: the GPUs' product, and rates by kind (of one NVLink or cable)."""

    notes: Notes
    product: GpuProduct | None = None
    stated: Mapping[LinkKind, float] = field(default_factory=dict)
    _missing: dict[LinkKind, list[str]] = field(default_factory=dict)

    def product_of(self, device: FoundDevice | None) -> GpuProduct | None:
        """The product of an accelerator: the caller's word, else that of the file."""
        if self.product is not None:
            return self.product
        return None if device is None or device.product is None else find_product(device.product)

    def compare_products(self, devices: Iterable[FoundDevice]) -> None:
        """Tell where a file knows another product than the one that is named."""
        if self.product is None:
            return
        for device in devices:
            found = None if device.product is None else find_product(device.product)
            if device.kind is VertexKind.GPU and found and not _are_alike(found, self.product):
                self.notes.conflict(
                    f"a file says that its GPUs are {found.name}, and gpu names"
                    f" {self.product.name}: the one that is named is taken"
                )

    def of_inner_link(
        self, link: FoundLink, devices: Mapping[str, FoundDevice]
    ) -> KnownRate | None:
        """The rate of a link inside a host, None when there is none (which is noted)."""
        ends = devices[link.source], devices[link.target]
        if link.rate is not None and link.rate.origin is not RateOrigin.ASSUMED:
            self._compare_pcie(link.kind, link.rate, ends)
            return KnownRate(link.rate, link.effective_bytes_per_second)
        found = self._from_product(link, ends, devices) or self._stated(link.kind, link.lanes)
        if found is None and link.rate is not None:
            return KnownRate(link.rate, link.effective_bytes_per_second)
        if found is None and link.kind is LinkKind.SOCKET:
            nominal, effective, source = socket_link(ends[0].product)
            rate = Rate(nominal, RateOrigin.ASSUMED, source)
            return KnownRate(rate, link.effective_bytes_per_second or effective)
        if found is None:
            self.missing(link.kind, f"{link.source} to {link.target}")
            return None
        return KnownRate(found, link.effective_bytes_per_second)

    def of_cable(
        self, kind: LinkKind, rate: Rate | None, port: Rate | None, name: str
    ) -> Rate | None:
        """The rate of one cable: its own, what is stated, or the line rate of the port at it."""
        if rate is not None:
            return rate
        found = self._stated(kind, 1)
        if found is not None:
            return found
        if port is not None:
            source = f"the line rate of the NIC's port, {port.source}"
            return Rate(port.bytes_per_second, port.origin, source)
        self.missing(kind, name)
        return None

    def has_stated(self, kind: LinkKind) -> bool:
        """Whether the caller stated a rate for links of this kind."""
        return self._stated(kind, 1) is not None

    def missing(self, kind: LinkKind, name: str) -> None:
        """Note that a link has no rate."""
        self._missing.setdefault(kind, []).append(name)

    def refuse_missing(self) -> None:
        """One fault for each kind of link that has no rate."""
        for kind, names in self._missing.items():
            ways = f"state {rate_field(kind)}"
            if kind in (LinkKind.NVLINK, *_PCIE_KINDS):
                ways = f"name the GPU's product in gpu, or {ways}"
            # Parallel cables have one name; there are as many links as there are cables.
            pairs = listed(dict.fromkeys(names))
            count = "" if len(set(names)) == len(names) else f" pairs of ends with {len(names)}"
            detail = f"no file says the rate of {pairs}{count} links of kind {kind.value}: {ways}"
            self.notes.refuse(FaultCode.MISSING_FIELD, (rate_field(kind),), detail)

    def _compare_pcie(
        self, kind: LinkKind, rate: Rate, ends: tuple[FoundDevice, FoundDevice]
    ) -> None:
        """Files of virtual machines show PCIe connections that the product does not have."""
        gpu = next((end for end in ends if end.kind is VertexKind.GPU), None)
        product = None if gpu is None else self.product_of(gpu)
        if kind not in _PCIE_KINDS or product is None:
            return
        own = product.pcie_bytes_per_second
        if abs(rate.bytes_per_second - own) > 0.01 * own:
            self.notes.conflict(
                f"PCIe of accelerators: a file says {rate.bytes_per_second / 1e9:.4g} GB/s"
                f" ({rate.source}), and {product.name} has {own / 1e9:.4g}: the file is taken"
            )

    def _stated(self, kind: LinkKind, lanes: int) -> Rate | None:
        value = self.stated.get(kind)
        if value is None and kind is LinkKind.HOST_BRIDGE:
            value = self.stated.get(LinkKind.PCIE)
        return None if value is None else Rate(value * lanes, RateOrigin.STATED, _STATED)

    def _from_product(
        self,
        link: FoundLink,
        ends: tuple[FoundDevice, FoundDevice],
        devices: Mapping[str, FoundDevice],
    ) -> Rate | None:
        gpu = next((end for end in ends if end.kind is VertexKind.GPU), None)
        if link.kind is LinkKind.NVLINK:
            return self._nvlink(link, gpu)
        if link.kind not in _PCIE_KINDS:
            return None
        if self._stated(link.kind, 1) is not None:
            return None  # what the caller states of links is nearer than what a product implies
        product = self.product_of(gpu) if gpu is not None else None
        if product is not None:
            source = f"the PCIe connection of {product.name}"
            return Rate(product.pcie_bytes_per_second, RateOrigin.PRODUCT, source)
        fastest = self._fastest_pcie(devices)
        if fastest is None:
            return None
        source = f"as fast as the PCIe connection of the host's {fastest.name}"
        return Rate(fastest.pcie_bytes_per_second, RateOrigin.ASSUMED, source)

    def _nvlink(self, link: FoundLink, gpu: FoundDevice | None) -> Rate | None:
        if gpu is not None and gpu.nvlink_rate is not None:
            one = gpu.nvlink_rate
            return Rate(one.bytes_per_second * link.lanes, one.origin, one.source)
        product = self.product_of(gpu)
        generation = None if product is None else product.generation
        if generation is None:
            return None
        origin = RateOrigin.ASSUMED if generation.assumed else RateOrigin.PRODUCT
        rate = generation.link_bytes_per_second * link.lanes
        return Rate(rate, origin, generation.source)

    def _fastest_pcie(self, devices: Mapping[str, FoundDevice]) -> GpuProduct | None:
        gpus = (device for device in devices.values() if device.kind is VertexKind.GPU)
        known = [product for gpu in gpus if (product := self.product_of(gpu)) is not None]
        return max(known, key=lambda product: product.pcie_bytes_per_second, default=None)


def _are_alike(one: GpuProduct, other: GpuProduct) -> bool:
    """Whether two names may be of one product: one with the size of its memory, one without."""
    links = [(each.generation, each.links, each.pcie_bytes_per_second) for each in (one, other)]
    facts = [each.facts for each in (one, other)]
    return links[0] == links[1] and (None in facts or facts[0] == facts[1])
