"""Groups of hosts with the same inside, and how a fabric's adapters are found in it."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from service.core.topology.cluster import LinkKind, RateOrigin, VertexKind
from service.core.topology.designs import DESIGNS
from service.core.topology.gpu_products import GpuProduct
from service.core.topology.join_insides import Inside
from service.core.topology.join_names import natural_key
from service.core.topology.join_notes import listed
from service.core.topology.join_rates import KnownRate, RateSources
from service.core.topology.readings import CableEnd, FoundDevice, FoundLink, Rate
from service.core.topology.spec import DeviceSpec, LinkSpec

__all__ = ["AdapterKey", "HostGroup", "MatchedAdapters", "adapter_key", "group_of_adapters"]

_BRIDGE_WIDTH = (
    "no narrower than what is below the host bridge: no file says how fast it reaches its CPU"
)

# What a file calls an adapter, and the number of its port.
AdapterKey = tuple[str, int | None]


def adapter_key(end: CableEnd) -> AdapterKey | None:
    """What tells an adapter's port from the others of its host."""
    name = end.adapter or end.port_guid
    return None if name is None else (name, end.port_number)


@dataclass(slots=True)
class MatchedAdapters:
    """How a fabric's adapters were found in hosts: how many by what, and in words which NICs they
    are by their order, and which are beyond the NICs there are.
    """

    how: Counter[str] = field(default_factory=Counter)
    in_order: list[str] = field(default_factory=list)
    too_many: list[str] = field(default_factory=list)


