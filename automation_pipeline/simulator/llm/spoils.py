"""Answers that only a language model gets wrong, made from a good one: the body of a completion in,
a bad one out."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from automation_pipeline.simulator.llm.completion import tokens

CHATTER = "Voici mon analyse : l'étape me semble conforme, sans réserve."
UNKNOWN_VALUE = "PEUT_ETRE"
SORRY = "Je suis désolé, je ne peux pas répondre à cette demande."
_ENUM_VALUE = re.compile(r'"[A-Z][A-Z_]{2,}"')

Message = dict[str, Any]  # Any: what our own completion holds


def _chatter(message: Message) -> str:
    if _calls(message):
        _calls(message)[0]["function"]["arguments"] = CHATTER
    else:
        message["content"] = CHATTER
    return "stop"


def _reasoned(message: Message) -> str:
    """As self-hosted models answer: the thinking in tags, and prose and a fence around the
    answer."""
    if not _calls(message):
        thinking = 'The advisor says {hello}. A draft: {"traite": false}'
        answer = f"{CHATTER}\n```json\n{message['content']}\n```\nBonne journée."
        message["content"] = f"<think>\n{thinking}\n</think>\n{answer}"
    return "stop"


def _wrong_enum(message: Message) -> str:
    """The first value in capitals becomes an unknown one; without such, all becomes a bare text."""
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


def _spoil(change: Callable[[Message], str]) -> Callable[[bytes], bytes]:
    """A stream, an error and (where only content can be wrong) a call of tools stay as they
    are."""

    def spoiled(body: bytes) -> bytes:
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

    return spoiled


SPOILS: Mapping[str, Callable[[bytes], bytes]] = {
    "content_not_json": _spoil(_chatter),
    "content_reasoned": _spoil(_reasoned),
    "content_wrong_enum": _spoil(_wrong_enum),
    "content_missing_field": _spoil(_missing_field),
    "content_cut": _spoil(_cut),
    "refusal": _spoil(_refusal),
}
