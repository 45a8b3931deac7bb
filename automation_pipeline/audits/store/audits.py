"""Audits as rows: begun once, worked on under a fence, ended once, and one a fiche and configuration the latest."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, func, insert, or_, select, update
from sqlalchemy.orm import Session, aliased

from automation_pipeline.audits.domain.audit import AuditStatus, Standing, Wish
from automation_pipeline.audits.domain.config import AuditConfig
from automation_pipeline.audits.domain.config_document import config_document, fingerprint, parse_config
from automation_pipeline.audits.domain.findings import Niveau
from automation_pipeline.audits.domain.modes import TranscriptMode
from automation_pipeline.audits.store.standings import STANDING, standing_in
from automation_pipeline.audits.tables import AuditRow, ConfigSnapshotRow
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.fiches.tables import FicheCache
from automation_pipeline.storage.bulk import upsert
from automation_pipeline.storage.group_commit import known_throughout
from automation_pipeline.storage.instants import database_now, database_time
from automation_pipeline.storage.prepared import execute

_BEGUN = (
    AuditRow.config_fingerprint,
    AuditRow.timeline_fingerprint,
    AuditRow.version,
    AuditRow.is_latest,
    AuditRow.started_at,
    AuditRow.created_at,
    AuditRow.transcript_mode,
    AuditRow.use_rlm,
)
_FOUND = select(*STANDING, *_BEGUN).join(FicheCache, FicheCache.id == AuditRow.fiche_cache_id)
_BY_ID = _FOUND.where(AuditRow.id == bindparam("wanted"))
_BY_TRACKING_ID = _FOUND.where(AuditRow.tracking_id == bindparam("wanted"))
_RUNNING = (AuditRow.id == bindparam("audit"), AuditRow.status == AuditStatus.RUNNING)
_UNFINISHED = or_(AuditRow.status == AuditStatus.RUNNING, AuditRow.status == AuditStatus.INCOMPLETE)
_TAKE_UP = (
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
_HOLD_ANY = update(AuditRow).where(*_RUNNING).values(touched_at=bindparam("at"))
_HOLD = _HOLD_ANY.where(AuditRow.fence == bindparam("token"))
_ADD = insert(AuditRow).returning(AuditRow.id)
_CHANGE = update(AuditRow).where(AuditRow.id == bindparam("of_audit"))  # what is given with it is set
_LOCKED_FICHE = select(FicheCache.id).where(FicheCache.fiche_id == bindparam("fiche")).with_for_update()
_LAST_VERSION = select(func.max(AuditRow.version)).where(
    AuditRow.fiche_cache_id == bindparam("fiche"), AuditRow.audit_config_id == bindparam("config")
)
_TRIGGER = select(AuditRow.trigger_source, AuditRow.automation_schedule_id, AuditRow.automation_run_id).where(
    AuditRow.id == bindparam("audit")
)
MOST_CONFIGS = 100
_CONFIGS: dict[str, AuditConfig] = {}


@dataclass(frozen=True)
class FoundAudit:
    """An audit and the configuration that it judges by, as that was when the audit began."""

    standing: Standing
    config: AuditConfig
    version: int
    is_latest: bool
    timeline_fingerprint: str | None
    started_at: datetime
    transcript_mode: TranscriptMode
    use_rlm: bool


def find_audit(session: Session, tracking_id: str) -> FoundAudit | None:
    return _read(session, _BY_TRACKING_ID, tracking_id)


def get_audit(session: Session, audit_id: int) -> FoundAudit:
    found = _read(session, _BY_ID, audit_id)
    if found is None:
        raise NotFoundError("Audit not found")
    return found


def _read(session: Session, query: Select[Any], wanted: int | str) -> FoundAudit | None:  # Any: its columns
    row = execute(session, query, {"wanted": wanted}).first()
    if row is None:
        return None
    return FoundAudit(
        standing=standing_in(row),
        config=_config_of(session, row.config_fingerprint),
        version=row.version,
        is_latest=row.is_latest,
        timeline_fingerprint=row.timeline_fingerprint,
        started_at=row.started_at or row.created_at,
        transcript_mode=TranscriptMode(row.transcript_mode),
        use_rlm=row.use_rlm,
    )


def _config_of(session: Session, print_: str) -> AuditConfig:
    """What has a fingerprint never changes: it is read once."""
    if print_ not in _CONFIGS:
        if len(_CONFIGS) >= MOST_CONFIGS:
            _CONFIGS.clear()
        document = select(ConfigSnapshotRow.document).where(ConfigSnapshotRow.fingerprint == print_)
        _CONFIGS[print_] = parse_config(session.scalars(document).one())
    return _CONFIGS[print_]


def begin_audit(session: Session, wish: Wish, config: AuditConfig, now: datetime) -> FoundAudit:
    """A new audit of the fiche, or the one that the wish has begun before. While no audit by the configuration is
    completed, the newest one is the latest."""
    fiche = execute(session, _LOCKED_FICHE, {"fiche": wish.fiche_id}).value()
    if fiche is None:
        raise NotFoundError(f"Fiche {wish.fiche_id} not found")
    # Looked for under the lock on the fiche: two that begin at once make one audit.
    begun = find_audit(session, wish.tracking_id)
    if begun is not None:
        return begun
    print_ = _keep_snapshot(session, config)
    row = _new_row(wish, config, print_, now)
    last = _last_version(session, fiche, wish.audit_config_id)
    row.update(fiche_cache_id=fiche, version=last + 1, is_latest=True)
    if last:
        of_place = (AuditRow.fiche_cache_id == fiche, AuditRow.audit_config_id == wish.audit_config_id)
        _demote(session, *of_place, AuditRow.status != AuditStatus.COMPLETED)
        row["is_latest"] = session.scalar(select(AuditRow.id).where(*of_place, AuditRow.is_latest)) is None
    return get_audit(session, execute(session, _ADD, row).value())


def unfinished_before(session: Session, found: FoundAudit, timeline_fingerprint: str) -> int | None:
    """The newest earlier audit of the fiche that ended without a grade and judges the same calls in the same way: what
    it judged holds for the audit too."""
    mine, earlier = aliased(AuditRow), AuditRow
    alike = (earlier.fiche_cache_id, earlier.audit_config_id, earlier.config_fingerprint, earlier.use_rlm)
    return session.scalar(
        select(earlier.id)
        .join(mine, and_(*(column == getattr(mine, column.key) for column in alike)))
        .where(
            mine.id == found.standing.audit_id,
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


def take_up(session: Session, audit_id: int, token: int) -> bool:
    """Fence off whoever worked on it before; an incomplete audit runs again. False when a later holder has it, or when
    it is completed or has failed."""
    values = {"audit": audit_id, "token": token, "at": database_time(session)}
    return execute(session, _TAKE_UP, values).changed == 1


def hold_audit(session: Session, audit_id: int, token: int | None, now: datetime) -> bool:
    """The audit's row, ours to the end of the transaction. False when it has ended or, given a token, passed on."""
    values = {"audit": audit_id, "at": now}
    if token is None:
        return execute(session, _HOLD_ANY, values).changed == 1
    return execute(session, _HOLD, {**values, "token": token}).changed == 1


