"""Tables of generated pages."""

from collections.abc import Sequence

__all__ = ["table"]


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    rule = ["---"] * len(heading)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heading, rule, *rows))
