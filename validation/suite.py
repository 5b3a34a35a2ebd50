"""All sections, in the order of the page."""

from validation import (
    galvatron,
    pipedream,
    piper,
    schedules,
    topologies,
    vtrain,
    zero_bubble,
)
from validation.rows import Section

__all__ = ["SECTIONS"]

SECTIONS: tuple[Section, ...] = (
    *zero_bubble.SECTIONS,
    *schedules.SECTIONS,
    *topologies.SECTIONS,
    *pipedream.SECTIONS,
    *piper.SECTIONS,
    *galvatron.SECTIONS,
    *vtrain.SECTIONS,
)
