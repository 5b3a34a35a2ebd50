"""Documents: one canonical form, numbered revisions, and all faults at once."""

import math

import msgspec
import pytest

from service.app.documents import Change, archive, check, get, history, page, put, version_tag
from service.app.errors import NotFound, PreconditionFailed
from service.app.ports import DocumentKind
from service.core.errors import FaultCode, InvalidInput, WorkBudgetExceeded
from service.formats.documents.model import ModelDocument
from service.formats.documents.plan import PlanDocument
from service.formats.documents.profile import ProfileDocument
from service.formats.documents.topology import TopologyDocument
from tests.app.fakes import FakeStorage, fake_services

PLAN = b"""{"costs": {"stages": [{"forward_seconds": 0.006, "backward_seconds": 0.012}]},
    "schedule": {"kind": "1f1b"}, "workload": {"microbatches": 8}}"""


def plan(body: bytes = PLAN, microbatches: int | None = None) -> PlanDocument:
    document = msgspec.json.decode(body, type=PlanDocument)
    if microbatches is None:
        return document
    workload = msgspec.structs.replace(document.workload, microbatches=microbatches)
    return msgspec.structs.replace(document, workload=workload)


def profile() -> ProfileDocument:
    return msgspec.json.decode(
        b"""{"device": "H100", "measurements": [
            {"layer": "a", "microbatch_size": 1, "forward_seconds": 0.001},
            {"layer": "b", "microbatch_size": 2, "forward_seconds": 0.002,
             "backward_seconds": 0.003, "recompute": "none", "tensor_parallel": 2}]}""",
        type=ProfileDocument,
    )


async def test_equal_content_is_the_same_revision_and_back_again_is_a_third() -> None:
    services = fake_services()
    outcomes = [
        await put(services, DocumentKind.PLAN, "p", plan(microbatches=n)) for n in (1, 1, 2, 1)
    ]
    assert [(o.change, o.revision.number) for o in outcomes] == [
        (Change.CREATED, 1),
        (Change.UNCHANGED, 1),
        (Change.APPENDED, 2),
        (Change.APPENDED, 3),
    ]
    assert outcomes[0].revision.digest == outcomes[3].revision.digest
    assert version_tag(outcomes[0].revision) != version_tag(outcomes[3].revision)


async def test_spelling_does_not_matter_but_kind_does() -> None:
    services = fake_services()
    spelt = b"""{"workload": {"microbatches": 8}, "schedule": {"kind": "1f1b"},
        "costs": {"stages": [{"backward_seconds": 12e-3, "forward_seconds": 6e-3}]}}"""
    first = await put(services, DocumentKind.PLAN, "p", plan())
    second = await put(services, DocumentKind.PLAN, "p", plan(spelt))
    assert second.change is Change.UNCHANGED
    elsewhere = await put(services, DocumentKind.PLAN, "other", plan())
    assert elsewhere.revision.digest == first.revision.digest


async def test_an_archived_name_comes_back_with_the_next_number() -> None:
    services = fake_services()
    await put(services, DocumentKind.PLAN, "p", plan())
    await archive(services, DocumentKind.PLAN, "p")
    with pytest.raises(NotFound):
        await get(services, DocumentKind.PLAN, "p")
    with pytest.raises(NotFound):
        await archive(services, DocumentKind.PLAN, "p")
    assert (await get(services, DocumentKind.PLAN, "p@1")).number == 1
    assert await page(services, DocumentKind.PLAN, 9) == []
    outcome = await put(services, DocumentKind.PLAN, "p", plan())
    assert (outcome.change, outcome.revision.number) == (Change.CREATED, 2)
    assert [r.number for r in await history(services, DocumentKind.PLAN, "p", 9)] == [2, 1]


async def test_the_history_of_a_name_that_never_was_is_not_found() -> None:
    services = fake_services()
    await put(services, DocumentKind.PLAN, "p", plan())
    assert await history(services, DocumentKind.PLAN, "p", 9, before=1) == []
    with pytest.raises(NotFound):
        await history(services, DocumentKind.PLAN, "none", 9)


