"""InfiniBand fabrics as `ibnetdiscover` prints them, and as its simulator takes them.

Records, records grouped by chassis (`-g`), the list of ports (`-p`) and net files of ibsim.
"""

from collections.abc import Callable
from re import compile as compile_expression

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
# Listings of the same fabric that people mistake for these, and what to ask for instead.
_LOOK_ALIKES = (
    (
        compile_expression(rb"(Ca|Switch|Router)\s+: 0x[0-9a-f]{16} ports [0-9]+ devid "),
        "is of `ibnetdiscover -l`, which lists nodes without their cables: run it without -l",
    ),
    (
        compile_expression(rb"\s*0x[0-9a-f]{16}\s.{1,200}==\([^)]{1,80}\)==>"),
        "is of iblinkinfo, which is not read: run ibnetdiscover",
    ),
)


def looks_like_ibnetdiscover(content: bytes) -> bool:
    """Whether the file is one of the listings this module reads, or is mistaken for one."""
    known = any(recognises(content) for recognises, _read in _LISTINGS)
    return known or _look_alike(content) is not None


def read_ibnetdiscover(content: bytes) -> Reading:
    """The switches and cables of a fabric, with adapters by port GUID and, where told, by host.

    Rates are those of the lanes after line coding. Raises `InvalidInput` with every fault, each
    with path `("line", n)`.
    """
    findings = Findings()
    for recognises, read in _LISTINGS:
        if recognises(content):
            return fabric_reading(read(content, findings), findings)
    line, reason = _look_alike(content) or (None, "the file holds no record of a fabric")
    findings.refuse(line, reason)
    raise findings.refusal()


def _look_alike(content: bytes) -> tuple[int, str] | None:
    """The line by which another listing is told, and what it is."""
    for number, line in enumerate(content[:65_536].splitlines()[:200], start=1):
        for mark, reason in _LOOK_ALIKES:
            if mark.match(line[:1000]):
                return number, reason
    return None
