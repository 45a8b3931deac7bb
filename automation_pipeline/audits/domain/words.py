"""The words of a question that are worth searching for."""

from collections.abc import Iterable
from itertools import islice

from automation_pipeline.audits.domain.normalised import normalised

MOST_TERMS = 40


def terms_of(texts: Iterable[str], min_length: int) -> tuple[str, ...]:
    """The distinct normalised words of these texts that are long enough, in their order; the first forty of them."""
    words = (word for text in texts for word in normalised(text).split() if len(word) >= min_length)
    return tuple(islice(dict.fromkeys(words), MOST_TERMS))
