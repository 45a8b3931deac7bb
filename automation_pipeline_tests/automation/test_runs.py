"""Runs: open, request, retry, cancel, finalise, and notify."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from sqlalchemy import func, select, update

from automation_pipeline.automation.models.runs import LedgerMove, OutcomeStatus, Run, RunAttempt
from automation_pipeline.automation.models.schedules import FicheSelection, SelectionMode
from automation_pipeline.automation.queries.ledger import (
    fiches_to_retry,
    open_ledger,
    outcomes,
    record_moves,
)
from automation_pipeline.automation.queries.run_details import logs_after, reasons_of
from automation_pipeline.automation.queries.runs import (
    StaleAttemptError,
    WatchedRun,
    as_run,
    fence_attempt,
    get_run,
    lock_run,
    requested_selection,
    selection_of,
    watched_runs,
)
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.runs import (
    INTERRUPTED,
    LedgerError,
    LostLaunch,
    cancel_run,
    finalise_run,
    notify_run,
    open_run,
    request_next_attempt,
    request_run,
    retry_run,
    send_heartbeat,
)
from automation_pipeline.automation.schedules import pause_schedule
from automation_pipeline.automation.tables import FicheResultRow, HeartbeatRow, RunRow, ScheduleRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import (
    AutomationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from automation_pipeline.core.webhooks import DeliveryStatus
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.monitoring import DAEMON, ProcessHeartbeatRow, record_heartbeat
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.run_requests import RunRequestRow, offer_waiting
from automation_pipeline.storage.statements import database_now, database_time
from automation_pipeline_tests.automation.due import run_now
from automation_pipeline_tests.automation.post import HOOK, make_ended_run, outbox, records
from automation_pipeline_tests.factories import (
    make_launch,
    make_open_run,
    make_schedule,
    run_selection,
)
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.processes import PROCESS_COUNT, run_in_processes


def test_a_launch_without_a_run_creates_one(database: Database, clock: FakeClock) -> None:
    schedule = make_schedule(database, clock)
    run_attempt = open_run(make_launch(schedule.id), database=database, clock=clock)
    with database.reading() as session:
        run, marked = get_run(session, run_attempt.run_id), get_schedule(session, schedule.id)
        heartbeat = session.get(HeartbeatRow, run_attempt.run_id)
        moves = (
            session.execute(select(TransitionRow.from_state, TransitionRow.to_state)).tuples().all()
        )
    assert run_attempt.attempt == 1
    assert (run.status, run.phase, run.trigger) == ("running", "selection", "launchpad")
    assert (marked.last_run_at, marked.last_run_status) == (clock.now(), "running")
    assert heartbeat
    assert (heartbeat.attempt, heartbeat.worker) == (1, "host:1")
    assert moves == [("pending", "running")]


def test_the_schedule_stores_the_due_time_and_not_the_delayed_start(
    database: Database, clock: FakeClock
) -> None:
    schedule, due_at = make_schedule(database, clock), clock.now() - timedelta(minutes=7)
    open_run(make_launch(schedule.id, due_at=due_at), database=database, clock=clock)
    with database.reading() as session:
        assert get_schedule(session, schedule.id).last_run_at == due_at


def test_opening_a_requested_run_claims_its_request(database: Database, clock: FakeClock) -> None:
    schedule = make_schedule(database, clock)
    requested = request_run(schedule.id, database=database, clock=clock)
    run_attempt = open_run(
        make_launch(schedule.id, run_id=requested.id), database=database, clock=clock
    )
    with database.reading() as session:
        request = session.scalars(select(RunRequestRow)).one()
    assert run_attempt == RunAttempt(requested.id, 1)
    assert (request.state, request.dagster_run_id) == ("taken", "dagster-1")


def test_a_retried_dagster_run_takes_over_the_same_run(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock)
    first = open_run(make_launch(schedule.id), database=database, clock=clock)
    retry = make_launch(schedule.id, "dagster-2", dagster_root_run_id="dagster-1")
    second = open_run(retry, database=database, clock=clock)
    assert second == RunAttempt(first.run_id, first.attempt + 1)
    with database.reading() as session:
        messages = [row.message for row in logs_after(session, first.run_id, 0, "debug")]
    assert messages == ["Automation run started", "Attempt 2 takes over the run"]


@pytest.mark.parametrize("opened", [True, False])
def test_a_launch_is_rejected_during_a_run_and_starts_a_new_run_afterwards(
    opened: bool, database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock)
    first = request_run(schedule.id, database=database, clock=clock)
    if opened:
        open_run(make_launch(schedule.id, run_id=first.id), database=database, clock=clock)
    launch = make_launch(schedule.id, "dagster-2")
    with pytest.raises(
        ConflictError,
        match=f"Run {first.id} of schedule {schedule.id} is still at work: .*runs watch",
    ):
        open_run(launch, database=database, clock=clock)
    finalise_run(first.id, database=database, clock=clock, breakdown="over")
    assert open_run(launch, database=database, clock=clock).run_id != first.id


def test_a_heartbeat_of_an_earlier_attempt_is_ignored(database: Database, clock: FakeClock) -> None:
    first = make_open_run(database, clock)
    launch = make_launch(1, "dagster-2", dagster_root_run_id="dagster-1", worker="host:2")
    second = open_run(launch, database=database, clock=clock)

    def beat(run_attempt: RunAttempt, worker: str) -> tuple[int, str, bool]:
        with database.transaction() as session:
            session.execute(update(HeartbeatRow).values(beat_at=database_now(-60)))
        send_heartbeat(run_attempt, worker, database=database)
        with database.reading() as session:
            row = session.get_one(HeartbeatRow, run_attempt.run_id)
            is_recent = database_time(session) - row.beat_at < timedelta(seconds=30)
        return row.attempt, row.worker, is_recent

    assert beat(first, "host:1") == (2, "host:2", False)
    assert beat(second, "host:3") == (2, "host:3", True)


def test_a_started_run_can_be_taken_over_during_a_pause(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock)
    first = open_run(make_launch(schedule.id), database=database, clock=clock)
    pause_schedule(schedule.id, database=database, clock=clock)
    retry = make_launch(schedule.id, "dagster-2", run_id=first.run_id, is_next=True)
    assert open_run(retry, database=database, clock=clock) == RunAttempt(first.run_id, 2)


def test_a_finished_run_cannot_be_opened_again(database: Database, clock: FakeClock) -> None:
    run_attempt = make_open_run(database, clock, [])
    run = finalise_run(run_attempt.run_id, database=database, clock=clock, attempt=1)
    again = make_launch(run.schedule_id, "dagster-2", run_id=run.id)
    with pytest.raises(ConflictError, match=f"Run {run.id} has already ended"):
        open_run(again, database=database, clock=clock)


def test_re_executing_a_finished_run_in_dagster_creates_a_new_run(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock, [])
    run = finalise_run(run_attempt.run_id, database=database, clock=clock, attempt=1)
    again = make_launch(run.schedule_id, "dagster-2", dagster_root_run_id="dagster-1")
    assert open_run(again, database=database, clock=clock).run_id != run.id


def test_the_next_attempt_at_a_finished_run_has_nothing_to_do(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock, ["1"])
    move = LedgerMove("1", OutcomeStatus.SUCCESSFUL)
    with database.transaction() as session:
        record_moves(session, run_attempt.run_id, [move], clock.now())
    run = finalise_run(run_attempt.run_id, database=database, clock=clock, attempt=1)
    retry = make_launch(run.schedule_id, "dagster-2", run_id=run.id, is_next=True)
    again = open_run(retry, database=database, clock=clock)
    assert again == run_attempt
    assert run_selection(again, database, clock) == ()
    assert finalise_run(again.run_id, database=database, clock=clock, attempt=again.attempt) == run


def test_re_executing_all_steps_of_a_finished_run_keeps_its_selection_and_due_time(
    database: Database, clock: FakeClock
) -> None:
    due_at, override = (
        datetime(2026, 5, 3, 6, 0, tzinfo=UTC),
        FicheSelection(mode=SelectionMode.MANUAL, fiche_ids=("8",)),
    )
    schedule = make_schedule(database, clock)
    run = request_run(schedule.id, database=database, clock=clock, due_at=due_at, override=override)
    finalise_run(run.id, database=database, clock=clock, breakdown="over")
    again = make_launch(schedule.id, "dagster-2", run_id=run.id, is_repeat=True)
    repeated = open_run(again, database=database, clock=clock)
    with database.reading() as session:
        row = session.get_one(RunRow, repeated.run_id)
        assert (row.retry_of_run_id, row.due_at, requested_selection(row)) == (
            run.id,
            due_at,
            override,
        )


def test_without_a_daemon_a_lost_run_does_not_block_its_schedule(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock)
    lost = open_run(make_launch(schedule.id), database=database, clock=clock)
    again = make_launch(schedule.id, "dagster-2")
    with pytest.raises(ConflictError, match="still at work"):
        open_run(again, database=database, clock=clock)
    with database.transaction() as session:
        session.execute(update(HeartbeatRow).values(beat_at=database_now(-25.5)))
        record_heartbeat(session, DAEMON)
    with pytest.raises(ConflictError, match="still at work"):
        request_run(schedule.id, database=database, clock=clock)
    with database.transaction() as session:
        session.execute(update(ProcessHeartbeatRow).values(beat_at=database_now(-60.5)))
    assert open_run(again, database=database, clock=clock).run_id != lost.run_id
    with database.reading() as session:
        run = get_run(session, lost.run_id)
    assert run.status == "failed"
    assert re.fullmatch(
        r"The process that worked on it was lost: no heartbeat since [-\d]{10} [:\d]{8} UTC",
        run.error_message or "",
    )


def test_queue_time_does_not_count_as_run_duration(database: Database, clock: FakeClock) -> None:
    queued_at = clock.now()
    run = request_run(make_schedule(database, clock).id, database=database, clock=clock)
    clock.advance(timedelta(minutes=2))
    opened = make_launch(run.schedule_id, run_id=run.id)
    run_attempt = open_run(opened, database=database, clock=clock)
    clock.advance(timedelta(seconds=7))
    run_selection(run_attempt, database, clock)
    ended = finalise_run(run.id, database=database, clock=clock, breakdown="over")
    assert (ended.queued_at, ended.began_at) == (queued_at, queued_at + timedelta(minutes=2))
    assert ended.duration_ms == 7000


def test_a_run_of_another_schedule_is_rejected(database: Database, clock: FakeClock) -> None:
    mine, other = make_schedule(database, clock), make_schedule(database, clock)
    run = request_run(mine.id, database=database, clock=clock)
    with pytest.raises(ConflictError, match="belongs to schedule"):
        open_run(make_launch(other.id, run_id=run.id), database=database, clock=clock)


@pytest.mark.parametrize("run_id", [None, 12])
def test_unknown_names_are_reported(
    run_id: int | None, database: Database, clock: FakeClock
) -> None:
    schedule_id = 5 if run_id is None else make_schedule(database, clock).id
    with pytest.raises(
        NotFoundError, match="Schedule 5 not found" if run_id is None else "Run 12 not found"
    ):
        open_run(make_launch(schedule_id, run_id=run_id), database=database, clock=clock)


def test_opening_a_run_of_a_paused_schedule_is_rejected_and_leaves_the_run_unchanged(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(database, clock)
    run = request_run(schedule.id, database=database, clock=clock)
    with database.transaction() as session:
        session.execute(update(ScheduleRow).values(is_active=False))
    with pytest.raises(ConflictError, match="is not active"):
        open_run(make_launch(schedule.id, run_id=run.id), database=database, clock=clock)
    with database.reading() as session:
        assert get_run(session, run.id).status == "pending"


def test_a_requested_run_is_pending_and_its_request_has_the_run_id(
    database: Database, clock: Clock
) -> None:
    schedule = make_schedule(database, clock)
    run = request_run(schedule.id, database=database, clock=clock)
    with database.transaction() as session:
        [request] = offer_waiting(session, limit=10)
    assert run.status == "pending"
    assert request.key == f"automation-run-{run.id}"
    assert request.job == "automation_run"
    assert request.config == {"schedule_id": schedule.id, "run_id": run.id}
    assert request.tags == {
        "automation/schedule_id": str(schedule.id),
        "automation/run_id": str(run.id),
        "automation/trigger": "manual",
    }


def test_a_selection_override_replaces_the_stored_selection(
    database: Database, clock: Clock
) -> None:
    schedule = make_schedule(database, clock)
    override = FicheSelection.model_validate({"mode": "manual", "ficheIds": ["9"]})
    run = request_run(schedule.id, database=database, clock=clock, override=override)
    with database.transaction() as session:
        assert selection_of(session, lock_run(session, run.id)) == override


def test_no_run_is_requested_while_another_is_unfinished(database: Database, clock: Clock) -> None:
    schedule, other = make_schedule(database, clock), make_schedule(database, clock)
    first = request_run(schedule.id, database=database, clock=clock)
    text = f"Run {first.id} of schedule {schedule.id} is still at work: `automation runs watch {first.id}` follows it"
    with pytest.raises(ConflictError, match=re.escape(text)):
        request_run(schedule.id, database=database, clock=clock)
    assert request_run(other.id, database=database, clock=clock).id != first.id
    finalise_run(first.id, database=database, clock=clock, breakdown="over")
    assert request_run(schedule.id, database=database, clock=clock).id != first.id


def test_only_one_of_several_concurrent_requests_creates_a_run(
    database: Database, database_url: str, clock: Clock
) -> None:
    schedule = make_schedule(database, clock)
    filed = run_in_processes(
        run_now, *[(database_url, f"{clock.now():%Y-%m-%dT%H:%M}", schedule.id)] * PROCESS_COUNT
    )
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(RunRow)) == 1
        assert session.scalar(select(func.count()).select_from(RunRequestRow)) == 1
    assert sorted(filed) == [False] * (PROCESS_COUNT - 1) + [True]


@pytest.mark.parametrize(("active", "error"), [(False, ConflictError), (None, NotFoundError)])
def test_a_paused_or_unknown_schedule_stores_nothing(
    active: bool | None, error: type[Exception], database: Database, clock: Clock
) -> None:
    schedule_id = 99 if active is None else make_schedule(database, clock, isActive=active).id
    with pytest.raises(error, match=f"Schedule {schedule_id}"):
        request_run(schedule_id, database=database, clock=clock)
    with database.reading() as session:
        assert session.scalar(select(func.count()).select_from(RunRow)) == 0
        assert session.scalar(select(func.count()).select_from(RunRequestRow)) == 0


SELECTION_FIELDS: dict[str, object] = {
    "mode": "manual",
    "ficheIds": ["1", "2", "3", "4"],
    "groupes": ["Nord"],
    "useRlm": True,
    "onlyWithRecordings": True,
    "onlyUnaudited": True,
    "maxRecordingsPerFiche": 4,
    "maxFiches": 4,
}
PARTIAL = ("failed", "successful", "ignored", "failed")


def active_run(database: Database, clock: FakeClock, statuses: tuple[str, ...]) -> RunAttempt:
    schedule = make_schedule(database, clock, ficheSelection=SELECTION_FIELDS)
    run_attempt = open_run(make_launch(schedule.id), database=database, clock=clock)
    add_selection(run_attempt.run_id, ["1", "2", "3", "4"], database, clock)
    moves = [
        LedgerMove(str(number), OutcomeStatus(status))
        for number, status in enumerate(statuses, start=1)
    ]
    with database.transaction() as session:
        record_moves(session, run_attempt.run_id, moves, clock.now())
    return run_attempt


def add_selection(run_id: int, fiche_ids: list[str], database: Database, clock: FakeClock) -> None:
    with database.transaction() as session:
        open_ledger(session, run_id, fiche_ids, len(fiche_ids), clock.now())
        row = session.get_one(RunRow, run_id)
        row.selected_at, row.selected_fiches = clock.now(), len(fiche_ids)


def ended(database: Database, clock: FakeClock, statuses: tuple[str, ...] = PARTIAL) -> Run:
    run_attempt = active_run(database, clock, statuses)
    return finalise_run(
        run_attempt.run_id, database=database, clock=clock, attempt=run_attempt.attempt
    )


def test_a_retry_selects_only_failed_fiches_and_keeps_the_other_filters(
    database: Database, clock: FakeClock
) -> None:
    run = retry_run(ended(database, clock).id, database=database, clock=clock)
    with database.reading() as session:
        selection = selection_of(session, session.get_one(RunRow, run.id))
    assert selection == FicheSelection.model_validate(
        {
            "mode": "manual",
            "ficheIds": ["1", "4"],
            "groupes": ["Nord"],
            "useRlm": True,
            "onlyWithRecordings": True,
            "maxRecordingsPerFiche": 4,
        }
    )


def test_the_new_run_has_its_own_request(database: Database, clock: FakeClock) -> None:
    earlier = ended(database, clock)
    run = retry_run(earlier.id, database=database, clock=clock)
    with database.transaction() as session:
        [request] = offer_waiting(session, limit=10)
    assert (run.status, run.trigger, run.retry_of_run_id) == ("pending", "retry", earlier.id)
    assert request.key == f"automation-run-{run.id}"
    assert request.config == {"schedule_id": earlier.schedule_id, "run_id": run.id}
    assert request.tags["automation/trigger"] == "retry"


def test_a_failed_retry_can_be_retried(database: Database, clock: FakeClock) -> None:
    second = retry_run(ended(database, clock).id, database=database, clock=clock)
    open_run(
        make_launch(second.schedule_id, "dagster-2", run_id=second.id),
        database=database,
        clock=clock,
    )
    add_selection(second.id, ["1", "4"], database, clock)
    with database.transaction() as session:
        moves = [LedgerMove("1", OutcomeStatus.SUCCESSFUL), LedgerMove("4", OutcomeStatus.FAILED)]
        record_moves(session, second.id, moves, clock.now())
    finalise_run(second.id, database=database, clock=clock)
    third = retry_run(second.id, database=database, clock=clock)
    with database.reading() as session:
        assert selection_of(session, session.get_one(RunRow, third.id)).fiche_ids == ("4",)


@pytest.mark.parametrize(
    "statuses", [("successful", "ignored", "successful", "ignored"), ("ignored",) * 4]
)
def test_a_run_without_failures_has_nothing_to_retry(
    statuses: tuple[str, ...], database: Database, clock: FakeClock
) -> None:
    run = ended(database, clock, statuses)
    with pytest.raises(ConflictError, match=r"^Run 1 has nothing to retry: no fiche failed$"):
        retry_run(run.id, database=database, clock=clock)
    assert _runs(database) == 1


def test_retrying_a_run_that_failed_before_selection_repeats_the_whole_run(
    database: Database, clock: FakeClock
) -> None:
    schedule = make_schedule(
        database, clock, ficheSelection={"mode": "date_range", "dateRange": "yesterday"}
    )
    due_at, override = clock.now(), FicheSelection(mode=SelectionMode.MANUAL, fiche_ids=("8",))
    for given in ({"due_at": due_at}, {"override": override}, {}):
        first = request_run(schedule.id, database=database, clock=clock, **given)  # type: ignore[arg-type]
        finalise_run(
            first.id, database=database, clock=clock, breakdown="FICHE_API_BASE_URL is not set"
        )
        clock.advance(timedelta(days=1))
        run = retry_run(first.id, database=database, clock=clock)
        with database.reading() as session:
            row = session.get_one(RunRow, run.id)
            assert selection_of(session, row) == given.get("override", schedule.fiche_selection)
        assert (run.due_at, run.retry_of_run_id) == (
            given.get("due_at", first.started_at),
            first.id,
        )
        finalise_run(run.id, database=database, clock=clock, breakdown="over")


def test_an_active_run_cannot_be_retried(database: Database, clock: FakeClock) -> None:
    run_attempt = active_run(database, clock, ("failed",))
    with pytest.raises(ConflictError, match="Run 1 is still running"):
        retry_run(run_attempt.run_id, database=database, clock=clock)
    assert _runs(database) == 1


def test_runs_of_a_paused_schedule_cannot_be_retried(database: Database, clock: FakeClock) -> None:
    run = ended(database, clock)
    with database.transaction() as session:
        session.get_one(ScheduleRow, run.schedule_id).is_active = False
    with pytest.raises(ConflictError, match="is not active"):
        retry_run(run.id, database=database, clock=clock)
    assert _runs(database) == 1


def test_an_unknown_run_cannot_be_retried(database: Database, clock: FakeClock) -> None:
    with pytest.raises(NotFoundError, match="Run 99 not found"):
        retry_run(99, database=database, clock=clock)


def _runs(database: Database) -> int:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(RunRow)) or 0


CANCELLED = "Cancelled by an operator"


def move(database: Database, clock: FakeClock, run_attempt: RunAttempt, **statuses: str) -> None:
    moves = [
        LedgerMove(fiche.removeprefix("f"), OutcomeStatus(status))
        for fiche, status in statuses.items()
    ]
    with database.transaction() as session:
        record_moves(session, run_attempt.run_id, moves, clock.now())


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (None, CANCELLED),
        ("  ", CANCELLED),
        ("wrong\n day", f"{CANCELLED}: wrong day"),
        ("x" * 500, f"{CANCELLED}: {'x' * 500}"),
    ],
)
def test_a_cancelled_run_ignores_unfinished_fiches_and_keeps_finished_ones(
    reason: str | None, message: str, database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock)
    move(database, clock, run_attempt, f1="successful", f2="ignored")
    run = cancel_run(run_attempt.run_id, reason=reason, database=database, clock=clock)
    assert (run.status, run.error_message) == ("cancelled", message)
    assert (run.successful_fiches, run.failed_fiches, run.ignored_fiches) == (1, 0, 2)
    with database.reading() as session:
        last = outcomes(session, run_attempt.run_id)[-1]
        assert (last.status, last.error, last.ignore_reason, last.reason) == (
            "ignored",
            None,
            CANCELLED,
            "cancelled",
        )
        assert reasons_of(session, run_attempt.run_id)["ignored"]["cancelled"] == 1
        assert fiches_to_retry(session, run_attempt.run_id) == ["3"]
        assert get_run(session, run_attempt.run_id).error_message == message
        schedule = get_schedule(session, run.schedule_id)
        assert (schedule.total_runs, schedule.failed_runs, schedule.last_run_status) == (
            1,
            0,
            "cancelled",
        )
        names = sorted(
            name for name in session.scalars(select(OutboxRow.event_name)) if "cancelled" in name
        )
    assert names == ["automation.run.cancelled", "automation/cancelled"]


def test_earlier_failures_keep_their_errors(database: Database, clock: FakeClock) -> None:
    run_attempt = make_open_run(database, clock, ["1", "2"])
    with database.transaction() as session:
        broken = LedgerMove("1", OutcomeStatus.FAILED, error="The CRM is down")
        record_moves(session, run_attempt.run_id, [broken], clock.now())
    cancel_run(run_attempt.run_id, database=database, clock=clock)
    with database.reading() as session:
        message = [
            (fiche.status, fiche.error or fiche.ignore_reason)
            for fiche in outcomes(session, run_attempt.run_id)
        ]
    assert message == [("failed", "The CRM is down"), ("ignored", CANCELLED)]


def test_a_cancelled_run_does_not_count_as_a_consecutive_failure(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock)
    with database.transaction() as session:
        schedule = session.get_one(ScheduleRow, 1)
        schedule.failures_in_a_row, schedule.pause_after_failures = 1, 2
    cancel_run(run_attempt.run_id, database=database, clock=clock)
    with database.reading() as session:
        row = session.get_one(ScheduleRow, 1)
    assert (row.failures_in_a_row, row.is_active) == (1, True)
    assert (row.last_run_status, row.total_runs, row.failed_runs) == ("cancelled", 1, 0)


def test_cancelling_a_run_that_was_never_opened_ends_its_request(
    database: Database, clock: FakeClock
) -> None:
    run = request_run(make_schedule(database, clock).id, database=database, clock=clock)
    cancelled = cancel_run(run.id, reason="not today", database=database, clock=clock)
    with database.reading() as session:
        request = session.scalars(select(RunRequestRow)).one()
    assert cancelled.status == "cancelled"
    assert (request.state, request.reason) == ("refused", f"{CANCELLED}: not today")
    with pytest.raises(ConflictError, match="has already ended"):
        open_run(make_launch(run.schedule_id, run_id=run.id), database=database, clock=clock)


def test_cancelling_fences_off_the_active_attempt(database: Database, clock: FakeClock) -> None:
    run_attempt = make_open_run(database, clock)
    cancel_run(run_attempt.run_id, database=database, clock=clock)
    with pytest.raises(StaleAttemptError), database.transaction() as session:
        fence_attempt(session, run_attempt)


def test_a_finished_run_cannot_be_cancelled(database: Database, clock: FakeClock) -> None:
    run_attempt = make_open_run(database, clock, [])
    finalise_run(run_attempt.run_id, database=database, clock=clock, attempt=run_attempt.attempt)
    with pytest.raises(ConflictError, match=r"^Run 1 has already ended \(completed\)$"):
        cancel_run(run_attempt.run_id, database=database, clock=clock)


def test_a_second_cancellation_is_rejected_even_with_the_same_reason(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock)
    cancel_run(run_attempt.run_id, database=database, clock=clock)
    with pytest.raises(ConflictError, match=r"^Run 1 has already ended \(cancelled\)$"):
        cancel_run(run_attempt.run_id, database=database, clock=clock)


@pytest.mark.parametrize("reason", ["x" * 501, "a\0b"])
def test_an_invalid_cancellation_reason_leaves_the_run_active(
    reason: str, database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock)
    with pytest.raises(InvalidInputError):
        cancel_run(run_attempt.run_id, reason=reason, database=database, clock=clock)
    with database.reading() as session:
        assert get_run(session, run_attempt.run_id).status == "running"


def test_an_unknown_run_cannot_be_cancelled(database: Database, clock: FakeClock) -> None:
    with pytest.raises(NotFoundError, match="Run 99 not found"):
        cancel_run(99, database=database, clock=clock)


@pytest.mark.parametrize("repetition", range(3))
def test_concurrent_cancel_and_finalise_yield_one_final_status(
    repetition: int, database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock, ["1", "2"])
    move(database, clock, run_attempt, f1="successful", f2="successful")
    start = Barrier(2)

    def run_concurrently(operation: Callable[[], object]) -> object:
        start.wait(timeout=60)
        try:
            return operation()
        except AutomationError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        cancelling = pool.submit(
            run_concurrently, lambda: cancel_run(run_attempt.run_id, database=database, clock=clock)
        )
        pool.submit(
            run_concurrently,
            lambda: finalise_run(
                run_attempt.run_id, database=database, clock=clock, attempt=run_attempt.attempt
            ),
        ).result(timeout=60)
        answer = cancelling.result(timeout=60)
    with database.reading() as session:
        run = get_run(session, run_attempt.run_id)
        assert get_schedule(session, run.schedule_id).total_runs == 1
        moves = session.scalars(select(TransitionRow.to_state).order_by(TransitionRow.id)).all()
    assert moves == ["running", run.status]
    assert (run.status, run.error_message) in {("completed", None), ("cancelled", CANCELLED)}
    assert isinstance(answer, ConflictError) == (run.status == "completed")


def record_move(
    database: Database, clock: FakeClock, run_attempt: RunAttempt, statuses: Sequence[str]
) -> None:
    moves = [
        LedgerMove(str(number), OutcomeStatus(status))
        for number, status in enumerate(statuses, start=1)
    ]
    with database.transaction() as session:
        record_moves(session, run_attempt.run_id, moves, clock.now())


@pytest.mark.parametrize(
    ("statuses", "status", "schedule_status", "counters"),
    [
        (("successful", "successful", "ignored"), "completed", "success", (1, 1, 0)),
        (("successful", "failed", "ignored"), "partial", "partial", (1, 0, 0)),
        (("failed", "failed", "ignored"), "failed", "failed", (1, 0, 1)),
        (("ignored", "ignored", "ignored"), "completed", "success", (1, 1, 0)),
    ],
)
def test_the_final_status_follows_from_the_rows(
    statuses: Sequence[str], status: str, schedule_status: str, counters: tuple[int, ...],
    database: Database, clock: FakeClock,
) -> None:  # fmt: skip
    run_attempt = make_open_run(database, clock)
    record_move(database, clock, run_attempt, statuses)
    clock.advance(timedelta(seconds=90))
    run = finalise_run(
        run_attempt.run_id, database=database, clock=clock, attempt=run_attempt.attempt
    )

    assert (run.status, run.phase, run.duration_ms) == (status, "finalizing", 90_000)
    assert run.successful_fiches == statuses.count("successful")
    assert run.failed_fiches == statuses.count("failed")
    assert run.ignored_fiches == statuses.count("ignored")
    assert run.total_fiches == 3 - statuses.count("ignored")
    with database.reading() as session:
        schedule = get_schedule(session, run.schedule_id)
        assert session.get_one(RunRow, run.id).result_summary == {}
    assert schedule.last_run_status == schedule_status
    assert (schedule.total_runs, schedule.successful_runs, schedule.failed_runs) == counters


def test_finalising_twice_has_no_further_effect(database: Database, clock: FakeClock) -> None:
    run_attempt = make_open_run(database, clock, [])
    first = finalise_run(run_attempt.run_id, database=database, clock=clock, attempt=1)
    clock.advance(timedelta(hours=1))
    again = finalise_run(run_attempt.run_id, database=database, clock=clock, breakdown="too late")
    assert again == first
    with database.reading() as session:
        assert get_schedule(session, first.schedule_id).total_runs == 1
        assert len(session.scalars(select(TransitionRow)).all()) == 2


def test_finalising_a_run_with_pending_rows_raises_a_ledger_error(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock)
    with pytest.raises(LedgerError, match="pending=3"):
        finalise_run(run_attempt.run_id, database=database, clock=clock, attempt=1)


def test_finalising_a_run_with_a_missing_row_raises_a_ledger_error(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock)
    record_move(database, clock, run_attempt, ["successful", "successful", "successful"])
    with database.transaction() as session:
        session.execute(
            update(FicheResultRow)
            .where(FicheResultRow.fiche_id == "2")
            .values(run_id=_another(database))
        )
    with pytest.raises(LedgerError, match="selected=3"):
        finalise_run(run_attempt.run_id, database=database, clock=clock, attempt=1)


def test_a_breakdown_fails_pending_fiches_and_keeps_outcomes(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock)
    record_move(database, clock, run_attempt, ["successful", "ignored"])
    run = finalise_run(
        run_attempt.run_id, database=database, clock=clock, breakdown="The worker died"
    )
    with database.reading() as session:
        rows = outcomes(session, run_attempt.run_id)
    assert (run.status, run.error_message) == ("failed", "The worker died")
    assert (run.successful_fiches, run.failed_fiches, run.ignored_fiches) == (1, 1, 1)
    assert [(row.status, row.error) for row in rows] == [
        ("successful", None),
        ("ignored", None),
        ("failed", INTERRUPTED),
    ]


def test_a_fenced_off_attempt_cannot_finalise_the_run(database: Database, clock: FakeClock) -> None:
    run_attempt = make_open_run(database, clock)
    open_run(
        make_launch(1, "dagster-2", dagster_root_run_id="dagster-1"), database=database, clock=clock
    )
    with pytest.raises(StaleAttemptError):
        finalise_run(
            run_attempt.run_id, database=database, clock=clock, attempt=run_attempt.attempt
        )
    with database.reading() as session:
        assert get_run(session, run_attempt.run_id).status == "running"


def test_finalising_a_run_that_was_never_opened_ends_its_request(
    database: Database, clock: FakeClock
) -> None:
    run = request_run(make_schedule(database, clock).id, database=database, clock=clock)
    ended = finalise_run(run.id, database=database, clock=clock, breakdown="It never started")
    with database.reading() as session:
        request = session.scalars(select(RunRequestRow)).one()
    assert ended.status == "failed"
    with database.reading() as session:
        assert session.get_one(RunRow, run.id).result_summary == {}, (
            "a run that selected nothing has no message about missing fiches"
        )
    assert (request.state, request.reason) == ("refused", "It never started")


def test_a_row_with_an_outcome_does_not_change_again(database: Database, clock: FakeClock) -> None:
    run_attempt = make_open_run(database, clock)
    record_move(database, clock, run_attempt, ["successful"])
    record_move(database, clock, run_attempt, ["failed"])
    with database.reading() as session:
        assert outcomes(session, run_attempt.run_id)[0].status == "successful"


def _another(database: Database) -> int:
    with database.transaction() as session:
        row = session.get_one(RunRow, 1)
        other = RunRow(
            schedule_id=row.schedule_id, status="running", trigger="manual", attempt=0, selected_fiches=0,
            started_at=row.started_at, config_snapshot={},
        )  # fmt: skip
        session.add(other)
        session.flush()
        return other.id


def watched(database: Database) -> WatchedRun:
    with database.reading() as session:
        [run] = watched_runs(session)
        return run


def test_a_lost_run_is_requested_again_until_three_attempts_made_no_progress(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock, ["1", "2"])
    sentences = []
    for number in range(1, 6):
        if number == 2:
            record_move(database, clock, run_attempt, ["successful"])
        lost = LostLaunch(watched(database), f"Loss {number}")
        sentences.append(request_next_attempt(lost, database=database, clock=clock))
        if number < 5:
            assert request_next_attempt(lost, database=database, clock=clock) is None, (
                "another process has acted on this loss"
            )
            launch = make_launch(
                1, f"dagster-{number + 1}", run_id=run_attempt.run_id, is_next=True
            )
            open_run(launch, database=database, clock=clock)
    assert request_next_attempt(lost, database=database, clock=clock) is None, "the run has ended"
    assert sentences == ["Requested another attempt at run 1"] * 4 + ["Closed run 1"]
    with database.reading() as session:
        run = get_run(session, run_attempt.run_id)
        lines = logs_after(session, run_attempt.run_id, 0, "warning")
        requests = session.execute(select(RunRequestRow.request_key, RunRequestRow.launch)).all()
    assert (run.status, run.error_message) == (
        "failed",
        "3 attempts in a row were lost without progress. The last one: Loss 5",
    )
    reasons = [(line.message, line.metadata) for line in lines[:-1]]
    assert reasons == [
        (
            f"Attempt {number} was lost: another attempt is requested",
            {"dagsterRunId": f"dagster-{number}", "reason": f"Loss {number}"},
        )
        for number in range(1, 5)
    ]
    assert [tuple(row) for row in requests] == [("automation-run-1", 6)]


def test_a_launch_that_never_started_does_not_count_as_an_attempt_without_progress(
    database: Database, clock: FakeClock
) -> None:
    request_run(make_schedule(database, clock).id, database=database, clock=clock)
    for launch in range(1, 6):
        run = watched(database)
        assert run.launch == launch
        lost = LostLaunch(run, "The code server restarted", has_started=False)
        assert request_next_attempt(lost, database=database, clock=clock)
    with database.reading() as session:
        row = session.get_one(RunRow, 1)
        message = logs_after(session, 1, 0, "warning")[-1].message
    assert (row.fruitless_attempts, row.status) == (0, "pending")
    assert message == "The run, before its first attempt, was lost: another attempt is requested"


EMAILS = ["anna@example.com", "bert@example.com"]


def test_each_receiver_has_a_record_and_an_event(database: Database, clock: Clock) -> None:
    run = make_ended_run(database, clock, ["5", "6"], notifyEmails=EMAILS)
    kept = records(database)
    receivers = {(row.channel, row.target): row for row in kept}
    assert set(receivers) == {("webhook", HOOK), *(("email", each) for each in EMAILS)}
    assert {(row.status, row.attempts, row.sent_at) for row in kept} == {
        (DeliveryStatus.PENDING, 0, None)
    }
    events = outbox(database)
    assert [event.event_key for event in events] == [each.key for each in run]
    assert [event.payload for event in events] == [
        {"notification_id": receivers[each.channel, each.target].id} for each in run
    ]
    assert {event.event_name for event in events} == {"automation/notification"}
    payload = receivers["webhook", HOOK].payload
    assert payload["schedule_id"] == str(get_only_schedule_id(database))
    assert payload["failures"] == [
        {"ficheId": "5", "error": "Audit of 5 incomplete"},
        {"ficheId": "6", "error": "Audit of 6 incomplete"},
    ]


def get_only_schedule_id(database: Database) -> int:
    with database.reading() as session:
        return session.get_one(RunRow, records(database)[0].run_id).schedule_id


def test_notification_of_a_failed_run_has_the_error(database: Database, clock: Clock) -> None:
    make_ended_run(database, clock, ["5"], breakdown="The worker was killed")
    [row] = records(database)
    assert (row.payload["status"], row.payload["error"]) == ("failed", "The worker was killed")
    assert "failures" not in row.payload


def test_notification_of_a_successful_run_has_the_counts(database: Database, clock: Clock) -> None:
    make_ended_run(database, clock)
    [row] = records(database)
    assert (row.payload["status"], row.payload["total_fiches"]) == ("completed", 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"notifyOnComplete": False},
        {"webhookUrl": None},
        {"notifyOnComplete": False, "notifyEmails": EMAILS},
    ],
)
def test_no_notification_without_a_request_for_one(
    database: Database, clock: Clock, fields: dict[str, object]
) -> None:
    assert make_ended_run(database, clock, **fields) == []
    assert (records(database), outbox(database)) == ([], [])


def test_repeated_notify_run_files_one_notification(database: Database, clock: Clock) -> None:
    make_ended_run(database, clock, notifyEmails=EMAILS)
    with database.transaction() as session:
        run = as_run(session.get_one(RunRow, records(database)[0].run_id))
        notify_run(session, run, get_schedule(session, run.schedule_id), now=clock.now())
    assert (len(records(database)), len(outbox(database))) == (3, 3)
