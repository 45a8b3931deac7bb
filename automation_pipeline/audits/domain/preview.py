"""The passage of a text that shows why it was found."""

import re
from collections.abc import Sequence

from automation_pipeline.audits.domain.normalised import normalised

LONGEST_PREVIEW = 450
_BEFORE = 120


def preview(text: str, terms: Sequence[str]) -> str:
    """A part of the text as it stands, around the first word that holds one of these normalised terms."""
    found = next((word.start() for word in re.finditer(r"\S+", text) if _holds(word.group(), terms)), 0)
    latest = max(0, len(text) - LONGEST_PREVIEW)
    start = min(max(0, found - _BEFORE), latest)
    return text[start : start + LONGEST_PREVIEW]


def _holds(word: str, terms: Sequence[str]) -> bool:
    plain = normalised(word)
    return any(term in plain for term in terms)
