"""All sections, in the order of the page."""

from validation import (
    expert_copies,
    expert_exchanges,
    expert_loads,
    galvatron,
    memory,
    parameter_counts,
    pipedream,
    piper,
    schedules,
    splits,
    topologies,
    torch_orders,
    vtrain,
    zero_bubble,
)
from validation.rows import Section

__all__ = ["SECTIONS"]

SECTIONS: tuple[Section, ...] = (
    *torch_orders.SECTIONS,
    *zero_bubble.SECTIONS,
    *schedules.SECTIONS,
    *topologies.SECTIONS,
    *pipedream.SECTIONS,
    *splits.SECTIONS,
    *piper.SECTIONS,
    *galvatron.SECTIONS,
    *parameter_counts.SECTIONS,
    *memory.SECTIONS,
    *expert_copies.SECTIONS,
    *expert_exchanges.SECTIONS,
    *vtrain.SECTIONS,
    *expert_loads.SECTIONS,
)
