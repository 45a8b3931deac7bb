"""What the outside hears of a run: names, keys and payloads (reference 4.10, 11.3)."""

from datetime import UTC, datetime

from automation_pipeline.automation import events
from automation_pipeline.automation.events import ProgressUpdate
from automation_pipeline.automation.models.runs import LedgerTally, Phase, Run
from automation_pipeline.automation.models.schedules import EmptyReason, FicheSelection
from automation_pipeline_tests.tables import every_case

AT = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
ABOUT = {"schedule_id": "3", "run_id": "12"}
CHANNEL = {"job_id": "automation-run-12", **ABOUT}
TOTALS = {"status": "partial", "total_fiches": 5, "successful_fiches": 4, "failed_fiches": 1}


def a_run(**fields: object) -> Run:
    return Run.model_validate({
        "id": 12, "schedule_id": 3, "status": "partial", "phase": None, "trigger": "schedule", "due_at": AT,
        "attempt": 1, "dagster_run_id": None, "started_at": AT, "completed_at": AT, "duration_ms": 1500,
        "selected_fiches": 7, "total_fiches": 5, "successful_fiches": 4, "failed_fiches": 1, "ignored_fiches": 2,
        "transcriptions_run": 3, "audits_run": 6, "error_message": None, **fields,
    })  # fmt: skip


@every_case(("due_at", "text"), [(AT, "2026-05-04T10:00:00.000Z"), (None, None)])
def test_the_start_event_has_the_due_time(due_at: datetime | None, text: str | None) -> None:
    event = events.started(a_run(due_at=due_at), AT)
    assert (event.key, event.name) == ("automation-run-12-started", "automation.run.started")
    assert event.payload == {**CHANNEL, "due_at": text, "status": "running"}


@every_case(("groupes", "listed"), [(0, True), (10, True), (11, False)])
def test_a_selection_lists_its_groupes_while_they_are_few(groupes: int, listed: bool) -> None:
    names = [f"G{number}" for number in range(groupes)]
    chosen = FicheSelection.model_validate({
        "mode": "date_range", "dateRange": "yesterday", "groupes": names, "onlyUnaudited": True, "maxFiches": 20,
    })  # fmt: skip
    event = events.selection(a_run(), chosen, 7, AT)
    assert (event.key, event.name) == ("automation-run-12-selection", "automation.run.selection")
    assert event.payload == {
        **CHANNEL,
        "mode": "date_range",
        "dateRange": "yesterday",
        **({"groupes": names} if listed else {}),
        "groupes_count": groupes,
        "onlyWithRecordings": False,
        "onlyUnaudited": True,
        "maxFiches": 20,
        "maxRecordingsPerFiche": None,
        "useRlm": False,
        "total_fiches": 7,
    }


def test_progress_is_cumulative_and_equal_progress_is_one_event() -> None:
    made = ProgressUpdate(
        Phase.AUDITING, LedgerTally(8, pending=4, successful=2, failed=1, ignored=1), audits=3
    )
    event = events.progress(a_run(), made, AT)
    assert event.name == "automation.run.progress"
    assert event.payload == {
        **CHANNEL,
        "selected_fiches": 8,
        "successful": 2,
        "failed": 1,
        "ignored": 1,
        "audits": 3,
        "current_phase": "auditing",
        "progress_percentage": 50,
        "status": "running",
    }
    assert events.progress(a_run(), made, AT).key == event.key
    further = ProgressUpdate(Phase.AUDITING, made.tally, audits=4)
    assert events.progress(a_run(), further, AT).key != event.key


def test_an_end_has_a_realtime_and_a_domain_event() -> None:
    shown, inside = events.completed(a_run(), AT)
    more = {"ignored_fiches": 2, "transcriptions_run": 3, "audits_run": 6, "duration_ms": 1500}
    assert (shown.key, shown.name) == ("automation-run-12-completed", "automation.run.completed")
    assert shown.payload == {**CHANNEL, **TOTALS, **more}
    assert (inside.key, inside.name) == ("automation-completed-12", "automation/completed")
    assert inside.payload == {**ABOUT, **TOTALS, "duration_ms": 1500}


@every_case(
    ("reason", "key"),
    [
        (EmptyReason.NO_FICHES_MANUAL, "automation-completed-12-no-fiches"),
        (EmptyReason.NO_DATES, "automation-completed-12-no-dates"),
        (EmptyReason.NO_FICHES_FOUND, "automation-completed-12-no-fiches-found"),
    ],
)
def test_an_early_end_has_its_reason(reason: EmptyReason, key: str) -> None:
    shown, inside = events.completed(a_run(), AT, reason)
    assert shown.payload == {**CHANNEL, **TOTALS, "reason": str(reason)}
    assert inside.key == key


def test_a_failure_event_has_the_error() -> None:
    shown, inside = events.aborted(a_run(status="failed"), "boom", AT)
    assert (shown.key, shown.name) == ("automation-run-12-failed", "automation.run.failed")
    assert shown.payload == {**CHANNEL, "status": "failed", "error": "boom", "duration_ms": 1500}
    assert (inside.key, inside.name) == ("automation-failed-12", "automation/failed")
    assert inside.payload == {**ABOUT, "error": "boom"}
