"""Replies in OpenAI's format, streamed or whole, and broken replies."""

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from automation_pipeline.simulator.llm.replies import Reply
from automation_pipeline.simulator.llm.requests import ChatRequest

CHARACTERS_PER_TOKEN = 4
# The characters per event of a stream.
PIECE_CHARACTERS = 60


def tokens(characters: int) -> int:
    return max(1, math.ceil(characters / CHARACTERS_PER_TOKEN))


@dataclass(frozen=True)
class Completion:
    """A reply in OpenAI's format. Its ids derive from the `digest` of the request, so that equal requests have equal
    ids."""

    request: ChatRequest
    reply: Reply
    digest: str

    @property
    def json(self) -> bytes:
        message: dict[str, object] = {
            "role": "assistant",
            "content": self.content,
            "refusal": None,
            "annotations": [],
        }
        if self.calls:
            message["tool_calls"] = self.calls
        choice: dict[str, object] = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self.ending,
        }
        return _encoded({**self._head("chat.completion"), "choices": [choice], "usage": self.usage})

    @property
    def events(self) -> bytes:
        parts = [
            json.dumps(part, ensure_ascii=False, separators=(",", ":")) for part in self._parts()
        ]
        return "".join(f"data: {part}\n\n" for part in (*parts, "[DONE]")).encode(
            "utf-8", "replace"
        )

    @cached_property
    def content(self) -> str | None:
        """The text of the reply, cut at the token limit."""
        limit, content = self.request.max_tokens, self.reply.content
        if content is None or limit is None:
            return content
        return content[: limit * CHARACTERS_PER_TOKEN]

    @cached_property
    def calls(self) -> list[dict[str, object]]:
        return [
            {
                "id": f"call_{hashlib.sha256(f'{self.digest}/{index}'.encode()).hexdigest()[:24]}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
            }
            for index, (name, arguments) in enumerate(self.reply.calls)
        ]

    @property
    def ending(self) -> str:
        if self.calls:
            return "tool_calls"
        return "stop" if self.content == self.reply.content else "length"

    @cached_property
    def usage(self) -> dict[str, object]:
        written = len(self.content or "") + sum(
            len(json.dumps(call["function"])) for call in self.calls
        )
        prompt_tokens, completion_tokens = tokens(self.request.characters), tokens(written)
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }

    def _head(self, kind: str) -> dict[str, object]:
        return {
            "id": f"chatcmpl-{self.digest[:29]}",
            "object": kind,
            "created": int(time.time()),
            "model": self.request.model,
            "service_tier": "default",
            "system_fingerprint": "fp_simulator",
        }

    def _parts(self) -> Iterator[dict[str, object]]:
        head = self._head("chat.completion.chunk")
        none_yet = {"usage": None} if self.request.include_usage else {}
        for delta in self._deltas():
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            yield {**head, "choices": [choice], **none_yet}
        last: dict[str, object] = {
            "index": 0,
            "delta": {},
            "logprobs": None,
            "finish_reason": self.ending,
        }
        yield {**head, "choices": [last], **none_yet}
        if self.request.include_usage:
            yield {**head, "choices": [], "usage": self.usage}

    def _deltas(self) -> Iterator[dict[str, object]]:
        yield {"role": "assistant", "content": None if self.calls else "", "refusal": None}
        for piece in _pieces(self.content or ""):
            yield {"content": piece}
        for index, (call, (name, arguments)) in enumerate(
            zip(self.calls, self.reply.calls, strict=True)
        ):
            yield {
                "tool_calls": [
                    {"index": index, **call, "function": {"name": name, "arguments": ""}}
                ]
            }
            for piece in _pieces(json.dumps(arguments, ensure_ascii=False)):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    return (
        text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS)
    )


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


CHATTER = "Voici mon analyse : l'étape me semble conforme, sans réserve."
UNKNOWN_VALUE = "PEUT_ETRE"
SORRY = "Je suis désolé, je ne peux pas répondre à cette demande."
_ENUM_VALUE = re.compile(r'"[A-Z][A-Z_]{2,}"')

Message = dict[str, Any]  # Any: JSON


def _chatter(message: Message) -> str:
    if _calls(message):
        _calls(message)[0]["function"]["arguments"] = CHATTER
    else:
        message["content"] = CHATTER
    return "stop"


def _reasoned(message: Message) -> str:
    """Imitate self-hosted models: reasoning in tags, then prose and a code fence around the answer."""
    if not _calls(message):
        thinking = 'The advisor says {hello}. A draft: {"traite": false}'
        answer = f"{CHATTER}\n```json\n{message['content']}\n```\nBonne journée."
        message["content"] = f"<think>\n{thinking}\n</think>\n{answer}"
    return "stop"


def _wrong_enum(message: Message) -> str:
    """Replace the first value in capitals by an unknown one, or the whole answer if there is none."""
    content, changed = _ENUM_VALUE.subn(f'"{UNKNOWN_VALUE}"', message["content"] or "", count=1)
    message["content"] = content if changed else json.dumps(UNKNOWN_VALUE)
    return "stop"


def _missing_field(message: Message) -> str:
    try:
        whole = json.loads(message["content"] or "")
    except ValueError:
        whole = None
    fields = cast("dict[str, object]", whole) if isinstance(whole, dict) else {}
    message["content"] = json.dumps(dict(list(fields.items())[1:]), ensure_ascii=False)
    return "stop"


def _cut(message: Message) -> str:
    message["content"] = (message["content"] or "")[: len(message["content"] or "") // 2]
    message.pop("tool_calls", None)
    return "length"


def _refusal(message: Message) -> str:
    message.pop("tool_calls", None)
    message.update(content=None, refusal=SORRY)
    return "stop"


def _calls(message: Message) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []


def _corruption(change: Callable[[Message], str]) -> Callable[[bytes], bytes]:
    """A function that corrupts the body of a completion. Streams and errors stay unchanged, and so do tool calls if
    only the content would change."""

    def corrupted(body: bytes) -> bytes:
        try:
            completion = json.loads(body)
        except ValueError:
            return body
        if "choices" not in completion:
            return body
        choice, usage = completion["choices"][0], completion["usage"]
        if _calls(choice["message"]) and change in {_wrong_enum, _missing_field}:
            return body
        ending = change(choice["message"])
        choice["finish_reason"] = "tool_calls" if _calls(choice["message"]) else ending
        written = choice["message"]["content"] or choice["message"]["refusal"] or ""
        usage["completion_tokens"] = tokens(len(written))
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        return json.dumps(completion, ensure_ascii=False).encode()

    return corrupted


CORRUPTIONS: Mapping[str, Callable[[bytes], bytes]] = {
    "content_not_json": _corruption(_chatter),
    "content_reasoned": _corruption(_reasoned),
    "content_wrong_enum": _corruption(_wrong_enum),
    "content_missing_field": _corruption(_missing_field),
    "content_cut": _corruption(_cut),
    "refusal": _corruption(_refusal),
}
