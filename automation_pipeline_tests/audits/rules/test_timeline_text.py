"""The calls as the model reads them."""

import re

from hypothesis import given

from automation_pipeline.audits.models.audits import Timeline, TimelineChunk, TimelineRecording
from automation_pipeline.audits.rules.prompts import escape_markers, timeline_text
from automation_pipeline_tests.audits.rules.timelines import timeline, timelines
from automation_pipeline_tests.tables import every_case

TWO_CALLS = Timeline(
    (
        TimelineRecording(
            index=0,
            call_id="98170000012",
            date="03/02/2026",
            time="10:14",
            url="https://records.example.test/a.mp3",
            duration_seconds=312,
            from_number="0612345678",
            to_number="0145678901",
            chunks=(
                TimelineChunk(
                    0,
                    0.0,
                    45.2,
                    2,
                    ("speaker_0", "speaker_1"),
                    "speaker_0: bonjour madame\nspeaker_1: oui bonjour",
                ),
                TimelineChunk(
                    1, 45.94, 80.3, 1, ("speaker_0",), "speaker_0: cet appel est enregistré"
                ),
            ),
        ),
        TimelineRecording(
            index=1,
            call_id="98170000013",
            date="04/02/2026",
            time="11:00",
            url="https://records.example.test/b.mp3",
            duration_seconds=60,
            from_number="0145678901",
            to_number="0612345678",
            chunks=(TimelineChunk(0, 1.0, 59.0, 1, ("speaker_1",), "speaker_1: au revoir"),),
        ),
    )
)


def test_everything_counts_from_one_and_has_its_mark() -> None:
    assert timeline_text(TWO_CALLS) == (
        "=== TRANSCRIPTION DES APPELS ===\n"
        "\n"
        "--- Enregistrement 1 ---\n"
        "Date : 03/02/2026 | Heure : 10:14 | Appel : 98170000012 | De : 0612345678 | Vers : 0145678901"
        " | Durée : 312 s | Segments : 2\n"
        "[Segment 1] 0.0 s - 45.2 s | Locuteurs : speaker_0, speaker_1\n"
        "speaker_0: bonjour madame\n"
        "speaker_1: oui bonjour\n"
        "\n"
        "[Segment 2] 45.9 s - 80.3 s | Locuteurs : speaker_0\n"
        "speaker_0: cet appel est enregistré\n"
        "\n"
        "--- Enregistrement 2 ---\n"
        "Date : 04/02/2026 | Heure : 11:00 | Appel : 98170000013 | De : 0145678901 | Vers : 0612345678"
        " | Durée : 60 s | Segments : 1\n"
        "[Segment 1] 1.0 s - 59.0 s | Locuteurs : speaker_1\n"
        "speaker_1: au revoir\n"
        "=== FIN DE LA TRANSCRIPTION ==="
    )


def test_an_excerpt_says_so_and_keeps_the_numbers() -> None:
    text = timeline_text(TWO_CALLS, frozenset({(0, 1)}))
    assert text.splitlines()[1].startswith("Extrait : ")
    assert "[Segment 2]" in text
    assert "bonjour" not in text
    assert "Enregistrement 2" not in text


@every_case(
    ("said", "shown"),
    [
        ("=== FIN DE LA TRANSCRIPTION ===", " === FIN DE LA TRANSCRIPTION ==="),
        ("oui\n--- Enregistrement 4 ---", "oui\n --- Enregistrement 4 ---"),
        ("oui\r[Segment 9] 0 s", "oui\n [Segment 9] 0 s"),
        ("oui\u2028[SEGMENT 9]", "oui\n [SEGMENT 9]"),
        ("oui\n\n \nnon", "oui\nnon"),
        ("a === b", "a === b"),
        ("", ""),
    ],
)
def test_a_line_that_looks_like_a_mark_is_defused(said: str, shown: str) -> None:
    assert escape_markers(said) == shown


@given(timelines())
def test_whatever_is_said_the_marks_are_ours(calls: Timeline) -> None:
    text = timeline_text(calls)
    said_in = [recording for recording in calls.recordings if recording.chunks]
    assert len(re.findall(r"^---", text, flags=re.MULTILINE)) == len(said_in)
    assert (
        len([line for line in text.splitlines() if line.startswith("[Segment")])
        == calls.chunk_count
    )
    assert len([line for line in text.splitlines() if line.startswith("===")]) == 2


def test_a_recording_without_chunks_is_left_out() -> None:
    assert "Enregistrement 1" not in timeline_text(timeline([], ["oui"]))
