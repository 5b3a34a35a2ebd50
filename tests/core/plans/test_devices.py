"""Names, patterns and host lists of an allocation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import FaultCode
from service.core.plans import devices
from service.core.plans.devices import expand_devices
from tests.core.plans.worlds import cluster
from tests.core.refusals import refusal_text, refusals

CLUSTER = cluster(hosts=12, gpus=2)
DEVICES = ("placement", "devices")


def test_without_an_allocation_all_devices_stand_in_their_order() -> None:
    assert expand_devices(cluster(), None) == (
        "host0/gpu0",
        "host0/gpu1",
        "host1/gpu0",
        "host1/gpu1",
    )


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["host3/gpu1", "host0/gpu0"], ["host3/gpu1", "host0/gpu0"]),
        (["host1/gpu*"], ["host1/gpu0", "host1/gpu1"]),
        (["host1?/gpu0"], ["host10/gpu0", "host11/gpu0"]),
        (["*/gpu1", "host0/*"], [f"host{i}/gpu1" for i in range(12)] + ["host0/gpu0"]),
        (
            ["host[2-1]/gpu0"],
            None,
        ),
        (
            ["host[7,0-1]/gpu[0-1]"],
            ["host7/gpu0", "host7/gpu1", "host0/gpu0", "host0/gpu1", "host1/gpu0", "host1/gpu1"],
        ),
        (["host[9-11]/gpu?"], [f"host{i}/gpu{j}" for i in (9, 10, 11) for j in (0, 1)]),
    ],
)
def test_an_allocation_is_expanded_in_rank_order(
    patterns: list[str], found: list[str] | None
) -> None:
    if found is None:
        assert refusals(lambda: expand_devices(CLUSTER, patterns)) == [
            (FaultCode.UNREADABLE, (*DEVICES, 0))
        ]
    else:
        assert list(expand_devices(CLUSTER, patterns)) == found


def test_leading_zeros_are_kept() -> None:
    text = refusal_text(lambda: expand_devices(CLUSTER, ["host[08-10]/gpu0"]))
    assert "'host08/gpu0'" in text
    assert "'host09/gpu0'" in text
    assert "'host10/gpu0'" not in text


def test_every_fault_of_an_allocation_is_told() -> None:
    patterns = [
        "host0/gpu7",
        "host0/nic0",
        "host99/gpu*",
        "host0/gpu0",
        "host0/gpu0",
        "host[0/gpu0",
        "host0]/gpu0",
        "host[a-b]/gpu0",
        "host[]/gpu0",
        "host[0-]/gpu0",
    ]
    assert refusals(lambda: expand_devices(CLUSTER, patterns)) == [
        (FaultCode.UNKNOWN_NAME, (*DEVICES, 0)),
        (FaultCode.UNKNOWN_NAME, (*DEVICES, 1)),
        (FaultCode.UNKNOWN_NAME, (*DEVICES, 2)),
        (FaultCode.DUPLICATE_NAME, (*DEVICES, 4)),
        *((FaultCode.UNREADABLE, (*DEVICES, entry)) for entry in range(5, 10)),
    ]


def test_an_entry_with_lists_has_one_fault_of_each_kind() -> None:
    patterns = ["host0/gpu[0-1]", "host[0,7-9,20-24]/gpu[0,5]", "host[30-31]/*"]
    assert refusals(lambda: expand_devices(CLUSTER, patterns)) == [
        (FaultCode.DUPLICATE_NAME, (*DEVICES, 1)),
        (FaultCode.UNKNOWN_NAME, (*DEVICES, 1)),
        (FaultCode.UNKNOWN_NAME, (*DEVICES, 2)),
    ]
    text = refusal_text(lambda: expand_devices(CLUSTER, patterns))
    # gpu5 of hosts 0, 7, 8, 9 and both of five hosts that are not there
    assert "14 of the 18 names of 'host[0,7-9,20-24]/gpu[0,5]': 'host0/gpu5' is no device" in text
    assert "and 11 more" in text
    assert "1 of the 18 names" in text
    assert "2 of the 2 names of 'host[30-31]/*': no accelerator" in text


def test_a_name_written_again_points_to_where_it_stood_first() -> None:
    patterns = ["host0/gpu0", "host0/*", "host0/gpu0"]
    assert "(entry 0)" in refusal_text(lambda: expand_devices(CLUSTER, patterns))


def test_ranks_stand_on_accelerators_only() -> None:
    assert "is a nic" in refusal_text(lambda: expand_devices(CLUSTER, ["host0/nic0"]))


@pytest.mark.parametrize(
    "pattern",
    ["host[0-999999999]/gpu0", "h[0-60000][0-60000]/gpu0", "[0-9][0-9][0-9][0-9][0-9][0-9]"],
)
def test_lists_are_bounded_before_they_are_written_out(pattern: str) -> None:
    found = refusals(lambda: expand_devices(CLUSTER, [pattern]))
    assert found[0][0] in (FaultCode.WORK_BUDGET, FaultCode.UNREADABLE)
    assert len(found) == 1


def test_comparisons_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_MAX_COMPARISONS", 30)
    assert refusals(lambda: expand_devices(CLUSTER, ["*/gpu0", "*/gpu1"])) == [
        (FaultCode.WORK_BUDGET, (*DEVICES, 1))
    ]


@given(
    low=st.integers(0, 11),
    size=st.integers(0, 11),
    gpus=st.sampled_from(["[0-1]", "*", "?", "[1,0]"]),
)
def test_no_device_is_taken_twice(low: int, size: int, gpus: str) -> None:
    high = min(11, low + size)
    found = expand_devices(CLUSTER, [f"host[{low}-{high}]/gpu{gpus}", "*"])
    assert len(found) == len(set(found)) == 24
    assert {name.split("/")[0] for name in found[: 2 * (high - low + 1)]} == {
        f"host{number}" for number in range(low, high + 1)
    }
