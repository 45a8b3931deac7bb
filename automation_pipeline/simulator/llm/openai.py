"""OpenAI's HTTP endpoints: chat completions and the list of models, with OpenAI's errors."""

import hashlib
import hmac
import json
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.llm.completions import CORRUPTIONS, Completion
from automation_pipeline.simulator.llm.control import MODELS, ModelState
from automation_pipeline.simulator.llm.replies import CHAT, item_of, reply_to
from automation_pipeline.simulator.llm.requests import (
    ChatRequest,
    RefusedError,
    read_request,
    simulated_error,
)

CREATED = 1_765_000_000
COMPLETE = "llm.complete"


def endpoints(seed: int, api_key: str, state: ModelState) -> list[Endpoint]:
    provider = _Provider(seed, api_key, state)
    return [
        Endpoint(
            name=COMPLETE,
            path="/v1/chat/completions",
            handler=provider.complete,
            item=provider.item,
            methods=("POST",),
            refuse=provider.refuse,
            read_body=_read_body,
            error=simulated_error,
            error_key="error",
            corruptions=CORRUPTIONS,
            on_answered=provider.count_reply,
        ),
        Endpoint(
            name="llm.models",
            path="/v1/models",
            handler=_models,
            item=lambda _: "models",
            refuse=provider.refuse_invalid_key,
            error=simulated_error,
            error_key="error",
        ),
        Endpoint(
            name="llm.model",
            path="/v1/models/{model}",
            handler=_model,
            item=lambda request: request.path_params["model"],
            refuse=provider.refuse_invalid_key,
            error=simulated_error,
            error_key="error",
        ),
    ]


class _Provider:
    def __init__(self, seed: int, api_key: str, state: ModelState) -> None:
        self._seed = seed
        self._api_key = api_key
        self._state = state

    def refuse_invalid_key(self, request: Request) -> Response | None:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not given:
            message = "You didn't provide an API key. Provide it in an Authorization header, as Bearer YOUR_KEY."
            return _refused(RefusedError(message, status=401))
        if not hmac.compare_digest(given.strip().encode("latin-1"), self._api_key.encode()):
            return _refused(
                RefusedError("Incorrect API key provided.", None, "invalid_api_key", 401)
            )
        return None

    def refuse(self, request: Request) -> Response | None:
        """Check the key before the cap: a call with a wrong key does not count."""
        if refusal := self.refuse_invalid_key(request):
            return refusal
        cap = self._state.cap
        if not (seconds := cap.seconds_to_wait()):
            return None
        message = f"Rate limit reached for requests: limit {cap.per_minute} / min. Please try again in {seconds}s."
        error = RefusedError(message, None, "rate_limit_exceeded", 429, "requests")
        limits = {
            "x-ratelimit-limit-requests": str(cap.per_minute),
            "x-ratelimit-remaining-requests": "0",
        }
        return _refused(error, {"retry-after": str(seconds), **limits})

    def item(self, request: Request) -> str:
        chat = cast("ChatRequest | RefusedError", request.state.chat)
        request.state.item = CHAT if isinstance(chat, RefusedError) else item_of(chat)
        return request.state.item

    async def complete(self, request: Request) -> Response:
        chat = cast("ChatRequest | RefusedError", request.state.chat)
        if isinstance(chat, RefusedError):
            return _refused(chat)
        if refusal := self._refusal(chat):
            return _refused(refusal)
        reply = reply_to(chat, seed=self._seed, inventions=self._state.inventions)
        completion = Completion(chat, reply, hashlib.sha256(await request.body()).hexdigest())
        headers = {"x-request-id": f"req_{completion.digest[:32]}"}
        if chat.stream:
            return Response(completion.events, headers=headers, media_type="text/event-stream")
        return Response(completion.json, headers=headers, media_type="application/json")

    def count_reply(self, request: Request, response: Response) -> None:
        self._state.answered.count(request.state.item, response.status_code, bytes(response.body))

    def _refusal(self, request: ChatRequest) -> RefusedError | None:
        if request.model not in MODELS:
            return _no_model(request.model)
        if request.characters > self._state.context_characters:
            message = (
                f"This model takes at most {self._state.context_characters} characters. Your messages have "
                f"{request.characters}. Please reduce the length of the messages."
            )
            return RefusedError(message, "messages", "context_length_exceeded")
        return None


async def _read_body(request: Request) -> None:
    try:
        request.state.chat = read_request(await request.body())
    except RefusedError as refused:
        request.state.chat = refused


async def _models(_request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [_model_json(model) for model in MODELS]})


async def _model(request: Request) -> Response:
    model = request.path_params["model"]
    return JSONResponse(_model_json(model)) if model in MODELS else _refused(_no_model(model))


def _model_json(model: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": CREATED, "owned_by": "simulator"}


def _no_model(model: str) -> RefusedError:
    message = f"The model `{model[:100]}` does not exist or you do not have access to it."
    return RefusedError(message, "model", "model_not_found", 404)


def _refused(error: RefusedError, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps({"error": error.error})
    return Response(body, error.status, headers, "application/json")