def lock_audit(session: Session, audit_id: int) -> None:
    """The audit's row, ours to the end of the transaction, in whatever state it is: who changes it too waits."""
    session.execute(select(AuditRow.id).where(AuditRow.id == audit_id).with_for_update())


def changeable_audit(session: Session, audit_id: int) -> FoundAudit:
    """ConflictError unless the audit is completed, from which it never goes back, and not deleted."""
    found = get_audit(session, audit_id)
    if found.standing.status is not AuditStatus.COMPLETED:
        words = f"Audit {audit_id} is {found.standing.status}: only a completed audit can be changed."
        if found.standing.status is AuditStatus.INCOMPLETE:
            words += " Audit the fiche again to finish it."
        raise ConflictError(words)
    if is_deleted(session, audit_id):
        raise ConflictError(f"Audit {audit_id} is deleted: restore it before it is changed.")
    return found


def silent_audits(session: Session, silent_for_seconds: float, *, limit: int) -> list[tuple[int, str]]:
    """Running audits (id, tracking id) that have stored nothing for that long."""
    silent = AuditRow.touched_at <= database_now(-silent_for_seconds)
    query = select(AuditRow.id, AuditRow.tracking_id).where(AuditRow.status == AuditStatus.RUNNING, silent)
    return list(session.execute(query.order_by(AuditRow.touched_at).limit(limit)).tuples())