async def test_a_precondition_sees_the_stored_version() -> None:
    services = fake_services()
    seen: list[str | None] = []

    def permits(current: str | None) -> bool:
        seen.append(current)
        return len(seen) != 2

    stored = await put(services, DocumentKind.PLAN, "p", plan(), permits)
    tag = version_tag(stored.revision)
    with pytest.raises(PreconditionFailed) as caught:
        await put(services, DocumentKind.PLAN, "p", plan(microbatches=1), permits)
    assert (seen, caught.value.current) == ([None, tag], tag)
    assert (await get(services, DocumentKind.PLAN, "p")).number == 1
    with pytest.raises(PreconditionFailed):
        await archive(services, DocumentKind.PLAN, "p", lambda current: current != tag)
    with pytest.raises(NotFound):
        await archive(services, DocumentKind.PLAN, "none", lambda _: False)


async def test_a_refused_document_leaves_nothing_behind() -> None:
    storage = FakeStorage()
    services = fake_services(storage)
    body = PLAN.replace(b'"costs"', b'"topology": "none", "costs"')
    with pytest.raises(InvalidInput):
        await put(services, DocumentKind.PLAN, "p", plan(body))
    with pytest.raises(PreconditionFailed):
        await put(services, DocumentKind.PLAN, "p", plan(), lambda _: False)
    assert storage.state.revisions == {}


async def test_faults_of_form_content_and_references_come_together() -> None:
    document = plan(
        b"""{"topology": "none", "costs": {"stages": [{"forward_seconds": -0.0}]},
        "schedule": {"kind": "1f1b", "chunks_per_rank": 2}, "workload": {"microbatches": 8}}"""
    )
    with pytest.raises(InvalidInput) as caught:
        await put(fake_services(), DocumentKind.PLAN, "p", document)
    assert {fault.code for fault in caught.value.faults} >= {
        FaultCode.OUT_OF_RANGE,
        FaultCode.ILLEGAL_SCHEDULE,
        FaultCode.UNKNOWN_REFERENCE,
    }


async def test_a_plan_beyond_the_work_budget_says_only_that() -> None:
    with pytest.raises(WorkBudgetExceeded) as caught:
        await check(fake_services(), DocumentKind.PLAN, plan(microbatches=10**9))
    (fault,) = caught.value.faults
    assert fault.path == ("workload", "microbatches")


async def test_a_plan_pins_what_it_refers_to() -> None:
    storage = FakeStorage()
    services = fake_services(storage)
    cluster = msgspec.json.decode(
        b'{"hosts": [{"name": "host", "design": "dgx-h100"}]}', type=TopologyDocument
    )
    await put(services, DocumentKind.TOPOLOGY, "t", cluster)
    await put(
        services,
        DocumentKind.PLAN,
        "p",
        plan(PLAN.replace(b'"costs"', b'"topology": "t", "costs"')),
    )
    assert storage.state.pins["plans/p@1"] == (("topology", "t@1"),)
    assert storage.state.topologies["t@1"].devices == 8


async def test_a_profile_is_stored_as_rows_too() -> None:
    storage = FakeStorage()
    services = fake_services(storage)
    await put(services, DocumentKind.PROFILE, "p", profile())
    await put(services, DocumentKind.PROFILE, "p", profile())
    first, second = storage.state.rows
    assert (first.profile, first.profile_revision, first.position) == ("p", 1, 0)
    assert (first.layer, first.device, first.precision, first.tensor_parallel) == (
        "a",
        "H100",
        None,
        1,
    )
    assert math.isclose(second.forward_seconds, 0.002)
    assert (second.backward_seconds, second.tensor_parallel, second.recompute) == (0.003, 2, "none")
    assert second.sequence_length is None


@pytest.mark.parametrize(("name", "is_one_weight"), [("w", True), ("v", False)])
async def test_a_summary_holds_no_integer_that_a_reader_could_round(
    name: str, is_one_weight: bool
) -> None:
    """Two weights of 2**53 - 1 elements each are too many, the same weight named twice is not."""
    body = b"""{"layers": [
        {"name": "a", "kind": "k", "parameters": [{"name": "w", "count": %d, "dtype": "bf16"}]},
        {"name": "b", "kind": "k", "parameters": [{"name": "%b", "count": %d, "dtype": "bf16"}]}
        ], "tensors": []}""" % (2**53 - 1, name.encode(), 2**53 - 1)
    document = msgspec.json.decode(body, type=ModelDocument)
    services = fake_services()
    if is_one_weight:
        stored = await put(services, DocumentKind.MODEL, "m", document)
        assert stored.revision.summary["parameters"] == 2**53 - 1
        return
    with pytest.raises(InvalidInput) as refusal:
        await put(services, DocumentKind.MODEL, "m", document)
    assert [(fault.code, fault.path) for fault in refusal.value.faults] == [
        (FaultCode.OUT_OF_RANGE, ("layers",))
    ]
