"""The audio download: errors, limits, redirects and cleanup."""

import asyncio
import gzip
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import pytest

from automation_pipeline.clients import audio
from automation_pipeline.clients.audio import AudioDownloader, AudioLimits, audio_guard, is_audio
from automation_pipeline.core.errors import AutomationError, PermanentError, TransientError
from automation_pipeline.core.logs import correlated
from automation_pipeline_tests.clients.keep_alive_server import running_keep_alive_server
from automation_pipeline_tests.clients.mock_answers import with_client
from automation_pipeline_tests.clients.speech_server import (
    AUDIO,
    KEY,
    NOW,
    SOUND,
    Page,
    SpeechServer,
    answer,
    cut_short,
    drop,
    never_answer,
    redirect,
    running,
    streaming,
    trickle,
)
from automation_pipeline_tests.fakes.speech import no_rate_limit
from automation_pipeline_tests.waiting import wait_until_async

SMALL_LIMITS = AudioLimits(max_megabytes=1, connect_seconds=60, read_seconds=60, total_seconds=60)
OTHER = "/rec/other.mp3"
PROGRAM = """
import asyncio, re, sys
from pathlib import Path
from automation_pipeline_tests.clients.speech_server import SpeechServer

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

speech_server = SpeechServer(sys.argv[1])
speech_server.transcript()
before = peak()
speech_server.transcript(sys.argv[1] + "/rec/big.mp3")
print(peak() - before)
"""


@pytest.fixture
def speech_server() -> Iterator[SpeechServer]:
    with running() as speech_server:
        yield speech_server


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def files_left_in(folder: Path) -> list[str]:
    """Files in the folder, and open descriptors of deleted files."""
    opened = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            opened.append(str(descriptor.readlink()))
    return [
        *map(str, folder.iterdir()),
        *(name for name in opened if name.startswith(f"{folder}/")),
    ]


@pytest.mark.parametrize(
    ("page", "error", "message"),
    [
        (answer(400), PermanentError, "Audio download failed status=400"),
        (answer(401), PermanentError, "Audio download failed status=401"),
        (answer(403), PermanentError, "Audio download failed status=403"),
        (answer(404), PermanentError, "Audio download failed status=404"),
        (answer(410), PermanentError, "Audio download failed status=410"),
        (answer(304), PermanentError, "Audio download failed status=304"),
        (answer(302), PermanentError, "Audio download failed status=302"),
        (answer(408), TransientError, "Audio download failed status=408"),
        (answer(429), TransientError, "Audio download failed status=429"),
        (answer(500), TransientError, "Audio download failed status=500"),
        (answer(502), TransientError, "Audio download failed status=502"),
        (answer(503), TransientError, "Audio download failed status=503"),
        (answer(504), TransientError, "Audio download failed status=504"),
        (answer(200), PermanentError, "Audio download failed: the audio is empty."),
        (answer(204), PermanentError, "Audio download failed: the audio is empty."),
        (streaming(16), PermanentError, "Audio download failed: it is bigger than 1 MB."),
        (
            streaming(16, announced=False),
            PermanentError,
            "Audio download failed: it is bigger than 1 MB.",
        ),
        (
            answer(200, gzip.compress(bytes(1_000_001)), Content_Encoding="gzip, gzip"),
            PermanentError,
            "Audio download failed: it is compressed (gzip, gzip).",
        ),
        (
            cut_short,
            TransientError,
            "Audio download failed: its host could not be reached (RemoteProtocolError).",
        ),
        (
            drop,
            TransientError,
            "Audio download failed: its host could not be reached (RemoteProtocolError).",
        ),
        (redirect(AUDIO), PermanentError, "Audio download failed: more than 3 redirects."),
        (
            redirect("ftp://records.test/1.mp3"),
            PermanentError,
            "Audio download failed: only http and https addresses are taken.",
        ),
        (
            redirect("file:///etc/passwd"),
            PermanentError,
            "Audio download failed: only http and https addresses are taken.",
        ),
    ],
)
def test_each_download_failure_has_its_error_type_and_message(
    speech_server: SpeechServer, page: Page, error: type[AutomationError], message: str
) -> None:
    speech_server.pages[AUDIO] = page
    raised = speech_server.error(audio_limits=SMALL_LIMITS)
    assert (type(raised), str(raised)) == (error, message)
    assert speech_server.uploads == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "only http and https addresses are taken."),
        ("/rec/1.mp3", "only http and https addresses are taken."),
        ("ftp://records.test/1.mp3", "only http and https addresses are taken."),
        ("file:///etc/passwd", "only http and https addresses are taken."),
        ("data:audio/mpeg;base64,SUQz", "only http and https addresses are taken."),
        ("http://", "only http and https addresses are taken."),
        ("https:///1.mp3", "only http and https addresses are taken."),
        ("http://records.test:many/1.mp3", "its address cannot be read."),
        ("http://records.test/\x00.mp3", "its address cannot be read."),
        ("http://records.test/" + "a" * 70_000, "its address cannot be read."),
        ("http://é..test/1.mp3", "its address cannot be read."),
    ],
)
def test_an_invalid_recording_url_is_refused(
    speech_server: SpeechServer, url: str, message: str
) -> None:
    raised = speech_server.error(url)
    assert (type(raised), str(raised)) == (PermanentError, f"Audio download failed: {message}")
    assert speech_server.fetched == []


