"""A run with every kind of outcome and audit, for tests of reports."""

from sqlalchemy import select

from automation_pipeline.automation.tables import FicheResultRow, RunRow
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.database import Session
from automation_pipeline_tests.audits.days import WEAK, record_sales
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.factories import make_schedule

EVIL = '<script>alert("x")</script> & <img src=x onerror=alert(1)> | $x^{$'


def make_reported_run(harness: AuditHarness) -> int:
    """Fiches 1 to 4: good audit, bad audit, failure with markup in the error, not found."""
    config_id = harness.configure(2, name=f"Sales {EVIL}")
    record_sales(harness, "1", "2", "3")
    harness.transcribe("2", WEAK)
    run_id = open_a_run(harness, ("1", "2", "3", "4"))
    harness.audit("1", config_id, "audit-1", run_id=run_id)
    harness.audit("2", config_id, "audit-2", run_id=run_id)
    with harness.database.transaction() as session:
        end(session, run_id, "1", "successful", recordings_count=1)
        end(session, run_id, "2", "successful", recordings_count=1)
        end(
            session,
            run_id,
            "3",
            "failed",
            reason="transcription_incomplete",
            error=f"The call {EVIL}",
        )
        end(
            session,
            run_id,
            "4",
            "ignored",
            reason="not_found",
            ignore_reason="Fiche not found (404)",
        )
        for row in session.scalars(select(FicheCacheRow)):
            row.groupe = {"1": "NORD", "2": "SUD", "3": EVIL}[row.fiche_id]
    return run_id


def open_a_run(harness: AuditHarness, fiche_ids: tuple[str, ...]) -> int:
    """Insert the rows of an open run with selected fiches, without running its steps."""
    schedule_id, now = (
        make_schedule(harness.database, harness.clock, fiche_ids).id,
        harness.clock.now(),
    )
    with harness.database.transaction() as session:
        run = RunRow(
            schedule_id=schedule_id,
            status="running",
            trigger="manual",
            attempt=1,
            started_at=now,
            selected_at=now,
            selected_fiches=len(fiche_ids),
            config_snapshot={},
        )
        session.add(run)
        session.flush()
        ledger = {
            "run_id": run.id,
            "batch": 0,
            "status": "pending",
            "created_at": now,
            "updated_at": now,
        }
        session.add_all(
            FicheResultRow(fiche_id=one, position=n, **ledger) for n, one in enumerate(fiche_ids)
        )
        return run.id


def end(session: Session, run_id: int, fiche_id: str, status: str, **fields: object) -> None:
    ledger = select(FicheResultRow).where(
        FicheResultRow.run_id == run_id, FicheResultRow.fiche_id == fiche_id
    )
    row = session.scalars(ledger).one()
    for name, value in {"status": status, **fields}.items():
        setattr(row, name, value)


def change_run(session: Session, run_id: int, **fields: object) -> None:
    row = session.get_one(RunRow, run_id)
    for name, value in fields.items():
        setattr(row, name, value)
