"""Words are grouped into messages and messages into chunks; missing words are estimated."""

from itertools import pairwise
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.transcription.models import Chunk, Transcript, Word
from automation_pipeline.transcription.rules import (
    MESSAGES_PER_CHUNK,
    chunks_of,
    words_or_estimated,
)
from automation_pipeline_tests.cases import every_case


def words(
    *spoken: tuple[str, str | None] | tuple[str, str | None, str], first: float = 0.5
) -> tuple[Word, ...]:
    """One word per second, each half a second long."""
    return tuple(
        Word(text, first + at, first + at + 0.5, kind[0] if kind else "word", speaker)
        for at, (text, speaker, *kind) in enumerate(spoken)
    )


def turns(count: int) -> tuple[Word, ...]:
    return words(*((f"mot{at}", f"speaker_{at % 2}") for at in range(count)))


def transcript(text: str, *received: Word) -> Transcript:
    return Transcript("tr_1", text, "fra", 0.9, received)


A, B = "speaker_0", "speaker_1"


@every_case(
    ("spoken", "chunks"),
    [
        ((), ()),
        ([(" ", A, "spacing"), (" ", None, "spacing")], ()),
        ([("", A)], ()),
        ([("oui", A)], (Chunk(0, 0.5, 1.0, 1, (A,), "speaker_0: oui"),)),
        ([("oui", None)], (Chunk(0, 0.5, 1.0, 1, ("unknown",), "unknown: oui"),)),
        ([("oui", "")], (Chunk(0, 0.5, 1.0, 1, ("unknown",), "unknown: oui"),)),
        ([("(rire)", A, "audio_event")], (Chunk(0, 0.5, 1.0, 1, (A,), "speaker_0: (rire)"),)),
        (
            [("oui", A), (" ", A, "spacing"), ("madame", A)],
            (Chunk(0, 0.5, 3.0, 1, (A,), "speaker_0: oui madame"),),
        ),
        (
            # A spacing of another speaker does not start a message.
            [("oui", A), (" ", B, "spacing"), ("madame", A)],
            (Chunk(0, 0.5, 3.0, 1, (A,), "speaker_0: oui madame"),),
        ),
        (
            [("allo", None), ("oui", B), ("bonjour", A), ("allo", B)],
            (
                Chunk(
                    0,
                    0.5,
                    4.0,
                    4,
                    ("unknown", B, A),
                    "unknown: allo\nspeaker_1: oui\nspeaker_0: bonjour\nspeaker_1: allo",
                ),
            ),
        ),
    ],
)
def test_words_become_chunks(spoken: list[tuple[str, str]], chunks: tuple[Chunk, ...]) -> None:
    assert chunks_of(words(*spoken)) == chunks


@every_case(
    ("messages", "counts"),
    [(1, [1]), (9, [9]), (10, [10]), (11, [10, 1]), (20, [10, 10]), (23, [10, 10, 3])],
)
def test_a_chunk_has_ten_messages_and_the_last_one_the_remainder(
    messages: int, counts: list[int]
) -> None:
    chunks = chunks_of(turns(messages))
    assert [chunk.message_count for chunk in chunks] == counts
    assert [chunk.index for chunk in chunks] == list(range(len(counts)))
    assert [chunk.start for chunk in chunks] == [10 * at + 0.5 for at in range(len(counts))]
    assert chunks[-1].end == messages


@every_case("speaker", [None, "", A])
def test_the_first_message_starts_with_its_first_word(speaker: str | None) -> None:
    assert chunks_of(words(("oui", speaker), first=12.5))[0].start == 12.5


_word_tuples = st.lists(
    st.tuples(
        st.sampled_from(["word", "spacing", "audio_event", "autre"]),
        st.sampled_from([None, "", "speaker_0", "speaker_1", "speaker_2"]),
        st.floats(0, 3),
        st.floats(0, 3),
    ),
    max_size=120,
)


