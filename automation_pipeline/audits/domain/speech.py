"""What people said in the calls, without the labels that tell who speaks: those are ours, and prove nothing."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from automation_pipeline.audits.domain.normalised import normalised
from automation_pipeline.audits.domain.timeline import Timeline, TimelineChunk

UNKNOWN_SPEAKER = "unknown"


class Labels:
    """The speakers of a chunk, as they stand before what each of them says."""

    def __init__(self, speakers: Collection[str]) -> None:
        names = sorted({*speakers, UNKNOWN_SPEAKER} - {""}, key=len, reverse=True)
        words = [word for word in map(normalised, names) if word]
        self._before_turns = re.compile(rf"^[^\S\n]*(?:{_one_of(names)})[^\S\n]*:", re.IGNORECASE | re.MULTILINE)
        self._anywhere = re.compile(rf"\b(?:{_one_of(words)})\b")

    def off_turns(self, text: str) -> str:
        """The words of the turns, each of which has a line of its own."""
        return normalised(self._before_turns.sub("", text))

    def off(self, text: str) -> str:
        """The words without any label, for turns that somebody has put into one line."""
        return normalised(self._anywhere.sub("", normalised(text)))


@dataclass(frozen=True)
class _Said:
    chunk: TimelineChunk

    @cached_property
    def labels(self) -> Labels:
        return Labels(self.chunk.speakers)

    @cached_property
    def words(self) -> str:
        return self.labels.off_turns(self.chunk.full_text)


@dataclass(frozen=True)
class Speech:
    """The chunks of a timeline, each made into words once, however often it is quoted."""

    timeline: Timeline
    _known: dict[tuple[int, int], _Said | None] = field(
        default_factory=dict[tuple[int, int], "_Said | None"], init=False, repr=False, compare=False
    )

    def holds(self, quotation: str, place: tuple[int, int], shortest: int) -> bool:
        """Whether it was said word for word in the chunk (recording, chunk), in at least so many characters. Somebody
        may have said a word that is a label too, so the quotation counts with such words and without."""
        said = self._said(place)
        if said is None:
            return False
        quotes = said.labels.off_turns(quotation), said.labels.off(quotation)
        return any(len(quote) >= shortest and quote in said.words for quote in quotes)

    def _said(self, place: tuple[int, int]) -> _Said | None:
        if place not in self._known:
            chunk = self.timeline.chunk(*place)
            self._known[place] = _Said(chunk) if chunk else None
        return self._known[place]


# Of the audits under way: the steps of one are proven by the same calls.
@lru_cache(maxsize=32)
def speech_of(timeline: Timeline) -> Speech:
    return Speech(timeline)


def _one_of(texts: Collection[str]) -> str:
    return "|".join(map(re.escape, texts))
