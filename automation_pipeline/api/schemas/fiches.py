"""Fiches, their recordings and the jobs over days, as the API shows them."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from automation_pipeline.core.json_model import Instant

SOME: Mapping[str, object] = {"ficheIds": ["1900417", "1900418"]}


class _Shown(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid")


class TranscriptionPart(_Shown):
    total: int
    transcribed: int
    pending: int
    percentage: int = Field(ge=0, le=100)
    is_complete: bool
    last_transcribed_at: Instant | None


class AuditInShort(_Shown):
    id: str
    audit_config_id: str
    audit_config_name: str
    status: Literal["pending", "running", "completed", "failed"]
    score_percentage: float | None
    niveau: str | None
    is_compliant: bool | None
    error_message: str | None
    created_at: Instant
    completed_at: Instant | None


class AuditPart(_Shown):
    """The latest audit of each configuration."""

    total: int
    completed: int
    pending: int
    running: int
    compliant: int
    non_compliant: int
    average_score: float | None
    latest_audit: AuditInShort | None
    audits: list[AuditInShort]


class FicheStatus(_Shown):
    fiche_id: str
    has_data: bool
    transcription: TranscriptionPart
    audit: AuditPart


class CacheRow(_Shown):
    fiche_id: str
    groupe: str | None
    prospect_nom: str | None
    prospect_prenom: str | None
    recordings_count: int
    fetched_at: Instant
    expires_at: Instant


class CallInShort(_Shown):
    id: str
    call_id: str
    has_transcription: bool
    transcribed_at: Instant | None
    start_time: Instant
    duration_seconds: int


class FicheRow(_Shown):
    fiche_id: str
    groupe: str | None
    agence_nom: str | None
    prospect_nom: str | None
    prospect_prenom: str | None
    prospect_email: str | None
    prospect_tel: str | None
    fetched_at: Instant
    created_at: Instant | None
    transcription: TranscriptionPart
    audit: AuditPart
    recordings: list[CallInShort]


class DayShown(_Shown):
    """`total` fiches were sold; the page holds some of them."""

    date: str = Field(examples=["2026-02-03"])
    total: int
    fiches: list[FicheRow]


class CacheCoverage(_Shown):
    dates_with_data: list[str]
    dates_missing: list[str]


class RangeMeta(_Shown):
    complete: bool
    partial: bool
    background_job_id: str | None = None
    total_days_requested: int
    days_fetched: int
    days_remaining: int
    days_cached: int
    cache_coverage: CacheCoverage


class RangeShown(_Shown):
    success: Literal[True] = True
    start_date: str = Field(examples=["2026-02-01"])
    end_date: str = Field(examples=["2026-02-07"])
    total: int
    fiches: list[FicheRow]
    meta: RangeMeta


class ListedCall(BaseModel):
    call_id: str
    start_time: Instant
    duration_seconds: int
    direction: str
    from_number: str
    to_number: str
    answered: bool
    recording_url: str | None = Field(description="Only for callers who may read recordings.")


class ListedStatus(_Shown):
    has_data: bool
    transcription: TranscriptionPart
    audit: AuditPart


class ListedFiche(BaseModel):
    """As the CRM lists it, under its names."""

    id: str
    cle: str | None
    nom: str
    prenom: str
    telephone: str
    telephone_2: str | None
    email: str
    statut: str
    date_insertion: Instant | None
    date_modification: Instant | None
    recordings: list[ListedCall]
    status: ListedStatus | None = None


class Found(BaseModel):
    fiches: list[ListedFiche]
    total: int


class FicheDetails(BaseModel):
    """The whole fiche as it is mirrored; the sections have the CRM's names."""

    model_config = ConfigDict(extra="allow")

    fiche_id: str
    groupe: str | None
    state: Literal["full details", "sales list only", "not found"]
    details_fetched_at: Instant | None
    information: dict[str, Any] | None  # Any: JSON
    prospect: dict[str, Any] | None
    recordings: list[dict[str, Any]]


class RecordingRow(_Shown):
    id: str
    fiche_id: str
    call_id: str
    recording_url: str | None
    recording_date: str | None
    recording_time: str | None
    uuid: str | None
    start_time: Instant
    duration_seconds: int
    direction: str
    from_number: str
    to_number: str
    answered: bool
    vanished_at: Instant | None
    has_transcription: bool
    transcription_id: str | None
    transcription_text: str | None
    transcription_language_code: str | None
    transcription_language_probability: float | None
    transcribed_at: Instant | None


class RecordingList(BaseModel):
    success: Literal[True] = True
    data: list[RecordingRow]
    count: int
