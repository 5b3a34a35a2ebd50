"""What is laid over the picture of a cluster: one path, or the load of many transfers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from service.core.topology.bounds import LinkLoads
from service.core.topology.cluster import Link
from service.core.topology.path_kinds import PathKind
from service.core.topology.paths import PhysicalPath
from service.formats.cluster_looks import readable_rate

__all__ = ["NOTHING", "Overlay", "load_overlay", "path_overlay"]


@dataclass(frozen=True, slots=True)
class Overlay:
    """Capacities to be drawn on top: by name their load, from 0 to 1 of the greatest.

    For a path there are no loads, and all its capacities are drawn alike. `ends` are the devices
    it is between, `note` says in a sentence what is seen.
    """

    capacities: Mapping[str, float | None] = field(default_factory=dict)
    ends: tuple[str, ...] = ()
    note: str = ""

    def of(self, links: Iterable[Link]) -> tuple[bool, float | None]:
        """Whether anything lies over one of these links, and the greatest load of any."""
        found = [self.capacities[one.resource] for one in links if one.resource in self.capacities]
        return bool(found), max((share for share in found if share is not None), default=None)


NOTHING = Overlay()


def path_overlay(path: PhysicalPath | None, source: str, target: str, kind: PathKind) -> Overlay:
    """The pinned path of two devices; only the ends when there is none."""
    if path is None:
        note = f"{source} can't reach {target}"
        return Overlay({}, (source, target), note)
    note = f"path from {source} to {target} ({kind.value})"
    if path.bottleneck is not None:
        rate = readable_rate(path.bottleneck.bandwidth_bytes_per_second)
        note += f": at most {rate} nominal, at {path.bottleneck.name}"
    return Overlay(dict.fromkeys(link.resource for link in path.links), (source, target), note)


def load_overlay(
    loads: LinkLoads, transfers: int, unreachable: Sequence[str], *, equal: bool
) -> Overlay:
    """How long each link needs for what it carries, over the one that needs longest.

    Where the transfers are of `equal` size the picture does not depend on it.
    """
    longest = loads.lower_bound_seconds
    capacities = {
        load.link.resource: load.lower_bound_seconds / longest if longest else 0.0
        for load in loads.loads
    }
    note = f"load of {transfers} {'equal ' if equal else ''}transfers on their pinned paths"
    if loads.binding is not None:
        binding = loads.binding
        note += (
            f": {binding.link.resource} needs longest, with {len(binding.transfers)} of them at"
            f" {readable_rate(binding.link.bandwidth_bytes_per_second)}"
        )
    if unreachable:
        note += f"; {len(unreachable)} pairs can't reach each other ({unreachable[0]}, ...)"
    return Overlay(capacities, (), note)
