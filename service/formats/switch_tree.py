"""Trees of switches as schedulers keep them: who is below whom, and nothing of cables or rates.

Importers hand over switches with what each names below itself; here the names are checked against
each other and become a reading.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from service.core.errors import FaultCode, InvalidInput
from service.core.topology.expand import MAX_VERTICES
from service.core.topology.hostlist import expand_hostlist
from service.core.topology.readings import (
    AttachedHost,
    Cable,
    CableEnd,
    FoundSwitch,
    NvlinkDomain,
    Reading,
)
from service.formats.pasted_text import Findings, shown

__all__ = ["NameBudget", "NamedSwitch", "check_tree", "names_in", "tree_reading"]

_SHOWN_NAMES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSwitch:
    """One switch of a tree: the switches and hosts that are named directly below it."""

    name: str
    line: int
    children: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    title: str | None = None


class NameBudget:
    """How many names of host lists a file may still expand to: a short list can name millions."""

    def __init__(self) -> None:
        self.left = MAX_VERTICES


def names_in(text: str, line: int, budget: NameBudget, findings: Findings) -> tuple[str, ...]:
    """The names of a host list, each once and in order; what is wrong with it is refused."""
    try:
        names = expand_hostlist(text, at_most=budget.left)
    except InvalidInput as invalid:
        fault = invalid.faults[0]
        if fault.code is FaultCode.OUT_OF_RANGE:
            detail = f"makes more than {MAX_VERTICES} names together with the lines above"
            findings.refuse(line, detail, FaultCode.OUT_OF_RANGE)
        else:
            findings.refuse(line, f"has a broken host list: {fault.detail}")
        return ()
    budget.left -= len(names)
    return tuple(dict.fromkeys(names))


def check_tree(switches: Sequence[NamedSwitch], findings: Findings) -> dict[str, int]:
    """Refuse what is no forest, and give the level of each switch (0 has no switch below).

    Refused are names given twice, children that are none of the switches, switches below two
    others, cycles, and hosts below two switches.
    """
    by_name: dict[str, NamedSwitch] = {}
    parents: dict[str, NamedSwitch] = {}
    for switch in switches:
        if switch.name in by_name:
            detail = f"describes switch {shown(switch.name)} again (first on line"
            findings.refuse(switch.line, f"{detail} {by_name[switch.name].line})")
        else:
            by_name[switch.name] = switch
    for switch in by_name.values():
        for child in switch.children:
            if child not in by_name:
                detail = f"has {shown(child)} below {shown(switch.name)}, which is no switch"
                findings.refuse(switch.line, f"{detail} of the file")
            elif child in parents:
                detail = f"has {shown(child)} below {shown(switch.name)}, line"
                other = f"{parents[child].line} has it below {shown(parents[child].name)}"
                findings.refuse(switch.line, f"{detail} {other}: a switch has one parent")
            else:
                parents[child] = switch
    _check_hosts(by_name.values(), findings)
    return _levels(by_name, parents, findings)


def _check_hosts(switches: Iterable[NamedSwitch], findings: Findings) -> None:
    below: dict[str, NamedSwitch] = {}
    for switch in switches:
        twice = [host for host in switch.hosts if host in below]
        if twice:
            other = below[twice[0]]
            more = f" and {len(twice) - 1} more" if len(twice) > 1 else ""
            detail = f"has host {shown(twice[0])}{more} below {shown(switch.name)}, line"
            where = f"{other.line} has it below {shown(other.name)}: a host is below one switch"
            findings.refuse(switch.line, f"{detail} {where}")
        below.update((host, switch) for host in switch.hosts if host not in below)


def _levels(
    by_name: Mapping[str, NamedSwitch], parents: Mapping[str, NamedSwitch], findings: Findings
) -> dict[str, int]:
    """Height above the lowest switches, from below; what is never reached lies on a cycle."""
    waiting = {
        name: sum(parents.get(child) is switch for child in switch.children)
        for name, switch in by_name.items()
    }
    levels = {name: 0 for name, count in waiting.items() if not count}
    ready = list(levels)
    while ready:
        name = ready.pop()
        parent = parents.get(name)
        if parent is None:
            continue
        levels[parent.name] = max(levels.get(parent.name, 0), levels[name] + 1)
        waiting[parent.name] -= 1
        if not waiting[parent.name]:
            ready.append(parent.name)
    stuck = [name for name, count in waiting.items() if count]
    if stuck:
        names = ", ".join(map(shown, stuck[:5])) + (", ..." if len(stuck) > 5 else "")
        detail = f"is on a circle of switches that are below each other, or above one: {names}"
        findings.refuse(by_name[stuck[0]].line, detail)
    return levels


def tree_reading(
    format_name: str,
    switches: Sequence[NamedSwitch],
    findings: Findings,
    *,
    facts: Mapping[str, int] | None = None,
    domains: tuple[NvlinkDomain, ...] = (),
    alone: Iterable[AttachedHost] = (),
) -> Reading:
    """Check the tree and make the reading of it; `alone` are hosts below no switch.

    Raises `InvalidInput` with all faults, those of before included.
    """
    levels = check_tree(switches, findings)
    findings.raise_faults()
    children = {child for switch in switches for child in switch.children}
    roots = [switch.name for switch in switches if switch.name not in children]
    if len(roots) > 1:
        names = ", ".join(roots[:_SHOWN_NAMES]) + (", ..." if len(roots) > _SHOWN_NAMES else "")
        findings.note(f"{len(roots)} switches have none above ({names}): nothing joins their parts")
    empty = [s.name for s in switches if not s.hosts and not s.children]
    if empty:
        names = ", ".join(empty[:_SHOWN_NAMES]) + (", ..." if len(empty) > _SHOWN_NAMES else "")
        findings.note(f"{len(empty)} switches have nothing below them ({names})")
    below = [
        AttachedHost(host=host, switch=switch.name, line=switch.line)
        for switch in switches
        for host in switch.hosts
    ]
    alone = tuple(alone)
    return Reading(
        format=format_name,
        facts={
            "switches": len(switches),
            "hosts": len(below) + len(alone),
            "levels": max(levels.values(), default=-1) + 1,
            "roots": len(roots),
            **(facts or {}),
        },
        switches=tuple(
            FoundSwitch(
                name=switch.name, line=switch.line, title=switch.title, level=levels[switch.name]
            )
            for switch in switches
        ),
        cables=tuple(
            Cable(
                source=CableEnd(switch=child), target=CableEnd(switch=switch.name), line=switch.line
            )
            for switch in switches
            for child in switch.children
        ),
        attached=(*below, *alone),
        domains=domains,
        tree_only=True,
        assumptions=tuple(findings.assumptions),
        notes=findings.notes(),
        left_out=findings.left_out(),
    )
