"""The ElevenLabs client and its transcripts."""

import json
from collections.abc import Iterator
from time import perf_counter, thread_time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.clients.elevenlabs import (
    ElevenLabsSpeechToText,
    SpeechLimits,
    SpeechRefusedError,
    TranscriptPayload,
    parse_transcript,
    plain_transcript,
)
from automation_pipeline.clients.http import usable_key
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.logs import correlated
from automation_pipeline.transcription.models import ProviderAccessError, Word
from automation_pipeline.transcription.rules import chunks_of
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.mock_answers import with_client
from automation_pipeline_tests.clients.speech_server import (
    KEY,
    NOW,
    SOUND,
    SPEECH,
    TRANSCRIPT,
    Page,
    SpeechServer,
    answer,
    cut_short,
    drop,
    json_page,
    never_answer,
    running,
    trickle,
)

FAILED = "ElevenLabs speech-to-text failed"
WORD = {"text": "oui", "start": 0.1, "end": 0.5, "type": "word", "speaker_id": "speaker_0"}
YES = Word("oui", 0.1, 0.5, "word", "speaker_0")
RAW = '{"transcription_id": "tr_1", "text": "oui", "words": [%s]}'


@pytest.fixture
def speech_server() -> Iterator[SpeechServer]:
    with running() as speech_server:
        yield speech_server


def without(document: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in document.items() if key != name}


@every_case(
    ("key", "sent"),
    [
        ("sk_1", "sk_1"),
        (" sk_1\n", "sk_1"),
        ('"sk_1"', "sk_1"),
        ("'sk_1'", "sk_1"),
        (' "sk_1" ', "sk_1"),
        ('" sk_1 "', "sk_1"),
        ("\"'sk_1'\"", "'sk_1'"),
        ("\"sk_1'", "\"sk_1'"),
        ('"', '"'),
    ],
)
def test_whitespace_and_one_pair_of_quotes_are_stripped_from_a_key(key: str, sent: str) -> None:
    assert usable_key(key, "ElevenLabs", "ELEVENLABS_API_KEY") == sent


@every_case("key", [None, "", "  ", '""', "' '"])
def test_a_client_without_a_key_is_refused(key: str | None) -> None:
    with pytest.raises(PermanentError) as caught:
        ElevenLabsSpeechToText(key, now=lambda: NOW)
    assert str(caught.value) == "ElevenLabs API key not configured (set ELEVENLABS_API_KEY)"


@every_case("key", ["sk_é", "sk_1\nX-Admin: 1"])
def test_a_key_with_invalid_header_characters_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(PermanentError, match="holds characters that cannot be sent") as caught:
        usable_key(key, "ElevenLabs", "ELEVENLABS_API_KEY")
    assert "sk_" not in str(caught.value)


def test_the_upload_form_matches_the_provider_documentation(speech_server: SpeechServer) -> None:
    speech_server.transcript(key=f'"{KEY}"')
    (upload,) = speech_server.uploads
    assert (upload.path, upload.key) == (SPEECH, KEY)
    assert upload.fields == {
        "model_id": "scribe_v1",
        "language_code": "fra",
        "timestamps_granularity": "word",
        "diarize": "true",
    }
    assert upload.file == ("audio.mp3", "audio/mpeg", SOUND)


def test_a_request_has_a_request_id_and_the_time_limits() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(422)

    speech = ElevenLabsSpeechToText(
        KEY, "https://speech.test/", now=lambda: NOW, transport=httpx.MockTransport(answer)
    )
    with correlated("request-7"):
        with_client(speech, lambda client: client.check())
    (request,) = requests
    assert str(request.url) == "https://speech.test/v1/speech-to-text"
    assert request.headers["X-Request-Id"] == "request-7"
    assert request.extensions["timeout"] == {"connect": 10, "read": 600, "write": 60, "pool": None}


