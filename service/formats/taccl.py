"""TACCL's profiles of a cluster: alpha and beta of classes of links, without the links.

They are refused by name: which GPUs a class joins is written in TACCL's program, not in the file.
"""

from service.core.topology.readings import Reading
from service.formats.marked_yaml import first_document
from service.formats.pasted_text import Findings

__all__ = ["looks_like_taccl", "read_taccl"]

_KEYS = {"gpus_per_node", "node_betas_list"}


def looks_like_taccl(content: bytes) -> bool:
    """Whether the file has the costs of classes of links."""
    first = first_document(content)
    return first is not None and first.fields.keys() >= _KEYS


def read_taccl(content: bytes) -> Reading:
    """Refuse the file for what it lacks: raises `InvalidInput`."""
    findings = Findings()
    first = first_document(content)
    entry = first.get("node_betas_list") if first is not None else None
    findings.refuse(
        entry.line if entry is not None else None,
        "is a TACCL profile: it has alpha and beta of classes of links and not which GPUs a class"
        " joins. Give the hosts by `nvidia-smi topo -m`, an NCCL topology or a reference design",
    )
    raise findings.refusal()
