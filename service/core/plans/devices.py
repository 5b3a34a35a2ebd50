"""An allocation written as names, patterns and host lists, expanded to devices in order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from service.core.errors import Fault, FaultCode, InvalidInput
from service.core.topology.cluster import Cluster

__all__ = ["MAX_EXPANDED_NAMES", "expand_devices"]

# Names or patterns that the bracket lists of one allocation may stand for.
MAX_EXPANDED_NAMES = 65_536
# Device names that patterns are tried on, all together.
_MAX_COMPARISONS = 2_000_000
# How many names of one entry with lists are told apart in its fault.
_NAMED_FAULTS = 3


@dataclass(frozen=True, slots=True)
class _Index:
    """The accelerators of a cluster, in order, and by the part of their names before the slash."""

    names: Mapping[str, None]
    by_host: Mapping[str, Sequence[str]]


@lru_cache(maxsize=64)
def _index(cluster: Cluster) -> _Index:
    by_host: dict[str, list[str]] = {}
    names = dict.fromkeys(device.name for device in cluster.devices)
    for name in names:
        by_host.setdefault(name.partition("/")[0], []).append(name)
    return _Index(names, by_host)


def expand_devices(cluster: Cluster, patterns: Sequence[str] | None) -> tuple[str, ...]:
    """The accelerators of an allocation in rank order, each once; None means all of the cluster.

    An entry is a name (`host0/gpu3`), a pattern (`host0/gpu*`; `?` is one character), or holds
    bracket lists of numbers (`host[0-3,7]/gpu[0-1]`, leading zeros kept, the last list varying
    fastest). A pattern gives its devices in the order of the cluster, without those listed before.

    Raises `InvalidInput` with every fault, paths into a plan document: an entry that is malformed
    or fits no accelerator, a name written twice, lists beyond `MAX_EXPANDED_NAMES`.
    """
    if patterns is None:
        return tuple(_index(cluster).names)
    return _expand(cluster, tuple(patterns))


@lru_cache(maxsize=128)
def _expand(cluster: Cluster, patterns: tuple[str, ...]) -> tuple[str, ...]:
    index = _index(cluster)
    chosen: dict[str, int] = {}
    faults: list[Fault] = []
    expanded, comparisons = 0, 0
    for position, text in enumerate(patterns):
        path = ("placement", "devices", position)
        parts = _parse(text)
        if isinstance(parts, str):
            faults.append(Fault(FaultCode.UNREADABLE, path, parts))
            continue
        size = 1
        for part in parts:
            size *= len(part)
        expanded += size
        if expanded > MAX_EXPANDED_NAMES:
            detail = f"the bracket lists stand for more than {MAX_EXPANDED_NAMES} names"
            faults.append(Fault(FaultCode.WORK_BUDGET, path, detail))
            break
        entry: list[Fault] = []
        for name in _product(parts):
            if not _is_pattern(name):
                entry += _take(name, position, chosen, cluster, index)
                continue
            candidates = _candidates(name, index)
            comparisons += len(candidates)
            if comparisons > _MAX_COMPARISONS:
                detail = "too many patterns for a cluster of this size: name hosts, or fewer"
                faults += [
                    *_of_entry(text, size, entry),
                    Fault(FaultCode.WORK_BUDGET, path, detail),
                ]
                raise InvalidInput(faults)
            fitting = [device for device in candidates if fnmatchcase(device, name)]
            if not fitting:
                detail = f"no accelerator of the topology fits {name!r}"
                entry.append(Fault(FaultCode.UNKNOWN_NAME, path, detail))
            for device in fitting:
                chosen.setdefault(device, position)
        faults += _of_entry(text, size, entry)
    if faults:
        raise InvalidInput(faults)
    return tuple(chosen)


def _of_entry(text: str, size: int, faults: Sequence[Fault]) -> Iterator[Fault]:
    """The faults of one entry as one of each code: one with lists can be wrong in thousands."""
    by_code: dict[FaultCode, list[Fault]] = {}
    for fault in faults:
        by_code.setdefault(fault.code, []).append(fault)
    for code, alike in by_code.items():
        if size == 1:
            yield from alike
            continue
        named = "; ".join(fault.detail for fault in alike[:_NAMED_FAULTS])
        more = f"; and {len(alike) - _NAMED_FAULTS} more" if len(alike) > _NAMED_FAULTS else ""
        detail = f"{len(alike)} of the {size} names of {text!r}: {named}{more}"
        yield Fault(code, alike[0].path, detail)


def _take(
    name: str, position: int, chosen: dict[str, int], cluster: Cluster, index: _Index
) -> Iterator[Fault]:
    path = ("placement", "devices", position)
    if name not in index.names:
        vertex = cluster.vertices.get(name)
        what = "no device of the topology" if vertex is None else f"a {vertex.kind.value}"
        detail = f"{name!r} is {what}; ranks stand on accelerators such as {_example(index)}"
        yield Fault(FaultCode.UNKNOWN_NAME, path, detail)
    elif name in chosen:
        detail = f"{name!r} is in the allocation already (entry {chosen[name]})"
        yield Fault(FaultCode.DUPLICATE_NAME, path, detail)
    else:
        chosen[name] = position


def _example(index: _Index) -> str:
    return repr(next(iter(index.names), "none: this topology has no accelerators"))


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _candidates(pattern: str, index: _Index) -> Sequence[str]:
    host, slash, _ = pattern.partition("/")
    if slash and not _is_pattern(host):
        return index.by_host.get(host, ())
    return tuple(index.names)


def _product(parts: Sequence[Sequence[str]]) -> list[str]:
    names = [""]
    for part in parts:
        names = [name + piece for name in names for piece in part]
    return names


def _parse(text: str) -> list[Sequence[str]] | str:
    """The alternatives of each piece of an entry, or what is wrong with it."""
    parts: list[Sequence[str]] = []
    rest = text
    while rest:
        before, bracket, after = rest.partition("[")
        if "]" in before:
            return f"{text!r} closes a bracket that is not open"
        if before:
            parts.append([before])
        if not bracket:
            break
        inside, closing, rest = after.partition("]")
        if not closing:
            return f"{text!r} opens a bracket and does not close it"
        ranges = [_range(item) for item in inside.split(",")]
        readable = [item for item in ranges if item is not None]
        if len(readable) < len(ranges):
            return f"{text!r}: brackets hold numbers and ascending ranges, such as [0-3,7]"
        if sum(item.size for item in readable) > MAX_EXPANDED_NAMES:
            return f"{text!r} stands for more than {MAX_EXPANDED_NAMES} names"
        parts.append([number for item in readable for number in item.numbers()])
    return parts


@dataclass(frozen=True, slots=True)
class _Range:
    low: int
    high: int
    width: int  # digits, filled with zeros

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    def numbers(self) -> list[str]:
        return [f"{number:0{self.width}d}" for number in range(self.low, self.high + 1)]


def _range(item: str) -> _Range | None:
    """`7`, `0-3` or `00-15`; None when it is none of these."""
    first, dash, last = item.partition("-")
    last = last if dash else first
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in (first, last)):
        return None
    low, high = int(first), int(last)
    return None if high < low else _Range(low, high, len(first) if first[0] == "0" else 1)