def test_the_response_becomes_a_transcript_without_spacing_entries(
    speech_server: SpeechServer,
) -> None:
    transcript = speech_server.transcript()
    assert (transcript.transcription_id, transcript.text) == ("tr_9Fz0", "Bonjour madame (rire)")
    assert (transcript.language_code, transcript.language_probability) == ("fra", 0.98)
    assert transcript.words == (
        Word("Bonjour", 0.12, 0.58, "word", "speaker_0"),
        Word("madame", 0.6, 1.1, "word", "speaker_0"),
        Word("(rire)", 3.1, 3.6, "audio_event", "speaker_1"),
    )


@pytest.mark.parametrize(
    ("page", "error", "message"),
    [
        (
            json_page({"detail": {"status": "invalid_api_key", "message": "Invalid API key"}}, 401),
            ProviderAccessError,
            f"{FAILED} status=401 code=invalid_api_key provider_message=Invalid API key (check ELEVENLABS_API_KEY)",
        ),
        (answer(403), ProviderAccessError, f"{FAILED} status=403 (check ELEVENLABS_API_KEY)"),
        (
            json_page({"detail": "Too many requests"}, 429),
            TransientError,
            f"{FAILED} status=429 provider_message=Too many requests",
        ),
        (
            json_page(
                {"detail": {"code": "system_busy", "status": "busy", "message": "Try later"}}, 429
            ),
            TransientError,
            f"{FAILED} status=429 code=system_busy provider_message=Try later",
        ),
        (answer(408), TransientError, f"{FAILED} status=408"),
        (
            json_page({"error": "down"}, 500),
            TransientError,
            f"{FAILED} status=500 provider_message=down",
        ),
        (answer(502, b"<html>Bad gateway</html>"), TransientError, f"{FAILED} status=502"),
        (json_page("down", 503), TransientError, f"{FAILED} status=503"),
        (answer(504), TransientError, f"{FAILED} status=504"),
        (
            json_page({"error": {"code": "bad_audio", "message": "Not audio"}}, 400),
            SpeechRefusedError,
            f"{FAILED} status=400 code=bad_audio provider_message=Not audio",
        ),
        (
            json_page(
                {"detail": [{"type": "missing", "loc": ["body", "file"], "msg": "Field required"}]},
                422,
            ),
            SpeechRefusedError,
            f"{FAILED} status=422 code=missing provider_message=Field required",
        ),
        (
            json_page({"message": "a\n b\u0000"}, 413),
            SpeechRefusedError,
            f"{FAILED} status=413 provider_message=a b",
        ),
        (
            json_page({"error_message": "no"}, 402),
            ProviderAccessError,
            f"{FAILED} status=402 provider_message=no (check the credit of the account)",
        ),
        (
            json_page({"reason": "no", "message": " "}, 404),
            SpeechRefusedError,
            f"{FAILED} status=404 provider_message=no",
        ),
        (json_page({"detail": [], "message": 7}, 409), SpeechRefusedError, f"{FAILED} status=409"),
        (answer(302, Location="/elsewhere"), SpeechRefusedError, f"{FAILED} status=302"),
        (
            answer(200, b"<html>"),
            PermanentError,
            "ElevenLabs response invalid (expected JSON object)",
        ),
        (answer(200), PermanentError, "ElevenLabs response invalid (expected JSON object)"),
        (answer(204), PermanentError, "ElevenLabs response invalid (expected JSON object)"),
        (
            json_page([TRANSCRIPT]),
            PermanentError,
            "ElevenLabs response invalid (expected JSON object)",
        ),
        (json_page(None), PermanentError, "ElevenLabs response invalid (expected JSON object)"),
        (json_page("text"), PermanentError, "ElevenLabs response invalid (expected JSON object)"),
        (
            json_page(TRANSCRIPT | {"words": {}}),
            PermanentError,
            "ElevenLabs response invalid (unexpected value at words)",
        ),
        (
            json_page(TRANSCRIPT | {"text": 5}),
            PermanentError,
            "ElevenLabs response invalid (unexpected value at text)",
        ),
        (
            json_page(without(TRANSCRIPT, "transcription_id")),
            PermanentError,
            "Missing transcription_id from provider",
        ),
        (
            json_page(TRANSCRIPT | {"transcription_id": " "}),
            PermanentError,
            "Missing transcription_id from provider",
        ),
        (
            json_page(TRANSCRIPT | {"transcription_id": 7}),
            PermanentError,
            "Missing transcription_id from provider",
        ),
        (drop, TransientError, f"{FAILED}: it could not be reached (RemoteProtocolError)."),
        (
            cut_short,
            TransientError,
            f"{FAILED}: it could not be reached (RemoteProtocolError).",
        ),
    ],
)
def test_each_provider_response_has_its_error_type_and_message(
    speech_server: SpeechServer, page: Page, error: type[AutomationError], message: str
) -> None:
    speech_server.pages[SPEECH] = page
    raised = speech_server.error()
    assert (type(raised), str(raised)) == (error, message)
    assert len(speech_server.uploads) == 1


