"""Estimates: everything about a plan in one stored answer, and its timeline in five formats."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from service.api.injection import InjectedServices
from service.api.plan_questions import estimate_question, patched_plan
from service.api.schemas.answers import answer
from service.api.schemas.estimates import EstimateAnswer, estimate_terms
from service.api.schemas.requests import EstimateRequest
from service.api.schemas.timelines import (
    TimelineAnswer,
    check_selection,
    timeline_answer,
    timeline_selection,
)
from service.app import estimates
from service.app.estimates import EstimateOutcome, EstimateQuestion
from service.app.idempotency import Answer, Record
from service.app.ports import Scope
from service.app.pricing import Priced, price
from service.core.estimates.cadence import plan_cadence
from service.core.estimates.estimate import (
    Estimate,
    other_microbatch_counts,
    plan_live_activations,
)
from service.core.estimates.iteration import still_left_out
from service.core.schedules.bubble import measure_bubble
from service.core.schedules.selection import Selection
from service.core.schedules.slack import measure_slack
from service.formats.chrome_trace import chrome_trace
from service.formats.timeline_csv import timeline_csv
from service.formats.timeline_svg import timeline_svg
from service.formats.timeline_text import timeline_text
from service.web import problem_types
from service.web.access import needs
from service.web.conditional import entity_tag, is_unmodified
from service.web.idempotency import IDEMPOTENT, respond_once
from service.web.openapi import ANSWER_HEADERS, CONDITIONAL, EXAMPLE, PROBLEMS

__all__ = ["estimate_routes", "render_estimate"]

AnyRequest = Request[Any, Any, Any]

Digest = FromPath[
    Annotated[
        str,
        Meta(
            pattern=r"^sha256:[0-9a-f]{64}$(?!\n)",
            description="The `digest` of an estimate.",
        ),
    ]
]
Ranks = FromQuery[
    Annotated[
        str,
        Meta(
            pattern=r"^[0-9]{1,6}(,[0-9]{1,6}){0,511}$(?!\n)",
            max_length=3600,
            description="Only these pipeline ranks: numbers separated by commas, without spaces.",
            examples=["0,3"],
        ),
    ]
    | None
]
FirstMicrobatch = FromQuery[
    Annotated[int, Meta(ge=0, le=2**31, description="Only this microbatch and later ones.")] | None
]
LastMicrobatch = FromQuery[
    Annotated[int, Meta(ge=0, le=2**31, description="Only this microbatch and earlier ones.")]
    | None
]
FromSeconds = FromQuery[
    Annotated[float, Meta(ge=0, le=1e7, description="Only what ends after this time.")] | None
]
ToSeconds = FromQuery[
    Annotated[float, Meta(ge=0, le=1e7, description="Only what starts before this time.")] | None
]

_EXAMPLE = {"plan": "equal-stages-1f1b", "patch": {"workload": {"microbatches": 4}}}


def render_estimate(
    priced: Priced, estimate: Estimate, digest: str, question: EstimateQuestion
) -> bytes:
    """The bytes of an estimate's answer, a pure function of its inputs."""
    terms = estimate_terms(
        estimate, digest, priced.prepared.pinned.document, question.asserted_iteration_seconds
    )
    content = answer(
        EstimateAnswer,
        terms,
        priced,
        names_plan=False,
        also_assumed=estimate.assumptions,
        also_represented=estimate.represented,
        also_left_out=estimate.not_represented,
        left_out=still_left_out(estimate.iteration_parts, priced.not_represented),
        represented_here=estimate.represented_here,
    )
    return msgspec.json.encode(content)


@post(
    "/v1/estimates",
    operation_id="create_estimate",
    summary="Estimate a plan",
    tags=["estimates"],
    status_code=201,
    # What it stores follows from what is stored already, so reading is enough.
    opt={
        **needs(Scope.READ),
        **IDEMPOTENT,
        EXAMPLE: _EXAMPLE,
        ANSWER_HEADERS: ("ETag", "Location", "Content-Location", "Stagefare-Plan"),
    },
    responses={
        201: ResponseSpec(EstimateAnswer, description="A new estimate"),
        200: ResponseSpec(EstimateAnswer, description="The stored estimate of the same inputs"),
    },
)
async def create_estimate(
    request: AnyRequest, services: InjectedServices, data: JSONBody[EstimateRequest]
) -> Response[bytes]:
    """A pure function of the patched plan, the documents it pins and the cost model's version.

    Its digest names all of these; when the digest is known, the stored answer comes back and
    nothing is simulated. `Stagefare-Plan` tells the revision of a plan that was asked for by name.
    """

    async def create(record: Record[EstimateOutcome]) -> EstimateOutcome:
        question = estimate_question(data)
        return await estimates.create(services, question, patched_plan, render_estimate, record)

    return await respond_once(request, services, data, create, _outcome_answer)


def _outcome_answer(outcome: EstimateOutcome) -> Answer:
    location = f"/v1/estimates/{outcome.stored.digest}"
    headers = {"ETag": entity_tag(outcome.stored.digest), "Content-Location": location}
    if outcome.created:
        headers["Location"] = location
    if outcome.plan_reference is not None:
        headers["Stagefare-Plan"] = outcome.plan_reference
    return Answer(201 if outcome.created else 200, headers, outcome.stored.answer)


