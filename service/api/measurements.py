"""Measurements of all profiles, filtered and compared."""

from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery
from msgspec import Meta

from service.api.injection import InjectedServices
from service.api.schemas.documents import Page
from service.api.schemas.measurements import MeasurementEntry, measurement_entry
from service.app import measurements
from service.app.ports import MeasurementFilter
from service.core.profiles.measurement import Recompute
from service.web.cursors import DEFAULT_LIMIT, Cursor, Limit, page_of, read_cursor
from service.web.responses import json_response

__all__ = ["list_measurements"]

_MAX_INTEGER = 2**53 - 1

_Text = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00]*$(?!\n)")]
_Count = Annotated[int, Meta(ge=1, le=_MAX_INTEGER)]

ProfileFilter = FromQuery[
    Annotated[
        str,
        Meta(
            pattern=r"^[a-z][a-z0-9-]{0,62}(@[1-9][0-9]{0,8})?$(?!\n)",
            description="A profile's name for its newest revision, or name@revision.",
        ),
    ]
    | None
]
LayerFilter = FromQuery[Annotated[_Text, Meta(description="Name or pattern as stored.")] | None]
DeviceFilter = FromQuery[Annotated[_Text, Meta(description="The device measured on.")] | None]
PrecisionFilter = FromQuery[Annotated[_Text, Meta(description="The precision.")] | None]
MicrobatchFilter = FromQuery[Annotated[_Count, Meta(description="Samples of a microbatch.")] | None]
SequenceFilter = FromQuery[Annotated[_Count, Meta(description="Tokens of a sample.")] | None]
RecomputeFilter = FromQuery[
    Annotated[Recompute, Meta(description="Which activations are recomputed.")] | None
]
TensorFilter = FromQuery[Annotated[_Count, Meta(description="Tensor-parallel ranks.")] | None]


@get(
    "/v1/measurements",
    operation_id="list_measurements",
    summary="Compare measurements",
    tags=["profiles"],
    responses={
        200: ResponseSpec(Page[MeasurementEntry], description="By profile, revision and position")
    },
)
async def list_measurements(
    request: Request[Any, Any, Any],
    services: InjectedServices,
    profile: ProfileFilter = None,
    layer: LayerFilter = None,
    device: DeviceFilter = None,
    precision: PrecisionFilter = None,
    microbatch_size: MicrobatchFilter = None,
    sequence_length: SequenceFilter = None,
    tensor_parallel: TensorFilter = None,
    recompute: RecomputeFilter = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response[bytes]:
    """Measurements of the newest revision of each profile (or of the one named) that equal every
    filter given; archived profiles are left out.
    """
    wanted = MeasurementFilter(
        profile=profile,
        layer=layer,
        device=device,
        precision=precision,
        microbatch_size=microbatch_size,
        sequence_length=sequence_length,
        tensor_parallel=tensor_parallel,
        recompute=None if recompute is None else recompute.value,
    )
    after = read_cursor(request, cursor, tuple[str, int, int])
    rows = await measurements.page(services, wanted, limit + 1, after)
    found, following = page_of(
        request, rows, limit, lambda row: (row.profile, row.profile_revision, row.position)
    )
    return json_response(Page.of([measurement_entry(row) for row in found], following))
