"""Measurements as rows: what comes back, filters and pages, on each database."""

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.exc import IntegrityError, StatementError

from service.app.ports import DocumentKind, MeasurementFilter, MeasurementRow
from service.store.tables import Measurements
from service.store.unit_of_work import SqlStorage
from tests.store.rows import measurement, put, put_profile

PROFILE = DocumentKind.PROFILE

# Values that a column of too few digits, or a detour through text, would change.
COMPLETE: dict[str, Any] = {
    "layer": "block.11/attention",
    "device": "H100-SXM5-80GB",
    "precision": "bf16",
    "microbatch_size": 8,
    "sequence_length": 4096,
    "tensor_parallel": 2,
    "recompute": "selective",
    "forward_seconds": 0.1 + 0.2,
    "backward_seconds": 1 / 3,
    "backward_input_seconds": 5e-324,
    "backward_weight_seconds": 0.0,
    "recompute_seconds": 1.7976931348623157e299,
    "tensor_parallel_communication_seconds": 1.25e-05,
    "saved_activation_bytes": 2**53 - 1,
    "workspace_bytes": 0,
    "samples": 100,
    "relative_deviation": 0.013,
    "tensor_parallel_forward_communication_seconds": 2 / 3,
    "tensor_parallel_forward_exposed_seconds": 1 / 7,
    "tensor_parallel_backward_communication_seconds": 0.7,
    "tensor_parallel_backward_exposed_seconds": 0.0,
    "tensor_parallel_recompute_communication_seconds": 1e-12,
    "tensor_parallel_recompute_exposed_seconds": 0.5e-12,
}


async def page(
    storage: SqlStorage,
    limit: int = 100,
    after: tuple[str, int, int] | None = None,
    **wanted: Any,
) -> Sequence[MeasurementRow]:
    async with storage.reading() as unit:
        return await unit.measurements.page(MeasurementFilter(**wanted), limit, after)


def keys(rows: Sequence[MeasurementRow]) -> list[tuple[str, int, int]]:
    return [(row.profile, row.profile_revision, row.position) for row in rows]


async def test_rows_come_back_exactly_and_unknown_stays_unknown(storage: SqlStorage) -> None:
    revision = await put_profile(storage, "h100", COMPLETE, {})
    assert await page(storage) == [
        measurement(revision, 0, **COMPLETE),
        measurement(revision, 1),
    ]


async def test_a_profile_without_measurements(storage: SqlStorage) -> None:
    await put_profile(storage, "h100")
    assert await page(storage) == []


async def test_many_rows_at_once(storage: SqlStorage) -> None:
    await put_profile(storage, "h100", *({"layer": f"layer{index}"} for index in range(5_000)))
    rows = await page(storage, limit=10_000)
    assert [row.position for row in rows] == list(range(5_000))


@pytest.mark.parametrize(
    ("wanted", "positions"),
    [
        ({}, [0, 1, 2, 3]),
        ({"layer": "attention"}, [0, 1]),
        ({"layer": "Attention"}, []),
        ({"layer": "atten%"}, []),
        ({"recompute": "full"}, []),
        ({"recompute": "none", "layer": "attention"}, [0, 1]),
        ({"device": "h100"}, [0, 2]),
        ({"precision": "bf16"}, [0]),
        ({"microbatch_size": 2}, [1, 3]),
        ({"sequence_length": 4096}, [2]),
        ({"tensor_parallel": 4}, [3]),
        ({"layer": "attention", "device": "h100"}, [0]),
        ({"layer": "attention", "device": "h100", "microbatch_size": 2}, []),
        ({"profile": "p"}, [0, 1, 2, 3]),
        ({"profile": "p", "layer": "mlp"}, [2, 3]),
        ({"profile": "q"}, []),
    ],
)
async def test_filters_are_equalities_that_all_hold(
    storage: SqlStorage, wanted: dict[str, Any], positions: list[int]
) -> None:
    await put_profile(
        storage,
        "p",
        {"layer": "attention", "device": "h100", "precision": "bf16"},
        {"layer": "attention", "device": "a100", "microbatch_size": 2},
        {"layer": "mlp", "device": "h100", "sequence_length": 4096},
        {"layer": "mlp", "microbatch_size": 2, "tensor_parallel": 4},
    )
    assert [row.position for row in await page(storage, **wanted)] == positions


@pytest.mark.parametrize(
    "wanted",
    [
        {"layer": "\x00"},
        {"layer": "\ud800"},
        {"device": "'; DROP TABLE measurements; --"},
        {"microbatch_size": 10**30},
        {"sequence_length": -(10**30)},
        {"profile": "p@0"},
        {"profile": "p@01"},
        {"profile": "p@"},
        {"profile": "@1"},
        {"profile": "p@1@1"},
        {"profile": "p@99999999999999999999"},
        {"profile": "P"},
        {"profile": "\x00"},
    ],
)
async def test_a_filter_that_no_row_can_meet_finds_nothing(
    storage: SqlStorage, wanted: dict[str, Any]
) -> None:
    await put_profile(storage, "p", {})
    assert await page(storage, **wanted) == []


async def test_a_cursor_from_elsewhere_does_no_harm(storage: SqlStorage) -> None:
    await put_profile(storage, "p", {})
    assert await page(storage, after=("\x00", 1, 1)) == []
    assert await page(storage, after=("p", 10**30, 1)) == []


