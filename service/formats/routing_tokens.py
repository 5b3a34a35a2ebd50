"""Files with a line for each token: their lines brought to layers, steps and sources."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.errors import Path
from service.formats.routing_reading import ReadRecord

__all__ = ["TokenLine", "line_of_row", "token_records"]


@dataclass(frozen=True, slots=True)
class TokenLine:
    """One token, and where it belongs; None where nothing says it."""

    line: int
    layer: int
    step: int | None
    source: int | None
    topk_ids: Sequence[int]
    topk_weights: Sequence[float] | None = None
    padded: bool = False


def token_records(tokens: Sequence[TokenLine]) -> tuple[list[ReadRecord], list[list[int]]]:
    """The record of each layer and step in order of appearance, and the lines of its tokens.

    Where the first token of one names its source, its tokens are sorted by theirs.
    """
    by_place: dict[tuple[int, int | None], list[TokenLine]] = {}
    for token in tokens:
        by_place.setdefault((token.layer, token.step), []).append(token)
    records, lines = [], []
    for (layer, step), found in by_place.items():
        by_source = None
        ordered = found
        if found[0].source is not None:
            ordered = sorted(found, key=lambda token: token.source or 0)
            by_source = [0] * (1 + (ordered[-1].source or 0))
            for token in ordered:
                by_source[token.source or 0] += 1
        weights = [token.topk_weights for token in ordered if token.topk_weights is not None]
        records.append(
            ReadRecord(
                layer=layer,
                step=step,
                form="topk_ids",
                rows=[token.topk_ids for token in ordered],
                tokens_by_source=by_source,
                padded=[token.padded for token in ordered],
                weights=weights if len(weights) == len(ordered) else None,
            )
        )
        lines.append([token.line for token in ordered])
    return records, lines


def line_of_row(lines: Sequence[int], inside: Path) -> int:
    """The line of a row of a record whose rows are on these, or of its first."""
    row = inside[1] if len(inside) > 1 and inside[0] in ("matrix", "topk_ids") else 0
    return lines[row] if isinstance(row, int) and row < len(lines) else lines[0]
