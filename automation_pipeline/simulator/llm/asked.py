"""The body of a chat completion as OpenAI reads it: what is asked, or which field is wrong."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from automation_pipeline.simulator.llm.errors import RefusedError, missing, wrong
from automation_pipeline.simulator.llm.formats import Format, read_format
from automation_pipeline.simulator.llm.messages import Message, read_messages
from automation_pipeline.simulator.llm.offers import Offer, read_offer

Fields = Mapping[str, object]

# Taken and of no effect here.
IGNORED = frozenset({
    "frequency_penalty", "logit_bias", "logprobs", "metadata", "modalities", "prediction", "presence_penalty",
    "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "safety_identifier", "seed", "service_tier",
    "stop", "store", "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
})  # fmt: skip
READ = frozenset({
    "model", "messages", "temperature", "response_format", "tools", "tool_choice", "parallel_tool_calls",
    "max_completion_tokens", "max_tokens", "n", "stream", "stream_options",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Asked:
    model: str
    messages: tuple[Message, ...]
    format: Format
    offer: Offer
    most_tokens: int | None
    stream: bool
    tells_usage: bool  # at the end of a stream

    @property
    def characters(self) -> int:
        return sum(message.characters for message in self.messages)


def read_asked(body: bytes) -> Asked:
    """Raises RefusedError."""
    fields = _fields(body)
    if unknown := set(fields) - READ - IGNORED:
        name = min(unknown)
        raise RefusedError(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise missing("model") if model is None else wrong("model", "a string", code="invalid_type")
    messages = read_messages(fields.get("messages"))
    _check_numbers(fields)
    stream = _flag(fields, "stream")
    options = fields.get("stream_options")
    if options is not None and not stream:
        raise RefusedError(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            "stream_options",
        )
    return Asked(
        model=model,
        messages=messages,
        format=read_format(fields.get("response_format"), messages),
        offer=read_offer(fields),
        most_tokens=cast(
            "int | None", fields.get("max_completion_tokens") or fields.get("max_tokens")
        ),
        stream=stream,
        tells_usage=isinstance(options, dict)
        and cast("dict[str, object]", options).get("include_usage") is True,
    )


def _fields(body: bytes) -> Fields:
    try:
        posted = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP "
            "library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
        ) from None
    if not isinstance(posted, dict):
        raise RefusedError("The body must be a JSON object.", None, "invalid_type")
    return cast("Fields", posted)


def _check_numbers(fields: Fields) -> None:
    temperature = fields.get("temperature")
    if temperature is not None and not (
        _is_number(temperature) and 0 <= cast("float", temperature) <= 2
    ):
        raise wrong("temperature", "a number from 0 to 2")
    for name in ("max_completion_tokens", "max_tokens"):
        if (most := fields.get(name)) is not None and not (
            _is_whole(most) and cast("int", most) >= 1
        ):
            raise wrong(name, "a whole number from 1")
    if (choices := fields.get("n")) is not None and not (_is_whole(choices) and choices == 1):
        raise wrong("n", "1, the only number of choices there is here")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_whole(value) or isinstance(value, float)


def _flag(fields: Fields, name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(name, "a boolean", code="invalid_type")
    return bool(value)
