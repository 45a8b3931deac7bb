"""A text as its words alone, so that a quotation is found whatever its case, accents and punctuation."""

import re
import unicodedata

_ACCENTS = re.compile(r"[\u0300-\u036f]")
_BETWEEN_WORDS = re.compile(r"[\W_]+")


def normalised(text: str) -> str:
    """The words alone: lower case, no accents, single spaces."""
    plain = _ACCENTS.sub("", unicodedata.normalize("NFD", text.lower()))
    return _BETWEEN_WORDS.sub(" ", plain).strip()
