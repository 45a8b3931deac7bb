"""Tests of run queries: details, progress, and bounded lists."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, insert, select, text

from automation_pipeline.automation.models.runs import RunAttempt, RunFilter, RunStatus, Trigger
from automation_pipeline.automation.queries import run_details
from automation_pipeline.automation.queries.ledger import untranscribed
from automation_pipeline.automation.queries.run_details import (
    LOG_LEVELS,
    RunProgress,
    find_runs,
    is_run_visible,
    is_schedule_visible,
    logs_after,
    notifications_of_run,
    progress_of,
    reasons_of,
    runs_by_id,
    runs_cancelled,
    runs_within,
    schedules_within,
)
from automation_pipeline.automation.queries.runs import (
    add_run,
    count_runs,
    external_key_of,
    get_run,
    status_of_closed_run,
    unended_run_of_dagster,
    write_log,
)
from automation_pipeline.automation.runs import finalise_run, open_run, request_run
from automation_pipeline.automation.tables import FicheResultRow, LogRow, NotificationRow, RunRow
from automation_pipeline.core.access import EVERYTHING, Reach, Scope
from automation_pipeline.fiches.tables import CallRecordingRow, FicheCacheRow
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.statements import is_postgres
from automation_pipeline_tests.automation.harness import AutomationHarness
from automation_pipeline_tests.factories import make_launch, make_open_run, make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock


def mirrored(
    database: Database, clock: FakeClock, *, fiches: int, calls: int, lacking: int
) -> None:
    """Add fiches with the given number of calls. Every tenth lacks some transcripts, including
    one of a recording that no longer exists."""
    now = clock.now()
    numbers = range(1, fiches + 1)
    lists = {"raw_data": {}, "fetched_at": now, "expires_at": now + timedelta(days=30)}

    def transcript(number: int, of_it: int) -> dict[str, object]:
        is_whole, is_gone = number % 10 > 0, number % 10 == 0 == of_it
        return {
            "has_transcription": is_whole or 0 < of_it < calls - lacking,
            "vanished_at": now if is_gone else None,
        }

    call = {
        "recording_url": "https://calls.example/1", "start_time": now, "duration_seconds": 60, "direction": "out",
        "from_number": "1", "to_number": "2", "answered": True,
    }  # fmt: skip
    received = [
        {**call, "fiche_cache_id": n, "call_id": f"{n}-{m}", **transcript(n, m)}
        for n in numbers
        for m in range(calls)
    ]
    with database.transaction() as session:
        session.execute(
            insert(FicheCacheRow), [{"id": n, "fiche_id": str(n), **lists} for n in numbers]
        )
        session.execute(insert(CallRecordingRow), received)


def query_plan(session: Session, fiche_ids: Sequence[str]) -> str:
    """Return the query plan of the database."""
    connection = session.connection()
    asked: list[tuple[str, Any]] = []

    def keep(_connection: object, _cursor: object, statement: str, given: Any, *_: object) -> None:
        asked.append((statement, given))

    event.listen(connection, "before_cursor_execute", keep)
    untranscribed(session, fiche_ids)
    event.remove(connection, "before_cursor_execute", keep)
    [(statement, given)] = asked
    explain = "EXPLAIN" if is_postgres(session) else "EXPLAIN QUERY PLAN"
    return str(connection.exec_driver_sql(f"{explain} {statement}", given).all())


def test_every_fiche_has_its_number_of_missing_transcripts(
    database: Database, clock: FakeClock
) -> None:
    mirrored(database, clock, fiches=20, calls=4, lacking=2)
    with database.reading() as session:
        found = dict(untranscribed(session, ["9", "10", "20", "99"]))
    assert found == {"9": 0, "10": 2, "20": 2}


def test_the_query_skips_recordings_that_have_a_transcript(
    database: Database, clock: FakeClock
) -> None:
    mirrored(database, clock, fiches=2000, calls=4, lacking=1)
    fiche_ids = [str(n) for n in range(1, 51)]
    with database.transaction() as session:
        session.execute(text("ANALYZE"))
    with database.reading() as session:
        plan = query_plan(session, fiche_ids)
    assert "ix_recordings_untranscribed" in plan
    assert "uq_recordings" not in plan


NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
CALLED = {"recordings_count": 1}


@pytest.fixture
def run_id(database: Database, clock: FakeClock) -> int:
    return make_run(database, clock)


def make_run(database: Database, clock: FakeClock, **fields: object) -> int:
    schedule = make_schedule(database, clock)
    with database.transaction() as session:
        row = add_run(session, schedule, Trigger.MANUAL, clock.now())
        for name, value in fields.items():
            setattr(row, name, value)
        return row.id


def insert_rows(database: Database, run_id: int, rows: Sequence[dict[str, object]]) -> None:
    with database.transaction() as session:
        session.add_all(
            FicheResultRow(
                run_id=run_id, fiche_id=str(number), position=number, batch=0, created_at=NOW, updated_at=NOW,
                **{"status": "pending", "stage": "selected", "transcribed": False, "audits": 0, **row},
            )
            for number, row in enumerate(rows)
        )  # fmt: skip


@pytest.mark.parametrize(
    ("row", "progress"),
    [
        ({}, RunProgress(1, 0, 0, 0, 0, 0, 0)),
        ({"stage": "fetched", "recordings_count": 0}, RunProgress(1, 1, 0, 0, 0, 0, 0)),
        (
            {"stage": "fetched", "status": "successful", "recordings_count": 0},
            RunProgress(1, 1, 0, 0, 0, 1, 0),
        ),
        ({"stage": "fetched", **CALLED}, RunProgress(1, 1, 1, 0, 0, 0, 0)),
        ({"stage": "fetched", **CALLED, "transcribed": True}, RunProgress(1, 1, 1, 1, 0, 0, 0)),
        (
            {"stage": "fetched", **CALLED, "transcribed": True, "audits": 2},
            RunProgress(1, 1, 1, 1, 0, 0, 2),
        ),
        (
            {"status": "successful", **CALLED, "transcribed": True, "audits": 3},
            RunProgress(1, 1, 1, 1, 1, 1, 3),
        ),
        ({"stage": "fetched", **CALLED, "status": "failed"}, RunProgress(1, 1, 1, 0, 0, 1, 0)),
        ({"status": "successful", **CALLED}, RunProgress(1, 1, 1, 0, 0, 1, 0)),
        ({"status": "failed"}, RunProgress(1, 1, 0, 0, 0, 1, 0)),
        ({"status": "ignored"}, RunProgress(1, 1, 0, 0, 0, 1, 0)),
    ],
)
def test_progress_counts_a_fiche_in_every_phase_it_has_completed(
    row: dict[str, object], progress: RunProgress, database: Database, run_id: int
) -> None:
    insert_rows(database, run_id, [row])
    with database.reading() as session:
        assert progress_of(session, run_id) == progress
        assert progress_of(session, run_id + 1) == RunProgress(0, 0, 0, 0, 0, 0, 0)


def test_reasons_are_counted_per_outcome_and_sorted_by_frequency(
    database: Database, run_id: int
) -> None:
    failed = [
        {"status": "failed", "reason": reason}
        for reason in ("audit_failed", "fetch_failed", "fetch_failed")
    ]
    others: list[dict[str, object]] = [
        {"status": "failed"},
        {"status": "ignored", "reason": "not_found"},
    ]
    insert_rows(database, run_id, [*failed, *others, {"status": "successful"}, {}])
    with database.reading() as session:
        reasons = reasons_of(session, run_id)
    assert reasons == {
        "failed": {"fetch_failed": 2, "audit_failed": 1, "unknown": 1},
        "ignored": {"not_found": 1},
    }
    assert list(reasons["failed"]) == ["fetch_failed", "audit_failed", "unknown"]


def test_logs_are_paged_by_cursor_and_filtered_by_level(database: Database, run_id: int) -> None:
    with database.transaction() as session:
        for level in LOG_LEVELS:
            write_log(session, run_id, NOW, level, f"a {level}")
            session.flush()
    with database.reading() as session:
        rows = logs_after(session, run_id, 0, "debug")
        assert [row.level for row in rows] == list(LOG_LEVELS)
        assert [row.level for row in logs_after(session, run_id, 0, "warning")] == [
            "warning",
            "error",
        ]
        assert [row.level for row in logs_after(session, run_id, rows[2].id, "debug")] == ["error"]
        assert logs_after(session, run_id, rows[3].id, "debug") == []


@pytest.mark.parametrize(
    ("statuses", "found"),
    [
        ((), [3, 2, 1]),
        ((RunStatus.FAILED,), [3]),
        ((RunStatus.FAILED, RunStatus.PENDING), [3, 1]),
        ((RunStatus.PARTIAL,), []),
    ],
)
def test_runs_are_found_by_status(
    statuses: Sequence[RunStatus], found: list[int], database: Database, clock: FakeClock
) -> None:
    for status in ("pending", "completed", "failed"):
        make_run(database, clock, status=status)
    with database.reading() as session:
        runs = find_runs(session, RunFilter(status=statuses), limit=10, offset=0)
        assert [run.id for run in runs] == found
        assert find_runs(session, RunFilter(99, statuses), limit=10, offset=0) == []


def test_the_run_of_a_dagster_run_is_found_until_it_ends(
    database: Database, clock: FakeClock
) -> None:
    waiting = request_run(make_schedule(database, clock).id, database=database, clock=clock)
    opened = open_run(
        make_launch(make_schedule(database, clock).id, "dagster-2"), database=database, clock=clock
    )

    def found(dagster_run_id: str, run_id: int | None = None) -> RunAttempt | None:
        with database.reading() as session:
            return unended_run_of_dagster(session, dagster_run_id, run_id)

    def closed(dagster_run_id: str) -> RunStatus | None:
        with database.reading() as session:
            return status_of_closed_run(session, dagster_run_id)

    assert (found("dagster-2"), closed("dagster-2")) == (opened, None)
    assert found("dagster-9", waiting.id) == RunAttempt(waiting.id, 0), "launched, never opened"
    assert found("dagster-9", opened.run_id) is None, "another Dagster run works on it"
    assert found("dagster-9") is None
    finalise_run(opened.run_id, database=database, clock=clock, breakdown="It broke")
    assert (found("dagster-2"), closed("dagster-2")) == (None, RunStatus.FAILED)
    assert closed("dagster-9") is None


def test_runs_and_fiches_are_counted_by_status(database: Database, clock: FakeClock) -> None:
    counts = {"successful_fiches": 1, "failed_fiches": 2, "ignored_fiches": 4}
    for status in ("completed", "partial", "partial"):
        make_run(database, clock, status=status, **counts)
    with database.reading() as session:
        found = count_runs(session)
    assert found.runs == {
        status: {"completed": 1, "partial": 2}.get(status, 0) for status in RunStatus
    }
    assert found.fiches == {"successful": 3, "failed": 6, "ignored": 12}


def test_a_run_uses_the_crm_key_of_its_schedule(database: Database, clock: FakeClock) -> None:
    keys: list[str | None] = []
    for number, fields in enumerate(({"externalApiKey": "s3cret"}, {})):
        schedule = make_schedule(database, clock, **fields)
        launch = make_launch(schedule.id, f"dagster-{number}")
        run_attempt = open_run(launch, database=database, clock=clock)
        with database.reading() as session:
            key = external_key_of(session, run_attempt.run_id)
        keys.append(key and key.get_secret_value())
    assert keys == ["s3cret", None]


NORD = Reach(Scope.GROUP, groupes=frozenset({"NORD"}))


def add_runs_of_groupes(database: Database, clock: FakeClock, groupes: str) -> None:
    """Add a run per letter: N of the groupe NORD, S of SUD."""
    for letter in groupes:
        selection = {"mode": "filter", "dateRange": "yesterday"}
        selection |= {"groupes": ["NORD" if letter == "N" else "SUD"]}
        schedule = make_schedule(database, clock, ficheSelection=selection)
        with database.transaction() as session:
            add_run(session, schedule, Trigger.MANUAL, clock.now())


def test_runs_within_a_limited_reach_are_found_page_by_page(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_details, "PAGE_SIZE", 2)
    add_runs_of_groupes(database, clock, "NNSNSSN")

    def found(reach: Reach, limit: int = 9, offset: int = 0) -> list[int]:
        with database.reading() as session:
            runs = runs_within(session, reach, RunFilter(), limit=limit, offset=offset)
        return [run.id for run in runs]

    assert found(NORD) == [7, 4, 2, 1]
    assert found(NORD, limit=2) == [7, 4]
    assert found(NORD, limit=2, offset=1) == [4, 2]
    assert found(NORD, limit=2, offset=3) == [1]
    assert found(EVERYTHING, limit=2, offset=1) == [6, 5]
    with database.reading() as session:
        seen = [run_id for run_id in range(9) if is_run_visible(session, NORD, run_id)]
        schedules = schedules_within(session, NORD, include_inactive=False, limit=2, offset=1)
        assert [one.id for one in schedules] == [4, 2]
        assert [id_ for id_ in range(9) if is_schedule_visible(session, NORD, id_)] == [1, 2, 4, 7]
    assert seen == [1, 2, 4, 7]


def test_a_run_of_named_fiches_is_within_the_reach_of_their_owner(
    harness: AutomationHarness,
) -> None:
    mine = Reach(Scope.SELF, crm_user_id="u1", caller="user:12")
    harness.add_to_crm("1", attribution_user_id="u1")
    run_attempts = [
        harness.open(harness.schedule("1", createdBy=user).id, f"dagster-{user}")
        for user in ("user:12", "user:13")
    ]

    def visible() -> list[bool]:
        with harness.database.reading() as session:
            return [is_run_visible(session, mine, one.run_id) for one in run_attempts]

    assert visible() == [False, False], "the fiche is not mirrored"
    harness.select(run_attempts[0])
    harness.fetch(run_attempts[0])
    assert visible() == [True, False]


@pytest.mark.parametrize(
    ("fields", "is_found"),
    [
        ({}, True),
        ({"status": "failed"}, False),
        ({"status": "completed"}, False),
        ({"completed_at": NOW - timedelta(seconds=4)}, False),
        ({"completed_at": NOW - timedelta(minutes=61)}, False),
        ({"completed_at": None, "status": "running"}, False),
    ],
)
def test_cancelled_runs_are_found_by_period(
    fields: dict[str, object], is_found: bool, database: Database, clock: FakeClock
) -> None:
    cancelled = {
        "status": "cancelled",
        "error_message": "Cancelled by an operator",
        "completed_at": NOW - timedelta(0, 6),
        "dagster_run_id": "d-1",
    }
    run_id = make_run(database, clock, **{**cancelled, **fields})
    with database.reading() as session:
        found = runs_cancelled(session, NOW - timedelta(hours=1), NOW - timedelta(seconds=5))
    assert found == ({run_id: "d-1"} if is_found else {})


def test_notifications_of_other_runs_are_not_returned(
    database: Database, clock: FakeClock, run_id: int
) -> None:
    with database.transaction() as session:
        for target in ("a@example.org", "b@example.org"):
            session.add(
                NotificationRow(
                    run_id=run_id,
                    channel="email",
                    target=target,
                    payload={},
                    status="sent",
                    attempts=1,
                    created_at=NOW,
                )
            )
    with database.reading() as session:
        assert [row.target for row in notifications_of_run(session, run_id)] == [
            "a@example.org",
            "b@example.org",
        ]
        assert notifications_of_run(session, run_id + 1) == []
        assert session.get_one(RunRow, run_id).status == "pending"


def test_runs_are_found_by_their_ids(database: Database, clock: FakeClock) -> None:
    ids = [make_run(database, clock), make_run(database, clock, selected_fiches=2)]
    with database.reading() as session:
        assert runs_by_id(session, [*ids, 99]) == {id_: get_run(session, id_) for id_ in ids}
        assert runs_by_id(session, []) == {}


def test_details_of_log_lines_are_masked(database: Database, clock: FakeClock) -> None:
    run_id = make_open_run(database, clock).run_id
    details = {
        "apiKey": "hush",
        "prospectNom": "Dupont",
        "url": "https://h.test/?sig=hush",
        "total_tokens": 12,
    }
    with database.transaction() as session:
        write_log(session, run_id, clock.now(), "info", "Masked", details)
        write_log(session, run_id, clock.now(), "info", "Plain")
    with database.reading() as session:
        kept = dict(session.execute(select(LogRow.message, LogRow.details)).tuples().all())
    masked = {
        "apiKey": "[masked]",
        "prospectNom": "[masked]",
        "url": "https://h.test/?[masked]",
        "total_tokens": 12,
    }
    assert (kept["Masked"], kept["Plain"]) == (masked, {})
