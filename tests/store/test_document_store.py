"""Documents, revisions and archiving, on each database."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError, StatementError

from service.app.ports import DocumentKind, TopologySummary
from service.store.engine import create_engine
from service.store.tables import DocumentPins, Documents, TopologySummaries
from service.store.unit_of_work import SqlStorage
from tests.store.rows import SteppingClock, new_revision, put

TOPOLOGY, MODEL, PLAN = DocumentKind.TOPOLOGY, DocumentKind.MODEL, DocumentKind.PLAN

ODD_TEXTS = [
    "",
    "\x00",
    "a\x00b",
    "\ud800 alone",
    "'; DROP TABLE teams; --",
    '100% \\ _ "quoted" ${x}',
    "\u202eright to left, \U0001f600, e\u0301 and \u00e9",
]


async def test_a_revision_is_found_as_it_was_appended(storage: SqlStorage) -> None:
    async with storage.writing() as unit:
        assert await unit.documents.lock(PLAN, "four-stages") is None
        stored = await unit.documents.append(
            PLAN,
            "four-stages",
            new_revision(summary={"z": 1.5, "a": [1, None, {"b": True}]}, warnings=("w1", "w2")),
        )
    assert (stored.kind, stored.name, stored.number) == (PLAN, "four-stages", 1)
    assert stored.reference == "four-stages@1"
    async with storage.reading() as unit:
        newest = await unit.documents.find(PLAN, "four-stages")
        assert newest == stored
        assert await unit.documents.find(PLAN, "four-stages", 1) == stored
    assert newest is not None
    assert list(newest.summary) == ["z", "a"], "a summary keeps the order it was written in"


async def test_what_was_never_stored_is_not_found(storage: SqlStorage) -> None:
    await put(storage, PLAN, "known")
    async with storage.reading() as unit:
        documents = unit.documents
        assert await documents.find(PLAN, "unknown") is None
        assert await documents.find(MODEL, "known") is None
        assert await documents.history(PLAN, "unknown", 10) == []
        assert await documents.page(MODEL, 10) == []
        for number in (-1, 0, 2, 2**31, 2**63, 10**30, -(10**30)):
            assert await documents.find(PLAN, "known", number) is None


async def test_revisions_are_numbered_from_one_and_stay_as_they_were(storage: SqlStorage) -> None:
    stored = [await put(storage, PLAN, "p", text) for text in ("a", "b", "a")]
    assert [revision.number for revision in stored] == [1, 2, 3]
    assert stored[0].digest == stored[2].digest
    async with storage.reading() as unit:
        for revision in stored:
            assert await unit.documents.find(PLAN, "p", revision.number) == revision
        assert await unit.documents.find(PLAN, "p") == stored[-1]


async def test_the_same_name_in_another_kind_is_another_document(storage: SqlStorage) -> None:
    await put(storage, PLAN, "same", "plan")
    model = await put(storage, MODEL, "same", "model")
    assert model.number == 1
    async with storage.reading() as unit:
        found = await unit.documents.find(MODEL, "same")
    assert found is not None
    assert found.content == b"model"


async def test_lock_finds_the_newest_revision(storage: SqlStorage) -> None:
    await put(storage, PLAN, "p", "a")
    second = await put(storage, PLAN, "p", "b")
    async with storage.writing() as unit:
        assert await unit.documents.lock(PLAN, "p") == second
        assert await unit.documents.lock(PLAN, "p") == second, "locking twice is harmless"


async def test_two_revisions_in_one_unit_of_work(storage: SqlStorage) -> None:
    async with storage.writing() as unit:
        await unit.documents.lock(PLAN, "p")
        await unit.documents.append(PLAN, "p", new_revision("a"))
        second = await unit.documents.append(PLAN, "p", new_revision("b"))
        assert second.number == 2
        assert await unit.documents.find(PLAN, "p") == second


async def test_a_name_locked_and_left_alone_is_no_document(storage: SqlStorage) -> None:
    async with storage.writing() as unit:
        await unit.documents.lock(PLAN, "p")
    async with storage.writing() as unit:
        assert await unit.documents.find(PLAN, "p") is None
        assert await unit.documents.page(PLAN, 10) == []
        assert not await unit.documents.archive(PLAN, "p")
    assert (await put(storage, PLAN, "p")).number == 1


async def test_append_needs_a_locked_name(storage: SqlStorage) -> None:
    with pytest.raises(LookupError, match="plans/p must be locked"):
        async with storage.writing() as unit:
            await unit.documents.append(PLAN, "p", new_revision())


# Archiving


async def test_an_archived_name_leaves_lists_and_keeps_its_numbered_revisions(
    storage: SqlStorage,
) -> None:
    first = await put(storage, PLAN, "p", "a")
    second = await put(storage, PLAN, "p", "b")
    other = await put(storage, PLAN, "q")
    async with storage.writing() as unit:
        assert await unit.documents.archive(PLAN, "p")
    async with storage.reading() as unit:
        documents = unit.documents
        assert await documents.find(PLAN, "p") is None
        assert await documents.find(PLAN, "p", 1) == first
        assert await documents.find(PLAN, "p", 2) == second
        assert await documents.page(PLAN, 10) == [other.heading]
        assert await documents.history(PLAN, "p", 10) == [second.heading, first.heading]


async def test_archiving_again_or_nothing_is_false(storage: SqlStorage) -> None:
    await put(storage, PLAN, "p")
    async with storage.writing() as unit:
        assert not await unit.documents.archive(MODEL, "p")
        assert not await unit.documents.archive(PLAN, "unknown")
        assert await unit.documents.archive(PLAN, "p")
        assert not await unit.documents.archive(PLAN, "p")


async def test_numbers_go_on_after_archiving_and_append_brings_the_name_back(
    storage: SqlStorage,
) -> None:
    await put(storage, PLAN, "p", "a")
    async with storage.writing() as unit:
        await unit.documents.archive(PLAN, "p")
    async with storage.writing() as unit:
        assert await unit.documents.lock(PLAN, "p") is None
        second = await unit.documents.append(PLAN, "p", new_revision("b"))
    assert second.number == 2
    async with storage.reading() as unit:
        assert await unit.documents.find(PLAN, "p") == second
        assert await unit.documents.page(PLAN, 10) == [second.heading]


# Paging


async def test_a_page_holds_newest_revisions_by_code_point_of_the_name(
    storage: SqlStorage,
) -> None:
    names = ["ab", "a1", "a-b", "a", "b", "a--", "a-1"]
    for name in names:
        await put(storage, PLAN, name, "old")
        await put(storage, PLAN, name, "new")
    async with storage.reading() as unit:
        page = await unit.documents.page(PLAN, 100)
    assert [revision.name for revision in page] == sorted(names)
    assert {revision.number for revision in page} == {2}


async def test_pages_neither_repeat_nor_lose_a_name_while_others_are_stored(
    storage: SqlStorage,
) -> None:
    names = [f"n{index:02}" for index in range(10)]
    for name in names:
        await put(storage, PLAN, name)
    seen: list[str] = []
    after: str | None = None
    for round_number in range(100):
        async with storage.reading() as unit:
            page = await unit.documents.page(PLAN, 3, after)
        if not page:
            break
        seen += [revision.name for revision in page]
        after = seen[-1]
        # One name before the cursor, one after it, and a new revision of one already seen.
        await put(storage, PLAN, f"a{round_number}")
        await put(storage, PLAN, f"n{round_number:02}x")
        await put(storage, PLAN, seen[0], "newer")
    assert len(seen) == len(set(seen))
    assert seen == sorted(seen)
    assert set(names) <= set(seen)


async def test_history_runs_backwards_from_a_number(storage: SqlStorage) -> None:
    stored = [(await put(storage, PLAN, "p", f"{index}")).heading for index in range(5)]
    await put(storage, PLAN, "q")
    async with storage.reading() as unit:
        history = unit.documents.history
        assert await history(PLAN, "p", 2) == [stored[4], stored[3]]
        assert await history(PLAN, "p", 2, before=4) == [stored[2], stored[1]]
        assert await history(PLAN, "p", 2, before=1) == []
        assert await history(PLAN, "p", 10, before=10**30) == stored[::-1]
        assert await history(PLAN, "p", 10, before=-(10**30)) == []


# Times


async def test_times_are_utc_to_the_microsecond(database_url: str) -> None:
    engine = create_engine(database_url)
    try:
        zone = timezone(timedelta(hours=5, minutes=30))
        clock = SteppingClock(datetime(2026, 3, 1, 1, 2, 3, 123456, zone))
        stored = await put(SqlStorage(engine, clock=clock), PLAN, "p")
        async with SqlStorage(engine).reading() as unit:
            found = await unit.documents.find(PLAN, "p")
    finally:
        await engine.dispose()
    assert found is not None
    assert found.created_at == stored.created_at == clock.moment
    assert found.created_at.tzinfo is UTC
    assert found.created_at.microsecond == 123456


async def test_a_moment_without_a_zone_is_refused(database_url: str) -> None:
    engine = create_engine(database_url)
    try:
        clock = SteppingClock(datetime(2026, 3, 1))  # noqa: DTZ001
        with pytest.raises(StatementError, match="no time zone"):
            await put(SqlStorage(engine, clock=clock), PLAN, "p")
    finally:
        await engine.dispose()


async def test_the_clock_of_the_machine_is_used_unless_another_is_given(
    storage: SqlStorage,
) -> None:
    before = datetime.now(UTC)
    stored = await put(storage, PLAN, "p")
    assert before <= stored.created_at <= datetime.now(UTC)


# Odd strings


@pytest.mark.parametrize("text", ODD_TEXTS)
async def test_odd_texts_come_back_unchanged(storage: SqlStorage, text: str) -> None:
    content = bytes(range(256)) + text.encode(errors="surrogatepass")
    await put(storage, PLAN, "p", content=content, summary={"k": text, text: 1}, warnings=(text,))
    async with storage.reading() as unit:
        found = await unit.documents.find(PLAN, "p")
    assert found is not None
    assert found.content == content
    assert found.summary == {"k": text, text: 1}
    assert found.warnings == (text,)


@pytest.mark.parametrize("text", ODD_TEXTS)
async def test_odd_names_are_not_found(storage: SqlStorage, text: str) -> None:
    await put(storage, PLAN, "p")
    async with storage.writing() as unit:
        assert await unit.documents.find(PLAN, text) is None
        assert await unit.documents.find(PLAN, text, 1) is None
        assert await unit.documents.history(PLAN, text, 10) == []
        assert not await unit.documents.archive(PLAN, text)
        assert len(await unit.documents.page(PLAN, 10, text)) <= 1


@pytest.mark.parametrize("name", ["a\x00b", "\ud800"])
async def test_a_name_that_only_one_database_would_take_is_refused_by_both(
    storage: SqlStorage, name: str
) -> None:
    with pytest.raises(StatementError, match="NUL or a lone surrogate"):
        await put(storage, PLAN, name)


@pytest.mark.parametrize("name", ["", "n" * 64])
async def test_a_name_of_impossible_length_is_refused(storage: SqlStorage, name: str) -> None:
    with pytest.raises(IntegrityError):
        await put(storage, PLAN, name)


async def test_a_summary_that_is_no_json_is_refused(storage: SqlStorage) -> None:
    with pytest.raises(StatementError, match="not JSON compliant"):
        await put(storage, PLAN, "p", summary={"mean": float("nan")})
    async with storage.reading() as unit:
        assert await unit.documents.find(PLAN, "p") is None


# What belongs to a revision


async def test_pins_are_kept_with_the_revision(storage: SqlStorage) -> None:
    await put(storage, TOPOLOGY, "two-hosts")
    await put(storage, TOPOLOGY, "two-hosts", "changed")
    await put(storage, MODEL, "gpt")
    pins = (("topology", "two-hosts@2"), ("model", "gpt@1"), ("model", "gpt@1"))
    async with storage.writing() as unit:
        await unit.documents.lock(PLAN, "p")
        await unit.documents.append(PLAN, "p", new_revision(pins=pins))
        rows = await unit.documents.connection.execute(
            select(
                DocumentPins.name,
                DocumentPins.number,
                DocumentPins.pinned_kind,
                DocumentPins.pinned_name,
                DocumentPins.pinned_number,
            ).order_by(DocumentPins.pinned_kind)
        )
        assert [tuple(row) for row in rows] == [
            ("p", 1, "models", "gpt", 1),
            ("p", 1, "topologies", "two-hosts", 2),
        ]


async def test_a_pin_to_nothing_is_refused_and_undone(storage: SqlStorage) -> None:
    await put(storage, TOPOLOGY, "two-hosts")
    with pytest.raises(IntegrityError):
        await put(storage, PLAN, "p", pins=(("topology", "two-hosts@2"),))
    async with storage.reading() as unit:
        assert await unit.documents.find(PLAN, "p", 1) is None


@pytest.mark.parametrize(
    "pin", [("topology", "two-hosts"), ("host", "two-hosts@1"), ("topology", "two-hosts@x")]
)
async def test_a_pin_names_a_kind_and_a_number(storage: SqlStorage, pin: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="numbered reference"):
        await put(storage, PLAN, "p", pins=(pin,))


async def test_a_topology_has_its_summary_in_columns(storage: SqlStorage) -> None:
    summary = TopologySummary(hosts=2, devices=16, links=40, link_kinds=("nvlink", "pcie"))
    async with storage.writing() as unit:
        await unit.documents.lock(TOPOLOGY, "t")
        revision = await unit.documents.append(TOPOLOGY, "t", new_revision())
        await unit.documents.add_topology_summary(revision, summary)
        columns = TopologySummaries
        row = (
            await unit.documents.connection.execute(
                select(columns.hosts, columns.devices, columns.links, columns.link_kinds).where(
                    columns.name == "t", columns.number == 1
                )
            )
        ).one()
    assert tuple(row) == (2, 16, 40, ["nvlink", "pcie"])


async def test_only_a_topology_has_a_topology_summary(storage: SqlStorage) -> None:
    plan = await put(storage, PLAN, "p")
    with pytest.raises(IntegrityError):
        async with storage.writing() as unit:
            await unit.documents.add_topology_summary(plan, TopologySummary(1, 1, 1, ()))


async def test_an_error_undoes_the_whole_unit_of_work(storage: SqlStorage) -> None:
    async def fail_on_the_way() -> None:
        async with storage.writing() as unit:
            await unit.documents.lock(PLAN, "p")
            await unit.documents.append(PLAN, "p", new_revision("b"))
            await unit.documents.lock(PLAN, "q")
            raise RuntimeError("on the way")

    await put(storage, PLAN, "p", "a")
    with pytest.raises(RuntimeError, match="on the way"):
        await fail_on_the_way()
    async with storage.reading() as unit:
        newest = await unit.documents.find(PLAN, "p")
        count = await unit.documents.connection.scalar(select(func.count()).select_from(Documents))
    assert newest is not None
    assert (newest.number, newest.content, count) == (1, b"a", 1)
