"""ElevenLabs' HTTP endpoint: audio in a form, a transcript in the answer."""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.audio import title_of
from automation_pipeline.simulator.cap import Cap
from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.speech.conversation import conversation, generic_conversation
from automation_pipeline.simulator.speech.multipart import MalformedBodyError, Part, read_form
from automation_pipeline.simulator.speech.transcript import Transcript, Word
from automation_pipeline.simulator.world.world import World

MODEL = "scribe_v1"
GRANULARITIES = ("none", "word", "character")
FLAGS = {"true": True, "1": True, "false": False, "0": False}


class RefusedError(Exception):
    """An answer other than 200, with the `detail` of its body."""

    def __init__(self, status: int, detail: object) -> None:
        super().__init__(status, detail)
        self.status, self.detail = status, detail


@dataclass(frozen=True, slots=True)
class Parameters:
    with_words: bool
    diarize: bool


def read_parameters(form: Mapping[str, Part]) -> Parameters:
    """Raises RefusedError: 422 for a missing or mistyped field, 400 for a wrong model or an empty
    file."""
    fields = {name: part.text for name, part in form.items() if not part.is_file}
    sent = {name for name, part in form.items() if part.is_file == (name == "file")}
    if missing := [name for name in ("model_id", "file") if name not in sent]:
        raise RefusedError(422, [_problem(name, "missing", "Field required") for name in missing])
    if fields["model_id"] != MODEL:
        message = (
            f"'{fields['model_id'][:100]}' is not a valid model_id. Only '{MODEL}' is supported."
        )
        raise RefusedError(400, provider_error("invalid_model_id", message))
    language = fields.get("language_code", "fra")
    if not re.fullmatch("[a-z]{2,3}", language):
        raise RefusedError(422, [_problem("language_code", "value_error", "Not an ISO 639 code")])
    granularity, diarize = (
        fields.get("timestamps_granularity", "word"),
        fields.get("diarize", "false").lower(),
    )
    if granularity not in GRANULARITIES:
        wanted = f"Input should be one of {', '.join(GRANULARITIES)}"
        raise RefusedError(422, [_problem("timestamps_granularity", "literal_error", wanted)])
    if diarize not in FLAGS:
        raise RefusedError(
            422, [_problem("diarize", "bool_parsing", "Input should be a valid boolean")]
        )
    if not form["file"].size:
        raise RefusedError(400, provider_error("invalid_content", "The uploaded file is empty."))
    return Parameters(with_words=granularity != "none", diarize=FLAGS[diarize])


def provider_error(status: str, message: str) -> dict[str, str]:
    return {"status": status, "message": message}


def _problem(name: str, kind: str, message: str) -> dict[str, object]:
    return {"type": kind, "loc": ["body", name], "msg": message}


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
            read_body=_read_body,
            error=_simulated_error,
        )
    ]


class _Provider:
    def __init__(self, world: World, api_key: str, cap: Cap) -> None:
        self._world = world
        self._api_key = api_key.encode()
        self._cap = cap

    def refuse(self, request: Request) -> Response | None:
        """Check the key before the cap: a call with a wrong key does not count."""
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
        """The call id, or a hash for unknown audio."""
        title = title_of(file.head)
        return title if title and self._world.recording(title) else file.digest[:16]

    def _transcript(self, item: str) -> Transcript:
        recording, fiche = self._world.recording(item), self._world.fiche(item[:-2])
        return conversation(fiche, recording) if fiche and recording else generic_conversation(item)


async def _read_body(request: Request) -> None:
    try:
        request.state.form = await read_form(
            request.headers.get("content-type", ""), request.stream()
        )
    except MalformedBodyError as error:
        request.state.form = error


def _form(request: Request) -> dict[str, Part]:
    """Raises MalformedBodyError."""
    form = cast("dict[str, Part] | MalformedBodyError", request.state.form)
    if isinstance(form, MalformedBodyError):
        raise form
    return form


def _simulated_error(status: int) -> object:
    """The error body of a simulated fault, with the code that the provider uses for the status."""
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
