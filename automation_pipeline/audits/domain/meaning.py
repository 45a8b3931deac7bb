"""The words that make of two texts which are nearly alike two different meanings: numbers and negations."""

import re

_NEGATIONS = {
    "ne": "ne",
    "n": "ne",
    "pas": "pas",
    "aucun": "aucun",
    "aucune": "aucun",
    "sans": "sans",
    "jamais": "jamais",
    "non": "non",
}
# Without "un", which is an article more often.
_NUMBERS = {
    *("deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze", "treize", "quatorze"),
    *("quinze", "seize", "vingt", "vingts", "trente", "quarante", "cinquante", "soixante", "cent", "cents", "mille"),
}


def turns_of_meaning(text: str) -> tuple[list[str], list[str]]:
    """Of a normalised text: its numbers in their order, and its negations in that of the alphabet."""
    words = text.split()
    numbers = [number for word in words for number in ([word] if word in _NUMBERS else re.findall(r"\d+", word))]
    return numbers, sorted(_NEGATIONS[word] for word in words if word in _NEGATIONS)
