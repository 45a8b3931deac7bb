"""The quick reader of transcripts and the patient one agree on whatever both of them read."""

import json

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.clients.elevenlabs import TranscriptPayload, plain_transcript
from automation_pipeline_tests.tables import every_case

TEXTS = st.one_of(
    st.text(max_size=5), st.sampled_from(["", " ", " speaker_1 ", "word", "spacing", "audio_event"])
)
NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([-0.0, 10**400, 1e308]))
ANYTHING = st.one_of(st.none(), st.booleans(), TEXTS, NUMBERS, st.just([]), st.just({}))
WORDS = st.fixed_dictionaries(
    {"text": TEXTS, "start": NUMBERS, "end": NUMBERS, "type": TEXTS},
    optional={"speaker_id": st.one_of(st.none(), TEXTS), "logprob": NUMBERS},
)
ODD_WORDS = st.dictionaries(
    st.sampled_from(["text", "start", "end", "type", "speaker_id"]), ANYTHING
)
PLAIN = st.fixed_dictionaries(
    {"transcription_id": TEXTS},
    optional={
        "text": st.one_of(st.none(), TEXTS),
        "language_code": st.one_of(st.none(), TEXTS),
        "language_probability": st.one_of(st.none(), NUMBERS),
        "words": st.one_of(st.none(), st.lists(WORDS, max_size=4)),
        "more": ANYTHING,
    },
)
ODD = st.fixed_dictionaries(
    {},
    optional={
        "transcription_id": ANYTHING,
        "text": ANYTHING,
        "language_code": ANYTHING,
        "language_probability": ANYTHING,
        "words": st.one_of(ANYTHING, st.lists(st.one_of(WORDS, ODD_WORDS, ANYTHING), max_size=4)),
    },
)


@given(st.one_of(PLAIN, ODD), st.booleans())
def test_what_the_quick_one_reads_the_patient_one_reads_alike(
    document: dict[str, object], is_ascii: bool
) -> None:
    body = json.dumps(document, ensure_ascii=is_ascii).encode(errors="surrogatepass")
    quick = plain_transcript(body)
    if quick is not None:
        payload = TranscriptPayload.of_json(body)
        assert payload.to_transcript(payload.transcription_id or "") == quick
        assert payload.transcription_id == quick.transcription_id


def test_the_usual_transcript_is_read_by_the_quick_one() -> None:
    word = {
        "text": "oui",
        "start": 0.1,
        "end": 0.5,
        "type": "word",
        "speaker_id": "speaker_0",
        "logprob": -0.1,
    }
    spacing = {**word, "text": " ", "type": "spacing"}
    found = plain_transcript(
        json.dumps({"transcription_id": "tr_1", "text": "oui", "words": [word, spacing]}).encode()
    )
    assert found is not None
    assert [each.text for each in found.words] == ["oui"]


@every_case(
    "body",
    [
        b"", b"[]", b"null", b"{", b"{}", b"\xff", b'{"transcription_id": ""}', b'{"transcription_id": " "}',
        b'{"transcription_id": 1}', b'{"transcription_id": "tr_1", "words": [null]}',
        b'{"transcription_id": "tr_1", "language_probability": NaN}', b'{"transcription_id": "\xff"}',
    ],
)  # fmt: skip
def test_what_is_odd_is_left_to_the_patient_one(body: bytes) -> None:
    assert plain_transcript(body) is None
