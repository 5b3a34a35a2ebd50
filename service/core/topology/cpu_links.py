"""What joins the CPUs of a host, by their family: no file that describes a host says how fast.

The raw rate of all links between two sockets is the upper figure that bounds need; what NCCL
reckons with for the family (src/graph/topo.h) is the effective one.
"""

from service.core.topology.design_facts import (
    GB,
    SOCKET_BROADWELL,
    SOCKET_CASCADE_LAKE,
    SOCKET_EPYC,
    SOCKET_SAPPHIRE_RAPIDS,
    SocketFacts,
)

__all__ = ["socket_link"]

_EMERALD_RAPIDS = SocketFacts(links=4, link_rate=60 * GB, effective=40 * GB, words="UPI at 20 GT/s")
_ZEN_4 = SocketFacts(links=4, link_rate=64 * GB, effective=16 * GB, words="xGMI at 32 GT/s")
_INTEL = {
    63: SOCKET_BROADWELL,
    79: SOCKET_BROADWELL,
    85: SOCKET_CASCADE_LAKE,
    143: SOCKET_SAPPHIRE_RAPIDS,
    207: _EMERALD_RAPIDS,
}
# NCCL writes families above 15 without the sum: 143 stands for 23 (Zen 1 and 2), 175 for 25.
_ZEN_1_AND_2 = {23, 143}
_ZEN_3_AND_4 = {25, 175}
_FIRST_MODEL_OF_ZEN_4 = 16
# The highest raw rate among the families that are known, so that bounds stay bounds.
_UPPER = _ZEN_4


def socket_link(cpu: str | None) -> tuple[float, float | None, str]:
    """Nominal and effective rate between two CPUs of a family ("GenuineIntel 6 143"), and whose
    figures they are.
    """
    facts = None if cpu is None else _facts(*cpu.split(" "))
    if facts is None:
        nominal = _UPPER.links * _UPPER.link_rate
        source = "the highest of the CPU families known here, since the CPU's own is not"
        return nominal, None, f"{source}: {_words(_UPPER)}"
    return facts.links * facts.link_rate, facts.effective, f"{_words(facts)}, for the CPU's family"


def _facts(vendor: str = "", family: str = "", model: str = "", *_: str) -> SocketFacts | None:
    if not family.isdecimal() or not model.isdecimal():
        return None
    numbers = int(family), int(model)
    if vendor == "GenuineIntel" and numbers[0] == 6:
        return _INTEL.get(numbers[1])
    if vendor == "AuthenticAMD" and numbers[0] in _ZEN_1_AND_2:
        return SOCKET_EPYC
    if vendor == "AuthenticAMD" and numbers[0] in _ZEN_3_AND_4:
        return SOCKET_EPYC if numbers[1] < _FIRST_MODEL_OF_ZEN_4 else _ZEN_4
    return None


def _words(facts: SocketFacts) -> str:
    total = facts.links * facts.link_rate / GB
    return f"{facts.links} x {facts.words}, {total:g} GB/s"
