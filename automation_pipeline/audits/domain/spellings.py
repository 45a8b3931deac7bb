"""A text as people may have typed it."""


def spellings(text: str) -> frozenset[str]:
    """Databases fold the case of unaccented letters only; these are the ways of writing the accented ones."""
    return frozenset({text, text.lower(), text.upper(), text.title()})
