"""How the parts of a cluster look: every kind of them."""

from service.core.topology.cluster import LinkKind, VertexKind
from service.formats.cluster_looks import BOXES, LINES


def test_every_kind_has_a_look_of_its_own() -> None:
    assert set(BOXES) == set(VertexKind)
    assert set(LINES) == set(LinkKind)
    assert len({look.name for look in BOXES.values()}) == len(BOXES)
    assert len({look.name for look in LINES.values()}) == len(LINES)
