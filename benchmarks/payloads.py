"""The answers of the upstream, rendered once by the simulator's generators; `upstream.py` only
inserts ids. All fiches are equal except for their ids and numbers of recordings: one to three sales
calls of 370 to 520 words."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from automation_pipeline.audits.models.audits import (
    ExcerptOptions,
    Timeline,
    TimelineChunk,
    TimelineRecording,
)
from automation_pipeline.audits.models.configs import parse_config
from automation_pipeline.audits.rules.prompts import StepPrompt, step_question, timeline_text
from automation_pipeline.clients.elevenlabs import TranscriptPayload
from automation_pipeline.clients.llm import question_json
from automation_pipeline.simulator.audio import mp3
from automation_pipeline.simulator.crm.sections import (
    Section,
    details_json,
    french_minute,
    recording_json,
)
from automation_pipeline.simulator.llm.completions import Completion
from automation_pipeline.simulator.llm.replies import reply_to
from automation_pipeline.simulator.llm.requests import read_request
from automation_pipeline.simulator.speech.conversation import conversation
from automation_pipeline.simulator.world.world import Fiche, Recording, World
from automation_pipeline.transcription.rules import chunks_of

AUDIT = Path(__file__).with_name("audit.json")
FIRST_ID = 700_000_000
MODEL = "gpt-5.2"
WORLD = World(seed=7, fiches_per_day=60, vary=False)
# Sales calls of 517, 374 and 481 words. The details come from the fiche of the first one.
CALLS = ("95300000100", "95300001201", "95300002001")
STARTED_AT = datetime(2026, 2, 3, 9, tzinfo=UTC)
MOST = len(CALLS)


def fiche_ids(number: int) -> range:
    return range(FIRST_ID, FIRST_ID + number)


def recordings_of(fiche_id: int) -> int:
    """Two on average."""
    return fiche_id % MOST + 1


class Template:
    """Bytes with a placeholder that each answer replaces."""

    def __init__(self, body: bytes, name: bytes) -> None:
        self._parts = body.split(name)
        self.size = len(body)

    def with_name(self, name: bytes) -> bytes:
        return name.join(self._parts)


class Payloads:
    """`details` by number of recordings; `audio` and `speech` by position of the recording;
    `judged` by number of recordings and step."""

    def __init__(self, origin: str) -> None:
        self._fiche = _fiche()
        self._name = self._fiche.id.encode()
        self._origin = origin
        self._config = parse_config(json.loads(AUDIT.read_text()))
        self._speech_bodies = [_json(_speech(call)) for call in CALLS]
        self.speech = [Template(body, b"tr_template") for body in self._speech_bodies]
        self.audio = [
            Template(mp3(recording.call_id, recording.duration_seconds), self._name)
            for recording in self._fiche.recordings
        ]
        self.details = {number: self._details(number) for number in range(1, MOST + 1)}
        self.judged = {
            (number, step.position): self._judged(number, step.position)
            for number in range(1, MOST + 1)
            for step in self._config.steps
        }

    def sales_list(self, number: int) -> bytes:
        rows = {
            many: Template(_json(self._summary(many)), self._name) for many in range(1, MOST + 1)
        }
        fiches = (
            rows[recordings_of(each)].with_name(str(each).encode()) for each in fiche_ids(number)
        )
        return b'{"fiches":[' + b",".join(fiches) + b'],"total":' + str(number).encode() + b"}"

    def steps(self) -> bytes:
        """The prompts of the steps without the transcripts, for programs that do not render
        prompts."""
        return _json([self._asked(position) for position in range(1, len(self._config.steps) + 1)])

    def sizes(self) -> dict[str, object]:
        return {
            "details": [each.size for each in self.details.values()],
            "audio": [each.size for each in self.audio],
            "transcript": [each.size for each in self.speech],
            "words": [json.loads(body)["text"].count(" ") + 1 for body in self._speech_bodies],
            "prompt": {str(number): len(self._prompt(number, 1)) for number in self.details},
            "judgement": {str(number): len(self.judged[number, 1]) for number in self.details},
        }

    def _calls(self, number: int) -> list[Section]:
        return [
            recording_json(call, self._origin, with_transcription=False)
            for call in self._fiche.recordings[:number]
        ]

    def _details(self, number: int) -> Template:
        return Template(
            _json(details_json(self._fiche, self._calls(number), with_mail_devis=False)), self._name
        )

    def _summary(self, number: int) -> Section:
        fiche, prospect = self._fiche, self._fiche.prospect
        return {
            "id": fiche.id,
            "cle": fiche.cle,
            "nom": prospect.nom,
            "prenom": prospect.prenom,
            "telephone": prospect.telephone,
            "telephone_2": prospect.telephone_2,
            "email": prospect.email,
            "statut": "Vente",
            "date_insertion": french_minute(fiche.inserted_at),
            "date_modification": None,
            "recordings": self._calls(number),
        }

    def _judged(self, number: int, position: int) -> bytes:
        asked = read_request(self._prompt(number, position))
        return Completion(
            asked, reply_to(asked, seed=7, inventions=0), f"{number}{position}".ljust(64, "0")
        ).json

    def _prompt(self, number: int, position: int) -> bytes:
        step = self._config.steps[position - 1]
        task = StepPrompt(config=self._config, step=step, timeline=self._timeline(number))
        return question_json(step_question(task, ExcerptOptions()), MODEL, None)

    def _asked(self, position: int) -> dict[str, object]:
        """`user` has two parts, with the transcripts in between."""
        empty, step = Timeline(()), self._config.steps[position - 1]
        task = StepPrompt(config=self._config, step=step, timeline=empty)
        body = json.loads(question_json(step_question(task, ExcerptOptions()), MODEL, None))
        system, user = (message["content"] for message in body["messages"])
        return {
            "model": MODEL,
            "system": system,
            "user": user.split(timeline_text(empty)),
            "response_format": body["response_format"],
            "weight": step.weight,
            "is_critical": step.is_critical,
        }

    def _timeline(self, number: int) -> Timeline:
        pairs = zip(self._fiche.recordings[:number], self._speech_bodies, strict=False)
        return Timeline(
            tuple(_recording_of(index, call, result) for index, (call, result) in enumerate(pairs))
        )


def _fiche() -> Fiche:
    """A fiche with one recording per call. The call ids begin with the id of the fiche."""
    fiche = WORLD.fiche(CALLS[0][:-2])
    assert fiche is not None
    lengths = accumulate((_recording(call).duration_seconds for call in CALLS), initial=0)
    recordings = tuple(
        replace(
            _recording(call),
            call_id=f"{fiche.id}{place:02d}",
            started_at=STARTED_AT.replace(hour=9 + place, minute=start % 60),
            has_url=True,
        )
        for place, (call, start) in enumerate(zip(CALLS, lengths, strict=False))
    )
    return replace(fiche, recordings=recordings)


def _recording(call_id: str) -> Recording:
    recording = WORLD.recording(call_id)
    assert recording is not None
    return recording


def _speech(call_id: str) -> dict[str, object]:
    fiche = WORLD.fiche(call_id[:-2])
    assert fiche is not None
    transcripts = conversation(fiche, _recording(call_id))
    words = [
        {
            "text": w.text,
            "start": w.start,
            "end": w.end,
            "type": w.kind,
            "speaker_id": w.speaker,
            "logprob": w.logprob,
        }
        for w in transcripts.words
    ]
    return {
        "language_code": "fra",
        "language_probability": 0.98,
        "text": transcripts.text,
        "words": words,
        "transcription_id": "tr_template",
    }


def _recording_of(index: int, call: Recording, given: bytes) -> TimelineRecording:
    transcript = TranscriptPayload.model_validate_json(given).to_transcript("")
    chunks = tuple(
        TimelineChunk(
            chunk.index,
            chunk.start,
            chunk.end,
            chunk.message_count,
            chunk.speakers,
            chunk.full_text,
        )
        for chunk in chunks_of(transcript.words)
    )
    return TimelineRecording(
        index=index,
        call_id=call.call_id,
        date=f"{call.started_at:%d/%m/%Y}",
        time=f"{call.started_at:%H:%M}",
        url="",
        duration_seconds=call.duration_seconds,
        from_number=call.from_number,
        to_number=call.to_number,
        chunks=chunks,
    )


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