@given(_word_tuples)
def test_every_word_is_in_one_chunk_in_order_with_matching_counts(
    drawn: list[tuple[str, str | None, float, float]],
) -> None:
    at, given_words = 0.0, list[Word]()
    for number, (kind, speaker, silence, length) in enumerate(drawn):
        start = at + silence
        at = start + length
        given_words.append(Word(f"w{number}", start, at, kind, speaker))
    chunks = chunks_of(given_words)
    spoken = [word for word in given_words if word.kind != "spacing"]

    lines = [line.partition(": ") for chunk in chunks for line in chunk.full_text.split("\n")]
    assert [(speaker, text) for speaker, _, line in lines for text in line.split(" ")] == [
        (word.speaker or "unknown", word.text) for word in spoken
    ]
    assert sum(chunk.message_count for chunk in chunks) == len(lines)
    assert all(before[0] != after[0] for before, after in pairwise(lines))
    assert all(chunk.message_count == MESSAGES_PER_CHUNK for chunk in chunks[:-1])
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    times = [time for chunk in chunks for time in (chunk.start, chunk.end)]
    assert times == sorted(times)
    assert (
        (times[:1], times[-1:]) == ([spoken[0].start], [spoken[-1].end]) if spoken else times == []
    )
    assert all(len(set(chunk.speakers)) == len(chunk.speakers) for chunk in chunks)


def test_fifty_thousand_words_are_chunked_in_a_few_seconds() -> None:
    spoken = tuple(
        Word(f"mot{at}", at / 3, at / 3 + 0.2, "word", f"speaker_{at // 7 % 2}")
        for at in range(50_000)
    )
    started = thread_time()
    chunks = chunks_of(spoken)
    assert thread_time() - started < 5
    assert sum(chunk.message_count for chunk in chunks) == 7143


def test_the_words_of_the_provider_are_used_unchanged() -> None:
    received = words(("oui", A), (" ", A, "spacing"))
    assert words_or_estimated(transcript("non non", *received), 60) == received


@every_case("text", ["", "  \n "])
def test_an_empty_transcript_has_neither_words_nor_chunks(text: str) -> None:
    estimated = words_or_estimated(transcript(text), 60)
    assert estimated == ()
    assert chunks_of(estimated) == ()


@every_case(
    ("count", "duration", "seconds"),
    [
        (4, 10, 2.5),
        (4, None, 0.5),
        (4, 0, 0.5),
        (4, -1, 0.5),
        (1, None, 1.0),
        (3, None, 2 / 3),
        (5, None, 3 / 5),
        (1000, 10, 0.05),
    ],
)
def test_estimated_words_are_spread_over_the_recording(
    count: int, duration: float | None, seconds: float
) -> None:
    estimated = words_or_estimated(transcript("  mot\n" * count), duration)
    assert [(word.text, word.kind) for word in estimated] == [("mot", "word")] * count
    assert [word.start for word in estimated] == pytest.approx(
        [at * seconds for at in range(count)]
    )
    assert [word.end for word in estimated] == pytest.approx(
        [(at + 1) * seconds for at in range(count)]
    )


def test_estimated_speakers_alternate_every_ten_words() -> None:
    estimated = words_or_estimated(transcript("mot " * 25), 25)
    assert [word.speaker for word in estimated] == [A] * 10 + [B] * 10 + [A] * 5
    assert chunks_of(estimated)[0].message_count == 3


def test_a_text_with_only_spacing_words_gets_estimated_words() -> None:
    estimated = words_or_estimated(transcript("oui madame", *words((" ", A, "spacing"))), 4)
    assert [word.text for word in estimated] == ["oui", "madame"]


def test_a_monologue_is_split_into_bounded_chunks() -> None:
    words = [
        Word(f"mot{number}", number, number + 0.5, "word", "speaker_0") for number in range(20_000)
    ]
    chunks = chunks_of(words)
    assert [chunk.message_count for chunk in chunks] == [10] * 8
    assert {len(line.split()) for chunk in chunks for line in chunk.full_text.split("\n")} == {251}
    assert (
        sum(len(chunk.full_text.replace("speaker_0: ", "").split()) for chunk in chunks) == 20_000
    )
    assert all(before.end <= after.start for before, after in pairwise(chunks))
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
