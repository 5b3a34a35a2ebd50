"""What the caller says besides the files of a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from service.core.topology.cluster import LinkKind

__all__ = ["Stated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What the caller says besides the files.

    `hosts` are the hosts that an inside without a name, or the design where no file has one, is
    taken for (all that are named anywhere when empty). `hosts_of_file` are those that the inside in
    one file is taken for, by the place of the file (from 0); files of the same hosts tell of one
    inside. `gpu` is the accelerators' product, `design` the reference design of hosts whose inside
    no file has. `rates` are nominal bytes per second in one direction of one NVLink, one PCIe
    connection, one cable, and so on, for links whose rate nothing else says.
    """

    hosts: tuple[str, ...] = ()
    hosts_of_file: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    gpu: str | None = None
    design: str | None = None
    rates: Mapping[LinkKind, float] = field(default_factory=dict)

    @property
    def every_host(self) -> tuple[str, ...]:
        """All hosts that the caller names, each once."""
        lists = (self.hosts, *self.hosts_of_file.values())
        return tuple(dict.fromkeys(host for hosts in lists for host in hosts))
