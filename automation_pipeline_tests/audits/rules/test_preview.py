"""A preview shows why a text was found."""

from automation_pipeline.audits.rules.tools import MAX_PREVIEW, preview
from automation_pipeline_tests.tables import every_case

LONG = "avant " * 200 + "Délai de rétractation " + "après " * 200


@every_case(
    ("text", "terms", "shown"),
    [
        ("", ("delai",), ""),
        ("le délai", ("delai",), "le délai"),
        (LONG, ("absent",), LONG[:MAX_PREVIEW]),
        (LONG, ("retractation", "delai"), LONG[1080 : 1080 + MAX_PREVIEW]),
        ("avant " * 200 + "délai", ("delai",), ("avant " * 200 + "délai")[-MAX_PREVIEW:]),
    ],
)
def test_a_preview_is_around_the_first_word_found(
    text: str, terms: tuple[str, ...], shown: str
) -> None:
    assert preview(text, terms) == shown
