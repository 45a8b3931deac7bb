"""Which words are searched for."""

from automation_pipeline.audits.rules.tools import MAX_TERMS, search_terms
from automation_pipeline_tests.tables import every_case


@every_case(
    ("texts", "min_length", "terms"),
    [
        ((), 3, ()),
        (("", " ?! "), 2, ()),
        (("Délai de rétractation", "DELAI !"), 4, ("delai", "retractation")),
        (("l'appel est enregistré",), 3, ("appel", "est", "enregistre")),
        (("ORIAS n°12",), 2, ("orias", "12")),
    ],
)
def test_terms_are_the_distinct_words_that_are_long_enough(
    texts: tuple[str, ...], min_length: int, terms: tuple[str, ...]
) -> None:
    assert search_terms(texts, min_length) == terms


def test_there_are_at_most_forty_terms() -> None:
    assert search_terms((" ".join(f"mot{at}" for at in range(100)),), 3) == tuple(
        f"mot{at}" for at in range(MAX_TERMS)
    )
