"""Cables between the same two ends: which of them another file told of, and what they add up to."""

from collections import Counter
from dataclasses import dataclass, field

from service.core.topology.cluster import LinkKind, RateOrigin
from service.core.topology.readings import CableEnd, Rate
from service.core.topology.spec import LinkSpec

__all__ = ["Bundle", "CablesTold"]


@dataclass(slots=True)
class CablesTold:
    """The cables that were added, by file.

    Where both numbers of their ports are known, cables are the same when these are. Others are told
    apart by how many a file has between the same two ends: the second of one file is the second of
    another. `clashes` are ports of switches, in words, that two files have different cables at.
    """

    clashes: dict[str, None] = field(default_factory=dict)

    _file_of: dict[frozenset[tuple[str, int]], int] = field(default_factory=dict)
    _cable_at: dict[tuple[str, int], tuple[int, frozenset[tuple[str, int]]]] = field(
        default_factory=dict
    )
    # By ends and file: all cables, and those of unknown ports.
    _counts: dict[frozenset[str], dict[int, Counter[bool]]] = field(default_factory=dict)

    def before(self, file: int, one: tuple[str, CableEnd], other: tuple[str, CableEnd]) -> bool:
        """Whether another file told of this cable between two ends, of which each has a name that
        all files agree on. Counts the cable for `file`.
        """
        ends = (one, other)
        by_file = self._counts.setdefault(frozenset(name for name, _ in ends), {})
        mine = by_file.setdefault(file, Counter())
        ports = frozenset(
            (name, end.port_number) for name, end in ends if end.port_number is not None
        )
        has_ports = len(ports) == len(ends)
        mine[has_ports] += 1
        if has_ports:
            self._note_clashes(file, ends, ports)
            if self._file_of.setdefault(ports, file) != file:
                return True
        return any(
            mine.total() <= (theirs[False] if has_ports else theirs.total())
            for other_file, theirs in by_file.items()
            if other_file != file
        )

    def _note_clashes(
        self,
        file: int,
        ends: tuple[tuple[str, CableEnd], ...],
        ports: frozenset[tuple[str, int]],
    ) -> None:
        for name, end in ends:
            if end.switch is None or end.port_number is None:
                continue
            first, cable = self._cable_at.setdefault((name, end.port_number), (file, ports))
            if first != file and cable != ports:
                self.clashes[f"port {end.port_number} of {name}"] = None


@dataclass(slots=True)
class Bundle:
    """Parallel cables between the same two ends."""

    kind: LinkKind
    bytes_per_second: float = 0.0
    cables: int = 0
    latency_seconds: float | None = None
    origins: dict[RateOrigin, str] = field(default_factory=dict)

    def add(self, rate: Rate, latency_seconds: float | None) -> None:
        self.bytes_per_second += rate.bytes_per_second
        self.cables += 1
        self.origins.setdefault(rate.origin, rate.source)
        if latency_seconds is not None:
            self.latency_seconds = max(latency_seconds, self.latency_seconds or 0.0)

    def link(self, source: str, target: str) -> LinkSpec:
        # One assumed cable makes the sum an assumption; so on in this order.
        order = (RateOrigin.ASSUMED, RateOrigin.STATED, RateOrigin.PRODUCT, RateOrigin.READ)
        origin = next(origin for origin in order if origin in self.origins)
        return LinkSpec(
            source=source,
            target=target,
            kind=self.kind,
            bandwidth_bytes_per_second=self.bytes_per_second,
            latency_seconds=self.latency_seconds,
            lanes=self.cables,
            bandwidth_origin=origin,
            bandwidth_source=self.origins[origin][:200],
        )
