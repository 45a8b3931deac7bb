"""Queries of audits: start, claim, fence, end; one latest audit per fiche and configuration."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    ScalarSelect,
    and_,
    bindparam,
    case,
    func,
    select,
    tuple_,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from automation_pipeline.audits.models.audits import (
    AuditRecord,
    AuditStatus,
    AuditSummary,
    FicheAuditRequest,
    Niveau,
    TranscriptMode,
)
from automation_pipeline.audits.models.configs import (
    AuditConfig,
    config_document,
    fingerprint,
    parse_config,
)
from automation_pipeline.audits.tables import AuditRow, ConfigSnapshotRow, StepResultRow
from automation_pipeline.core.access import Reach
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.fiches.queries.mirror import within
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.group_commit import once_per_group
from automation_pipeline.storage.statements import (
    among,
    database_now,
    database_time,
    insert_rows,
    rounds,
    upsert,
)

MAX_CACHED_CONFIGS = 100


def _steps_counted(
    column: InstrumentedAttribute[int] | InstrumentedAttribute[str | None],
) -> ScalarSelect[int]:
    return (
        select(func.count(column))
        .where(StepResultRow.audit_id == AuditRow.id)
        .correlate(AuditRow)
        .scalar_subquery()
    )


_RECORDS = select(
    AuditRow.id,
    AuditRow.tracking_id,
    AuditRow.audit_config_id,
    AuditRow.status,
    AuditRow.niveau,
    AuditRow.score_percentage,
    AuditRow.total_steps,
    AuditRow.error_message,
    FicheCacheRow.fiche_id,
    _steps_counted(StepResultRow.audit_id).label("attempted"),
    _steps_counted(StepResultRow.error).label("failed"),
    AuditRow.config_fingerprint,
    AuditRow.timeline_fingerprint,
    AuditRow.version,
    AuditRow.is_latest,
    AuditRow.deleted_at,
    AuditRow.started_at,
    AuditRow.completed_at,
    AuditRow.created_at,
    AuditRow.transcript_mode,
    AuditRow.use_rlm,
    AuditRow.trigger_source,
    AuditRow.automation_schedule_id,
    AuditRow.automation_run_id,
    AuditRow.recordings_count,
    AuditRow.timeline_chunks,
    AuditRow.coverage,
    AuditRow.fence,
    FicheCacheRow.prospect_prenom,
    FicheCacheRow.prospect_nom,
    FicheCacheRow.groupe,
).join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
_CLAIM = (
    update(AuditRow)
    .where(
        AuditRow.id == bindparam("audit"),
        (AuditRow.status == AuditStatus.RUNNING) | (AuditRow.status == AuditStatus.INCOMPLETE),
        AuditRow.fence <= bindparam("token"),
    )
    .values(
        fence=bindparam("token"),
        status=AuditStatus.RUNNING,
        touched_at=bindparam("at"),
        completed_at=None,
        duration_ms=None,
        error_message=None,
    )
)
_UPDATE = update(AuditRow).where(AuditRow.id == bindparam("of_audit"))
_CONFIGS: dict[str, AuditConfig] = {}


def audits_by_tracking_id(session: Session, tracking_ids: Sequence[str]) -> dict[str, AuditRecord]:
    return {
        record.summary.tracking_id: record
        for record in _records(session, among(session, AuditRow.tracking_id, tracking_ids))
    }


def get_audit(session: Session, audit_id: int) -> AuditRecord:
    found = audits_by_id(session, [audit_id])
    if not found:
        raise NotFoundError("Audit not found")
    return found[audit_id]


def audits_by_id(session: Session, audit_ids: Sequence[int]) -> dict[int, AuditRecord]:
    return {
        record.summary.audit_id: record
        for record in _records(session, among(session, AuditRow.id, audit_ids))
    }


def _records(session: Session, which: ColumnElement[bool]) -> list[AuditRecord]:
    return [_record(session, row) for row in session.execute(_RECORDS.where(which)).all()]


def _record(session: Session, row: Row[Any]) -> AuditRecord:  # the columns of _RECORDS
    return AuditRecord(
        summary=AuditSummary(
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
        ),
        config=_config(session, row.config_fingerprint),
        version=row.version,
        is_latest=row.is_latest,
        is_deleted=row.deleted_at is not None,
        use_rlm=row.use_rlm,
        transcript_mode=TranscriptMode(row.transcript_mode),
        timeline_fingerprint=row.timeline_fingerprint,
        started_at=row.started_at or row.created_at,
        completed_at=row.completed_at,
        trigger_source=row.trigger_source,
        automation_schedule_id=row.automation_schedule_id,
        automation_run_id=row.automation_run_id,
        prospect_name=" ".join(filter(None, (row.prospect_prenom, row.prospect_nom))),
        groupe=row.groupe,
        recordings=row.recordings_count or 0,
        chunks=row.timeline_chunks or 0,
        coverage=row.coverage,
        fence=row.fence,
    )


def _config(session: Session, key: str) -> AuditConfig:
    """Snapshots never change, so each is read once."""
    if key not in _CONFIGS:
        if len(_CONFIGS) >= MAX_CACHED_CONFIGS:
            _CONFIGS.clear()
        _CONFIGS[key] = parse_config(
            session.scalars(
                select(ConfigSnapshotRow.document).where(ConfigSnapshotRow.fingerprint == key)
            ).one()
        )
    return _CONFIGS[key]


def fiche_of_audit(session: Session, audit_id: int) -> str | None:
    return session.scalar(
        select(FicheCacheRow.fiche_id)
        .join(AuditRow, AuditRow.fiche_cache_id == FicheCacheRow.id)
        .where(AuditRow.id == audit_id)
    )


def start_audits(
    session: Session, requests: Sequence[tuple[FicheAuditRequest, AuditConfig]], now: datetime
) -> dict[str, AuditRecord]:
    """Return the audits of the requests by tracking id, and start those that are new. A fiche that is not
    mirrored has none. While no audit by the configuration is completed, the newest is the latest."""
    fiches = select(FicheCacheRow.fiche_id, FicheCacheRow.id).where(
        among(session, FicheCacheRow.fiche_id, [request.fiche_id for request, _ in requests])
    )
    # The locks on the fiches make concurrent requests with one tracking id start one audit.
    keys = dict(
        session.execute(fiches.order_by(FicheCacheRow.fiche_id).with_for_update()).tuples().all()
    )
    started = audits_by_tracking_id(session, [request.tracking_id for request, _ in requests])
    new = [
        _new_row(session, request, config, keys[request.fiche_id], now)
        for request, config in requests
        if request.tracking_id not in started and request.fiche_id in keys
    ]
    for rows in rounds(new, key=lambda row: (row["fiche_cache_id"], row["audit_config_id"])):
        _add_versions(session, rows)
    if new:
        started |= audits_by_tracking_id(session, [str(row["tracking_id"]) for row in new])
    return started


def _add_versions(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Add new versions. No two of the rows are of one fiche and configuration."""
    fiche, config = AuditRow.fiche_cache_id, AuditRow.audit_config_id
    pairs = [(row["fiche_cache_id"], row["audit_config_id"]) for row in rows]
    is_pair = and_(
        among(session, fiche, [key for key, _ in pairs]), tuple_(fiche, config).in_(pairs)
    )
    versions = {
        (key, of_config): last
        for key, of_config, last in session.execute(
            select(fiche, config, func.max(AuditRow.version)).where(is_pair).group_by(fiche, config)
        ).tuples()
    }
    completed = set[tuple[int, int]]()
    if versions:
        _unmark_latest(session, is_pair, AuditRow.status != AuditStatus.COMPLETED)
        completed = set(
            session.execute(select(fiche, config).where(is_pair, AuditRow.is_latest)).tuples()
        )
    added = [
        {**row, "version": versions.get(pair, 0) + 1, "is_latest": pair not in completed}
        for row, pair in zip(rows, pairs, strict=True)
    ]
    insert_rows(session, AuditRow, added)


