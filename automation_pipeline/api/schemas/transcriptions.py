"""Transcripts as the API shows them, and what is answered to whoever asks for them."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from automation_pipeline.api.schemas.logs import WorkflowLines
from automation_pipeline.core.json_model import Instant

TWO: Mapping[str, object] = {"fiche_ids": ["1900417", "1900418"], "priority": "high"}


class _Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class RecordingStanding(_Camel):
    call_id: str
    has_transcription: bool
    transcription_id: str | None
    transcribed_at: Instant | None
    recording_date: str | None
    recording_time: str | None
    duration_seconds: int | None
    has_url: bool


class TranscriptionTask(_Camel):
    """One recording of a run. `owner` holds the claim for `seconds_left` more; `again_in_seconds` is until the next
    attempt."""

    call_id: str
    state: Literal["waiting", "working", "done", "cached", "failed"]
    attempts: int
    error: str | None
    owner: str | None
    token: int
    seconds_left: float | None
    again_in_seconds: float | None


class TranscriptionRun(_Camel):
    id: str
    state: Literal["processing", "finished", "finished with failures", "failed"]
    priority: Literal["high", "normal", "low"]
    target_total: int
    processed: int
    cached: int
    failed: int
    error: str | None
    started_at: Instant
    finished_at: Instant | None
    last_sign_of_life_at: Instant
    tasks: list[TranscriptionTask]


class TranscriptionStanding(_Camel):
    fiche_id: str
    total: int
    transcribed: int
    pending: int
    percentage: int
    recordings: list[RecordingStanding]
    run: TranscriptionRun | None = Field(description="The fiche's last run; null when there was none.")


class TranscriptShown(BaseModel):
    text: str
    language_code: str | None
    language_probability: float | None
    words: list[dict[str, Any]] = Field(description="Empty: what was said is kept in the text, not word by word.")


class RecordingShown(BaseModel):
    call_id: str
    recording_url: str | None = Field(description="Only for callers who may read recordings.")
    duration_seconds: int | None
    transcription_id: str | None
    has_transcription: bool
    transcription: TranscriptShown


class TranscriptionQueued(BaseModel):
    """`event_id` is the key of the request; `run_id` the run that works on the fiche, or will."""

    success: Literal[True] = True
    message: Literal["Transcription job queued"]
    fiche_id: str
    event_id: str
    run_id: str


class TranscriptionsQueued(BaseModel):
    """`event_ids` are of what was newly asked for; the rest is under way, or complete. `run_ids` are by fiche, of those
    that a run works on, or will."""

    success: Literal[True] = True
    message: str
    fiche_ids: list[str]
    event_ids: list[str]
    run_ids: dict[str, str]


class TranscriptionLines(WorkflowLines):
    trace_id: str | None
