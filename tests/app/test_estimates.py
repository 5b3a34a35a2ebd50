"""Pricing and estimates as use cases: pins, identity, what is stored and what is not."""

import dataclasses
import json

import pytest

from service.app import documents, estimates
from service.app.errors import NotFound, Superseded
from service.app.estimates import EstimateQuestion
from service.app.ports import DocumentKind
from service.app.pricing import PlanQuestion, Priced, prepare, price
from service.app.services import Services
from service.core.errors import FaultCode, InvalidInput, WorkBudgetExceeded
from service.core.estimates.estimate import Estimate
from service.core.units import to_seconds
from tests.app.fakes import FakeStorage, fake_services
from tests.app.plan_documents import INLINE_PLAN, decode_plan, inline_plan, store_chain, stored


def render(priced: Priced, _estimate: Estimate, digest: str, question: EstimateQuestion) -> bytes:
    """An answer that counts on nothing but the makespan."""
    makespan = to_seconds(priced.simulated.timeline.makespan)
    return json.dumps([digest, makespan, question.asserted_iteration_seconds]).encode()


async def create(services: Services, question: EstimateQuestion) -> estimates.EstimateOutcome:
    return await estimates.create(services, question, decode_plan, render)


async def test_a_stored_plan_pins_everything_it_uses() -> None:
    services = fake_services()
    await store_chain(services)
    prepared = await prepare(services, PlanQuestion("chain-plan"), decode_plan)
    pinned = prepared.pinned
    assert pinned.stored_plan is not None
    assert pinned.stored_plan.reference == "chain-plan@1"
    assert [pin.reference for pin in pinned.pins] == ["two-hosts@1", "chain@1", "chain-h100@1"]
    assert pinned.document.topology == "two-hosts@1"
    priced = price(prepared)
    assert priced.resolved.placement[1].device == "host1/gpu0"
    # 1 x 1024 x 1024 bf16 numbers over a NIC of 50 GB/s.
    assert priced.resolved.boundaries[0].forward_bytes == 2 * 1024 * 1024


async def test_a_known_digest_is_answered_without_pricing() -> None:
    services = fake_services()
    question = EstimateQuestion(PlanQuestion(inline_plan()))
    first = await create(services, question)
    assert first.created

    def fail(*_: object) -> bytes:
        pytest.fail("the stored answer is the answer")

    again = await estimates.create(services, question, decode_plan, fail)
    assert not again.created
    assert again.stored.answer == first.stored.answer


async def test_the_identity_is_what_the_answer_depends_on() -> None:
    services = fake_services()
    await store_chain(services)
    plan = await documents.get(services, DocumentKind.PLAN, "chain-plan")
    content = json.loads(plan.content)
    by_name = await create(services, EstimateQuestion(PlanQuestion("chain-plan")))
    described = decode_plan({**content, "description": "other words"})
    inline = await create(services, EstimateQuestion(PlanQuestion(described)))
    pinned = decode_plan({**content, "topology": "two-hosts@1"})
    by_number = await create(services, EstimateQuestion(PlanQuestion(pinned)))
    assert by_name.stored.digest == inline.stored.digest == by_number.stored.digest
    assert (by_name.plan_reference, inline.plan_reference) == ("chain-plan@1", None)

    claimed = await create(services, EstimateQuestion(PlanQuestion("chain-plan"), 0.5))
    more = PlanQuestion("chain-plan", {"workload": {"microbatches": 9}})
    patched = await create(services, EstimateQuestion(more))
    await stored(
        services,
        DocumentKind.TOPOLOGY,
        "two-hosts",
        {
            "hosts": [{"name": "host", "count": 3, "design": "dgx-h100"}],
            "fabric": {"kind": "rail_optimised", "spines": 1},
        },
    )
    newer = await create(services, EstimateQuestion(PlanQuestion("chain-plan")))
    digests = {e.stored.digest for e in (by_name, claimed, patched, newer)}
    assert len(digests) == 4


async def test_a_timeline_is_computed_from_the_pinned_inputs() -> None:
    services = fake_services()
    await store_chain(services)
    outcome = await create(services, EstimateQuestion(PlanQuestion("chain-plan")))
    await documents.archive(services, DocumentKind.TOPOLOGY, "two-hosts")
    prepared = await estimates.reprice(services, outcome.stored.digest)
    makespan = to_seconds(price(prepared).simulated.timeline.makespan)
    assert json.loads(outcome.stored.answer)[1] == makespan


async def test_an_old_estimate_stays_readable_but_has_no_timeline() -> None:
    storage = FakeStorage()
    services = fake_services(storage)
    outcome = await create(services, EstimateQuestion(PlanQuestion(inline_plan())))
    digest = outcome.stored.digest
    storage.state.estimates[digest] = dataclasses.replace(outcome.stored, model_version="0")
    assert (await estimates.get(services, digest)).answer == outcome.stored.answer
    with pytest.raises(Superseded, match="POST its plan"):
        await estimates.reprice(services, digest)


async def test_unknown_digests_and_references() -> None:
    services = fake_services()
    with pytest.raises(NotFound):
        await estimates.get(services, "sha256:0")
    with pytest.raises(InvalidInput) as refused:
        await prepare(services, PlanQuestion("nobody"), decode_plan)
    assert [(f.code, f.path) for f in refused.value.faults] == [
        (FaultCode.UNKNOWN_REFERENCE, ("plan",))
    ]
    plan = inline_plan(topology="nowhere", costs={"model": "no-model", "profile": "no-profile"})
    with pytest.raises(InvalidInput) as refused:
        await prepare(services, PlanQuestion(plan), decode_plan)
    assert [fault.path for fault in refused.value.faults] == [
        ("plan", "topology"),
        ("plan", "costs", "model"),
        ("plan", "costs", "profile"),
    ]


async def test_too_much_work_is_refused_before_any() -> None:
    services = fake_services()
    question = PlanQuestion(inline_plan(workload={"microbatches": 10**9}))
    with pytest.raises(WorkBudgetExceeded) as refused:
        await prepare(services, question, decode_plan)
    assert refused.value.faults[0].path == ("plan", "workload", "microbatches")


async def test_a_refused_plan_leaves_nothing_behind() -> None:
    storage = FakeStorage()
    services = fake_services(storage)
    stages = [*INLINE_PLAN["costs"]["stages"], {"forward_seconds": 0.1}]
    question = EstimateQuestion(PlanQuestion(inline_plan(costs={"stages": stages})))
    with pytest.raises(InvalidInput) as refused:
        await create(services, question)
    assert refused.value.faults[0].path == ("plan", "costs", "stages", 2, "backward_seconds")
    assert storage.state.estimates == {}
