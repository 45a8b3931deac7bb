"""The contract of `transcription.models.SpeechToText`, for the fake and for the real client against
a local server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from automation_pipeline.clients.elevenlabs import ElevenLabsSpeechToText
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.transcription.models import SpeechToText, Transcript
from automation_pipeline_tests.clients.speech_server import (
    AUDIO,
    KEY,
    SOUND,
    SPEECH,
    TRANSCRIPT,
    BeforeCall,
    Exchange,
    Page,
    answer,
    json_page,
    running,
)
from automation_pipeline_tests.fakes.speech import FakeSpeechToText, no_rate_limit, transcript

Result = TypeVar("Result")

QUIET = "/rec/quiet.mp3"
MISSING_AUDIO = "/rec/gone.mp3"
HOST_DOWN = "/rec/host-down.mp3"


@dataclass(frozen=True)
class Harness:
    """A provider with recordings at `root`. `fail_with` makes every later call fail, with the error
    or the equivalent answer; `calls` returns the number of calls."""

    root: str
    open: Callable[[], SpeechToText]
    fail_with: Callable[[AutomationError, Page], None]
    calls: Callable[[], int]

    def run(self, use: Callable[[SpeechToText], Awaitable[Result]]) -> Result:
        async def use_and_close() -> Result:
            speech = self.open()
            try:
                return await use(speech)
            finally:
                if isinstance(speech, ElevenLabsSpeechToText):
                    await speech.aclose()

        return asyncio.run(use_and_close())

    def transcribe(self, path: str = AUDIO, before_call: BeforeCall = no_rate_limit) -> Transcript:
        return self.run(lambda speech: speech.transcribe(self.root + path, before_call=before_call))

    def error(self, path: str = AUDIO, before_call: BeforeCall = no_rate_limit) -> AutomationError:
        with pytest.raises(AutomationError) as caught:
            self.transcribe(path, before_call)
        return caught.value


@pytest.fixture(params=["fake", "elevenlabs"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with (in_memory if request.param == "fake" else over_http)() as harness:
        yield harness


@contextmanager
def in_memory() -> Iterator[Harness]:
    root = "http://records.test"
    fake = FakeSpeechToText(
        {root + AUDIO: transcript("tr_9Fz0"), root + QUIET: transcript(text="", words=())}
    )
    fake.fail_always(root + HOST_DOWN, TransientError("Audio download failed status=503"))
    yield Harness(
        root, lambda: fake, lambda error, _: fake.refuse_everything(error), lambda: len(fake.calls)
    )


@contextmanager
def over_http() -> Iterator[Harness]:
    with running() as server:
        spoken, silent = json_page(TRANSCRIPT), json_page(TRANSCRIPT | {"text": "", "words": []})

        def by_recording(exchange: Exchange) -> None:
            (silent if server.fetched[-1].path == QUIET else spoken)(exchange)

        def fail_with(_: AutomationError, page: Page) -> None:
            server.pages[SPEECH] = page

        server.pages |= {QUIET: answer(200, SOUND), HOST_DOWN: answer(503), SPEECH: by_recording}
        yield Harness(server.url, server.client, fail_with, lambda: len(server.uploads))


def test_transcripts_have_their_words(harness: Harness) -> None:
    assert harness.transcribe() == transcript("tr_9Fz0")


def test_a_silent_recording_has_an_empty_transcript(harness: Harness) -> None:
    result = harness.transcribe(QUIET)
    assert result.transcription_id
    assert (result.text, result.words) == ("", ())


def test_missing_audio_is_a_permanent_error(harness: Harness) -> None:
    assert isinstance(harness.error(MISSING_AUDIO), PermanentError)


def test_a_url_without_http_is_a_permanent_error(harness: Harness) -> None:
    for url in ("ftp://records.test/1.mp3", "/etc/passwd", ""):
        with pytest.raises(PermanentError, match="only http and https addresses are taken"):
            harness.run(lambda speech, url=url: speech.transcribe(url, before_call=no_rate_limit))


def test_an_unavailable_audio_host_is_a_transient_error(harness: Harness) -> None:
    assert isinstance(harness.error(HOST_DOWN), TransientError)


def test_a_throttled_call_is_transient_with_the_retry_after_of_the_provider(
    harness: Harness,
) -> None:
    harness.fail_with(
        TransientError("status=429", retry_after_seconds=7), answer(429, Retry_After="7")
    )
    error = harness.error()
    assert isinstance(error, TransientError)
    assert error.retry_after_seconds == 7


def test_an_error_without_a_retry_after_header_has_none(harness: Harness) -> None:
    harness.fail_with(TransientError("status=503"), answer(503))
    error = harness.error()
    assert isinstance(error, TransientError)
    assert error.retry_after_seconds is None


def test_a_refused_api_key_is_a_permanent_error(harness: Harness) -> None:
    harness.fail_with(PermanentError("status=401"), answer(401))
    assert isinstance(harness.error(), PermanentError)


@pytest.mark.parametrize("status", [200, 429, 503])
def test_the_provider_is_called_once_for_any_status(harness: Harness, status: int) -> None:
    if status != 200:
        harness.fail_with(TransientError(f"status={status}"), answer(status))
    (harness.transcribe if status == 200 else harness.error)()
    assert harness.calls() == 1


@dataclass
class RecordingRateLimit:
    """A rate limit that records the number of provider calls at each acquisition."""

    harness: Harness
    calls_before: list[int] = field(default_factory=list)
    error: Exception | None = None

    async def __call__(self) -> None:
        self.calls_before.append(self.harness.calls())
        if self.error:
            raise self.error


def test_the_rate_limit_is_awaited_once_before_the_call(harness: Harness) -> None:
    rate_limit = RecordingRateLimit(harness)
    harness.transcribe(before_call=rate_limit)
    assert (rate_limit.calls_before, harness.calls()) == ([0], 1)


@pytest.mark.parametrize("path", [MISSING_AUDIO, HOST_DOWN])
def test_missing_audio_does_not_consume_the_rate_limit(harness: Harness, path: str) -> None:
    rate_limit = RecordingRateLimit(harness)
    harness.error(path, rate_limit)
    assert (rate_limit.calls_before, harness.calls()) == ([], 0)


def test_an_error_of_the_rate_limit_is_raised_and_prevents_the_call(harness: Harness) -> None:
    rate_limit = RecordingRateLimit(harness, error=LookupError("the lease is lost"))
    with pytest.raises(LookupError, match="the lease is lost"):
        harness.transcribe(before_call=rate_limit)
    assert harness.calls() == 0


def test_errors_contain_neither_the_api_key_nor_the_url(harness: Harness) -> None:
    for path in (MISSING_AUDIO, HOST_DOWN):
        message = str(harness.error(path + "?signature=s3cret"))
        for piece in (KEY, "s3cret", harness.root, path):
            assert piece not in message


def test_the_client_accepts_its_declared_concurrency(harness: Harness) -> None:
    async def at_full_concurrency(speech: SpeechToText) -> list[str]:
        assert speech.at_once >= 1
        result = await asyncio.gather(
            *(
                speech.transcribe(harness.root + AUDIO, before_call=no_rate_limit)
                for _ in range(speech.at_once)
            )
        )
        return [each.transcription_id for each in result]

    result = harness.run(at_full_concurrency)
    assert result == ["tr_9Fz0"] * len(result)
    assert harness.calls() == len(result)


def test_the_fake_counts_concurrent_calls() -> None:
    fake = FakeSpeechToText(otherwise=lambda _: transcript())

    async def three_batches_of_two() -> None:
        for _ in range(3):
            urls = [f"https://records.test/{number}.mp3" for number in range(2)]
            await asyncio.gather(*(fake.transcribe(url, before_call=no_rate_limit) for url in urls))

    asyncio.run(three_batches_of_two())
    assert (fake.max_concurrent, len(fake.calls)) == (2, 6)


def test_the_fake_raises_its_scripted_errors_in_order() -> None:
    url = "https://records.test/1.mp3"
    fake = FakeSpeechToText({url: transcript()})
    fake.fail_once(url, TransientError("one"), TransientError("two"))
    for message in ("one", "two"):
        with pytest.raises(TransientError, match=message):
            asyncio.run(fake.transcribe(url, before_call=no_rate_limit))
    assert asyncio.run(fake.transcribe(url, before_call=no_rate_limit)) == transcript()
    assert fake.call_count(url) == 3
