"""Audit configurations for tests, audits that use them, and functions that concurrent processes run."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from automation_pipeline.audits.configs import add_config, get_config, import_config
from automation_pipeline.audits.models.configs import StoredConfig, parse_config
from automation_pipeline.audits.tables import AuditBatchRow, AuditRow, ConfigSnapshotRow
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.database import Database, Session

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)


def step_document(position: int, **fields: object) -> dict[str, Any]:
    return {
        "position": position,
        "name": f"Step {position}",
        "prompt": f"Listen for number {position}.",
        "controlPoints": ["Name given", "Recording announced"],
        "severityLevel": "HIGH",
        **fields,
    }


def document(name: str = "Sales", steps: int = 3, **fields: object) -> dict[str, Any]:
    return {
        "name": name,
        "steps": [step_document(position) for position in range(1, steps + 1)],
        **fields,
    }


FULL: dict[str, Any] = {
    "name": "Conformité — é",
    "description": "All fields are given",
    "systemPrompt": "You are a quality controller.",
    "isActive": True,
    "runAutomatically": True,
    "createdBy": "ops",
    "steps": [
        step_document(
            1,
            description="Who calls, and why",
            keywords=["recorded", "ORIAS"],
            severityLevel="CRITICAL",
            isCritical=True,
            weight=10,
            chronologicalImportant=True,
            verifyProductInfo=True,
        ),
        step_document(2, description=None, keywords=[], isCritical=False, weight=2)
        | {"chronologicalImportant": False, "verifyProductInfo": False},
    ],
}


def add(database: Database, name: str = "Sales", at: datetime = NOW, **fields: object) -> int:
    with database.transaction() as session:
        return add_config(session, parse_config(document(name, **fields)), at)  # type: ignore[arg-type]


def read(database: Database, config_id: int) -> StoredConfig:
    with database.reading() as session:
        return get_config(session, config_id)


def add_audit(session: Session, config_id: int, tracking_id: str = "a", **fields: object) -> None:
    """Insert an audit of a new fiche."""
    fiche = FicheCacheRow(fiche_id=tracking_id, raw_data={}, fetched_at=NOW, expires_at=NOW)
    session.add_all([fiche, ConfigSnapshotRow(fingerprint=tracking_id, document={})])
    session.flush()
    row: dict[str, Any] = {
        "tracking_id": tracking_id, "fiche_cache_id": fiche.id, "audit_config_id": config_id,
        "config_fingerprint": tracking_id, "niveau": "PENDING", "critical_passed": 0, "critical_total": 0,
        "total_steps": 1, "status": "running",
        "version": 1, "is_latest": True, "use_rlm": False, "transcript_mode": "prompt", "fence": 1,
        "touched_at": NOW, "created_at": NOW, **fields,
    }  # fmt: skip
    session.add(AuditRow(**with_grade(row)))
    session.flush()


def with_grade(row: dict[str, Any]) -> dict[str, Any]:
    """Only a completed audit has a score."""
    nothing = {"overall_score": Decimal(0), "score_percentage": Decimal(0), "is_compliant": False}
    return {**nothing, **row} if row["status"] == "completed" else row


def add_batch(session: Session, config_id: int) -> None:
    session.add(
        AuditBatchRow(
            id="b", audit_config_id=config_id, total=1, succeeded=0, failed=0, started_at=NOW
        )
    )


def import_many(url: str, given: dict[str, Any], update: bool, times: int) -> list[tuple[int, str]]:
    """The id and outcome of each import, or 0 and the error message."""
    return with_database(
        url, lambda database: [_import(database, given, update) for _ in range(times)]
    )


def _import(database: Database, given: dict[str, Any], update: bool) -> tuple[int, str]:
    try:
        imported = import_config(given, update=update, database=database, clock=SystemClock())
    except AutomationError as error:
        return 0, str(error)
    return imported.id, imported.outcome


def with_database(url: str, act: Callable[[Database], Any]) -> Any:
    database = Database(url)
    try:
        return act(database)
    finally:
        database.dispose()