@pytest.mark.parametrize(
    ("page", "limits"),
    [
        (never_answer, SpeechLimits(read_seconds=0.1)),
        (trickle, SpeechLimits(read_seconds=60, total_seconds=0.3)),
    ],
)
def test_an_unfinished_provider_response_times_out(
    speech_server: SpeechServer, page: Page, limits: SpeechLimits
) -> None:
    speech_server.pages[SPEECH] = page
    started_at = perf_counter()
    raised = speech_server.error(limits=limits)
    assert perf_counter() - started_at < 20
    assert type(raised) is TransientError
    assert str(raised) == f"{FAILED}: it did not answer in time."


@pytest.mark.parametrize("status", [408, 429, 500, 503])
@pytest.mark.parametrize(
    ("header", "wait"), [("7", 7), ("Mon, 04 May 2026 10:01:30 GMT", 90), ("soon", None), ("0", 1)]
)
def test_the_retry_after_of_the_provider_is_kept(
    speech_server: SpeechServer, status: int, header: str, wait: float | None
) -> None:
    speech_server.pages[SPEECH] = answer(status, Retry_After=header)
    raised = speech_server.error()
    assert isinstance(raised, TransientError)
    assert raised.retry_after_seconds == wait


def test_status_code_and_message_are_reported_independently(speech_server: SpeechServer) -> None:
    speech_server.pages[SPEECH] = json_page(
        {"detail": {"code": "system_busy", "message": "Try later"}}, 503
    )
    raised = speech_server.error()
    assert isinstance(raised, TransientError)
    assert "status=503 code=system_busy provider_message=Try later" in str(raised)


@pytest.mark.parametrize("status", [400, 401, 503])
def test_a_key_echoed_by_the_provider_is_masked(speech_server: SpeechServer, status: int) -> None:
    speech_server.pages[SPEECH] = json_page(
        {"message": f"{'x' * 490} {KEY} is wrong", "code": KEY}, status
    )
    raised = speech_server.error()
    for piece in (KEY, KEY[:6]):
        assert piece not in str(raised)
    assert "*** is" in str(raised)


def test_a_long_provider_message_is_truncated(speech_server: SpeechServer) -> None:
    speech_server.pages[SPEECH] = json_page({"message": "x" * 9000, "code": "y" * 9000}, 400)
    assert (
        str(speech_server.error())
        == f"{FAILED} status=400 code={'y' * 100} provider_message={'x' * 500}"
    )


