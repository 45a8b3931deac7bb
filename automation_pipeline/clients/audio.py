"""Downloads of call recordings from the addresses that the CRM sends.

A recording is written to a temporary file, so memory use does not depend on its size. Each read and
write moves 64 KiB through the page cache, so it runs in the event loop."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from tempfile import TemporaryFile

import httpx

from automation_pipeline.clients.http import (
    MEGABYTE,
    AddressRefusedError,
    BodyTooLargeError,
    EncodedBodyError,
    Guard,
    GuardedTransport,
    HttpClient,
    NameNotFoundError,
    Observation,
    body_pieces,
)
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.core.metrics import Meter
from automation_pipeline.core.retry import is_transient_status, retry_after_seconds

MAX_REDIRECTS = 3
ORIGINS_SETTING = "TRANSCRIPTION_AUDIO_ALLOWED_ORIGINS"

HEAD_BYTES = 512
# MP3 with a tag, WAV, Ogg, FLAC, WebM, AIFF, AMR, Sun audio, AAC, WMA and CAF. `is_audio` also
# knows MP4, and frames of MP3 and AAC.
_MAGIC = (
    b"ID3", b"RIFF", b"RF64", b"OggS", b"fLaC", b"\x1a\x45\xdf\xa3", b"FORM", b"#!AMR", b".snd", b"ADIF",
    b"\x30\x26\xb2\x75", b"caff",
)  # fmt: skip
_MARKUP = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<[!?a-zA-Z]|[\[{]\s*[\"{\]}])")
_ANY_BYTES = {
    "application/octet-stream",
    "binary/octet-stream",
    "application/ogg",
    "application/x-download",
}


@dataclass(frozen=True, kw_only=True)
class AudioLimits:
    """`total_seconds` covers the whole download with its redirects, so a slow host cannot hold a
    slot."""

    max_megabytes: int = 500
    connect_seconds: float = 10.0
    read_seconds: float = 30.0
    total_seconds: float = 600.0


AUDIO_LIMITS = AudioLimits()


def audio_guard(allowed_origins: Collection[str] = ()) -> Guard:
    return Guard(allowed_origins, name="recording_url", setting=ORIGINS_SETTING)


class AudioDownloader:
    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        limits: AudioLimits = AUDIO_LIMITS,
        guard: Guard | None = None,
        connections: int,
        meter: Meter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._now = now
        self._limits = limits
        self._http = HttpClient(
            Observation("audio", meter or Meter()),
            headers={"Accept": "audio/*, */*;q=0.5"},
            timeout=httpx.Timeout(limits.read_seconds, connect=limits.connect_seconds, pool=None),
            transport=GuardedTransport(
                guard or audio_guard(), connections=connections, inner=transport
            ),
            # A proxy of the environment would resolve names without the guard.
            trust_env=False,
        )

    @asynccontextmanager
    async def recording(self, url: str) -> AsyncGenerator[FileIO]:
        """The whole audio in an unnamed file, which disappears with the block or the process."""
        # Unbuffered: on a full disk, flushing a buffer would fail again when the file is closed.
        with TemporaryFile(buffering=0) as file:
            await self._download(url, file)
            yield file

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _download(self, url: str, file: FileIO) -> None:
        """No error is chained: httpx's errors contain the address with its query and password."""
        try:
            async with asyncio.timeout(self._limits.total_seconds):
                await self._follow(httpx.URL(url.strip()), file)
        except AddressRefusedError as error:
            hint = "" if ORIGINS_SETTING in str(error) else f" (see {ORIGINS_SETTING})"
            raise PermanentError(f"Audio download failed: {error}{hint}.") from None
        except NameNotFoundError:
            raise _unavailable("its host could not be found") from None
        except (httpx.InvalidURL, UnicodeError):
            raise PermanentError("Audio download failed: its address cannot be read.") from None
        except TimeoutError:
            seconds = f"{self._limits.total_seconds:g}"
            raise _unavailable(f"it was not complete after {seconds} s") from None
        except httpx.TimeoutException:
            raise _unavailable("its host did not answer in time") from None
        except httpx.HTTPError as error:
            kind = type(error).__name__
            raise _unavailable(f"its host could not be reached ({kind})") from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise _unavailable(f"it could not be kept ({reason})") from None

    async def _follow(self, url: httpx.URL, file: FileIO) -> None:
        # httpx itself would read the whole body of a redirect and follow it to any scheme.
        request = self._http.build_request("GET", url)
        for _ in range(MAX_REDIRECTS + 1):
            if request.url.scheme not in {"http", "https"}:
                raise PermanentError(
                    "Audio download failed: only http and https addresses are taken."
                )
            answer = await self._http.send(request, stream=True)
            try:
                if answer.next_request is None:
                    await self._store(answer, file)
                    return
                request = answer.next_request
            finally:
                await answer.aclose()
        raise PermanentError(f"Audio download failed: more than {MAX_REDIRECTS} redirects.")

    async def _store(self, answer: httpx.Response, file: FileIO) -> None:
        if not answer.is_success:
            raise self._refusal(answer)
        size, head = 0, b""
        try:
            async for piece in body_pieces(answer, self._limits.max_megabytes * MEGABYTE):
                size += len(piece)
                head = head if len(head) >= HEAD_BYTES else head + piece[:HEAD_BYTES]
                rest = memoryview(piece)
                while rest:
                    rest = rest[file.write(rest) :]
        except BodyTooLargeError:
            message = f"Audio download failed: it is bigger than {self._limits.max_megabytes} MB."
            raise PermanentError(message) from None
        except EncodedBodyError as error:
            raise PermanentError(f"Audio download failed: {error}.") from None
        if size == 0:
            raise PermanentError("Audio download failed: the audio is empty.")
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if not is_audio(head, kind):
            shown = kind if kind.isprintable() and 0 < len(kind) <= 100 else "no content type"
            raise PermanentError(
                f"Audio download failed: its host answered with something else than audio ({shown})."
            )

    def _refusal(self, answer: httpx.Response) -> Exception:
        status = answer.status_code
        message = f"Audio download failed status={status}"
        if is_transient_status(status):
            wait = retry_after_seconds(answer.headers.get("Retry-After"), self._now())
            return TransientError(message, retry_after_seconds=wait)
        return PermanentError(message)


def _unavailable(reason: str) -> TransientError:
    return TransientError(f"Audio download failed: {reason}.")


def is_audio(head: bytes, content_type: str) -> bool:
    """The first bytes count more than the content type, which many hosts set wrongly. Unknown bytes
    are accepted unless they are text or the content type names another kind."""
    if (
        head.startswith(_MAGIC)
        or head[4:8] == b"ftyp"
        or (head[:1] == b"\xff" and head[1:2] >= b"\xe0")
    ):
        return True
    if _MARKUP.match(head):
        return False
    family = content_type.partition("/")[0]
    return family in {"audio", "video", ""} or content_type in _ANY_BYTES