def _new_row(
    session: Session,
    request: FicheAuditRequest,
    config: AuditConfig,
    fiche_cache_id: int,
    now: datetime,
) -> dict[str, Any]:
    return {
        "tracking_id": request.tracking_id,
        "fiche_cache_id": fiche_cache_id,
        "audit_config_id": request.audit_config_id,
        "config_fingerprint": once_per_group(
            session, (_store_snapshot, config), lambda session: _store_snapshot(session, config)
        ),
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


def _store_snapshot(session: Session, config: AuditConfig) -> str:
    key = fingerprint(config)
    upsert(
        session,
        ConfigSnapshotRow,
        [{"fingerprint": key, "document": config_document(config)}],
        key=("fingerprint",),
    )
    return key


def find_reusable_audit(
    session: Session, found: AuditRecord, timeline_fingerprint: str
) -> int | None:
    """The newest earlier audit that ended without a grade and judges the same calls in the same way, so that
    its judged steps hold for this audit."""
    this, earlier = aliased(AuditRow), AuditRow
    equal = (
        earlier.fiche_cache_id,
        earlier.audit_config_id,
        earlier.config_fingerprint,
        earlier.use_rlm,
    )
    return session.scalar(
        select(earlier.id)
        .join(this, and_(*(column == getattr(this, column.key) for column in equal)))
        .where(
            this.id == found.summary.audit_id,
            earlier.version < this.version,
            earlier.status.in_((AuditStatus.INCOMPLETE, AuditStatus.FAILED)),
            earlier.timeline_fingerprint == timeline_fingerprint,
            earlier.deleted_at.is_(None),
        )
        .order_by(earlier.version.desc())
        .limit(1)
    )


def claim_audits(session: Session, tokens: Mapping[int, int]) -> dict[int, AuditRecord]:
    """Fence off the previous workers; an incomplete audit runs again. If the fence of a returned audit is
    not the token, a later worker has claimed it. A completed or failed audit stays unchanged."""
    now = database_time(session)
    session.connection().execute(
        _CLAIM,
        [{"audit": audit, "token": token, "at": now} for audit, token in sorted(tokens.items())],
    )
    return audits_by_id(session, list(tokens))


def lock_running_audits(
    session: Session,
    audit_ids: Collection[int],
    now: datetime,
    *,
    tokens: Mapping[int, int] | None = None,
) -> set[int]:
    """Lock the audits' rows until the transaction ends. Returns those that still run and, with tokens,
    that no other worker has claimed."""
    which = [AuditRow.id.in_(sorted(audit_ids)), AuditRow.status == AuditStatus.RUNNING]
    if tokens is not None:
        which.append(tuple_(AuditRow.id, AuditRow.fence).in_(list(tokens.items())))
    return set(
        session.scalars(
            update(AuditRow)
            .where(*which)
            .values(touched_at=now)
            .returning(AuditRow.id)
            .execution_options(synchronize_session=False)
        )
    )


def get_changeable_audit(session: Session, audit_id: int) -> AuditRecord:
    """Raises ConflictError unless the audit is completed, which is final, and not deleted."""
    found = get_audit(session, audit_id)
    if found.summary.status is not AuditStatus.COMPLETED:
        message = (
            f"Audit {audit_id} is {found.summary.status}: only a completed audit can be changed."
        )
        if found.summary.status is AuditStatus.INCOMPLETE:
            message += " Audit the fiche again to finish it."
        raise ConflictError(message)
    if found.is_deleted:
        raise ConflictError(f"Audit {audit_id} is deleted: restore it before it is changed.")
    return found


def lock_audit(session: Session, audit_id: int) -> None:
    session.execute(select(AuditRow.id).where(AuditRow.id == audit_id).with_for_update())


def stale_audits(
    session: Session, silent_for_seconds: float, *, limit: int
) -> list[tuple[int, str]]:
    """Running audits (id, tracking id) that have stored nothing for that long."""
    return list(
        session.execute(
            select(AuditRow.id, AuditRow.tracking_id)
            .where(
                AuditRow.status == AuditStatus.RUNNING,
                AuditRow.touched_at <= database_now(-silent_for_seconds),
            )
            .order_by(AuditRow.touched_at)
            .limit(limit)
        ).tuples()
    )


def update_audit_row(session: Session, audit_id: int, values: Mapping[str, object]) -> None:
    update_audit_rows(session, {audit_id: values})


def update_audit_rows(session: Session, changes: Mapping[int, Mapping[str, object]]) -> None:
    """Changes of the same columns share a statement."""
    by_columns: dict[tuple[str, ...], list[dict[str, object]]] = {}
    for audit_id, values in sorted(changes.items()):
        by_columns.setdefault(tuple(sorted(values)), []).append({**values, "of_audit": audit_id})
    for rows in by_columns.values():
        session.connection().execute(_UPDATE, rows)


def set_deleted(session: Session, audit_id: int, deleted_at: datetime | None) -> None:
    """Mark the audit as deleted, or remove the mark. Another audit may become the latest."""
    fiche, config = _lock_fiche(session, audit_id)
    _unmark_latest(session, AuditRow.id == audit_id)
    update_audit_row(session, audit_id, {"deleted_at": deleted_at})
    _choose_latest(session, fiche, config)


def promote(session: Session, audit_id: int) -> None:
    """Make the audit the latest of its fiche and configuration, unless a newer one is completed too."""
    fiche, config = _lock_fiche(session, audit_id)
    _choose_latest(session, fiche, config)


def _lock_fiche(session: Session, audit_id: int) -> tuple[int, int]:
    """Lock the row of the audit's fiche. Returns its key and that of the audit's configuration."""
    found = (
        session.execute(
            select(AuditRow.fiche_cache_id, AuditRow.audit_config_id).where(AuditRow.id == audit_id)
        )
        .tuples()
        .one_or_none()
    )
    if found is None:
        raise NotFoundError("Audit not found")
    session.execute(select(FicheCacheRow.id).where(FicheCacheRow.id == found[0]).with_for_update())
    return found


def _choose_latest(session: Session, fiche: int, config: int) -> None:
    """The latest is the newest completed audit or, without one, the newest; never a deleted one."""
    is_same = (AuditRow.fiche_cache_id == fiche, AuditRow.audit_config_id == config)
    best_first = (
        case((AuditRow.status == AuditStatus.COMPLETED, 1), else_=0).desc(),
        AuditRow.version.desc(),
    )
    latest = session.scalar(
        select(AuditRow.id)
        .where(*is_same, AuditRow.deleted_at.is_(None))
        .order_by(*best_first)
        .limit(1)
    )
    if latest is not None:
        _unmark_latest(session, *is_same, AuditRow.id != latest)
        update_audit_row(session, latest, {"is_latest": True})


def _unmark_latest(session: Session, *which: ColumnElement[bool]) -> None:
    session.execute(
        update(AuditRow)
        .where(*which, AuditRow.is_latest)
        .values(is_latest=False)
        .execution_options(synchronize_session=False)
    )


def unfinished_audits(session: Session) -> int:
    return (
        session.scalar(
            select(func.count()).where(
                AuditRow.status.in_((AuditStatus.PENDING, AuditStatus.RUNNING))
            )
        )
        or 0
    )


def is_audit_visible(session: Session, reach: Reach, audit_id: int) -> bool:
    """False for a hidden and for an unknown audit."""
    return (
        session.scalar(
            select(AuditRow.id)
            .join(FicheCacheRow, FicheCacheRow.id == AuditRow.fiche_cache_id)
            .where(AuditRow.id == audit_id, within(session, reach))
        )
        is not None
    )
