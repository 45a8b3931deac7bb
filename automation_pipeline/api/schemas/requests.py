"""What became of what was asked for, as the API shows it."""

from typing import Literal, Self

from pydantic import BaseModel, Field

from automation_pipeline.audits.domain.audit import AuditStatus
from automation_pipeline.audits.domain.audit import Standing as Audit
from automation_pipeline.audits.store.followed import RerunStanding
from automation_pipeline.core.json_model import Id
from automation_pipeline.transcription.domain.run import Standing as Transcription


class TranscriptionProgress(BaseModel):
    run_id: str
    fiche_id: str
    status: Literal["running", "completed", "failed"]
    total: int
    already_transcribed: int
    target_total: int
    processed: int
    cached: int
    failed: int
    error: str | None


class TranscriptionRequest(BaseModel):
    """Neither `standing` nor `refused` while nothing has begun."""

    key: str = Field(examples=["transcribe-1900417-1770111111111"])
    fiche_id: str
    run_id: str | None
    standing: TranscriptionProgress | None
    refused: str | None

    @classmethod
    def of(cls, key: str, fiche_id: str, run_id: str | None, found: Transcription | str | None) -> Self:
        standing = TranscriptionProgress(**vars(found)) if isinstance(found, Transcription) else None
        refused = found if isinstance(found, str) else None
        return cls(key=key, fiche_id=fiche_id, run_id=run_id, standing=standing, refused=refused)


class AuditStanding(BaseModel):
    """`done` steps are judged, `failed` ones could not be. Only a completed audit has a score."""

    audit_id: Id
    tracking_id: str
    fiche_id: str
    audit_config_id: Id
    status: AuditStatus
    niveau: str
    score_percentage: float | None
    steps: int
    done: int
    failed: int
    error: str | None


class AuditRequest(BaseModel):
    """Neither `standing` nor `refused` while nothing has begun."""

    key: str = Field(examples=["audit-1900417-11-1770111111111"])
    fiche_id: str
    standing: AuditStanding | None
    refused: str | None

    @classmethod
    def of(cls, key: str, fiche_id: str, found: Audit | str | None) -> Self:
        standing = AuditStanding(**vars(found)) if isinstance(found, Audit) else None
        return cls(key=key, fiche_id=fiche_id, standing=standing, refused=found if isinstance(found, str) else None)


class RerunRequest(BaseModel):
    key: str = Field(examples=["rerun-501-3-2f1c"])
    fiche_id: str
    begun: bool
    done: bool
    refused: str | None

    @classmethod
    def of(cls, key: str, fiche_id: str, found: RerunStanding) -> Self:
        return cls(key=key, fiche_id=fiche_id, begun=found.begun, done=found.done, refused=found.error)
