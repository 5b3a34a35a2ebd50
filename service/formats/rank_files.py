"""Rank files and machine files of MPI launchers: which host each rank runs on.

Two shapes, told apart by their first line:

    rank 3=host1 slot=2      Open MPI's rankfile: one line a rank, in any order
    host1:8                  a machine file of MPICH, or one of Open MPI with `host1 slots=8`:
                             so many ranks one after the other; one without a number

`#` begins a comment. Slots are CPU slots: they say nothing of GPUs.
"""

from collections.abc import Iterator
from re import compile as compile_expression

from service.core.errors import Fault, FaultCode, InvalidInput

__all__ = ["MAX_RANKS", "read_rank_file"]

MAX_RANKS = 65_536
MAX_FAULTS = 20

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}"
_RANK = compile_expression(rf"rank\s+([0-9]{{1,9}})\s*=\s*({_NAME})(?:\s+slots?\s*=\s*[0-9:,*-]+)?")
_MACHINE = compile_expression(
    rf"({_NAME})(?::([0-9]{{1,9}}))?((?:\s+(?:slots|max_slots|max-slots)\s*=\s*[0-9]{{1,9}})*)"
)
_SLOTS = compile_expression(r"(?<![_-])slots\s*=\s*([0-9]+)")


def read_rank_file(text: str) -> tuple[str, ...]:
    """The host of each rank, in the order of ranks.

    Raises `InvalidInput` with faults at `("line", n)`: lines of neither shape, ranks given twice,
    gaps between ranks, more than `MAX_RANKS`, nothing at all.
    """
    lines = [
        (number, line.partition("#")[0].strip())
        for number, line in enumerate(text.splitlines(), start=1)
    ]
    lines = [(number, line) for number, line in lines if line]
    if not lines:
        detail = "a rank file has a line such as rank 0=host0 slot=0, or host0:8"
        raise InvalidInput([Fault(FaultCode.MISSING_FIELD, (), detail)])
    if lines[0][1].startswith("rank") and "=" in lines[0][1]:
        return _ranks(lines)
    return _machines(lines)


def _ranks(lines: list[tuple[int, str]]) -> tuple[str, ...]:
    faults: list[Fault] = []
    hosts: dict[int, str] = {}
    for number, line in lines:
        match = _RANK.fullmatch(line)
        if match is None:
            detail = f"{line[:60]!r} is no rank: write rank 0=host0 slot=0"
            faults.append(Fault(FaultCode.UNREADABLE, ("line", number), detail))
        elif int(match[1]) in hosts:
            detail = f"rank {int(match[1])} is given twice"
            faults.append(Fault(FaultCode.DUPLICATE_NAME, ("line", number), detail))
        else:
            hosts[int(match[1])] = match[2]
        if len(faults) == MAX_FAULTS:
            break
    if not faults:
        faults += _gaps(hosts)
    if faults:
        raise InvalidInput(faults)
    return tuple(hosts[rank] for rank in range(len(hosts)))


def _gaps(hosts: dict[int, str]) -> Iterator[Fault]:
    if len(hosts) > MAX_RANKS:
        yield _too_many(len(hosts))
        return
    missing = next((rank for rank in range(len(hosts)) if rank not in hosts), None)
    if missing is not None:
        detail = f"ranks go from 0 without a gap; rank {missing} has no host, {max(hosts)} has one"
        yield Fault(FaultCode.INCONSISTENT, (), detail)


def _machines(lines: list[tuple[int, str]]) -> tuple[str, ...]:
    faults: list[Fault] = []
    counts: list[tuple[str, int]] = []
    for number, line in lines:
        match = _MACHINE.fullmatch(line)
        slots = None if match is None else _SLOTS.search(match[3])
        if match is None or (match[2] and slots):
            detail = f"{line[:60]!r} is no host with its ranks: write host0:8 or host0 slots=8"
            faults.append(Fault(FaultCode.UNREADABLE, ("line", number), detail))
        else:
            counts.append((match[1], int(match[2] or (slots[1] if slots else 1))))
        if len(faults) == MAX_FAULTS:
            break
    total = sum(count for _, count in counts)
    if total > MAX_RANKS:
        faults.append(_too_many(total))
    elif not faults and not total:
        faults.append(Fault(FaultCode.MISSING_FIELD, (), "no host of the file has any rank"))
    if faults:
        raise InvalidInput(faults)
    return tuple(host for host, count in counts for _ in range(count))


def _too_many(count: int) -> Fault:
    detail = f"a rank file has at most {MAX_RANKS} ranks; this has {count}"
    return Fault(FaultCode.OUT_OF_RANGE, (), detail)
