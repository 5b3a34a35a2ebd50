"""Oversubscription of a leaf, counted over its cables."""

import pytest

from service.core.topology.oversubscription import LeafUplinks, leaf_notes, leaf_uplinks
from service.core.topology.readings import Cable, CableEnd, FoundSwitch, Rate, RateOrigin

LEAVES = (
    FoundSwitch(name="leaf0", line=1, level=0),
    FoundSwitch(name="leaf1", line=2, level=0),
    FoundSwitch(name="spine", line=3, level=1),
)


def cable(source: str, target: str, gigabytes: float | None) -> Cable:
    ends = [
        CableEnd(switch=end) if end.startswith(("leaf", "spine")) else CableEnd(host=end)
        for end in (source, target)
    ]
    rate = None if gigabytes is None else Rate(gigabytes * 1e9, RateOrigin.READ, "a test")
    return Cable(source=ends[0], target=ends[1], line=1, rate=rate)


def test_hosts_over_uplinks_leaf_by_leaf() -> None:
    cables = [
        cable("leaf0", "a", 50),
        cable("b", "leaf0", 50),
        cable("leaf0", "c", 25),
        cable("leaf0", "spine", 50),
        cable("spine", "leaf0", 25),
        cable("leaf1", "d", 50),
    ]
    loaded, alone = leaf_uplinks(LEAVES, cables)
    assert loaded == LeafUplinks("leaf0", 3, 2, 125e9, 75e9)
    assert loaded.oversubscription_ratio == pytest.approx(5 / 3)
    assert alone == LeafUplinks("leaf1", 1, 0, 50e9, 0.0)
    assert alone.oversubscription_ratio is None
    (words,) = leaf_notes(LEAVES, cables)
    assert "1.667 to 1.667; highest at leaf0: 1.25e+11 bytes/s to hosts over 3 cables" in words


def test_a_leaf_with_an_unknown_rate_has_no_ratio() -> None:
    cables = [cable("leaf0", "a", None), cable("leaf0", "spine", 50), cable("leaf1", "b", 1)]
    assert [leaf.leaf for leaf in leaf_uplinks(LEAVES, cables)] == ["leaf1"]
    assert leaf_notes(LEAVES, cables) == ()