async def test_only_the_newest_revision_counts_unless_one_is_named(storage: SqlStorage) -> None:
    await put_profile(storage, "p", {"layer": "old"}, {"layer": "old"})
    await put_profile(storage, "p", {"layer": "new"})
    await put_profile(storage, "q", {"layer": "new"})
    assert keys(await page(storage)) == [("p", 2, 0), ("q", 1, 0)]
    assert keys(await page(storage, profile="p")) == [("p", 2, 0)]
    assert keys(await page(storage, profile="p@1")) == [("p", 1, 0), ("p", 1, 1)]
    assert keys(await page(storage, profile="p@2")) == [("p", 2, 0)]
    assert keys(await page(storage, profile="p@3")) == []
    assert keys(await page(storage, layer="old")) == []


async def test_archived_profiles_are_left_out_until_they_come_back(storage: SqlStorage) -> None:
    await put_profile(storage, "p", {})
    await put_profile(storage, "q", {})
    async with storage.writing() as unit:
        await unit.documents.archive(PROFILE, "p")
    assert keys(await page(storage)) == [("q", 1, 0)]
    assert keys(await page(storage, profile="p")) == []
    assert keys(await page(storage, profile="p@1")) == []
    await put_profile(storage, "p", {})
    assert keys(await page(storage)) == [("p", 2, 0), ("q", 1, 0)]
    assert keys(await page(storage, profile="p@1")) == [("p", 1, 0)]


async def test_pages_go_on_in_order_while_profiles_are_stored(storage: SqlStorage) -> None:
    for name in ("b", "b-1", "b1", "bb"):
        await put_profile(storage, name, {}, {}, {})
    expected = [(name, 1, position) for name in ("b", "b-1", "b1", "bb") for position in range(3)]
    seen: list[tuple[str, int, int]] = []
    while rows := await page(storage, limit=5, after=seen[-1] if seen else None):
        seen += keys(rows)
        await put_profile(storage, "a", {}, {})
    assert seen == expected


async def test_odd_layer_names_are_found_exactly(storage: SqlStorage) -> None:
    names = ["'", "%", "_", "\\", "\u00e9", "e\u0301", "\U0001f600", " x ", "X", "x"]
    await put_profile(storage, "p", *({"layer": name} for name in names))
    for position, name in enumerate(names):
        assert keys(await page(storage, layer=name)) == [("p", 1, position)]


@pytest.mark.parametrize("layer", ["a\x00b", "\ud800"])
async def test_text_that_only_one_database_would_take_leaves_nothing_behind(
    storage: SqlStorage, layer: str
) -> None:
    with pytest.raises(StatementError, match="NUL or a lone surrogate"):
        await put_profile(storage, "p", {}, {"layer": layer})
    async with storage.reading() as unit:
        assert await unit.documents.find(PROFILE, "p") is None
        connection = unit.documents.connection
        assert await connection.scalar(select(func.count()).select_from(Measurements)) == 0


@pytest.mark.parametrize(
    "impossible",
    [
        {"forward_seconds": -1e-9},
        {"forward_seconds": float("nan")},
        {"forward_seconds": float("inf")},
        {"backward_seconds": float("inf")},
        {"backward_input_seconds": -1.0},
        {"backward_weight_seconds": -1.0},
        {"recompute_seconds": -1.0},
        {"tensor_parallel_communication_seconds": -1.0},
        {"relative_deviation": -0.1},
        {"tensor_parallel_forward_communication_seconds": -1.0},
        {"tensor_parallel_recompute_exposed_seconds": float("inf")},
        {"microbatch_size": 0},
        {"sequence_length": 0},
        {"tensor_parallel": 0},
        {"saved_activation_bytes": -1},
        {"workspace_bytes": -1},
        {"samples": -1},
    ],
)
async def test_the_database_refuses_impossible_measurements(
    storage: SqlStorage, impossible: dict[str, Any]
) -> None:
    with pytest.raises(IntegrityError):
        await put_profile(storage, "p", impossible)


async def test_rows_belong_to_the_revision_they_are_added_to(storage: SqlStorage) -> None:
    first = await put_profile(storage, "p", {})
    second = await put_profile(storage, "p")
    with pytest.raises(ValueError, match="p@1 under p@2"):
        async with storage.writing() as unit:
            await unit.measurements.add(second, [measurement(first)])


async def test_only_profiles_have_measurements(storage: SqlStorage) -> None:
    plan = await put(storage, DocumentKind.PLAN, "p")
    with pytest.raises(ValueError, match="only profiles"):
        async with storage.writing() as unit:
            await unit.measurements.add(plan, [measurement(plan)])


async def test_a_position_is_measured_once(storage: SqlStorage) -> None:
    revision = await put_profile(storage, "p", {})
    with pytest.raises(IntegrityError):
        async with storage.writing() as unit:
            await unit.measurements.add(revision, [measurement(revision)])


async def test_many_measurements_are_stored_some_at_a_time(storage: SqlStorage) -> None:
    """Preparing all rows at once would hold up every other request."""
    batches: list[int] = []

    def note(*call: Any) -> None:
        _, _, statement, parameters, _, is_many = call
        if statement.startswith("INSERT INTO measurements"):
            batches.append(len(parameters) if is_many else 1)

    async with storage.writing() as unit:
        event.listen(unit.measurements.connection.sync_engine, "before_cursor_execute", note)
    await put_profile(storage, "many", *({"layer": f"layer.{index}"} for index in range(1001)))
    assert batches == [500, 500, 1]
    assert [row.position for row in await page(storage, limit=2000)] == list(range(1001))
