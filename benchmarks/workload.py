"""The work of every competitor for one fiche with plain httpx: five calls that return dicts, and
functions that process them. It needs only httpx and the standard library, so that every environment
can import it."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any  # the answers are JSON, which this module does not validate

import httpx

Document = dict[str, Any]

DAY = "2026-02-03"
RECORDINGS = {"include_recordings": "true", "include_transcriptions": "false"}
FORM = {
    "model_id": "scribe_v1",
    "language_code": "fra",
    "timestamps_granularity": "word",
    "diarize": "true",
}
MESSAGES_A_CHUNK = 10
TIMEOUT_SECONDS = 120.0
NIVEAUX = ((90, "EXCELLENT"), (75, "BON"), (60, "ACCEPTABLE"))


def client(upstream: str, width: int = 50) -> httpx.AsyncClient:
    """One client for the whole work, which keeps its connections."""
    limits = httpx.Limits(max_connections=width, max_keepalive_connections=width)
    return httpx.AsyncClient(
        base_url=upstream, limits=limits, timeout=TIMEOUT_SECONDS, trust_env=False
    )


async def sales_list(http: httpx.AsyncClient) -> list[str]:
    """The ids of all fiches."""
    period = {"start_date": DAY, "end_date": DAY, "status_id": "53"}
    listed = read(await http.get("/api/fiches/sales-with-calls", params=period | RECORDINGS))
    return [fiche["id"] for fiche in listed["fiches"]]


async def steps_of(http: httpx.AsyncClient) -> list[Document]:
    """The prompts of the audit's steps, requested once per process. This call is not counted."""
    return read(await http.get("/steps"))


async def fetch_details(http: httpx.AsyncClient, fiche_id: str) -> Document:
    """With its `recordings`."""
    return read(await http.get(f"/api/fiches/by-id/{fiche_id}", params=RECORDINGS))


async def fetch_audio(http: httpx.AsyncClient, recording: Document) -> bytes:
    return (await http.get(recording["recording_url"])).raise_for_status().content


async def transcribe(http: httpx.AsyncClient, audio: bytes) -> Document:
    """With its `text` and `words`."""
    file = {"file": ("audio.mp3", audio, "audio/mpeg")}
    return read(await http.post("/v1/speech-to-text", data=FORM, files=file))


async def judge(
    http: httpx.AsyncClient,
    step: Document,
    recordings: Sequence[Document],
    transcripts: Sequence[Document],
) -> Document:
    """The model's answer for one step."""
    content = question(step, recordings, [chunks_of(each) for each in transcripts])
    kind = {"Content-Type": "application/json"}
    return judgement(read(await http.post("/v1/chat/completions", content=content, headers=kind)))


def question(
    step: Document, recordings: Sequence[Document], chunks: Sequence[Sequence[Document]]
) -> bytes:
    """The same bytes as those of `automation_run`."""
    before, after = step["user"]
    user = before + timeline(recordings, chunks) + after
    messages = [{"role": "system", "content": step["system"]}, {"role": "user", "content": user}]
    body = {
        "model": step["model"],
        "messages": messages,
        "response_format": step["response_format"],
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def judgement(completion: Document) -> Document:
    return json.loads(completion["choices"][0]["message"]["content"])


def words_of(transcript: Document) -> int:
    """The number of words, without spacings."""
    return sum(word["type"] != "spacing" for word in transcript["words"])


def chunks_of(transcript: Document) -> list[Document]:
    """Chunks of ten messages. A message is what one speaker says without a break."""
    messages = list(_messages(transcript["words"]))
    return [
        _chunk(index, messages[first : first + MESSAGES_A_CHUNK])
        for index, first in enumerate(range(0, len(messages), MESSAGES_A_CHUNK))
    ]


def timeline(recordings: Sequence[Document], chunks: Sequence[Sequence[Document]]) -> str:
    """The transcripts in the format of the prompt."""
    transcripts = zip(recordings, chunks, strict=True)
    results = (
        _timeline_text(number, recording, result)
        for number, (recording, result) in enumerate(transcripts, start=1)
    )
    return (
        "\n\n".join(("=== TRANSCRIPTION DES APPELS ===", *results))
        + "\n=== FIN DE LA TRANSCRIPTION ==="
    )


def score(steps: Sequence[Document], judgements: Sequence[Document]) -> float:
    weights = [step["weight"] for step in steps]
    earned = sum(
        min(max(each["score"], 0), most) for each, most in zip(judgements, weights, strict=True)
    )
    return 100 * earned / sum(weights)


def verdict(steps: Sequence[Document], judgements: Sequence[Document]) -> str:
    """A critical step that is not CONFORME rejects the whole audit."""
    critical = [each for step, each in zip(steps, judgements, strict=True) if step["is_critical"]]
    if any(each["conforme"] != "CONFORME" for each in critical):
        return "REJET"
    reached = score(steps, judgements)
    return next((niveau for least, niveau in NIVEAUX if reached >= least), "INSUFFISANT")


def read(response: httpx.Response) -> Any:  # noqa: ANN401  JSON
    """HTTPStatusError: the status is no success."""
    return json.loads(response.raise_for_status().content)


def _messages(words: Sequence[Document]) -> Iterator[Document]:
    result = (word for word in words if word["type"] != "spacing")
    for speaker, turn in groupby(result, key=lambda word: word["speaker_id"]):
        spoken = list(turn)
        text = " ".join(word["text"] for word in spoken)
        yield {
            "speaker": speaker,
            "text": text,
            "start": spoken[0]["start"],
            "end": spoken[-1]["end"],
        }


def _chunk(index: int, messages: Sequence[Document]) -> Document:
    return {
        "index": index,
        "start": messages[0]["start"],
        "end": messages[-1]["end"],
        "message_count": len(messages),
        "speakers": list(dict.fromkeys(message["speaker"] for message in messages)),
        "full_text": "\n".join(f"{message['speaker']}: {message['text']}" for message in messages),
    }


def _timeline_text(number: int, recording: Document, chunks: Sequence[Document]) -> str:
    started_at = datetime.fromisoformat(recording["start_time"])
    facts = {
        "Date": f"{started_at:%d/%m/%Y}",
        "Heure": f"{started_at:%H:%M}",
        "Appel": recording["call_id"],
        "De": recording["from_number"],
        "Vers": recording["to_number"],
        "Durée": f"{recording['duration_seconds']} s",
        "Segments": len(chunks),
    }
    segments = (
        f"[Segment {each['index'] + 1}] {each['start']:.1f} s - {each['end']:.1f} s | "
        f"Locuteurs : {', '.join(each['speakers'])}\n{each['full_text']}"
        for each in chunks
    )
    described = " | ".join(f"{name} : {fact}" for name, fact in facts.items())
    return "\n".join((f"--- Enregistrement {number} ---", described, "\n\n".join(segments)))
