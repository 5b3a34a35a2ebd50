"""What a page for people lets a browser do."""

from service.web.pages import page_headers


def test_a_page_may_load_what_it_names_and_nothing_else() -> None:
    assert page_headers() == {
        "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    policy = page_headers("script-src 'self'", "img-src 'self' data:")["Content-Security-Policy"]
    assert policy == (
        "default-src 'none'; script-src 'self'; img-src 'self' data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
