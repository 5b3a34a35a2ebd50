"""InfiniBand fabrics as `ibnetdiscover` prints them, and as its simulator takes them.

Records, records grouped by chassis (`-g`), the list of ports (`-p`) and net files of ibsim.
"""

from collections.abc import Callable

from service.core.topology.readings import Reading
from service.formats.ibnetdiscover_ports import looks_like_ports, read_ports
from service.formats.ibnetdiscover_records import looks_like_records, read_records
from service.formats.ibsim_net import looks_like_ibsim, read_ibsim
from service.formats.infiniband_fabric import fabric_reading
from service.formats.infiniband_nodes import FabricNodes
from service.formats.pasted_text import Findings

__all__ = ["looks_like_ibnetdiscover", "read_ibnetdiscover"]

_LISTINGS: tuple[tuple[Callable[[bytes], bool], Callable[[bytes, Findings], FabricNodes]], ...] = (
    (looks_like_records, read_records),
    (looks_like_ports, read_ports),
    (looks_like_ibsim, read_ibsim),
)


def looks_like_ibnetdiscover(content: bytes) -> bool:
    """Whether the file is one of the listings this module reads."""
    return any(recognises(content) for recognises, _read in _LISTINGS)


def read_ibnetdiscover(content: bytes) -> Reading:
    """The switches and cables of a fabric, with adapters by port GUID and, where told, by host.

    Rates are those of the lanes after line coding. Raises `InvalidInput` with every fault, each
    with path `("line", n)`.
    """
    findings = Findings()
    for recognises, read in _LISTINGS:
        if recognises(content):
            return fabric_reading(read(content, findings), findings)
    findings.refuse(None, "the file holds no record of a switch or an adapter")
    findings.raise_faults()
    raise AssertionError
