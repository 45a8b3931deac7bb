"""ElevenLabs' HTTP face: audio in a form, a transcript back. The call is recognised by the ID3
title of its audio."""

import hashlib
import hmac
import json
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.audio import title_of
from automation_pipeline.simulator.cap import Cap
from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.speech.conversation import conversation, generic_conversation
from automation_pipeline.simulator.speech.multipart import MalformedBodyError, Part, read_form
from automation_pipeline.simulator.speech.parameters import (
    Parameters,
    RefusedError,
    provider_error,
    read_parameters,
)
from automation_pipeline.simulator.speech.transcript import Transcript, Word
from automation_pipeline.simulator.world.world import World

NO_FILE = "no file"


def endpoints(world: World, api_key: str, cap: Cap) -> list[Endpoint]:
    provider = _Provider(world, api_key, cap)
    return [
        Endpoint(
            name="speech.transcribe",
            path="/v1/speech-to-text",
            handler=provider.transcribe,
            item=provider.item,
            methods=("POST",),
            refuse=provider.refuse,
            take_in=_take_in,
            error=_simulated_error,
        )
    ]


class _Provider:
    def __init__(self, world: World, api_key: str, cap: Cap) -> None:
        self._world = world
        self._api_key = api_key.encode()
        self._cap = cap

    def refuse(self, request: Request) -> Response | None:
        """The key is looked at before the cap: a stranger takes no place."""
        given = request.headers.get("xi-api-key", "")
        if not hmac.compare_digest(given.encode("latin-1"), self._api_key):
            message = (
                "Invalid API key."
                if given
                else "No xi-api-key header received, please provide one."
            )
            return JSONResponse({"detail": provider_error("invalid_api_key", message)}, 401)
        if seconds := self._cap.seconds_to_wait():
            message = f"At most {self._cap.per_minute} requests per minute are allowed. Try again in {seconds} s."
            detail = provider_error("rate_limit_exceeded", message)
            return JSONResponse({"detail": detail}, 429, {"retry-after": str(seconds)})
        return None

    def item(self, request: Request) -> str:
        try:
            file = _form(request).get("file")
        except MalformedBodyError:
            return NO_FILE
        return self._item_of(file) if file and file.size else NO_FILE

    async def transcribe(self, request: Request) -> Response:
        try:
            form = _form(request)
            parameters = read_parameters(form)
        except MalformedBodyError as error:
            return JSONResponse({"detail": f"There was an error parsing the body: {error}"}, 400)
        except RefusedError as refused:
            return JSONResponse({"detail": refused.detail}, refused.status)
        item = self._item_of(form["file"])
        body = json.dumps(
            _rendered(item, self._transcript(item), parameters),
            ensure_ascii=False,
            separators=(",", ":"),
        )
        return Response(body, media_type="application/json")

    def _item_of(self, file: Part) -> str:
        """The call id, or a hash for what is no call of this world."""
        title = title_of(file.head)
        return title if title and self._world.recording(title) else file.digest[:16]

    def _transcript(self, item: str) -> Transcript:
        recording, fiche = self._world.recording(item), self._world.fiche(item[:-2])
        return conversation(fiche, recording) if fiche and recording else generic_conversation(item)


async def _take_in(request: Request) -> None:
    try:
        request.state.form = await read_form(
            request.headers.get("content-type", ""), request.stream()
        )
    except MalformedBodyError as error:
        request.state.form = error


def _form(request: Request) -> dict[str, Part]:
    """Raises MalformedBodyError when that is what came in."""
    form = cast("dict[str, Part] | MalformedBodyError", request.state.form)
    if isinstance(form, MalformedBodyError):
        raise form
    return form


def _simulated_error(status: int) -> object:
    """A faulted answer, named as the provider names its own of that status."""
    named = {401: "invalid_api_key", 429: "too_many_concurrent_requests", 503: "system_busy"}
    return provider_error(named.get(status, f"error_{status}"), f"Simulated answer {status}.")


def _rendered(item: str, transcript: Transcript, parameters: Parameters) -> dict[str, object]:
    return {
        "language_code": "fra",
        "language_probability": 0.98 if transcript.words else 0.0,
        "text": transcript.text,
        "words": [_word_json(word, parameters) for word in transcript.words]
        if parameters.with_words
        else [],
        "transcription_id": f"tr_{hashlib.sha256(item.encode()).hexdigest()[:20]}",
    }


def _word_json(word: Word, parameters: Parameters) -> dict[str, object]:
    return {
        "text": word.text,
        "start": word.start,
        "end": word.end,
        "type": word.kind,
        "speaker_id": word.speaker if parameters.diarize else None,
        "logprob": word.logprob,
    }
