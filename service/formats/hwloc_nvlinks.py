"""hwloc's matrix of NVLink bandwidth: which accelerators and NVSwitches NVLinks join."""

import re
from collections.abc import Mapping, Sequence

from service.core.topology.cluster import LinkKind, VertexKind
from service.core.topology.gpu_products import find_product
from service.core.topology.readings import FoundDevice, FoundLink, Rate, RateOrigin
from service.formats.pasted_text import Findings, refuse_file
from service.formats.xml_elements import Element

__all__ = ["nvlinks_of_matrix"]

_NAME = "NVLinkBandwidth"
_MAX_OBJECTS = 512
_OBJECT = re.compile(r"[A-Za-z]{1,20}:[0-9]{1,19}")
_VALUE = re.compile(r"[0-9]{1,19}")
# A GPU and itself, which says nothing of links.
_ITSELF = 1_000_000


def nvlinks_of_matrix(
    findings: Findings,
    root: Element,
    name_of: Mapping[str, str],
    products: Mapping[str, str | None],
) -> tuple[list[FoundLink], list[FoundDevice]]:
    """The links, and one NVSwitch where GPUs are joined to anything that is no GPU.

    `name_of` has the device (or the PCI address) of objects like `OSDev:802`, `products` the
    product of each GPU by name.
    """
    matrices = [
        matrix
        for matrix in root.named("distances2hetero", "distances2")
        if matrix.attributes.get("name") == _NAME
    ]
    links: list[FoundLink] = []
    switches: list[FoundDevice] = []
    for matrix in matrices[:1]:
        objects, values = _contents(matrix)
        ends = [name_of.get(name) for name in objects]
        for row, source in enumerate(ends):
            if source not in products or source is None:
                continue
            megabytes = values[row * len(ends) : (row + 1) * len(ends)]
            links += _private(findings, matrix, row, ends, megabytes, products)
            switched = sum(
                rate
                for end, rate in zip(ends, megabytes, strict=True)
                if end not in products and rate != _ITSELF
            )
            if switched:
                links.append(_link(findings, matrix, source, "nvswitch0", switched, products))
    if any(link.target == "nvswitch0" for link in links):
        findings.assume("all NVSwitch chips of a host are one non-blocking vertex")
        line = matrices[0].line
        switches.append(FoundDevice(name="nvswitch0", kind=VertexKind.NVSWITCH, line=line))
    for matrix in matrices[1:]:
        findings.leave_out(matrix.line, "a second matrix of NVLink bandwidth")
    return links, switches


def _contents(matrix: Element) -> tuple[list[str], list[int]]:
    """The objects and the values, row by row. Refuses a matrix that is not whole."""
    count = matrix.attributes.get("nbobjs", "")
    names = [name for part in matrix.named("indexes") for name in part.text.split()]
    texts = [value for part in matrix.named("u64values") for value in part.text.split()]
    own_type = matrix.attributes.get("type")
    if own_type is not None:
        names = [name if ":" in name else f"{own_type}:{name}" for name in names]
    if len(names) > _MAX_OBJECTS:
        refuse_file(matrix.line, f"has {len(names)} objects; at most {_MAX_OBJECTS} are read")
    is_whole = count == str(len(names)) and len(texts) == len(names) ** 2
    if not is_whole or not all(_OBJECT.fullmatch(name) for name in names):
        refuse_file(
            matrix.line,
            f"begins a matrix that is not whole: nbobjs {count[:10]}, {len(names)} objects,"
            f" {len(texts)} values",
        )
    if not all(_VALUE.fullmatch(text) for text in texts):
        refuse_file(matrix.line, "begins a matrix with values that are no numbers")
    return names, [int(text) for text in texts]


def _private(
    findings: Findings,
    matrix: Element,
    row: int,
    ends: Sequence[str | None],
    megabytes: Sequence[int],
    products: Mapping[str, str | None],
) -> list[FoundLink]:
    """Links to GPUs that stand later in the matrix; each pair is told once."""
    source = ends[row]
    return [
        _link(findings, matrix, source, end, megabytes[column], products)
        for column, end in enumerate(ends)
        if column > row
        and source is not None
        and end is not None
        and end in products
        and end != source
        and 0 < megabytes[column] != _ITSELF
    ]


def _link(
    findings: Findings,
    matrix: Element,
    source: str,
    target: str,
    megabytes: int,
    products: Mapping[str, str | None],
) -> FoundLink:
    """As many links as make up the rate, where the product's own rate is known."""
    product = find_product(products[source] or "")
    lanes = 1
    if product is not None and product.generation is not None:
        one = product.generation.link_bytes_per_second / 1e6
        lanes = max(1, round(megabytes / one))
        if abs(lanes * one - megabytes) > 0.1 * one:
            findings.assume(
                f"{megabytes} MB/s of NVLink are {lanes} links of {product.name}, which have"
                f" {one:g} MB/s each"
            )
    rate = Rate(megabytes * 1e6, RateOrigin.READ, f"hwloc shows {megabytes} MB/s")
    return FoundLink(
        source=source,
        target=target,
        kind=LinkKind.NVLINK,
        line=matrix.line,
        lanes=lanes,
        rate=rate,
    )
