"""Comparing measurements across profiles."""

from collections.abc import Sequence

from service.app.ports import MeasurementFilter, MeasurementRow
from service.app.services import Services

__all__ = ["page"]


async def page(
    services: Services,
    wanted: MeasurementFilter,
    limit: int,
    after: tuple[str, int, int] | None = None,
) -> Sequence[MeasurementRow]:
    """Measurements of the newest revisions (or of the profile named) that equal the filter.

    Ordered by (profile, revision, position), strictly after the given one.
    """
    async with services.storage.reading() as unit:
        return await unit.measurements.page(wanted, limit, after)
