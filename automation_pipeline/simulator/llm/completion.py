"""A reply as OpenAI sends it: one JSON object, or the events of a stream, with its tokens
counted."""

import hashlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from automation_pipeline.simulator.llm.asked import Asked
from automation_pipeline.simulator.llm.reply import Reply

CHARACTERS_A_TOKEN = 4
PIECE = 60


def tokens(characters: int) -> int:
    return max(1, math.ceil(characters / CHARACTERS_A_TOKEN))


@dataclass(frozen=True)
class Completion:
    """`digest` of the request makes ids, so that the same question has the same ones."""

    asked: Asked
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
        """Cut where there is no room for more."""
        most, content = self.asked.most_tokens, self.reply.content
        return content if content is None or most is None else content[: most * CHARACTERS_A_TOKEN]

    @cached_property
    def calls(self) -> list[dict[str, object]]:
        return [
            {
                "id": f"call_{hashlib.sha256(f'{self.digest}/{place}'.encode()).hexdigest()[:24]}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
            }
            for place, (name, arguments) in enumerate(self.reply.calls)
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
        asked, answered = tokens(self.asked.characters), tokens(written)
        return {
            "prompt_tokens": asked,
            "completion_tokens": answered,
            "total_tokens": asked + answered,
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
            "model": self.asked.model,
            "service_tier": "default",
            "system_fingerprint": "fp_simulator",
        }

    def _parts(self) -> Iterator[dict[str, object]]:
        head = self._head("chat.completion.chunk")
        none_yet = {"usage": None} if self.asked.tells_usage else {}
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
        if self.asked.tells_usage:
            yield {**head, "choices": [], "usage": self.usage}

    def _deltas(self) -> Iterator[dict[str, object]]:
        yield {"role": "assistant", "content": None if self.calls else "", "refusal": None}
        for piece in _pieces(self.content or ""):
            yield {"content": piece}
        for place, (call, (name, arguments)) in enumerate(
            zip(self.calls, self.reply.calls, strict=True)
        ):
            yield {
                "tool_calls": [
                    {"index": place, **call, "function": {"name": name, "arguments": ""}}
                ]
            }
            for piece in _pieces(json.dumps(arguments, ensure_ascii=False)):
                yield {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
