"""What `scontrol show topology` prints: switches with their levels, or blocks.

Every switch lists all hosts below it, near and far, so a host belongs to the lowest switch that
names it. The lists of higher switches are held against what lies below them: where they differ,
lines are missing.
"""

from collections.abc import Mapping, Sequence

from service.core.topology.readings import Reading
from service.formats.pasted_text import Findings, shown
from service.formats.slurm_blocks import HostGroup, block_reading
from service.formats.slurm_records import SlurmRecord, first_keys, slurm_records
from service.formats.switch_tree import (
    NameBudget,
    NamedSwitch,
    check_tree,
    names_in,
    tree_reading,
)

__all__ = ["looks_like_scontrol_topology", "read_scontrol_topology"]

FORMAT = "scontrol_topology"
_KEYS = {
    "SwitchName": ("Level", "LinkSpeed", "Nodes", "Switches"),
    "BlockName": ("BlockIndex", "Nodes", "BlockSize"),
    "AggregatedBlock": ("BlockIndex", "Nodes", "BlockSize"),
}


def looks_like_scontrol_topology(content: bytes) -> bool:
    """Whether lines begin as `scontrol` begins them and carry what topology.conf has not."""
    head = content[:65_536]
    printed = b" Level=" in head or b" BlockIndex=" in head
    return printed and bool(first_keys(content) & {key.lower() for key in _KEYS})


def read_scontrol_topology(content: bytes) -> Reading:
    """The tree or the blocks. Raises `InvalidInput` with every fault, at path `("line", n)`."""
    findings = Findings()
    budget = NameBudget()
    records = list(slurm_records(content, _KEYS, findings))
    switches = [record for record in records if "switchname" in record.values]
    if switches and len(switches) < len(records):
        findings.refuse(switches[0].line, "is a switch in a list that also has blocks")
        findings.raise_faults()
    if switches:
        return _tree(switches, budget, findings)
    if not records and not findings.faulty:
        findings.refuse(None, "the file shows no switch and no block")
    findings.raise_faults()
    return _blocks(records, budget, findings)


def _names(
    record: SlurmRecord, key: str, budget: NameBudget, findings: Findings
) -> tuple[str, ...]:
    text = record.values.get(key)
    return () if text is None else names_in(text, record.line, budget, findings)


def _tree(records: Sequence[SlurmRecord], budget: NameBudget, findings: Findings) -> Reading:
    listed = {}
    switches = []
    for record in records:
        name = record.values["switchname"]
        hosts = _names(record, "nodes", budget, findings)
        children = _names(record, "switches", budget, findings)
        listed[name] = hosts
        switches.append(
            NamedSwitch(
                name=name,
                line=record.line,
                children=children,
                hosts=() if children else hosts,
            )
        )
    levels = check_tree(switches, findings)
    findings.raise_faults()
    _check_levels(records, levels, findings)
    _check_descendants(switches, levels, listed, findings)
    speeds = [record.line for record in records if "linkspeed" in record.values]
    if speeds:
        detail = f"LinkSpeed ({len(speeds)} times) is no rate: Slurm gives it no unit and no use"
        findings.leave_out(speeds[0], detail)
    return tree_reading(FORMAT, switches, findings)


def _check_levels(
    records: Sequence[SlurmRecord], levels: Mapping[str, int], findings: Findings
) -> None:
    for record in records:
        given, name = record.values.get("level"), record.values["switchname"]
        if given is not None and given != str(levels[name]):
            detail = f"gives {shown(name)} level {given[:10]}, but what is below it makes it"
            findings.refuse(record.line, f"{detail} {levels[name]}: lines are missing")


def _check_descendants(
    switches: Sequence[NamedSwitch],
    levels: Mapping[str, int],
    listed: Mapping[str, tuple[str, ...]],
    findings: Findings,
) -> None:
    """What a higher switch lists is what the switches below it list; from the bottom up."""
    for switch in sorted(switches, key=lambda each: levels[each.name]):
        if not switch.children:
            continue
        own = set(listed[switch.name])
        below = {host for child in switch.children for host in listed[child]}
        if own != below:
            host = min(own ^ below)
            where = "itself and not below it" if host in own else "below it and not itself"
            detail = f"lists {shown(host)} of {shown(switch.name)} {where}"
            findings.refuse(switch.line, f"{detail}: lines are missing")


def _blocks(records: Sequence[SlurmRecord], budget: NameBudget, findings: Findings) -> Reading:
    blocks: list[HostGroup] = []
    sizes: dict[str, int] = {}
    larger = []
    for record in records:
        size = record.values.get("blocksize")
        if size is not None and not (size.isascii() and size.isdigit() and len(size) < 8):
            findings.refuse(record.line, f"gives BlockSize={size[:20]!r}, no whole number")
        elif size is not None and size not in sizes:
            sizes[size] = record.line
        if "blockname" in record.values:
            hosts = _names(record, "nodes", budget, findings)
            blocks.append(HostGroup(record.values["blockname"], record.line, hosts))
        else:
            larger.append(record)
    hosts_of = {block.name: set(block.hosts) for block in blocks}
    for record in larger:
        names = _names(record, "aggregatedblock", budget, findings)
        unknown = [name for name in names if name not in hosts_of]
        if unknown:
            detail = f"is made of block {shown(unknown[0])}, which no line shows"
            findings.refuse(record.line, detail)
            continue
        whole: set[str] = set().union(*(hosts_of[name] for name in names))
        if whole != set(_names(record, "nodes", budget, findings)):
            findings.refuse(record.line, "lists other nodes than its blocks: lines are missing")
    if not blocks:
        findings.refuse(records[0].line, "is made of blocks, but no line shows one")
    return block_reading(FORMAT, blocks, sorted(int(size) for size in sizes), findings)
