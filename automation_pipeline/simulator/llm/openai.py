"""OpenAI's HTTP endpoints: chat completions and the list of models, with OpenAI's errors."""

import hashlib
import hmac
import json
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from automation_pipeline.simulator.endpoint import Endpoint
from automation_pipeline.simulator.llm.completions import SPOILS, Completion
from automation_pipeline.simulator.llm.control import MODELS, ModelState
from automation_pipeline.simulator.llm.replies import CHAT, item_of, reply_to
from automation_pipeline.simulator.llm.requests import (
    ChatRequest,
    RefusedError,
    read_request,
    simulated,
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
            take_in=_take_in,
            error=simulated,
            error_key="error",
            spoils=SPOILS,
            given=provider.given,
        ),
        Endpoint(
            name="llm.models",
            path="/v1/models",
            handler=_models,
            item=lambda _: "models",
            refuse=provider.refuse_stranger,
            error=simulated,
            error_key="error",
        ),
        Endpoint(
            name="llm.model",
            path="/v1/models/{model}",
            handler=_model,
            item=lambda request: request.path_params["model"],
            refuse=provider.refuse_stranger,
            error=simulated,
            error_key="error",
        ),
    ]


class _Provider:
    def __init__(self, seed: int, api_key: str, state: ModelState) -> None:
        self._seed = seed
        self._api_key = api_key
        self._state = state

    def refuse_stranger(self, request: Request) -> Response | None:
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
        if stranger := self.refuse_stranger(request):
            return stranger
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
        asked = cast("ChatRequest | RefusedError", request.state.asked)
        request.state.item = CHAT if isinstance(asked, RefusedError) else item_of(asked)
        return request.state.item

    async def complete(self, request: Request) -> Response:
        asked = cast("ChatRequest | RefusedError", request.state.asked)
        if isinstance(asked, RefusedError):
            return _refused(asked)
        if refusal := self._refusal(asked):
            return _refused(refusal)
        reply = reply_to(asked, seed=self._seed, inventions=self._state.inventions)
        completion = Completion(asked, reply, hashlib.sha256(await request.body()).hexdigest())
        headers = {"x-request-id": f"req_{completion.digest[:32]}"}
        if asked.stream:
            return Response(completion.events, headers=headers, media_type="text/event-stream")
        return Response(completion.json, headers=headers, media_type="application/json")

    def given(self, request: Request, response: Response) -> None:
        self._state.answered.count(request.state.item, response.status_code, bytes(response.body))

    def _refusal(self, asked: ChatRequest) -> RefusedError | None:
        if asked.model not in MODELS:
            return _no_model(asked.model)
        if asked.characters > self._state.context_characters:
            message = (
                f"This model takes at most {self._state.context_characters} characters. Your messages have "
                f"{asked.characters}. Please reduce the length of the messages."
            )
            return RefusedError(message, "messages", "context_length_exceeded")
        return None


async def _take_in(request: Request) -> None:
    try:
        request.state.asked = read_request(await request.body())
    except RefusedError as refused:
        request.state.asked = refused


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