@get(
    "/v1/estimates/{digest:str}",
    operation_id="get_estimate",
    summary="Read a stored estimate",
    tags=["estimates"],
    # Beside it lies /v1/estimates/batches, which is no digest and takes no GET.
    opt={**CONDITIONAL, PROBLEMS: (problem_types.METHOD_NOT_ALLOWED,)},
    responses={200: ResponseSpec(EstimateAnswer, description="The stored answer")},
)
async def get_estimate(
    request: AnyRequest, services: InjectedServices, digest: Digest
) -> Response[bytes]:
    """The answer as it was computed, also when the cost model has changed since."""
    stored = await estimates.get(services, digest)
    headers = {"ETag": entity_tag(stored.digest)}
    if is_unmodified(request, stored.digest):
        return Response(b"", status_code=304, headers=headers)
    return Response(stored.answer, media_type="application/json", headers=headers)


# (priced plan, digest of the estimate, the selected part) -> the body
Draw = Callable[[Priced, str, Selection], bytes]


def _timeline_route(
    name: str,
    operation: str,
    summary: str,
    description: str,
    media_type: str,
    draw: Draw,
    responses: dict[int, ResponseSpec] | None = None,
) -> HTTPRouteHandler:
    """One format of the timeline, made from the inputs of a stored estimate, simulated again."""

    @get(
        f"/v1/estimates/{{digest:str}}/{name}",
        operation_id=operation,
        summary=summary,
        description=description,
        tags=["estimates"],
        media_type=media_type,
        opt={PROBLEMS: (problem_types.SUPERSEDED, problem_types.INVALID_INPUT)},
        responses=responses,
    )
    async def timeline(
        services: InjectedServices,
        digest: Digest,
        ranks: Ranks = None,
        first_microbatch: FirstMicrobatch = None,
        last_microbatch: LastMicrobatch = None,
        from_seconds: FromSeconds = None,
        to_seconds: ToSeconds = None,
    ) -> Response[bytes]:
        selection = timeline_selection(
            ranks, first_microbatch, last_microbatch, from_seconds, to_seconds
        )
        prepared = await estimates.reprice(services, digest)

        def simulate_and_draw() -> bytes:
            priced = price(prepared)
            check_selection(priced.simulated.timeline, selection)
            return draw(priced, digest, selection)

        with services.observer.span("price"):
            content = await services.executor.run(simulate_and_draw)
        return Response(content, media_type=media_type)

    return timeline


def _draw_json(priced: Priced, digest: str, selection: Selection) -> bytes:
    return msgspec.json.encode(timeline_answer(digest, priced.simulated, selection))


def _draw_csv(priced: Priced, _digest: str, selection: Selection) -> bytes:
    return timeline_csv(priced.simulated.timeline, selection).encode()


def _draw_svg(priced: Priced, _digest: str, selection: Selection) -> bytes:
    timeline = priced.simulated.timeline
    counts, _ = other_microbatch_counts(priced.simulated)
    return timeline_svg(
        timeline,
        selection,
        bubble=measure_bubble(timeline),
        live=plan_live_activations(priced.resolved, timeline.program),
        cadence=plan_cadence(priced.simulated),
        effects=counts or (),
    ).encode()


def _draw_text(priced: Priced, _digest: str, selection: Selection) -> bytes:
    timeline = priced.simulated.timeline
    bubble = measure_bubble(timeline)
    live = plan_live_activations(priced.resolved, timeline.program)
    return timeline_text(timeline, selection, bubble=bubble, live=live).encode()


def _draw_trace(priced: Priced, _digest: str, selection: Selection) -> bytes:
    timeline = priced.simulated.timeline
    names = [link.resource for link in priced.simulated.links]
    return chrome_trace(timeline, selection, slack=measure_slack(timeline), links=names)


estimate_routes = (
    create_estimate,
    get_estimate,
    _timeline_route(
        "timeline",
        "get_timeline",
        "The timeline of an estimate",
        "When every operation starts and ends, and what it waited for.",
        "application/json",
        _draw_json,
        {200: ResponseSpec(TimelineAnswer, description="Operations as columns")},
    ),
    _timeline_route(
        "timeline.csv",
        "get_timeline_csv",
        "The timeline as a table",
        "One row an operation, as comma-separated values with a header.",
        "text/csv",
        _draw_csv,
    ),
    _timeline_route(
        "timeline.svg",
        "get_timeline_svg",
        "The timeline as a picture",
        "A row a rank, with fill, drain, utilisation and peak live activations beside it.",
        "image/svg+xml",
        _draw_svg,
    ),
    _timeline_route(
        "timeline.txt",
        "get_timeline_text",
        "The timeline as a slot table",
        "A column a slot, for plans whose times are multiples of one slot.",
        "text/plain",
        _draw_text,
    ),
    _timeline_route(
        "trace.json",
        "get_trace",
        "The timeline as a trace",
        "In the Chrome trace event format, for Perfetto: lanes of operations, of waits and of "
        "transfers, with a flow from what was waited for to what waited.",
        "application/json",
        _draw_trace,
    ),
)
