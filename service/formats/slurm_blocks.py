"""Blocks, rings and tori of Slurm's topology plugins, as readings.

A block is a group of hosts that share a fast fabric (topology/block was made for NVLink domains of
several hosts). A ring or a torus joins hosts to each other without switches.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from service.core.topology.readings import AttachedHost, Cable, CableEnd, NvlinkDomain, Reading
from service.formats.pasted_text import Findings, shown

__all__ = [
    "HostGroup",
    "block_reading",
    "check_block_sizes",
    "check_groups",
    "joined_hosts_reading",
    "ring_cables",
    "with_blocks",
]


@dataclass(frozen=True, slots=True)
class HostGroup:
    """A named group of hosts, in order."""

    name: str
    line: int
    hosts: tuple[str, ...]


def block_reading(
    format_name: str, blocks: Sequence[HostGroup], sizes: Sequence[int], findings: Findings
) -> Reading:
    """Blocks as NVLink domains. Raises `InvalidInput` with all faults."""
    check_groups(blocks, "block", findings)
    findings.raise_faults()
    reading = Reading(
        format=format_name,
        facts={"hosts": sum(len(block.hosts) for block in blocks)},
        attached=_attached(blocks),
        tree_only=True,
        assumptions=tuple(findings.assumptions),
        notes=findings.notes(),
        left_out=findings.left_out(),
    )
    return with_blocks(reading, blocks, sizes)


def with_blocks(reading: Reading, blocks: Sequence[HostGroup], sizes: Sequence[int]) -> Reading:
    """A reading with these blocks, which are checked, as its NVLink domains."""
    if not blocks:
        return reading
    known = {each.host for each in reading.attached}
    attached = (
        *reading.attached,
        *(each for each in _attached(blocks) if each.host not in known),
    )
    assumed = "a block is taken for an NVLink domain; the file also fits groups of hosts"
    return replace(
        reading,
        facts={
            **reading.facts,
            "hosts": len(attached),
            "blocks": len(blocks),
            "block_sizes": len(sizes),
            **({"largest_block_size": max(sizes)} if sizes else {}),
        },
        attached=attached,
        domains=tuple(NvlinkDomain(name=b.name, hosts=b.hosts, line=b.line) for b in blocks),
        assumptions=(*reading.assumptions, f"{assumed} below one leaf"),
    )


def check_block_sizes(sizes: Sequence[int], line: int, findings: Findings) -> None:
    """Each size is the first times a power of two, and larger than the one before."""
    for before, size in zip((0, *sizes), sizes, strict=False):
        times = size // sizes[0]
        if size <= before or size % sizes[0] or times & (times - 1):
            detail = f"gives block size {size}; sizes rise, each the first times a power of two"
            findings.refuse(line, detail)
            return


def joined_hosts_reading(
    format_name: str,
    groups: Sequence[HostGroup],
    cables: Iterable[Cable],
    what: tuple[str, str],
    findings: Findings,
) -> Reading:
    """Hosts that are joined to each other; `what` is what a group is called, one and several.

    Raises `InvalidInput` with all faults.
    """
    check_groups(groups, what[0], findings)
    findings.raise_faults()
    cables = tuple(cables)
    return Reading(
        format=format_name,
        facts={
            what[1]: len(groups),
            "hosts": sum(len(group.hosts) for group in groups),
            "host_cables": len(cables),
        },
        cables=cables,
        attached=_attached(groups),
        tree_only=True,
        assumptions=tuple(findings.assumptions),
        notes=findings.notes(),
        left_out=findings.left_out(),
    )


def ring_cables(hosts: Sequence[str], line: int) -> Iterator[Cable]:
    """One cable from each host to the next and from the last to the first; two hosts have one."""
    for place, host in enumerate(hosts):
        following = hosts[(place + 1) % len(hosts)]
        if host != following and not (len(hosts) == 2 and place == 1):
            yield Cable(source=CableEnd(host=host), target=CableEnd(host=following), line=line)


def _attached(groups: Iterable[HostGroup]) -> tuple[AttachedHost, ...]:
    return tuple(
        AttachedHost(host=host, switch=None, line=group.line)
        for group in groups
        for host in group.hosts
    )


def check_groups(groups: Sequence[HostGroup], what: str, findings: Findings) -> None:
    """Refuse groups without hosts, and names and hosts that are in two of them."""
    names: dict[str, HostGroup] = {}
    holders: dict[str, HostGroup] = {}
    for group in groups:
        if group.name in names:
            detail = f"describes {what} {shown(group.name)} again (first on line"
            findings.refuse(group.line, f"{detail} {names[group.name].line})")
        names.setdefault(group.name, group)
        if not group.hosts:
            findings.refuse(group.line, f"gives {what} {shown(group.name)} no nodes")
        twice = [host for host in group.hosts if host in holders]
        if twice:
            other = holders[twice[0]]
            detail = f"has host {shown(twice[0])} in {what} {shown(group.name)}, line {other.line}"
            findings.refuse(group.line, f"{detail} has it in {shown(other.name)}")
        for host in group.hosts:
            holders.setdefault(host, group)
