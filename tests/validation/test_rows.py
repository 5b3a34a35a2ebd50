"""What rows are held to, and what a page says of them."""

from pathlib import Path

import pytest

from validation.kept import kept_rows, read_kept, written
from validation.page import page
from validation.rows import Row, Section, at_least, at_most, printed, within


@pytest.mark.parametrize(
    ("rule", "published", "accepted", "refused"),
    [
        (printed(""), "0.2431", (0.24306, 0.24314), (0.24304, 0.24316)),
        (printed(""), "85", (85.0, 84.6), (84.4, 86.0)),
        (at_most(""), "0.0039", (0.0028, 0.00394), (0.00396,)),
        (at_least(""), "370", (370.0, 513.0), (369.9,)),
        (within(0.1, ""), "200", (180.1, 219.9), (179.0, 221.0)),
    ],
)
def test_a_rule_accepts_and_refuses(
    rule: object, published: str, accepted: tuple[float, ...], refused: tuple[float, ...]
) -> None:
    assert isinstance(rule, type(printed("")))
    assert all(rule.accepts(published, ours) for ours in accepted)
    assert not any(rule.accepts(published, ours) for ours in refused)


def section(*, is_bound: bool = False) -> Section:
    return Section(
        name="made_up",
        title="Made-up values",
        source="a test.",
        text="Nothing goes in.",
        what="what",
        unit="ms",
        rule=within(0.1, "they are near."),
        rows=lambda: (Row("near", "100", 105.0), Row("far", "100", 150.0, "it is far off.")),
        is_bound=is_bound,
    )


def test_a_page_shows_both_values_the_error_and_the_reason_of_what_is_exempt() -> None:
    one = section()
    assert one.rows is not None
    text = page([(one, one.rows())])
    assert "| near | 100 | 105 | +5 % |" in text
    assert "| far [1] | 100 | 150 | +50 % |" in text
    assert "1. it is far off." in text
    assert "Held to within 10 %: they are near." in text
    assert "| [Made-up values](#made-up-values) | 1 | within 10 % | +5 % | 5 % | 1 |" in text


def test_of_a_bound_it_shows_how_much_was_reached() -> None:
    one = section(is_bound=True)
    text = page([(one, [Row("wire", "40", 50.0), Row("other", "45", 50.0)])])
    assert "| wire | 40 | 50 | 80.0 % |" in text
    assert "80 to 90 % of the bound" in text


def test_kept_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = (Row("a", "1.5", 1.23456789012), Row("b × c", "2", 2.0, "why"))
    path = tmp_path / "kept.json"
    path.write_bytes(written({"made_up": rows, "other": ()}))
    assert read_kept(path) == {"made_up": kept_rows(rows), "other": ()}
    assert read_kept(path)["made_up"][0].ours == 1.23456789


def test_a_section_has_one_way_to_its_rows() -> None:
    with pytest.raises(ValueError, match="one of rows and rows_of_files"):
        Section("n", "t", "s", "x", "w", "u", printed(""))