def set_values(session: Session, audit_id: int, values: Mapping[str, object]) -> None:
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
    session.execute(select(FicheCache.id).where(FicheCache.id == fiche).with_for_update())
    _demote(session, AuditRow.id == audit_id)
    set_values(session, audit_id, {"deleted_at": deleted_at})
    _choose_latest(session, fiche, config)


def promote(session: Session, audit_id: int) -> None:
    """Make the audit the latest of its fiche and configuration, unless a newer one is completed too."""
    place = select(AuditRow.fiche_cache_id, AuditRow.audit_config_id).where(AuditRow.id == audit_id)
    fiche, config = session.execute(place).one()
    session.execute(select(FicheCache.id).where(FicheCache.id == fiche).with_for_update())
    _choose_latest(session, fiche, config)


def _choose_latest(session: Session, fiche: int, config: int) -> None:
    """The newest completed audit, which no attempt without a grade displaces; without one, the newest. Never a deleted
    one. The caller holds the fiche."""
    of_place = (AuditRow.fiche_cache_id == fiche, AuditRow.audit_config_id == config)
    is_completed = case((AuditRow.status == AuditStatus.COMPLETED, 1), else_=0)
    best_first = (is_completed.desc(), AuditRow.version.desc())
    kept = select(AuditRow.id).where(*of_place, AuditRow.deleted_at.is_(None)).order_by(*best_first).limit(1)
    latest = session.scalar(kept)
    if latest is not None:
        _demote(session, *of_place, AuditRow.id != latest)
        set_values(session, latest, {"is_latest": True})


def _demote(session: Session, *which: ColumnElement[bool]) -> None:
    session.execute(
        update(AuditRow)
        .where(*which, AuditRow.is_latest)
        .values(is_latest=False)
        .execution_options(synchronize_session=False)
    )


def _last_version(session: Session, fiche: int, config: int) -> int:
    return execute(session, _LAST_VERSION, {"fiche": fiche, "config": config}).value() or 0


def _keep_snapshot(session: Session, config: AuditConfig) -> str:
    """The fingerprint under which it is kept."""
    return known_throughout(session, (_keep_snapshot, config), lambda session: _kept(session, config))


def _kept(session: Session, config: AuditConfig) -> str:
    print_ = fingerprint(config)
    row = {"fingerprint": print_, "document": config_document(config)}
    upsert(session, ConfigSnapshotRow, [row], key=("fingerprint",))
    return print_


def _new_row(wish: Wish, config: AuditConfig, print_: str, now: datetime) -> dict[str, object]:
    return {
        "tracking_id": wish.tracking_id,
        "audit_config_id": wish.audit_config_id,
        "config_fingerprint": print_,
        "automation_schedule_id": wish.schedule_id,
        "automation_run_id": wish.run_id,
        "trigger_source": wish.trigger_source,
        "trigger_user_id": wish.user_id,
        "dagster_run_id": wish.dagster_run_id,
        "niveau": Niveau.PENDING,
        "critical_passed": 0,
        "total_steps": len(config.steps),
        "critical_total": sum(step.is_critical for step in config.steps),
        "status": AuditStatus.RUNNING,
        "started_at": now,
        "use_rlm": wish.use_rlm,
        "transcript_mode": TranscriptMode.TOOLS if wish.use_rlm else TranscriptMode.PROMPT,
        "fence": 0,
        "touched_at": now,
        "created_at": now,
    }