@pytest.mark.parametrize(
    ("document", "text", "words"),
    [
        ({"text": "", "words": []}, "", ()),
        ({"text": None, "words": None}, "", ()),
        ({}, "", ()),
        ({"text": "oui"}, "oui", ()),
        ({"words": [without(WORD, "text")]}, "", ()),
        ({"words": [without(WORD, "start")]}, "", ()),
        ({"words": [without(WORD, "end")]}, "", ()),
        ({"words": [without(WORD, "type")]}, "", ()),
        ({"words": [WORD | {"text": ""}]}, "", ()),
        ({"words": [WORD | {"start": None}]}, "", ()),
        ({"words": [WORD | {"start": "0.1"}]}, "", ()),
        ({"words": [WORD | {"end": True}]}, "", ()),
        ({"words": [None, 7, "oui", [], WORD]}, "", (YES,)),
        ({"words": [without(WORD, "speaker_id")]}, "", (Word("oui", 0.1, 0.5, "word", None),)),
        ({"words": [WORD | {"speaker_id": ""}]}, "", (Word("oui", 0.1, 0.5, "word", None),)),
        ({"words": [WORD | {"speaker_id": 1}]}, "", (Word("oui", 0.1, 0.5, "word", None),)),
        (
            {"words": [WORD | {"start": 0, "end": 1}]},
            "",
            (Word("oui", 0.0, 1.0, "word", "speaker_0"),),
        ),
        ({"text": "o\u0000ui", "words": [WORD | {"text": "o\u0000ui"}]}, "oui", (YES,)),
    ],
)
def test_incomplete_words_are_skipped(
    speech_server: SpeechServer, document: dict[str, object], text: str, words: tuple[Word, ...]
) -> None:
    speech_server.pages[SPEECH] = json_page({"transcription_id": "tr_1"} | document)
    transcript = speech_server.transcript()
    assert (transcript.text, transcript.words) == (text, words)


@every_case("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400])
def test_a_word_with_a_non_finite_time_is_skipped(number: str) -> None:
    strange = json.dumps(WORD).replace("0.5", number)
    assert parse_transcript((RAW % f"{json.dumps(WORD)}, {strange}").encode()).words == (YES,)


@every_case(
    ("text", "probability"),
    [
        ("0.5", 0.5),
        ("1", 1.0),
        ("null", None),
        ("NaN", None),
        ("1e999", None),
        ("1" + "0" * 400, None),
        ('"high"', None),
        ("true", None),
    ],
)
def test_an_invalid_probability_is_none(text: str, probability: float | None) -> None:
    body = RAW.replace("{", f'{{"language_code": 5, "language_probability": {text}, ', 1) % ""
    transcript = parse_transcript(body.encode())
    assert (transcript.language_code, transcript.language_probability) == (None, probability)


def test_fifty_thousand_words_are_parsed_and_chunked_within_seconds() -> None:
    words = [
        WORD | {"text": f"mot{at}", "start": at / 3, "end": at / 3 + 0.2} for at in range(50_000)
    ]
    body = json.dumps(
        {"transcription_id": "tr_1", "text": "mot " * 50_000, "words": words}
    ).encode()
    started_at = thread_time()
    transcript = parse_transcript(body)
    chunks_of(transcript.words)
    assert thread_time() - started_at < 5
    assert len(transcript.words) == 50_000


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
ODD_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "transcription_id": ANYTHING,
        "text": ANYTHING,
        "language_code": ANYTHING,
        "language_probability": ANYTHING,
        "words": st.one_of(ANYTHING, st.lists(st.one_of(WORDS, ODD_WORDS, ANYTHING), max_size=4)),
    },
)


@given(st.one_of(PLAIN, ODD_FIELDS), st.booleans())
def test_the_fast_parser_agrees_with_the_lenient_parser(
    document: dict[str, object], is_ascii: bool
) -> None:
    body = json.dumps(document, ensure_ascii=is_ascii).encode(errors="surrogatepass")
    quick = plain_transcript(body)
    if quick is not None:
        payload = TranscriptPayload.of_json(body)
        assert payload.to_transcript(payload.transcription_id or "") == quick
        assert payload.transcription_id == quick.transcription_id


def test_the_fast_parser_reads_a_typical_transcript() -> None:
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
def test_the_fast_parser_leaves_unusual_documents_to_the_lenient_parser(body: bytes) -> None:
    assert plain_transcript(body) is None
