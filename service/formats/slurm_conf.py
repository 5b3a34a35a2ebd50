"""Slurm's topology.conf: trees of switches, blocks, or rings.

`SwitchName=s1 Switches=s[2-3]` or `SwitchName=s2 Nodes=n[001-016]`; `BlockName=b1 Nodes=...` with
`BlockSizes=4,16`; `RingName=r1 Nodes=...` (topology.conf(5)). It knows no rates, ports or rails:
`LinkSpeed` is a number that Slurm itself does not use.
"""

from collections.abc import Sequence
from re import compile as compile_expression

from service.core.topology.readings import Reading
from service.formats.pasted_text import Findings, shown
from service.formats.slurm_blocks import (
    HostGroup,
    block_reading,
    check_block_sizes,
    check_groups,
    joined_hosts_reading,
    ring_cables,
    with_blocks,
)
from service.formats.slurm_records import SlurmRecord, first_keys, slurm_records
from service.formats.switch_tree import NameBudget, NamedSwitch, names_in, tree_reading

__all__ = ["looks_like_slurm_conf", "read_slurm_conf"]

FORMAT = "slurm_conf"
_SIZE = compile_expression(r"[1-9][0-9]{0,6}")
_KEYS = {
    "SwitchName": ("Switches", "Nodes", "LinkSpeed"),
    "BlockName": ("Nodes",),
    "BlockSizes": (),
    "RingName": ("Nodes",),
}
# What slurm.conf begins lines with; it is recognised in order to be refused by name.
_SLURM_CONF = {"nodename", "partitionname", "clustername"}
# Which plugin a line belongs to; one file is read by one plugin.
_PLUGINS = {"switchname": "tree", "blockname": "block", "blocksizes": "block", "ringname": "ring"}


def looks_like_slurm_conf(content: bytes) -> bool:
    """Whether lines begin with a key of topology.conf and none is as `scontrol` prints it."""
    head = content[:65_536]
    printed = b" Level=" in head or b" BlockIndex=" in head
    return not printed and bool(first_keys(content) & (_PLUGINS.keys() | _SLURM_CONF))


def read_slurm_conf(content: bytes) -> Reading:
    """The switches of a tree, the blocks or the rings of a file.

    Raises `InvalidInput` with every fault, each with path `("line", n)`: what Slurm would not start
    with (unknown children, circles, a switch with both switches and nodes), and what it would only
    warn of and nobody means (a node below two switches).
    """
    findings = Findings()
    records = list(slurm_records(content, _KEYS, findings))
    plugins: dict[str, int] = {}
    for record in records:
        plugins.setdefault(_PLUGINS[record.key.lower()], record.line)
    if "ring" in plugins and len(plugins) > 1:
        told = " and ".join(f"{name} (line {line})" for name, line in plugins.items())
        findings.refuse(max(plugins.values()), f"mixes rings with others in one file: {told}")
        findings.raise_faults()
    if not plugins:
        if not findings.faulty:
            findings.refuse(None, "the file names no switch, no block and no ring")
        findings.raise_faults()
    blocks, sizes = _blocks(records, findings)
    if "tree" in plugins:
        # Tools write both into one file, and each plugin reads its own lines.
        switches = _switches(records, findings)
        check_groups(blocks, "block", findings)
        return with_blocks(tree_reading(FORMAT, switches, findings), blocks, sizes)
    if "block" in plugins:
        return block_reading(FORMAT, blocks, sizes, findings)
    rings = _groups(records, "ringname", findings)
    cables = [cable for ring in rings for cable in ring_cables(ring.hosts, ring.line)]
    return joined_hosts_reading(FORMAT, rings, cables, ("ring", "rings"), findings)


def _switches(records: Sequence[SlurmRecord], findings: Findings) -> list[NamedSwitch]:
    budget = NameBudget()
    switches = []
    for record in records:
        values = record.values
        if "switchname" not in values:
            continue
        if "switches" in values and "nodes" in values:
            detail = f"gives {shown(values['switchname'])} both switches and nodes"
            findings.refuse(record.line, f"{detail}; Slurm takes one of them")
        switches.append(
            NamedSwitch(
                name=values["switchname"],
                line=record.line,
                children=_names(record, "switches", budget, findings),
                hosts=_names(record, "nodes", budget, findings),
            )
        )
    speeds = [record.line for record in records if "linkspeed" in record.values]
    if speeds:
        detail = f"LinkSpeed ({len(speeds)} times) is no rate: Slurm gives it no unit and no use"
        findings.leave_out(speeds[0], detail)
    return switches


def _names(
    record: SlurmRecord, key: str, budget: NameBudget, findings: Findings
) -> tuple[str, ...]:
    if key not in record.values:
        return ()
    return names_in(record.values[key], record.line, budget, findings)


def _groups(records: Sequence[SlurmRecord], key: str, findings: Findings) -> list[HostGroup]:
    budget = NameBudget()
    return [
        HostGroup(record.values[key], record.line, _names(record, "nodes", budget, findings))
        for record in records
        if key in record.values
    ]


def _blocks(
    records: Sequence[SlurmRecord], findings: Findings
) -> tuple[list[HostGroup], list[int]]:
    blocks = _groups(records, "blockname", findings)
    given = [record for record in records if "blocksizes" in record.values]
    sizes: list[int] = []
    for record in given:
        text = record.values["blocksizes"]
        parts = [part.strip() for part in text.split(",")]
        if len(given) > 1:
            findings.refuse(record.line, "is one of several BlockSizes; a file has one")
        elif not all(_SIZE.fullmatch(part) for part in parts):
            findings.refuse(
                record.line, f"gives BlockSizes={text[:40]!r}, no list of whole numbers"
            )
        else:
            sizes = [int(part) for part in parts]
            check_block_sizes(sizes, record.line, findings)
    if given and not blocks:
        findings.refuse(given[0].line, "gives sizes of blocks, but the file names no block")
    return blocks, sizes