@pytest.mark.parametrize("host", ["127.0.0.1:1", "a" * 70 + ".test"])
def test_an_unreachable_audio_host_is_a_transient_error(
    speech_server: SpeechServer, host: str
) -> None:
    raised = speech_server.error(f"http://{host}/1.mp3", audio_origins=[f"http://{host}"])
    assert type(raised) is TransientError
    assert str(raised) == "Audio download failed: its host could not be reached (ConnectError)."


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "wait"), [("7", 7), ("Mon, 04 May 2026 10:01:30 GMT", 90), ("soon", None), ("0", 1)]
)
def test_the_retry_after_of_the_audio_host_is_kept(
    speech_server: SpeechServer, status: int, header: str, wait: float | None
) -> None:
    speech_server.pages[AUDIO] = answer(status, Retry_After=header)
    raised = speech_server.error()
    assert isinstance(raised, TransientError)
    assert raised.retry_after_seconds == wait


@pytest.mark.parametrize(
    ("page", "limits", "message"),
    [
        (never_answer, AudioLimits(read_seconds=0.1), "its host did not answer in time."),
        # Each read is fast, but the download never ends.
        (
            trickle,
            AudioLimits(read_seconds=60, total_seconds=0.3),
            "it was not complete after 0.3 s.",
        ),
    ],
)
def test_a_slow_audio_host_times_out_with_a_transient_error(
    speech_server: SpeechServer, page: Page, limits: AudioLimits, message: str
) -> None:
    speech_server.pages[AUDIO] = page
    started_at = perf_counter()
    raised = speech_server.error(audio_limits=limits)
    assert perf_counter() - started_at < 20
    assert (type(raised), str(raised)) == (TransientError, f"Audio download failed: {message}")


def test_a_full_disk_is_a_transient_error(
    speech_server: SpeechServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio, "TemporaryFile", lambda **_: io.FileIO("/dev/full", "r+"))
    raised = speech_server.error()
    assert type(raised) is TransientError
    assert str(raised) == "Audio download failed: it could not be kept (No space left on device)."


