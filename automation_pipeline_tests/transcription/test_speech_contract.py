"""`transcription.models.SpeechToText`, sentence by sentence, on the fake and on the real client
against a server."""

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
    HEARD,
    KEY,
    SOUND,
    SPEECH,
    Exchange,
    Page,
    Turn,
    answer,
    running,
    saying,
)
from automation_pipeline_tests.fakes.speech import FakeSpeechToText, at_will, transcript

Result = TypeVar("Result")

QUIET = "/rec/quiet.mp3"
GONE = "/rec/gone.mp3"
HOST_DOWN = "/rec/host-down.mp3"


@dataclass(frozen=True)
class Place:
    """A provider with recordings at `root`; `strike` makes it fail from now on, as an answer would,
    `calls` counts."""

    root: str
    opened: Callable[[], SpeechToText]
    strike: Callable[[AutomationError, Page], None]
    calls: Callable[[], int]

    def ask(self, question: Callable[[SpeechToText], Awaitable[Result]]) -> Result:
        async def asked() -> Result:
            speech = self.opened()
            try:
                return await question(speech)
            finally:
                if isinstance(speech, ElevenLabsSpeechToText):
                    await speech.aclose()

        return asyncio.run(asked())

    def hear(self, path: str = AUDIO, turn: Turn = at_will) -> Transcript:
        return self.ask(lambda speech: speech.transcribe(self.root + path, turn=turn))

    def error(self, path: str = AUDIO, turn: Turn = at_will) -> AutomationError:
        with pytest.raises(AutomationError) as caught:
            self.hear(path, turn)
        return caught.value


@pytest.fixture(params=["fake", "elevenlabs"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with (in_memory if request.param == "fake" else over_http)() as place:
        yield place


@contextmanager
def in_memory() -> Iterator[Place]:
    root = "http://records.test"
    fake = FakeSpeechToText(
        {root + AUDIO: transcript("tr_9Fz0"), root + QUIET: transcript(text="", words=())}
    )
    fake.fail_always(root + HOST_DOWN, TransientError("Audio download failed status=503"))
    yield Place(
        root, lambda: fake, lambda error, _: fake.refuse_everything(error), lambda: len(fake.called)
    )


@contextmanager
def over_http() -> Iterator[Place]:
    with running() as studio:
        received, nothing = saying(HEARD), saying(HEARD | {"text": "", "words": []})

        def by_recording(exchange: Exchange) -> None:
            (nothing if studio.fetched[-1].path == QUIET else received)(exchange)

        def strike(_: AutomationError, page: Page) -> None:
            studio.pages[SPEECH] = page

        studio.pages |= {QUIET: answer(200, SOUND), HOST_DOWN: answer(503), SPEECH: by_recording}
        yield Place(studio.url, studio.client, strike, lambda: len(studio.uploads))


def test_transcripts_have_their_words(place: Place) -> None:
    assert place.hear() == transcript("tr_9Fz0")


def test_a_silent_recording_has_an_empty_transcript(place: Place) -> None:
    received = place.hear(QUIET)
    assert received.transcription_id
    assert (received.text, received.words) == ("", ())


def test_missing_audio_is_a_permanent_error(place: Place) -> None:
    assert isinstance(place.error(GONE), PermanentError)


def test_a_url_without_http_is_a_permanent_error(place: Place) -> None:
    for url in ("ftp://records.test/1.mp3", "/etc/passwd", ""):
        with pytest.raises(PermanentError, match="only http and https addresses are taken"):
            place.ask(lambda speech, url=url: speech.transcribe(url, turn=at_will))


def test_an_unavailable_audio_host_is_a_transient_error(place: Place) -> None:
    assert isinstance(place.error(HOST_DOWN), TransientError)


def test_a_throttled_call_is_transient_with_the_retry_after_of_the_provider(place: Place) -> None:
    place.strike(TransientError("status=429", retry_after_seconds=7), answer(429, Retry_After="7"))
    met = place.error()
    assert isinstance(met, TransientError)
    assert met.retry_after_seconds == 7


def test_an_error_without_a_retry_after_header_has_none(place: Place) -> None:
    place.strike(TransientError("status=503"), answer(503))
    met = place.error()
    assert isinstance(met, TransientError)
    assert met.retry_after_seconds is None


def test_a_refused_api_key_is_a_permanent_error(place: Place) -> None:
    place.strike(PermanentError("status=401"), answer(401))
    assert isinstance(place.error(), PermanentError)


@pytest.mark.parametrize("status", [200, 429, 503])
def test_the_provider_is_called_once_for_any_status(place: Place, status: int) -> None:
    if status != 200:
        place.strike(TransientError(f"status={status}"), answer(status))
    (place.hear if status == 200 else place.error)()
    assert place.calls() == 1


@dataclass
class Turns:
    """How often a turn was asked for, and how many calls there had been by then."""

    place: Place
    calls_before: list[int] = field(default_factory=list)
    error: Exception | None = None

    async def __call__(self) -> None:
        self.calls_before.append(self.place.calls())
        if self.error:
            raise self.error


def test_the_rate_limit_is_awaited_once_before_the_call(place: Place) -> None:
    turns = Turns(place)
    place.hear(turn=turns)
    assert (turns.calls_before, place.calls()) == ([0], 1)


@pytest.mark.parametrize("path", [GONE, HOST_DOWN])
def test_missing_audio_does_not_consume_the_rate_limit(place: Place, path: str) -> None:
    turns = Turns(place)
    place.error(path, turns)
    assert (turns.calls_before, place.calls()) == ([], 0)


def test_an_error_of_the_rate_limit_is_raised_and_prevents_the_call(place: Place) -> None:
    turns = Turns(place, error=LookupError("the lease is lost"))
    with pytest.raises(LookupError, match="the lease is lost"):
        place.hear(turn=turns)
    assert place.calls() == 0


def test_errors_contain_neither_the_api_key_nor_the_url(place: Place) -> None:
    for path in (GONE, HOST_DOWN):
        message = str(place.error(path + "?signature=s3cret"))
        for piece in (KEY, "s3cret", place.root, path):
            assert piece not in message


def test_the_client_accepts_its_declared_concurrency(place: Place) -> None:
    async def all_of(speech: SpeechToText) -> list[str]:
        assert speech.at_once >= 1
        received = await asyncio.gather(
            *(speech.transcribe(place.root + AUDIO, turn=at_will) for _ in range(speech.at_once))
        )
        return [each.transcription_id for each in received]

    received = place.ask(all_of)
    assert received == ["tr_9Fz0"] * len(received)
    assert place.calls() == len(received)


def test_the_fake_counts_concurrent_calls() -> None:
    fake = FakeSpeechToText(otherwise=lambda _: transcript())

    async def six_by_two() -> None:
        for _ in range(3):
            urls = [f"https://records.test/{number}.mp3" for number in range(2)]
            await asyncio.gather(*(fake.transcribe(url, turn=at_will) for url in urls))

    asyncio.run(six_by_two())
    assert (fake.most_at_once, len(fake.called)) == (2, 6)


def test_the_fake_raises_its_scripted_errors_in_order() -> None:
    url = "https://records.test/1.mp3"
    fake = FakeSpeechToText({url: transcript()})
    fake.fail_once(url, TransientError("one"), TransientError("two"))
    for result in ("one", "two"):
        with pytest.raises(TransientError, match=result):
            asyncio.run(fake.transcribe(url, turn=at_will))
    assert asyncio.run(fake.transcribe(url, turn=at_will)) == transcript()
    assert fake.times(url) == 3
