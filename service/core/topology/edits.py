"""Exceptions to what hosts, fabrics and links say: what has failed, and links not as made.

Edits apply to the expanded cluster, so it does not matter whether a design, a fabric or the
document made what they name. They have no order: what has failed is taken out first, then links
change.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from service.core.errors import Fault, FaultCode, Path
from service.core.topology.cluster import Link, RateOrigin, Vertex
from service.core.topology.link_checks import direction_faults
from service.core.topology.spec import (
    ChangedLink,
    Edit,
    FailedDevice,
    FailedHost,
    FailedLink,
    LinkSpec,
    MeasuredRate,
)

__all__ = ["Edited", "apply_edits"]

Ends = tuple[str, str]

# Neighbours that a fault names when two ends have no link.
_SHOWN_NEIGHBOURS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Edited:
    """What is left of a cluster, and in words what the edits did; or their faults.

    Fault paths are relative to the list of edits.
    """

    vertices: Mapping[str, Vertex]
    links: Mapping[Ends, Link]
    said: tuple[str, ...]
    faults: tuple[Fault, ...]


def apply_edits(
    edits: tuple[Edit, ...],
    vertices: Mapping[str, Vertex],
    links: Mapping[Ends, Link],
    *,
    may_be_missing: Callable[[str], bool],
) -> Edited:
    """Apply `edits` to the vertices and links of a cluster.

    An edit that hits nothing is a fault, and so are two of one link. `may_be_missing` tells names
    that are missing because what should have made them is at fault itself.
    """
    if not edits:
        return Edited(vertices, links, (), ())
    work = _Edits(vertices, links, may_be_missing)
    for number, edit in enumerate(edits):
        if isinstance(edit, FailedHost | FailedDevice):
            work.fail(number, edit)
    for number, edit in enumerate(edits):
        if isinstance(edit, FailedLink | ChangedLink):
            work.edit_link(number, edit)
    work.check_shared_capacities()
    kept = {name: vertex for name, vertex in vertices.items() if name not in work.failed}
    remaining = {
        ends: work.changed.get(ends, link)
        for ends, link in links.items()
        if ends not in work.cut and ends[0] in kept and ends[1] in kept
    }
    said = tuple(_said(edits, len(work.failed), len(links) - len(remaining), len(work.changed)))
    return Edited(kept, remaining, said, tuple(work.faults))


def _said(edits: tuple[Edit, ...], devices: int, links: int, changed: int) -> Iterator[str]:
    hosts = sum(isinstance(edit, FailedHost) for edit in edits)
    if devices or links:
        yield (
            f"edits: out of order are {hosts} of the hosts, {devices} of the devices and switches"
            f" and {links} of the directed links, each with what belongs to it"
        )
    if changed:
        yield f"edits: {changed} of the directed links differ from what the rest says"


@dataclass(slots=True)
class _Edits:
    """Edits on their way into a cluster: what has failed, what is cut, what has changed."""

    vertices: Mapping[str, Vertex]
    links: Mapping[Ends, Link]
    may_be_missing: Callable[[str], bool]
    faults: list[Fault] = field(default_factory=list)
    # By name or ends, the number of the edit that did it.
    failed: dict[str, int] = field(default_factory=dict)
    cut: dict[Ends, int] = field(default_factory=dict)
    changed: dict[Ends, Link] = field(default_factory=dict)
    changed_by: dict[Ends, int] = field(default_factory=dict)
    told: set[Path] = field(default_factory=set)
    _members: dict[str, list[str]] = field(default_factory=dict)
    _neighbours: dict[str, list[str]] = field(default_factory=dict)

    def refuse(self, code: FaultCode, path: Path, detail: str) -> None:
        self.faults.append(Fault(code, path, detail))

    def fail(self, number: int, edit: FailedHost | FailedDevice) -> None:
        if isinstance(edit, FailedDevice):
            names = [edit.name] if edit.name in self.vertices else []
            what = "neither a device (host/device) nor a switch of this topology"
        else:
            names = self.members().get(edit.name, [])
            what = "no host of this topology"
        if not names:
            if not self.may_be_missing(edit.name):
                detail = f"{edit.name!r} is {what}, so nothing can fail there"
                self.refuse(FaultCode.UNKNOWN_NAME, (number, "name"), detail)
            return
        before = next((self.failed[name] for name in names if name in self.failed), None)
        if before is not None:
            detail = (
                f"edit {before} fails {edit.name!r}, or a part of it, already: keep one of both"
            )
            self.refuse(FaultCode.DUPLICATE_NAME, (number, "name"), detail)
        for name in names:
            self.failed.setdefault(name, number)

    def edit_link(self, number: int, edit: FailedLink | ChangedLink) -> None:
        """Cut or change a link in the directions that it has."""
        before = len(self.faults)
        for end in ("source", "target"):
            self._check_end(getattr(edit, end), (number, end))
        if isinstance(edit, ChangedLink):
            self._check_words(number, edit)
        if len(self.faults) > before:
            return
        there, back = (edit.source, edit.target), (edit.target, edit.source)
        found = [ends for ends in (there, *(() if edit.one_way else (back,))) if ends in self.links]
        if not found:
            self._refuse_missing(number, edit)
            return
        for ends in found:
            earlier = self.cut.get(ends, self.changed_by.get(ends))
            if earlier is not None:
                detail = f"edit {earlier} is of the link from {ends[0]} to {ends[1]} already"
                self.refuse(FaultCode.DUPLICATE_NAME, (number, "source"), detail)
                return
        for ends in found:
            if isinstance(edit, FailedLink):
                self.cut[ends] = number
            else:
                self.changed_by[ends] = number
                self.changed[ends] = self._change(number, edit, self.links[ends])

    def _check_end(self, name: str, path: Path) -> None:
        if name in self.failed:
            detail = f"{name!r} has failed by edit {self.failed[name]}, and all its links with it"
            self.refuse(FaultCode.INCONSISTENT, path, detail)
        elif name not in self.vertices and not self.may_be_missing(name):
            detail = f"{name!r} is neither a device (host/device) nor a switch of this topology"
            self.refuse(FaultCode.UNKNOWN_NAME, path, detail)

    def _check_words(self, number: int, edit: ChangedLink) -> None:
        if edit == ChangedLink(source=edit.source, target=edit.target, one_way=edit.one_way):
            detail = "say what is different: lanes, a rate or a latency"
            self.refuse(FaultCode.MISSING_FIELD, (number, "lanes"), detail)
        if edit.lanes is not None and edit.bandwidth_bytes_per_second is not None:
            detail = "give lanes (rates follow from them) or the nominal rate, not both"
            self.refuse(FaultCode.EXCLUSIVE_FIELDS, (number, "bandwidth_bytes_per_second"), detail)
        if edit.bandwidth_bytes_per_second is None:
            for name in ("bandwidth_origin", "bandwidth_source"):
                if getattr(edit, name) is not None:
                    detail = "this tells where a new nominal rate comes from; none is given"
                    self.refuse(FaultCode.INCONSISTENT, (number, name), detail)

    def _refuse_missing(self, number: int, edit: FailedLink | ChangedLink) -> None:
        if not all(name in self.vertices for name in (edit.source, edit.target)):
            return  # excused by `may_be_missing`
        near = self.neighbours().get(edit.source, [])
        some = ", ".join(near[:_SHOWN_NEIGHBOURS]) + (", ..." * (len(near) > _SHOWN_NEIGHBOURS))
        detail = (
            f"there is no link from {edit.source} to {edit.target}"
            f"{'' if edit.one_way else ' or back'}; {edit.source} has links to {some or 'nothing'}"
        )
        self.refuse(FaultCode.UNKNOWN_NAME, (number, "target"), detail)

    def _change(self, number: int, edit: ChangedLink, link: Link) -> Link:
        if edit.lanes is not None and not 1 <= edit.lanes <= link.lanes:
            detail = f"{link.name} has {link.lanes} lanes, of which 1 or more are left; got"
            self._refuse_once(FaultCode.OUT_OF_RANGE, (number, "lanes"), f"{detail} {edit.lanes}")
            return link
        changed = _changed(edit, link)
        for fault in direction_faults(_as_spec(changed)):
            self._refuse_once(fault.code, (number, *fault.path), fault.detail)
        return changed

    def _refuse_once(self, code: FaultCode, path: Path, detail: str) -> None:
        """What is wrong in both directions is told once."""
        if path not in self.told:
            self.told.add(path)
            self.refuse(code, path, detail)

    def members(self) -> Mapping[str, list[str]]:
        """The devices of each host; found once, however many edits ask."""
        if not self._members:
            for name, vertex in self.vertices.items():
                if vertex.host is not None:
                    self._members.setdefault(vertex.host, []).append(name)
        return self._members

    def neighbours(self) -> Mapping[str, list[str]]:
        """Where the links of each device or switch lead; found once, however many edits ask."""
        if not self._neighbours:
            for source, target in sorted(self.links):
                self._neighbours.setdefault(source, []).append(target)
        return self._neighbours

    def check_shared_capacities(self) -> None:
        """Links that share a capacity have one nominal rate after the edits as before."""
        touched: dict[str, list[Ends]] = {}
        for ends, link in self.changed.items():
            if link.shared_capacity is not None:
                touched.setdefault(link.shared_capacity, []).append(ends)
        if not touched:
            return
        rates: dict[str, set[float]] = {}
        for ends, link in self.links.items():
            if link.shared_capacity in touched and ends not in self.cut:
                rate = self.changed.get(ends, link).bandwidth_bytes_per_second
                rates.setdefault(link.shared_capacity, set()).add(rate)
        for name, found in rates.items():
            if len(found) > 1:
                number = self.changed_by[touched[name][0]]
                detail = (
                    f"the links that share the capacity of {name} have one nominal rate; with the"
                    f" edits they have {', '.join(f'{rate:g}' for rate in sorted(found))}"
                )
                self._refuse_once(FaultCode.INCONSISTENT, (number, "source"), detail)


def _changed(edit: ChangedLink, link: Link) -> Link:
    """The link as the edit says.

    Lanes that are left carry what each did, but what was measured was measured with all of them.
    Beside a new nominal rate the effective and measured ones are unknown unless they are given.
    """
    if edit.lanes is not None:
        share = edit.lanes / link.lanes
        known = link.effective_bytes_per_second
        left = f"{edit.lanes} of {link.lanes} lanes"
        link = replace(
            link,
            lanes=edit.lanes,
            bandwidth_bytes_per_second=link.bandwidth_bytes_per_second * share,
            bandwidth_source=left
            if link.bandwidth_source is None
            else f"{left}: {link.bandwidth_source}",
            effective_bytes_per_second=None if known is None else known * share,
        )
    if edit.bandwidth_bytes_per_second is not None:
        link = replace(
            link,
            bandwidth_bytes_per_second=edit.bandwidth_bytes_per_second,
            bandwidth_origin=edit.bandwidth_origin or RateOrigin.STATED,
            bandwidth_source=edit.bandwidth_source,
            effective_bytes_per_second=None,
        )
    if edit.lanes is not None or edit.bandwidth_bytes_per_second is not None:
        link = replace(
            link, measured_bytes_per_second=None, measured_source=None, measured_date=None
        )
    if edit.effective_bytes_per_second is not None:
        link = replace(link, effective_bytes_per_second=edit.effective_bytes_per_second)
    if edit.measured is not None:
        link = replace(
            link,
            measured_bytes_per_second=edit.measured.bytes_per_second,
            measured_source=edit.measured.source,
            measured_date=edit.measured.date,
        )
    if edit.latency_floor_seconds is not None:
        link = replace(link, latency_floor_seconds=edit.latency_floor_seconds)
    if edit.latency_seconds is not None:
        link = replace(link, latency_seconds=edit.latency_seconds)
    return link


def _as_spec(link: Link) -> LinkSpec:
    measured = None
    if link.measured_bytes_per_second is not None:
        measured = MeasuredRate(
            link.measured_bytes_per_second, link.measured_source or "", link.measured_date or ""
        )
    return LinkSpec(
        source=link.source,
        target=link.target,
        kind=link.kind,
        bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        effective_bytes_per_second=link.effective_bytes_per_second,
        measured=measured,
        latency_floor_seconds=link.latency_floor_seconds,
        latency_seconds=link.latency_seconds,
        lanes=link.lanes,
        bandwidth_origin=link.bandwidth_origin,
        bandwidth_source=link.bandwidth_source,
    )
