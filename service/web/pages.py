"""Header fields of pages for people: nothing is loaded, run or sent that they do not name."""

__all__ = ["page_headers"]


def page_headers(*sources: str) -> dict[str, str]:
    """`sources` are the directives of what the page may load, such as `script-src 'self'`."""
    limits = "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"
    return {
        "Content-Security-Policy": "; ".join(("default-src 'none'", *sources, *limits)),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
