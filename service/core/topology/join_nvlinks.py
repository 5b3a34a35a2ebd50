"""NVLinks that can't be: more private ones than the product has, ports of other than its number."""

from dataclasses import replace

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.gpu_products import GpuProduct
from service.core.topology.join_insides import Inside
from service.core.topology.join_notes import Notes
from service.core.topology.join_rates import RateSources
from service.core.topology.readings import FoundDevice, FoundLink

__all__ = ["with_nvswitch"]


def with_nvswitch(inside: Inside, sources: RateSources, notes: Notes) -> Inside:
    """The inside with an NVSwitch where a GPU would have more private links than its product has.

    A matrix says NV12 for twelve links to one other GPU and for a port of twelve links on a switch
    alike; only the number of links of the product tells them apart.
    """
    _compare_ports(inside, sources, notes)
    private = [link for link in inside.links if _is_private(link, inside)]
    lanes: dict[str, list[int]] = {}
    for link in private:
        for end in (link.source, link.target):
            lanes.setdefault(end, []).append(link.lanes)
    over = []
    for name, counts in lanes.items():
        product = sources.product_of(inside.devices[name])
        if product is not None and sum(counts) > product.links:
            over.append((name, sum(counts), product))
    if not over:
        return inside
    name, total, product = over[0]
    if product.links == 0 or any(max(lanes[gpu]) > known.links for gpu, _, known in over):
        notes.conflict(
            f"a file says {max(lanes[name])} NVLinks between {name} and one other GPU, and"
            f" {product.name} has {product.links or 'none'}: the file is taken"
        )
        return inside
    notes.assume(
        f"{name} would have {total} private NVLinks, and {product.name} has {product.links}: all"
        " NVSwitch chips of the host are one non-blocking vertex with a port for each GPU"
    )
    first = private[0]
    switch = FoundDevice(name="nvswitch0", kind=VertexKind.NVSWITCH, line=first.line)
    ports = []
    for gpu, counts in lanes.items():
        widest = max(
            (link for link in private if gpu in (link.source, link.target)),
            key=lambda link: link.lanes,
        )
        ports.append(replace(widest, source=gpu, target=switch.name, lanes=max(counts)))
    others = tuple(link for link in inside.links if link not in private)
    devices = {**inside.devices, switch.name: switch}
    return Inside(inside.files, devices, (*ports, *others))


def _compare_ports(inside: Inside, sources: RateSources, notes: Notes) -> None:
    """Tell of ports on NVSwitches that are wider or narrower than those of the product.

    The widest port of a product counts: a single GPU with fewer links has lost some.
    """
    lanes: dict[str, int] = {}
    for link in inside.links:
        ends = (inside.devices[link.source].kind, inside.devices[link.target].kind)
        if link.kind is LinkKind.NVLINK and set(ends) == {VertexKind.GPU, VertexKind.NVSWITCH}:
            gpu = link.source if ends[0] is VertexKind.GPU else link.target
            lanes[gpu] = lanes.get(gpu, 0) + link.lanes
    widest: dict[str, tuple[str, GpuProduct]] = {}
    for gpu in sorted(lanes, key=lanes.__getitem__, reverse=True):
        product = sources.product_of(inside.devices[gpu])
        if product is not None:
            widest.setdefault(product.name, (gpu, product))
    for gpu, product in widest.values():
        if lanes[gpu] != product.links:
            notes.conflict(
                f"a file says {lanes[gpu]} NVLinks between {gpu} and NVSwitches, and"
                f" {product.name} has {product.links or 'none'}: the file is taken"
            )


def _is_private(link: FoundLink, inside: Inside) -> bool:
    ends = (inside.devices[link.source].kind, inside.devices[link.target].kind)
    return link.kind is LinkKind.NVLINK and set(ends) == {VertexKind.GPU}
