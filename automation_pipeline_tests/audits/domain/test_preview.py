"""A preview shows why a text was found."""

import pytest

from automation_pipeline.audits.domain.preview import LONGEST_PREVIEW, preview

LONG = "avant " * 200 + "Délai de rétractation " + "après " * 200


@pytest.mark.parametrize(
    ("text", "terms", "shown"),
    [
        ("", ("delai",), ""),
        ("le délai", ("delai",), "le délai"),
        (LONG, ("absent",), LONG[:LONGEST_PREVIEW]),
        (LONG, ("retractation", "delai"), LONG[1080 : 1080 + LONGEST_PREVIEW]),
        ("avant " * 200 + "délai", ("delai",), ("avant " * 200 + "délai")[-LONGEST_PREVIEW:]),
    ],
)
def test_a_preview_is_around_the_first_word_found(text: str, terms: tuple[str, ...], shown: str) -> None:
    assert preview(text, terms) == shown
