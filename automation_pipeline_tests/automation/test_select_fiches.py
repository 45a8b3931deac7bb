"""Tests of selecting the fiches of a run: sales lists, filters, pending rows, and logs."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from automation_pipeline.automation.models.runs import Run, RunAttempt
from automation_pipeline.automation.queries.ledger import outcomes
from automation_pipeline.automation.queries.run_details import (
    logs_after,
    run_detail,
)
from automation_pipeline.automation.queries.runs import StaleAttemptError, get_run
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.runs import finalise_run, open_run
from automation_pipeline.automation.tables import NotificationRow, RunRow
from automation_pipeline.core.errors import TransientError
from automation_pipeline.fiches.models.fiches import SalesList
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import WorkflowLogRow
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.factories import (
    COOLDOWN,
    make_launch,
    make_open_run,
    make_schedule,
    run_selection,
)
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche, summary

TODAY, YESTERDAY, BEFORE = date(2026, 5, 4), date(2026, 5, 3), date(2026, 5, 2)
SELECTION_EVENTS = select(OutboxRow).where(OutboxRow.event_name == "automation.run.selection")
LOST = TransientError("The CRM did not answer in time.")


@pytest.fixture
def crm() -> FakeFicheSource:
    source = FakeFicheSource()
    source.set_sales(YESTERDAY, summary("2"), summary("1"), summary("2"))
    source.set_sales(TODAY, summary("3"))
    return source


def opened(
    database: Database, clock: FakeClock, zone: str = "Europe/Paris", **selection: object
) -> RunAttempt:
    selection_fields = {"mode": "date_range", "dateRange": "last_24h", **selection}
    schedule = make_schedule(database, clock, ficheSelection=selection_fields, timezone=zone)
    return open_run(
        make_launch(schedule.id, f"launch-{schedule.id}"), database=database, clock=clock
    )


def read_run(
    database: Database, run_attempt: RunAttempt
) -> tuple[Run, list[str], list[tuple[str, str]]]:
    """Return the run, the fiche IDs of its ledger, and its log."""
    with database.reading() as session:
        ids = [row.fiche_id for row in outcomes(session, run_attempt.run_id)]
        lines = [
            (row.level, row.message) for row in logs_after(session, run_attempt.run_id, 0, "debug")
        ]
        return get_run(session, run_attempt.run_id), ids, lines[1:]


def log_details(database: Database, run_attempt: RunAttempt) -> list[Mapping[str, Any]]:
    """Return the details of the log lines after the first."""
    with database.reading() as session:
        lines = logs_after(session, run_attempt.run_id, 0, "debug")
        return [line.metadata for line in lines[1:]]


def summary_of(database: Database, run_attempt: RunAttempt) -> dict[str, Any]:
    with database.reading() as session:
        return dict(session.get_one(RunRow, run_attempt.run_id).selection_summary or {})


def test_every_id_becomes_one_pending_row_in_the_order_given(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock, ["7, 8\n9", "8", " 10 "])
    with database.reading() as session:
        rows, run = outcomes(session, run_attempt.run_id), get_run(session, run_attempt.run_id)
    assert [(row.fiche_id, row.status) for row in rows] == [
        (i, "pending") for i in ("7", "8", "9", "10")
    ]
    assert (run.selected_fiches, run.total_fiches) == (4, 4)
    result = summary_of(database, run_attempt)
    assert (result["candidates"], result["dropped"]["duplicates"]) == (5, 1)
    assert read_run(database, run_attempt)[2] == [
        ("info", "Processing manual fiche selection"),
        ("info", "Using 4 manually selected fiches"),
    ]
    details = {"ids": ["7", "8", "9", "10"], "dropped": {"duplicates": 1}}
    assert log_details(database, run_attempt) == [{}, details]


def test_fiches_are_split_into_batches(database: Database, clock: FakeClock) -> None:
    schedule = make_schedule(database, clock, [str(number) for number in range(120)])
    run_attempt = open_run(make_launch(schedule.id), database=database, clock=clock)
    assert run_selection(run_attempt, database, clock, processes=2) == [0, 1, 2]


def test_a_selection_by_date_fetches_and_uses_the_lists_of_its_days(
    crm: FakeFicheSource, database: Database, clock: FakeClock
) -> None:
    run_attempt = opened(database, clock)
    batches = run_selection(run_attempt, database, clock, crm)
    run, ids, log = read_run(database, run_attempt)
    assert sorted(crm.requests) == ["2026-05-03", "2026-05-04"]
    assert (ids, batches) == (["1", "2", "3"], [0])
    assert (run.selected_fiches, run.error_details) == (3, None)
    assert log[:2] == [
        ("info", "Calculated 2 dates to query"),
        ("info", "Revalidating fiche cache for 2 date(s) before automation"),
    ]
    assert sorted(log[2:4]) == [
        ("info", "Revalidated 03/05/2026 (2 fiches)"),
        ("info", "Revalidated 04/05/2026 (1 fiches)"),
    ]
    assert log[4:] == [("info", "Loaded 3 fiches from DB"), ("info", "Final: 3 fiches to process")]
    assert log_details(database, run_attempt) == [
        {"dates": ["2026-05-03", "2026-05-04"]},
        {"up_to_date": 0},
        {"missingCle": 0},
        {"missingCle": 0},
        {},
        {"dropped": {}},
    ]


def test_selection_counts_have_stable_keys(
    crm: FakeFicheSource, database: Database, clock: FakeClock
) -> None:
    run_attempt = opened(database, clock, mode="filter", groupes=["NORD"], maxFiches=2)
    run_selection(run_attempt, database, clock, crm)
    assert summary_of(database, run_attempt) == {
        "mode": "filter",
        "dateRange": "last_24h",
        "dates": ["2026-05-03", "2026-05-04"],
        "candidates": 3,
        "selected": 2,
        "dropped": {"duplicates": 0, "groupe_not_selected": 0, "audited": 0, "over_max_fiches": 1},
        "revalidation_failures": [],
        "filters": {
            "groupes": ["NORD"],
            "onlyWithRecordings": False,
            "onlyUnaudited": False,
            "useRlm": False,
            "maxFiches": 2,
            "maxRecordingsPerFiche": None,
        },
        "empty_reason": None,
    }


def test_the_selection_is_logged_once(
    crm: FakeFicheSource, database: Database, clock: FakeClock
) -> None:
    run_attempt = opened(database, clock)
    run_selection(run_attempt, database, clock, crm)
    with database.reading() as session:
        [event] = session.scalars(SELECTION_EVENTS).all()
        notes = session.scalars(
            select(WorkflowLogRow).where(WorkflowLogRow.step_name == "select_fiches")
        ).all()
    assert (event.event_key, event.event_name) == (
        "automation-run-1-selection",
        "automation.run.selection",
    )
    assert (event.payload["job_id"], event.payload["total_fiches"]) == ("automation-run-1", 3)
    assert [note.message for note in notes] == [
        message for _level, message in read_run(database, run_attempt)[2]
    ]
    assert {
        (note.workflow, note.entity_type, note.entity_id, note.trace_id, note.dagster_run_id)
        for note in notes
    } == {("automation", "automation_run", "1", "automation-run-1", "launch-1")}


def test_a_failed_day_is_logged_and_the_mirror_is_used(
    crm: FakeFicheSource, database: Database, clock: FakeClock
) -> None:
    run_selection(opened(database, clock), database, clock, crm)
    clock.advance(COOLDOWN)
    crm.fail_always(YESTERDAY.isoformat(), LOST)
    crm.fail_always(TODAY.isoformat(), LOST)
    crm.set_sales(TODAY, summary("3"), summary("4"))
    run_attempt = opened(database, clock)
    batches = run_selection(run_attempt, database, clock, crm)
    run, ids, log = read_run(database, run_attempt)
    failures = [{"date": TODAY.isoformat(), "error": str(LOST)}]
    assert (ids, batches, run.status) == (["1", "2", "3"], [0], "running")
    assert run.error_details == {"revalidation_failures": failures}
    assert summary_of(database, run_attempt)["revalidation_failures"] == failures
    assert ("error", f"Failed to revalidate 04/05/2026: {LOST}") in log


@pytest.mark.parametrize(
    ("waited", "requests"), [(COOLDOWN - timedelta(seconds=1), 0), (COOLDOWN, 1)]
)
def test_a_fresh_or_final_sales_list_is_not_fetched_again(
    waited: timedelta, requests: int, crm: FakeFicheSource, database: Database, clock: FakeClock
) -> None:
    run_selection(opened(database, clock), database, clock, crm)
    crm.requests.clear()
    clock.advance(waited)
    run_attempt = opened(database, clock)
    run_selection(run_attempt, database, clock, crm)
    assert crm.requests == [TODAY.isoformat()][:requests]
    counts = [line for line in log_details(database, run_attempt) if "up_to_date" in line]
    assert counts == [{"up_to_date": 1}][:requests]
    assert read_run(database, run_attempt)[1] == ["1", "2", "3"]


def test_a_later_attempt_makes_no_calls_and_adds_no_rows(
    crm: FakeFicheSource, database: Database, clock: FakeClock
) -> None:
    first = opened(database, clock)
    run_selection(first, database, clock, crm)
    before = read_run(database, first)[1:]
    crm.requests.clear()
    clock.advance(timedelta(days=1))
    second = open_run(
        make_launch(1, "dagster-2", dagster_root_run_id="launch-1"), database=database, clock=clock
    )
    batches = run_selection(second, database, clock, crm)
    assert (batches, crm.requests) == ([0], [])
    ids, log = read_run(database, first)[1:]
    assert (ids, log[:-1]) == before
    with database.reading() as session:
        assert len(session.scalars(SELECTION_EVENTS).all()) == 1


def test_a_finished_run_has_no_pending_batches(database: Database, clock: FakeClock) -> None:
    run_attempt = make_open_run(database, clock)
    finalise_run(run_attempt.run_id, database=database, clock=clock, breakdown="boom")
    assert run_selection(run_attempt, database, clock) == ()


@pytest.mark.parametrize(
    ("selection_fields", "reason", "message"),
    [
        ({"mode": "manual", "ficheIds": []}, "no_fiches_manual", ("warning", "No fiches in manual selection")),
        ({"mode": "manual", "ficheIds": [" , "]}, "no_fiches_manual", ("warning", "No fiches in manual selection")),
        ({"dateRange": "custom", "customStartDate": "05/05/2026", "customEndDate": "06/05/2026"}, "no_dates",
         ("warning", "No dates to query")),
        ({"dateRange": "custom", "customStartDate": "02/05/2026"}, "no_fiches_found",
         ("info", "Final: 0 fiches to process")),
    ],
)  # fmt: skip
def test_an_empty_selection_has_no_batches_and_a_reason(
    selection_fields: dict[str, object],
    reason: str,
    message: tuple[str, str],
    crm: FakeFicheSource,
    database: Database,
    clock: FakeClock,
) -> None:
    run_attempt = opened(database, clock, **selection_fields)
    assert run_selection(run_attempt, database, clock, crm) == []
    run, ids, log = read_run(database, run_attempt)
    assert (run.selected_fiches, ids, summary_of(database, run_attempt)["empty_reason"]) == (
        0,
        [],
        reason,
    )
    assert message in log


def test_uncertain_fiches_are_kept_until_their_details_are_fetched(
    database: Database, clock: FakeClock
) -> None:
    harness = AuditHarness(database, clock)
    for fiche_id in ("1", "2", "3"):
        harness.sell(fiche_id)
    harness.audit("3", harness.configure(1))
    harness.crm.set_sales(YESTERDAY, *(summary(fiche_id) for fiche_id in ("1", "2", "3", "4")))
    harness.crm.add(fiche("4", groupe="OTHER"))
    for selection_fields in ({}, {"mode": "manual", "ficheIds": ["1", "2", "3", "4"]}):
        run_attempt = opened(
            database, clock, groupes=["NORD"], onlyUnaudited=True, **selection_fields
        )
        run_selection(run_attempt, database, clock, harness.crm)
        assert read_run(database, run_attempt)[1] == ["4"]
        assert summary_of(database, run_attempt)["dropped"]["groupe_not_selected"] == 3
        run_attempt = opened(database, clock, onlyUnaudited=True, **selection_fields)
        run_selection(run_attempt, database, clock, harness.crm)
        assert read_run(database, run_attempt)[1] == ["1", "2", "4"]
        assert summary_of(database, run_attempt)["dropped"]["audited"] == 1


@pytest.mark.parametrize(
    ("zone", "day"), [("Europe/Paris", YESTERDAY), ("America/New_York", BEFORE)]
)
def test_days_use_the_schedules_time_zone_and_the_due_time(
    zone: str, day: date, database: Database, clock: FakeClock
) -> None:
    source = FakeFicheSource()
    selection_fields = {"mode": "date_range", "dateRange": "yesterday"}
    schedule = make_schedule(database, clock, ficheSelection=selection_fields, timezone=zone)
    due_at = datetime(2026, 5, 4, 1, 0, tzinfo=UTC)
    clock.advance(timedelta(days=2))
    run_selection(
        open_run(make_launch(schedule.id, due_at=due_at), database=database, clock=clock),
        database,
        clock,
        source,
    )
    assert source.requests == [day.isoformat()]


class Interrupting(FakeFicheSource):
    """Calls a function while the sales list is fetched."""

    def __init__(self, callback: Callable[[], object]) -> None:
        super().__init__()
        self._callback = callback
        self.set_sales(YESTERDAY, summary("1"))

    async def sales_list(self, day: date) -> SalesList:
        await asyncio.to_thread(self._callback)
        return await super().sales_list(day)


def test_an_attempt_fenced_off_during_selection_writes_nothing(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = opened(database, clock, dateRange="yesterday")
    retry = make_launch(1, "dagster-2", dagster_root_run_id="launch-1")
    source = Interrupting(lambda: open_run(retry, database=database, clock=clock))
    with pytest.raises(StaleAttemptError):
        run_selection(run_attempt, database, clock, source)
    assert read_run(database, run_attempt)[1] == []


def test_two_workers_of_one_attempt_make_one_selection(
    crm: FakeFicheSource, database: Database, clock: FakeClock
) -> None:
    run_attempt = opened(database, clock, dateRange="yesterday")
    source = Interrupting(lambda: run_selection(run_attempt, database, clock, crm))
    assert run_selection(run_attempt, database, clock, source) == [0]
    _run, ids, log = read_run(database, run_attempt)
    assert ids == ["1", "2"]
    assert log.count(("info", "Final: 2 fiches to process")) == 1


def test_a_fenced_off_attempt_makes_no_calls(
    crm: FakeFicheSource, database: Database, clock: FakeClock
) -> None:
    first = opened(database, clock)
    open_run(
        make_launch(1, "dagster-2", dagster_root_run_id="launch-1"), database=database, clock=clock
    )
    with pytest.raises(StaleAttemptError):
        run_selection(first, database, clock, crm)
    assert crm.requests == []


def test_a_crash_before_the_selection_is_stored_repeats_it(
    crm: FakeFicheSource, database: Database, clock: FakeClock
) -> None:
    run_attempt = opened(database, clock)

    class Killed(FakeFicheSource):
        async def sales_list(self, day: date) -> SalesList:
            if day == TODAY:
                raise KeyboardInterrupt
            return await crm.sales_list(day)

    with pytest.raises(KeyboardInterrupt):
        run_selection(run_attempt, database, clock, Killed())
    assert read_run(database, run_attempt)[1:] == ([], [])
    run_selection(run_attempt, database, clock, crm)
    assert read_run(database, run_attempt)[1] == ["1", "2", "3"]


def test_a_changed_configuration_does_not_alter_a_stored_selection(
    database: Database, clock: FakeClock
) -> None:
    run_attempt = make_open_run(database, clock, ["1"])
    with database.transaction() as session:
        session.execute(
            update(RunRow).values(
                config_snapshot={"overrides": {"mode": "manual", "ficheIds": ["2"]}}
            )
        )
    assert run_selection(run_attempt, database, clock) == [0]
    assert read_run(database, run_attempt)[1] == ["1"]


def test_unreadable_days_are_reported_and_fail_the_run_if_all_are_unreadable(
    crm: FakeFicheSource, database: Database, clock: FakeClock
) -> None:
    """Regression: a run with an unreachable CRM ended as `completed`, and its webhook omitted
    the failed days."""
    cases = {"completed": [YESTERDAY], "failed": [YESTERDAY, TODAY]}
    for expected, unread in cases.items():
        for day in unread:
            crm.set_sales(day)
            crm.fail_always(day.isoformat(), LOST)
        crm.set_sales(TODAY)
        clock.advance(timedelta(days=0, minutes=10))
        schedule = make_schedule(
            database,
            clock,
            ficheSelection={"mode": "date_range", "dateRange": "last_24h"},
            webhookUrl="https://93.184.216.34/run",
            notifyEmails=["anna@example.com"],
            timezone="Europe/Paris",
        )
        run_attempt = open_run(
            make_launch(schedule.id, f"launch-{expected}"), database=database, clock=clock
        )
        run_selection(run_attempt, database, clock, crm)
        run = finalise_run(
            run_attempt.run_id, database=database, clock=clock, attempt=run_attempt.attempt
        )
        failed_days = [{"date": day.isoformat(), "error": str(LOST)} for day in unread]
        with database.reading() as session:
            of_run = NotificationRow.run_id == run_attempt.run_id
            notifications = session.scalars(select(NotificationRow).where(of_run)).all()
            mail, webhook = sorted(notifications, key=lambda one: one.channel)
            detail = run_detail(session, run_attempt.run_id, first_logs=10)
            assert get_schedule(session, schedule.id).failed_runs == (expected == "failed")
        assert (run.status, webhook.payload["status"]) == (expected, expected)
        assert webhook.payload["failed_days"] == failed_days
        assert detail["errorDetails"] == {"revalidation_failures": failed_days}
        text = str(mail.payload["text"])
        assert all(f"- {day.isoformat()}: {LOST}" in text for day in unread)
        error = f"None of the 2 days could be read: 2026-05-03: {LOST}"
        assert run.error_message == (error if expected == "failed" else None)