def test_a_short_write_is_continued(
    speech_server: SpeechServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ShortWrites(io.FileIO):
        def write(self, rest: Any) -> int:
            return super().write(bytes(rest)[:7])

    file = tmp_path / "recording"
    monkeypatch.setattr(audio, "TemporaryFile", lambda **_: ShortWrites(file, "w+"))
    speech_server.transcript()
    assert file.read_bytes() == SOUND


def test_audio_of_exactly_the_maximum_size_is_accepted(speech_server: SpeechServer) -> None:
    speech_server.pages[AUDIO] = answer(200, bytes(1_000_000))
    speech_server.transcript(audio_limits=SMALL_LIMITS)
    assert speech_server.uploads[0].size > 1_000_000


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed(speech_server: SpeechServer, status: int) -> None:
    speech_server.pages |= {AUDIO: redirect(OTHER, status), OTHER: answer(200, SOUND)}
    speech_server.transcript()
    assert [fetched.path for fetched in speech_server.fetched] == [AUDIO, OTHER]
    assert speech_server.uploads[0].file == ("audio.mp3", "audio/mpeg", SOUND)


def test_three_redirects_are_followed(speech_server: SpeechServer) -> None:
    steps = [AUDIO, "/1", "/2", OTHER]
    speech_server.pages |= {start: redirect(to) for start, to in pairwise(steps)}
    speech_server.pages[OTHER] = answer(200, SOUND)
    speech_server.transcript()
    assert [fetched.path for fetched in speech_server.fetched] == steps


def test_the_body_of_a_redirect_is_not_read(speech_server: SpeechServer) -> None:
    speech_server.pages |= {
        AUDIO: answer(302, b"x", Location=OTHER, Content_Length="1000000000"),
        OTHER: answer(200, SOUND),
    }
    speech_server.transcript(audio_limits=SMALL_LIMITS)
    assert len(speech_server.uploads) == 1


def test_a_name_without_dns_records_is_a_transient_error(speech_server: SpeechServer) -> None:
    raised = speech_server.error("http://nowhere.invalid/1.mp3", audio_origins=[])
    assert (type(raised), str(raised)) == (
        TransientError,
        "Audio download failed: its host could not be found.",
    )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1/1.mp3", "recording_url IP not allowed"),
        ("http://localhost/1.mp3", "recording_url hostname not allowed"),
        (
            "https://anna:s3cret@host.example.com/1.mp3",
            "recording_url must not include credentials",
        ),
    ],
)
def test_a_forbidden_address_is_a_permanent_error_with_a_hint(
    speech_server: SpeechServer, url: str, why: str
) -> None:
    raised = speech_server.error(url, audio_origins=[])
    assert type(raised) is PermanentError
    assert str(raised) == f"Audio download failed: {why} (see TRANSCRIPTION_AUDIO_ALLOWED_ORIGINS)."


def test_only_listed_origins_are_called_and_followed(speech_server: SpeechServer) -> None:
    with running() as elsewhere:
        speech_server.pages[AUDIO] = redirect(elsewhere.audio_url)
        raised = speech_server.error()
        assert type(raised) is PermanentError
        assert str(raised) == (
            "Audio download failed: recording_url origin not allowed "
            f"(set TRANSCRIPTION_AUDIO_ALLOWED_ORIGINS). Got {elsewhere.url}."
        )
        assert elsewhere.fetched == []
        speech_server.transcript(audio_origins=[speech_server.url, elsewhere.url])
        assert len(elsewhere.fetched) == 1


def test_recordings_from_one_host_share_a_connection() -> None:
    async def go() -> None:
        async with running_keep_alive_server() as server:
            downloader = AudioDownloader(
                now=lambda: NOW, guard=audio_guard([server.url]), connections=5
            )
            for path in ("/rec/1.mp3", "/rec/2.mp3"):
                async with downloader.recording(server.url + path) as file:
                    assert os.fstat(file.fileno()).st_size == 2
            await downloader.aclose()
            assert (server.targets, server.connections) == (["/rec/1.mp3", "/rec/2.mp3"], 1)

    asyncio.run(go())


def test_a_download_has_time_limits_and_no_request_id() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, content=SOUND)

    downloader = AudioDownloader(
        now=lambda: NOW,
        guard=audio_guard(["https://calls.test"]),
        connections=1,
        transport=httpx.MockTransport(answer),
    )

    async def download(client: AudioDownloader) -> bytes:
        async with client.recording("https://calls.test/1.mp3") as file:
            file.seek(0)
            return file.read()

    with correlated("request-7"):
        assert with_client(downloader, download) == SOUND
    (request,) = requests
    assert request.headers["Accept"] == "audio/*, */*;q=0.5"
    assert "X-Request-Id" not in request.headers
    assert request.extensions["timeout"] == {"connect": 10, "read": 30, "write": 30, "pool": None}


