"""Pieces of SVG that all pictures are made of, and what their words look like."""

from collections.abc import Iterable
from html import escape

__all__ = ["MARGIN", "STYLE", "fitted", "framed", "opening", "rectangle", "text"]

MARGIN = 28.0

STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;"
    "font-size:12px;fill:#39424e}"
    ".h{font-size:19px;font-weight:600;fill:#10151c}.s{font-size:13px;fill:#525c69}"
    ".n{text-anchor:end;font-variant-numeric:tabular-nums}.c{fill:#6b7684;font-size:11px}"
    ".m{text-anchor:middle}.b{font-weight:600;fill:#10151c}"
)

# The mean width of a character over the height of the font, a little above the truth.
_CHARACTER_WIDTH = 0.58


def opening(width: float, height: float, name: str) -> str:
    """The first tag of a picture whose title and description have ids that begin with `name`."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc">'
    )


def framed(
    parts: Iterable[str],
    *,
    size: tuple[float, float],
    name: str,
    heading: str,
    facts: str,
    description: str,
) -> str:
    """A whole picture of a width and a height: a heading, facts below it, then the parts.

    `description` is for those who don't see it.
    """
    width, height = size
    room = width - 2 * MARGIN
    lines = (
        opening(width, height, name),
        f'<title id="{name}-title">{escape(heading)}</title>',
        f'<desc id="{name}-desc">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        rectangle(0, 0, width, height, "#ffffff"),
        text(MARGIN, 36, fitted(heading, room, 19), "h"),
        text(MARGIN, 58, fitted(facts, room, 13), "s"),
        *parts,
        "</svg>\n",
    )
    return "\n".join(lines)


def text(x: float, y: float, content: str, look: str = "") -> str:
    """A line of words in one of the page's styles."""
    styled = f' class="{look}"' if look else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{styled}>{escape(content)}</text>'


def rectangle(x: float, y: float, width: float, height: float, fill: str) -> str:
    """A filled one, in pixels."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'
    )


def fitted(content: str, width: float, size: float = 12.0) -> str:
    """As much of the words as fits into a width; a name that does not keeps its end, which differs.

    Nothing at all where not even three characters fit.
    """
    most = int(width / (size * _CHARACTER_WIDTH))
    if len(content) <= most:
        return content
    return "" if most < 3 else "…" + content[-(most - 1) :]
