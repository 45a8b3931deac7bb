"""Queries of audits: begin, claim, fence, end; one latest audit per fiche and configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Label,
    Row,
    Select,
    and_,
    bindparam,
    case,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from automation_pipeline.audits.models.audits import (
    AuditStatus,
    AuditSummary,
    FicheAuditRequest,
    TranscriptMode,
)
from automation_pipeline.audits.models.configs import (
    AuditConfig,
    config_document,
    fingerprint,
    parse_config,
)
from automation_pipeline.audits.models.findings import Niveau
from automation_pipeline.audits.tables import AuditRow, ConfigSnapshotRow, StepResultRow
from automation_pipeline.core.access import Reach
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.fiches.queries.fiches import within
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.clock import database_now, database_time
from automation_pipeline.storage.group_commit import once_per_group
from automation_pipeline.storage.prepared import execute
from automation_pipeline.storage.statements import among, upsert


def _count_steps(
    counted: InstrumentedAttribute[int] | InstrumentedAttribute[str | None], name: str
) -> Label[int]:
    of_audit = StepResultRow.audit_id == AuditRow.id
    return (
        select(func.count(counted))
        .where(of_audit)
        .correlate(AuditRow)
        .scalar_subquery()
        .label(name)
    )


# Without the audit's documents. Steps that were attempted, and those of them that could not be
# judged.
SUMMARY_COLUMNS = (
    AuditRow.id,
    AuditRow.tracking_id,
    AuditRow.audit_config_id,
    AuditRow.status,
    AuditRow.niveau,
    AuditRow.score_percentage,
    AuditRow.total_steps,
    AuditRow.error_message,
    FicheCacheRow.fiche_id,
    _count_steps(StepResultRow.audit_id, "attempted"),
    _count_steps(StepResultRow.error, "failed"),
)


def summaries_by_tracking_id(
    session: Session, tracking_ids: Sequence[str]
) -> dict[str, AuditSummary]:
    """Of those of the audits that have begun."""
    begun = session.execute(
        select(*SUMMARY_COLUMNS)
        .join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
        .where(among(session, AuditRow.tracking_id, tracking_ids))
    )
    return {row.tracking_id: summary_from_row(row) for row in begun}


def fiche_of_audit(session: Session, audit_id: int) -> str | None:
    """The id of the fiche that was judged; deleted audits have one too."""
    return session.scalar(
        select(FicheCacheRow.fiche_id)
        .join(AuditRow, AuditRow.fiche_cache_id == FicheCacheRow.id)
        .where(AuditRow.id == audit_id)
    )


def summary_from_row(row: Row[tuple[object, ...]]) -> AuditSummary:
    """Of a row that has the columns of STANDING."""
    return AuditSummary(
        audit_id=row.id,
        tracking_id=row.tracking_id,
        fiche_id=row.fiche_id,
        audit_config_id=row.audit_config_id,
        status=AuditStatus(row.status),
        niveau=row.niveau,
        score_percentage=None if row.score_percentage is None else float(row.score_percentage),
        steps=row.total_steps,
        done=row.attempted - row.failed,
        failed=row.failed,
        error=row.error_message,
    )


_RECORD_COLUMNS = (
    AuditRow.config_fingerprint,
    AuditRow.timeline_fingerprint,
    AuditRow.version,
    AuditRow.is_latest,
    AuditRow.started_at,
    AuditRow.created_at,
    AuditRow.transcript_mode,
    AuditRow.use_rlm,
)
_FOUND = select(*SUMMARY_COLUMNS, *_RECORD_COLUMNS).join(
    FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id
)
_BY_ID = _FOUND.where(AuditRow.id == bindparam("wanted"))
_BY_TRACKING_ID = _FOUND.where(AuditRow.tracking_id == bindparam("wanted"))
_RUNNING = (AuditRow.id == bindparam("audit"), AuditRow.status == AuditStatus.RUNNING)
_UNFINISHED = or_(AuditRow.status == AuditStatus.RUNNING, AuditRow.status == AuditStatus.INCOMPLETE)
_CLAIM = (
    update(AuditRow)
    .where(AuditRow.id == bindparam("audit"), _UNFINISHED, AuditRow.fence <= bindparam("token"))
    .values(
        fence=bindparam("token"),
        status=AuditStatus.RUNNING,
        touched_at=bindparam("at"),
        completed_at=None,
        duration_ms=None,
        error_message=None,
    )
)
_LOCK = update(AuditRow).where(*_RUNNING).values(touched_at=bindparam("at"))
_LOCK_WITH_FENCE = _LOCK.where(AuditRow.fence == bindparam("token"))
_ADD = insert(AuditRow).returning(AuditRow.id)
_CHANGE = update(AuditRow).where(
    AuditRow.id == bindparam("of_audit")
)  # what is given with it is set
_LOCKED_FICHE = (
    select(FicheCacheRow.id).where(FicheCacheRow.fiche_id == bindparam("fiche")).with_for_update()
)
_LAST_VERSION = select(func.max(AuditRow.version)).where(
    AuditRow.fiche_cache_id == bindparam("fiche"), AuditRow.audit_config_id == bindparam("config")
)
_TRIGGER = select(
    AuditRow.trigger_source, AuditRow.automation_schedule_id, AuditRow.automation_run_id
).where(AuditRow.id == bindparam("audit"))
MAX_CACHED_CONFIGS = 100
_CONFIGS: dict[str, AuditConfig] = {}


@dataclass(frozen=True)
class AuditRecord:
    """An audit and the configuration that it judges by, as that was when the audit began."""

    summary: AuditSummary
    config: AuditConfig
    version: int
    is_latest: bool
    timeline_fingerprint: str | None
    started_at: datetime
    transcript_mode: TranscriptMode
    use_rlm: bool


def find_audit(session: Session, tracking_id: str) -> AuditRecord | None:
    return _read_audit(session, _BY_TRACKING_ID, tracking_id)


def get_audit(session: Session, audit_id: int) -> AuditRecord:
    found = _read_audit(session, _BY_ID, audit_id)
    if found is None:
        raise NotFoundError("Audit not found")
    return found


def _read_audit(
    session: Session, query: Select[Any], wanted: int | str
) -> AuditRecord | None:  # Any: its columns
    row = execute(session, query, {"wanted": wanted}).first()
    if row is None:
        return None
    return AuditRecord(
        summary=summary_from_row(row),
        config=_config_of(session, row.config_fingerprint),
        version=row.version,
        is_latest=row.is_latest,
        timeline_fingerprint=row.timeline_fingerprint,
        started_at=row.started_at or row.created_at,
        transcript_mode=TranscriptMode(row.transcript_mode),
        use_rlm=row.use_rlm,
    )


def _config_of(session: Session, fingerprint_: str) -> AuditConfig:
    """What has a fingerprint never changes: it is read once."""
    if fingerprint_ not in _CONFIGS:
        if len(_CONFIGS) >= MAX_CACHED_CONFIGS:
            _CONFIGS.clear()
        document = select(ConfigSnapshotRow.document).where(
            ConfigSnapshotRow.fingerprint == fingerprint_
        )
        _CONFIGS[fingerprint_] = parse_config(session.scalars(document).one())
    return _CONFIGS[fingerprint_]


def begin_audit(
    session: Session, request: FicheAuditRequest, config: AuditConfig, now: datetime
) -> AuditRecord:
    """A new audit of the fiche, or the one that the wish has begun before. While no audit by the
    configuration is completed, the newest one is the latest."""
    fiche = execute(session, _LOCKED_FICHE, {"fiche": request.fiche_id}).value()
    if fiche is None:
        raise NotFoundError(f"Fiche {request.fiche_id} not found")
    # Looked for under the lock on the fiche: two that begin at once make one audit.
    begun = find_audit(session, request.tracking_id)
    if begun is not None:
        return begun
    fingerprint_ = _snapshot_fingerprint(session, config)
    row = _new_row(request, config, fingerprint_, now)
    last = _last_version(session, fiche, request.audit_config_id)
    row.update(fiche_cache_id=fiche, version=last + 1, is_latest=True)
    if last:
        of_place = (
            AuditRow.fiche_cache_id == fiche,
            AuditRow.audit_config_id == request.audit_config_id,
        )
        _demote(session, *of_place, AuditRow.status != AuditStatus.COMPLETED)
        row["is_latest"] = (
            session.scalar(select(AuditRow.id).where(*of_place, AuditRow.is_latest)) is None
        )
    return get_audit(session, execute(session, _ADD, row).value())


def find_reusable_audit(
    session: Session, found: AuditRecord, timeline_fingerprint: str
) -> int | None:
    """The newest earlier audit of the fiche that ended without a grade and judges the same calls in
    the same way: what it judged holds for the audit too."""
    mine, earlier = aliased(AuditRow), AuditRow
    alike = (
        earlier.fiche_cache_id,
        earlier.audit_config_id,
        earlier.config_fingerprint,
        earlier.use_rlm,
    )
    return session.scalar(
        select(earlier.id)
        .join(mine, and_(*(column == getattr(mine, column.key) for column in alike)))
        .where(
            mine.id == found.summary.audit_id,
            earlier.version < mine.version,
            earlier.status.in_((AuditStatus.INCOMPLETE, AuditStatus.FAILED)),
            earlier.timeline_fingerprint == timeline_fingerprint,
            earlier.deleted_at.is_(None),
        )
        .order_by(earlier.version.desc())
        .limit(1)
    )


def triggered_by(session: Session, audit_id: int) -> dict[str, object]:
    """Who or what asked for the audit, as its documents say it."""
    source, schedule, run = execute(session, _TRIGGER, {"audit": audit_id}).one()
    return {
        "trigger_source": source,
        "automation_schedule_id": None if schedule is None else str(schedule),
        "automation_run_id": None if run is None else str(run),
    }


def claim_audit(session: Session, audit_id: int, token: int) -> bool:
    """Fence off whoever worked on it before; an incomplete audit runs again. False when a later
    holder has it, or when it is completed or has failed."""
    values = {"audit": audit_id, "token": token, "at": database_time(session)}
    return execute(session, _CLAIM, values).changed == 1


def lock_running_audit(session: Session, audit_id: int, token: int | None, now: datetime) -> bool:
    """The audit's row, ours to the end of the transaction. False when it has ended or, given a
    token, passed on."""
    values = {"audit": audit_id, "at": now}
    if token is None:
        return execute(session, _LOCK, values).changed == 1
    return execute(session, _LOCK_WITH_FENCE, {**values, "token": token}).changed == 1


def lock_audit(session: Session, audit_id: int) -> None:
    """The audit's row, ours to the end of the transaction, in whatever state it is: who changes it
    too waits."""
    session.execute(select(AuditRow.id).where(AuditRow.id == audit_id).with_for_update())


def get_changeable_audit(session: Session, audit_id: int) -> AuditRecord:
    """ConflictError unless the audit is completed, from which it never goes back, and not
    deleted."""
    found = get_audit(session, audit_id)
    if found.summary.status is not AuditStatus.COMPLETED:
        message = (
            f"Audit {audit_id} is {found.summary.status}: only a completed audit can be changed."
        )
        if found.summary.status is AuditStatus.INCOMPLETE:
            message += " Audit the fiche again to finish it."
        raise ConflictError(message)
    if is_deleted(session, audit_id):
        raise ConflictError(f"Audit {audit_id} is deleted: restore it before it is changed.")
    return found


def stale_audits(
    session: Session, silent_for_seconds: float, *, limit: int
) -> list[tuple[int, str]]:
    """Running audits (id, tracking id) that have stored nothing for that long."""
    silent = AuditRow.touched_at <= database_now(-silent_for_seconds)
    query = select(AuditRow.id, AuditRow.tracking_id).where(
        AuditRow.status == AuditStatus.RUNNING, silent
    )
    return list(session.execute(query.order_by(AuditRow.touched_at).limit(limit)).tuples())


def update_audit_row(session: Session, audit_id: int, values: Mapping[str, object]) -> None:
    execute(session, _CHANGE, {**values, "of_audit": audit_id})


def is_deleted(session: Session, audit_id: int) -> bool:
    return session.scalar(select(AuditRow.deleted_at).where(AuditRow.id == audit_id)) is not None


def set_deleted(session: Session, audit_id: int, deleted_at: datetime | None) -> None:
    """Softly. Another audit may become the latest."""
    place = session.execute(
        select(AuditRow.fiche_cache_id, AuditRow.audit_config_id).where(AuditRow.id == audit_id)
    ).one_or_none()
    if place is None:
        raise NotFoundError("Audit not found")
    fiche, config = place
    session.execute(select(FicheCacheRow.id).where(FicheCacheRow.id == fiche).with_for_update())
    _demote(session, AuditRow.id == audit_id)
    update_audit_row(session, audit_id, {"deleted_at": deleted_at})
    _choose_latest(session, fiche, config)


def promote(session: Session, audit_id: int) -> None:
    """Make the audit the latest of its fiche and configuration, unless a newer one is completed
    too."""
    place = select(AuditRow.fiche_cache_id, AuditRow.audit_config_id).where(AuditRow.id == audit_id)
    fiche, config = session.execute(place).one()
    session.execute(select(FicheCacheRow.id).where(FicheCacheRow.id == fiche).with_for_update())
    _choose_latest(session, fiche, config)


def _choose_latest(session: Session, fiche: int, config: int) -> None:
    """The newest completed audit, which no attempt without a grade displaces; without one, the
    newest. Never a deleted one. The caller holds the fiche."""
    of_place = (AuditRow.fiche_cache_id == fiche, AuditRow.audit_config_id == config)
    is_completed = case((AuditRow.status == AuditStatus.COMPLETED, 1), else_=0)
    best_first = (is_completed.desc(), AuditRow.version.desc())
    kept = (
        select(AuditRow.id)
        .where(*of_place, AuditRow.deleted_at.is_(None))
        .order_by(*best_first)
        .limit(1)
    )
    latest = session.scalar(kept)
    if latest is not None:
        _demote(session, *of_place, AuditRow.id != latest)
        update_audit_row(session, latest, {"is_latest": True})


def _demote(session: Session, *which: ColumnElement[bool]) -> None:
    session.execute(
        update(AuditRow)
        .where(*which, AuditRow.is_latest)
        .values(is_latest=False)
        .execution_options(synchronize_session=False)
    )


def _last_version(session: Session, fiche: int, config: int) -> int:
    return execute(session, _LAST_VERSION, {"fiche": fiche, "config": config}).value() or 0


def _snapshot_fingerprint(session: Session, config: AuditConfig) -> str:
    """The fingerprint under which it is kept."""
    return once_per_group(
        session, (_snapshot_fingerprint, config), lambda session: _store_snapshot(session, config)
    )


def _store_snapshot(session: Session, config: AuditConfig) -> str:
    fingerprint_ = fingerprint(config)
    row = {"fingerprint": fingerprint_, "document": config_document(config)}
    upsert(session, ConfigSnapshotRow, [row], key=("fingerprint",))
    return fingerprint_


def _new_row(
    request: FicheAuditRequest, config: AuditConfig, fingerprint_: str, now: datetime
) -> dict[str, object]:
    return {
        "tracking_id": request.tracking_id,
        "audit_config_id": request.audit_config_id,
        "config_fingerprint": fingerprint_,
        "automation_schedule_id": request.schedule_id,
        "automation_run_id": request.run_id,
        "trigger_source": request.trigger_source,
        "trigger_user_id": request.user_id,
        "dagster_run_id": request.dagster_run_id,
        "niveau": Niveau.PENDING,
        "critical_passed": 0,
        "total_steps": len(config.steps),
        "critical_total": sum(step.is_critical for step in config.steps),
        "status": AuditStatus.RUNNING,
        "started_at": now,
        "use_rlm": request.use_rlm,
        "transcript_mode": TranscriptMode.TOOLS if request.use_rlm else TranscriptMode.PROMPT,
        "fence": 0,
        "touched_at": now,
        "created_at": now,
    }


def unfinished_audits(session: Session) -> int:
    under_way = AuditRow.status.in_((AuditStatus.PENDING, AuditStatus.RUNNING))
    return session.scalar(select(func.count()).where(under_way)) or 0


def is_audit_visible(session: Session, reach: Reach, audit_id: int) -> bool:
    """One question, whether the audit is hidden or missing."""
    of_fiche = select(AuditRow.id).join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
    return (
        session.scalar(of_fiche.where(AuditRow.id == audit_id, within(session, reach))) is not None
    )