def test_the_provider_key_is_not_sent_to_the_audio_host(speech_server: SpeechServer) -> None:
    speech_server.transcript()
    assert KEY not in str(speech_server.fetched)


@pytest.mark.parametrize(
    "page",
    [
        answer(404),
        answer(503),
        drop,
        cut_short,
        streaming(16),
        redirect(AUDIO),
        redirect("ftp://anna:s3cret@x"),
    ],
)
def test_no_error_contains_any_part_of_the_recording_url(
    speech_server: SpeechServer, page: Page
) -> None:
    speech_server.pages[AUDIO] = page
    url = speech_server.audio_url.replace("http://", "http://anna:s3cret@") + "?signature=s3cret"
    raised = speech_server.error(url, audio_limits=SMALL_LIMITS)
    assert raised.__cause__ is None
    assert raised.__suppress_context__ or raised.__context__ is None
    for piece in ("s3cret", "anna", "signature", "127.0.0.1", "1.mp3"):
        assert piece not in str(raised)


@pytest.mark.parametrize("page", [answer(200, SOUND), answer(404), cut_short, drop, streaming(16)])
def test_no_temporary_file_is_left(speech_server: SpeechServer, scratch: Path, page: Page) -> None:
    speech_server.pages[AUDIO] = page
    with suppress(AutomationError):
        speech_server.transcript(audio_limits=SMALL_LIMITS)
    assert files_left_in(scratch) == []


@pytest.mark.parametrize("slow", [AUDIO, "/v1/speech-to-text"])
def test_no_temporary_file_is_left_after_cancellation(
    speech_server: SpeechServer, scratch: Path, slow: str
) -> None:
    speech_server.pages[slow] = trickle

    async def cancelled() -> None:
        speech = speech_server.client()
        task = asyncio.create_task(
            speech.transcribe(speech_server.audio_url, before_call=no_rate_limit)
        )
        await wait_until_async(
            lambda: bool(files_left_in(scratch)) and bool(slow == AUDIO or speech_server.uploads)
        )
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await speech.aclose()

    asyncio.run(cancelled())
    assert files_left_in(scratch) == []


def test_memory_stays_flat_for_two_hundred_megabytes(speech_server: SpeechServer) -> None:
    speech_server.pages["/rec/big.mp3"] = streaming(200 * 16)
    grown = subprocess.run(
        [sys.executable, "-c", PROGRAM, speech_server.url],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert speech_server.uploads[-1].size > 200 * 1024 * 1024
    assert int(grown.stdout) < 40


# Description, first bytes, content type, and whether it is accepted.
BODIES = (
    ("mp3 with a tag", b"ID3\x04rest", "text/html", True),
    ("mp3 frames", b"\xff\xfb\x90\x00", "", True),
    ("aac frames", b"\xff\xf1\x50\x80", "application/octet-stream", True),
    ("wav", b"RIFF\x24\x00\x00\x00WAVEfmt ", "audio/wav", True),
    ("ogg", b"OggS\x00", "", True),
    ("flac", b"fLaC", "", True),
    ("m4a", b"\x00\x00\x00\x20ftypM4A ", "audio/mp4", True),
    ("webm", b"\x1a\x45\xdf\xa3", "video/webm", True),
    ("raw samples", bytes(40), "audio/basic", True),
    ("bytes without a name", bytes(40), "", True),
    ("login page", b"<!DOCTYPE html><html><title>Login</title>", "text/html", False),
    ("login page labelled as audio", b"\xef\xbb\xbf  \n<html lang='fr'>", "audio/mpeg", False),
    ("JSON error", b'{"error": "expired"}', "audio/mpeg", False),
    ("text", b"Please log in", "text/plain", False),
    ("picture", b"\x89PNG\r\n", "image/png", False),
    ("PDF", b"%PDF-1.7", "application/pdf", False),
)


def test_audio_is_recognised_by_its_first_bytes_and_its_content_type() -> None:
    wrong = [name for name, head, kind, taken in BODIES if is_audio(head, kind) is not taken]
    assert wrong == []
