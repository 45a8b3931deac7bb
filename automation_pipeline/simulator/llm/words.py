"""Words as they are compared: without case and accents, and by their stem."""

import re
import unicodedata
from itertools import takewhile

Words = tuple[str, ...]

SHORTEST_STEM, SURE_STEM, LONGEST_ENDING = 5, 7, 4
SHORTEST_SIGNIFICANT = 4
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> Words:
    decomposed = unicodedata.normalize("NFD", text.lower())
    return tuple(
        _WORD.findall("".join(char for char in decomposed if not unicodedata.combining(char)))
    )


def normalised(text: str) -> str:
    return " ".join(words(text))


def akin(one: str, other: str) -> bool:
    """The same word in another form: enregistré and enregistrement, besoin and besoins; not contrat
    and contraire."""
    if one == other:
        return True
    if one[:SHORTEST_STEM] != other[:SHORTEST_STEM] or min(len(one), len(other)) < SHORTEST_STEM:
        return False
    stem = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    is_ending = stem == min(len(one), len(other)) and abs(len(one) - len(other)) <= LONGEST_ENDING
    return stem >= SURE_STEM or is_ending


def says(given: Words, phrase: Words) -> bool:
    """Whether the words of the phrase stand there, one after the other."""
    return bool(phrase) and any(
        all(map(akin, phrase, given[start : start + len(phrase)]))
        for start in range(len(given) - len(phrase) + 1)
    )


def is_about(text: Words, phrase: Words) -> bool:
    """Whether each word of the phrase that means something stands somewhere in the text."""
    meaning = [
        word for word in phrase if len(word) >= SHORTEST_SIGNIFICANT or word.isdecimal()
    ] or list(phrase)
    return bool(meaning) and all(any(akin(word, one) for one in text) for word in meaning)
