"""Hosts with the UUID of the NVLink cluster they are in: `host: 5e797fc6-...` a line.

This is what people gather with `nvidia-smi -q` (ClusterUUID, with `.CliqueId` where it is added)
from all hosts. Hosts of one cluster and clique share NVSwitches.
"""

from re import compile as compile_expression

from service.core.topology.readings import AttachedHost, NvlinkDomain, Reading
from service.formats.pasted_text import Findings, lines_of, shown

__all__ = ["looks_like_nvlink_clusters", "read_nvlink_clusters"]

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LINE = compile_expression(
    rf"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{{0,254}}):\s+(?P<domain>{_UUID}(?:\.[0-9]{{1,10}})?)"
)
# A GPU that is in no cluster reports this one.
_NONE = "00000000-0000-0000-0000-000000000000"


def looks_like_nvlink_clusters(content: bytes) -> bool:
    """Whether the first line that says something gives a host and a UUID."""
    for line in content[:65_536].decode(errors="replace").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            return _LINE.fullmatch(line.strip().lower()) is not None
    return False


def read_nvlink_clusters(content: bytes) -> Reading:
    """The NVLink domains and their hosts. Raises `InvalidInput` with every fault and its line."""
    findings = Findings()
    hosts: dict[str, int] = {}
    domains: dict[str, tuple[int, list[str]]] = {}
    for line, raw in lines_of(content, findings):
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        name, colon, rest = text.partition(":")
        found = _LINE.fullmatch(f"{name}{colon}{rest.lower()}")
        if found is None:
            findings.refuse(line, f"is no `host: cluster UUID`: {shown(text)}")
        elif found["host"] in hosts:
            first = hosts[found["host"]]
            findings.refuse(line, f"gives {found['host']} again (first on line {first})")
        else:
            hosts[found["host"]] = line
            if found["domain"].startswith(_NONE):
                findings.leave_out(line, f"{found['host']} is in no NVLink cluster")
            else:
                domains.setdefault(found["domain"], (line, []))[1].append(found["host"])
    if not hosts:
        findings.refuse(None, "the file gives no host")
    findings.raise_faults()
    return Reading(
        format="nvlink_clusters",
        facts={"hosts": len(hosts), "domains": len(domains)},
        attached=tuple(
            AttachedHost(host=host, switch=None, line=line) for host, line in hosts.items()
        ),
        domains=tuple(
            NvlinkDomain(name=name, hosts=tuple(members), line=line)
            for name, (line, members) in domains.items()
        ),
        tree_only=True,
        left_out=findings.left_out(),
    )