@dataclass(slots=True)
class HostGroup:
    """Hosts (by the names files give them) that are alike: of a file's inside or of a design."""

    hosts: list[str]
    inside: Inside | None = None
    design: str | None = None
    # The NICs by name, in order: the line rate of each where it is known, and its rail.
    ports: Mapping[str, Rate | None] = field(init=False)
    rails: Mapping[str, int] = field(init=False)
    _places: dict[AdapterKey, str] = field(default_factory=dict)
    _named: dict[str, list[FoundDevice]] = field(default_factory=dict)
    _of_guid: dict[str, list[FoundDevice]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ports = self._find_ports()
        self.rails = self._find_rails()
        for nic in () if self.inside is None else self.inside.of_kind(VertexKind.NIC):
            for name in nic.logical_names:
                self._named.setdefault(name, []).append(nic)
            if nic.port_guid is not None:
                for guid in _both_ways(nic.port_guid):
                    self._of_guid.setdefault(guid, []).append(nic)

    @property
    def guids(self) -> Iterable[str]:
        """The GUIDs of the NICs, also as NCCL writes them."""
        return self._of_guid

    def _find_ports(self) -> Mapping[str, Rate | None]:
        if self.inside is not None:
            nics = self.inside.of_kind(VertexKind.NIC)
            return {nic.name: nic.port_rate for nic in nics}
        if self.design is None:
            return {}
        ports: dict[str, Rate | None] = {}
        for device in DESIGNS[self.design].devices:
            if device.kind is VertexKind.NIC:
                rate = device.port_bytes_per_second
                source = device.port_source or f"the NIC of {self.design}"
                ports[device.name] = (rate and Rate(rate, device.port_origin, source)) or None
        return ports

    def _find_rails(self) -> Mapping[str, int]:
        """As a file says, else the place among the NICs."""
        rails = {name: place for place, name in enumerate(self.ports)}
        if self.inside is not None:
            for nic in self.inside.of_kind(VertexKind.NIC):
                rails[nic.name] = rails[nic.name] if nic.rail is None else nic.rail
        return rails

    def device_at(self, end: CableEnd) -> str | None:
        """The device that a cable ends at, by name, GUID, or its place among the host's adapters.

        `match_adapters` has been told of all ends before.
        """
        found = self._by_name(end) or self._by_guid(end)
        key = adapter_key(end)
        return found or (None if key is None else self._places.get(key))

    def match_adapters(self, ends: Mapping[str, Iterable[CableEnd]]) -> "MatchedAdapters":
        """Find NICs for the adapters that neither a name nor a GUID says, by their order.

        `ends` are those of each host. Adapters of all hosts that name them alike are taken
        together, so that one that is missing in some hosts leaves its gap there.
        """
        used: set[str] = set()
        unknown: dict[str, list[AdapterKey]] = {}
        matched = MatchedAdapters()
        for host in self.hosts:
            for end in ends.get(host, ()):
                by_name = self._by_name(end)
                found = by_name or self._by_guid(end)
                key = adapter_key(end)
                if found is not None:
                    used.add(found)
                    matched.how["name" if by_name else "GUID"] += 1
                elif key is not None:
                    unknown.setdefault(host, []).append(key)
        # Of hosts that are known by nothing else the adapters are all there is.
        if self.inside is not None and not self.inside.files:
            matched.how.clear()
        free = [nic for nic in self.ports if nic not in used]
        for keys in _naming_schemes(list(unknown.values())):
            self._take_in_order(keys, free, matched)
        return matched

    def _take_in_order(
        self, given: Counter[AdapterKey], free: Sequence[str], matched: "MatchedAdapters"
    ) -> None:
        """The adapters of one way of naming them; `given` counts the hosts that have each."""
        # Where there are more than NICs, those that most hosts have are taken.
        most = sorted(given, key=lambda key: (-given[key], natural_key(key[0]), key[1] or 0))
        taken = sorted(most[: len(free)], key=lambda key: (natural_key(key[0]), key[1] or 0))
        places = dict(zip(taken, free, strict=False))
        self._places |= places
        if places:
            matched.in_order.append(
                listed(f"{_words(key)} is {nic}" for key, nic in places.items())
            )
        if len(given) > len(taken):
            matched.too_many.append(listed(_words(key) for key in most[len(free) :]))

    def _by_name(self, end: CableEnd) -> str | None:
        if self.inside is None or end.adapter is None:
            return None
        if end.adapter in self.inside.devices:
            return end.adapter
        return _the_port(self._named.get(end.adapter, []), end)

    def _by_guid(self, end: CableEnd) -> str | None:
        for guid in (end.port_guid, end.system_guid):
            if guid is not None and guid in self._of_guid:
                return _the_port(self._of_guid[guid], end)
        return None

    def inner(self, sources: RateSources) -> tuple[tuple[DeviceSpec, ...], tuple[LinkSpec, ...]]:
        """Devices and links as a document says them; nothing for a design."""
        if self.inside is None:
            return (), ()
        rails = self.rails
        paired = _paired_rails(self.inside, rails)
        cards = _shared_cards(self.inside)
        devices = tuple(
            _device(
                device,
                sources.product_of(device),
                {**paired, **rails}.get(device.name),
                cards.get(device.card or ""),
            )
            for device in self.inside.devices.values()
        )
        return devices, tuple(_links(self.inside, sources))


def group_of_adapters(host: str, ends: Mapping[AdapterKey, Rate | None]) -> HostGroup:
    """A host of which only the adapters are known, with the fastest rate of a cable at each."""
    nics = {}
    for number, key in enumerate(sorted(ends, key=lambda key: (natural_key(key[0]), key[1] or 0))):
        nics[f"nic{number}"] = FoundDevice(
            name=f"nic{number}",
            kind=VertexKind.NIC,
            line=1,
            logical_names=(key[0],),
            port_number=key[1],
            port_rate=ends[key],
        )
    return HostGroup([host], Inside((), nics, ()))


def _naming_schemes(hosts: Sequence[Sequence[AdapterKey]]) -> list[Counter[AdapterKey]]:
    """Adapters with how many hosts have them, apart for each way of naming them.

    Hosts of one cluster may be named by different tools (`HCA-1` here, `mlx5_0` there); ways that
    one host mixes are one.
    """
    schemes: list[tuple[set[str], Counter[AdapterKey]]] = []
    for keys in hosts:
        stems = {re.sub(r"[0-9]+", "", name) for name, _ in keys}
        met = [scheme for scheme in schemes if scheme[0] & stems]
        together = set(stems).union(*(scheme[0] for scheme in met))
        total = sum((scheme[1] for scheme in met), Counter(keys))
        schemes = [scheme for scheme in schemes if scheme not in met] + [(together, total)]
    return [keys for _, keys in schemes]


def _both_ways(guid: str) -> set[str]:
    """A GUID, and with its bytes reversed: NCCL writes them as most machines hold them."""
    return {guid, bytes.fromhex(guid)[::-1].hex()}


def _the_port(nics: Sequence[FoundDevice], end: CableEnd) -> str | None:
    """The one NIC among those of a name or GUID that has the port of the end."""
    ports = [nic for nic in nics if nic.port_number in (None, end.port_number)]
    if end.port_number is None or not ports:
        ports = list(nics)
    return ports[0].name if len(ports) == 1 else None


def _words(key: AdapterKey) -> str:
    return key[0] if key[1] is None else f"{key[0]} port {key[1]}"


def _shared_cards(inside: Inside) -> dict[str, str]:
    """Names for the cards that several NICs share, by what the files call them."""
    used = Counter(nic.card for nic in inside.of_kind(VertexKind.NIC) if nic.card is not None)
    shared = [card for card, ports in used.items() if ports > 1]
    names = (name for n in count() if (name := f"card{n}") not in inside.devices)
    return dict(zip(shared, names, strict=False))


def _paired_rails(inside: Inside, rails: Mapping[str, int]) -> dict[str, int]:
    """The rail of each accelerator: of the NIC at its own place under the same PCIe switch."""
    below: dict[str, tuple[list[str], list[str]]] = {}
    for link in inside.links:
        kinds = (VertexKind.GPU, VertexKind.NIC)
        kind = inside.devices[link.source].kind
        if link.kind is LinkKind.PCIE and kind in kinds:
            below.setdefault(link.target, ([], []))[kinds.index(kind)].append(link.source)
    paired = {}
    for gpus, nics in below.values():
        for place, gpu in enumerate(sorted(gpus, key=natural_key)):
            if nics:
                nic = sorted(nics, key=natural_key)[place * len(nics) // len(gpus)]
                paired[gpu] = rails[nic]
    return paired


def _device(
    device: FoundDevice, product: GpuProduct | None, rail: int | None, card: str | None
) -> DeviceSpec:
    is_gpu = device.kind is VertexKind.GPU
    facts = product.facts if product is not None and is_gpu else None
    name = product.name if product is not None and is_gpu else device.product
    rate = device.port_rate if device.kind is VertexKind.NIC else None
    return DeviceSpec(
        name=device.name,
        kind=device.kind,
        product=None if name is None else name[:200],
        rail=rail,
        card=card,
        port_bytes_per_second=None if rate is None else rate.bytes_per_second,
        port_origin=RateOrigin.STATED if rate is None else rate.origin,
        port_source=None if rate is None else rate.source[:200],
        memory_bytes=None if facts is None else facts.memory_bytes,
        memory_bytes_per_second=None if facts is None else facts.memory_bytes_per_second,
        peak_flops={} if facts is None else dict(facts.peak_flops),
    )


def _links(inside: Inside, sources: RateSources) -> Iterator[LinkSpec]:
    """The links whose rates are known; a host bridge reaches its CPU at what is below it."""
    below: defaultdict[str, float] = defaultdict(float)
    inner = []
    for link in inside.links:
        is_bare = link.kind is LinkKind.ON_CHIP and link.rate is None
        if is_bare and not sources.has_stated(LinkKind.ON_CHIP):
            inner.append(link)
            continue
        spec = _link(link, inside, sources)
        if spec is not None:
            below[spec.target] += spec.bandwidth_bytes_per_second
            yield spec
    for link in inner:
        if below[link.source]:
            rate = Rate(below[link.source], RateOrigin.ASSUMED, _BRIDGE_WIDTH)
            yield _spec(link, KnownRate(rate))


def _link(link: FoundLink, inside: Inside, sources: RateSources) -> LinkSpec | None:
    known = sources.of_inner_link(link, inside.devices)
    return None if known is None else _spec(link, known)


def _spec(link: FoundLink, known: KnownRate) -> LinkSpec:
    effective = known.effective_bytes_per_second
    nominal = known.rate.bytes_per_second
    return LinkSpec(
        source=link.source,
        target=link.target,
        kind=link.kind,
        bandwidth_bytes_per_second=nominal,
        effective_bytes_per_second=None if effective is None else min(effective, nominal),
        latency_seconds=link.latency_seconds,
        lanes=link.lanes,
        bandwidth_origin=known.rate.origin,
        bandwidth_source=known.rate.source[:200],
    )
