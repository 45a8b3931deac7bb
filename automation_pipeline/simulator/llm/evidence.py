"""What can be quoted: the sentences of the chunks, from the transcript in a prompt or from the
results of a tool."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from automation_pipeline.simulator.llm.words import Words, normalised, says, words

UNKNOWN = "N/A"
MIN_QUOTE_CHARACTERS = 12
MAX_QUOTE_CHARACTERS = 240

_RECORDING = re.compile(r"^--- Enregistrement (\d+) ---$", re.MULTILINE)
_SEGMENT = re.compile(r"\[Segment (\d+)\]\s*([\d.]+) s - ")
_SPEAKER = re.compile(r"\s?([\w-]+): (.*)")
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+")


@dataclass(frozen=True)
class Sentence:
    """`text` stands verbatim in its chunk, and is long enough to prove something."""

    speaker: str
    text: str
    words: Words


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Both indexes from 0."""

    recording_index: int
    chunk_index: int
    start: float
    sentences: tuple[Sentence, ...]
    text: str
    call_id: str = ""
    date: str = UNKNOWN
    time: str = UNKNOWN
    url: str = UNKNOWN

    @property
    def minutage(self) -> str:
        return f"{int(self.start) // 60:02d}:{int(self.start) % 60:02d}"


def found(phrase: Words, chunks: Sequence[Chunk]) -> tuple[Chunk, Sentence] | None:
    """Where the phrase is said first; the calls in which most is said come first."""
    for chunk in chunks:
        for sentence in chunk.sentences:
            if says(sentence.words, phrase):
                return chunk, sentence
    return None


def by_weight(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The longest call first: that is where the sale is made."""
    sizes: dict[int, int] = {}
    for chunk in chunks:
        sizes[chunk.recording_index] = sizes.get(chunk.recording_index, 0) + len(chunk.text)
    return tuple(
        sorted(
            chunks,
            key=lambda chunk: (
                -sizes[chunk.recording_index],
                chunk.recording_index,
                chunk.chunk_index,
            ),
        )
    )


def chunk_of_result(given: Mapping[str, object]) -> Chunk | None:
    """One chunk of a tool's result, whose indexes are already from 0."""
    recording, index, text = (
        given.get("recording_index"),
        given.get("chunk_index"),
        given.get("full_text"),
    )
    if not (isinstance(recording, int) and isinstance(index, int) and isinstance(text, str)):
        return None
    start = given.get("start_timestamp")
    return Chunk(
        recording_index=recording,
        chunk_index=index,
        start=float(start) if isinstance(start, int | float) else 0.0,
        sentences=tuple(_sentences(text)),
        text=text,
        date=str(given.get("recording_date", UNKNOWN)),
        time=str(given.get("recording_time", UNKNOWN)),
        url=str(given.get("recording_url", UNKNOWN)),
    )


@lru_cache(maxsize=64)  # the steps of an audit read the same transcript
def chunks_of_transcript(block: str) -> tuple[Chunk, ...]:
    return tuple(_chunks(block))


def _chunks(block: str) -> Iterator[Chunk]:
    recordings = _RECORDING.split(block)
    for number, recording in zip(recordings[1::2], recordings[2::2], strict=True):
        head, *segments = re.split(r"^(?=\[Segment \d+\])", recording, flags=re.MULTILINE)
        call_id, date, time = (_field(head, name) for name in ("Appel", "Date", "Heure"))
        for segment in segments:
            heading, _, text = segment.partition("\n")
            if match := _SEGMENT.match(heading):
                yield Chunk(
                    recording_index=int(number) - 1,
                    chunk_index=int(match[1]) - 1,
                    start=float(match[2]),
                    sentences=tuple(_sentences(text)),
                    text=text.strip(),
                    call_id=call_id,
                    date=date,
                    time=time,
                )


def _field(head: str, name: str) -> str:
    match = re.search(rf"(?:^|\| ){name} : ([^|\n]*)", head, re.MULTILINE)
    return match[1].strip() if match else UNKNOWN


def _sentences(text: str) -> Iterator[Sentence]:
    for line in text.splitlines():
        match = _SPEAKER.fullmatch(line)
        speaker, result = (match[1], match[2]) if match else ("unknown", line)
        for sentence in _SENTENCE_END.split(result):
            quote = sentence if len(normalised(sentence)) >= MIN_QUOTE_CHARACTERS else result
            if len(normalised(quote)) >= MIN_QUOTE_CHARACTERS:
                yield Sentence(speaker, quote, words(sentence))


def shortened(text: str, phrase: Words) -> str:
    """A window of a very long sentence, on whole words, that holds the phrase where it can be
    found."""
    if len(text) <= MAX_QUOTE_CHARACTERS:
        return text
    tokens = text.split(" ")
    first = next((at for at, token in enumerate(tokens) if says(words(token), phrase[:1])), 0)
    return " ".join(tokens[max(0, first - 8) : first + 20])
