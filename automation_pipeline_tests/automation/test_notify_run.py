"""The messages about a run are put into the post with its end."""

import pytest

from automation_pipeline.automation.queries.runs import as_run
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.runs import notify_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.webhooks import DeliveryStatus
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.post import HOOK, an_ended_run, outbox, records

EMAILS = ["anna@example.com", "bert@example.com"]


def test_each_receiver_has_a_record_and_an_event(database: Database, clock: Clock) -> None:
    run = an_ended_run(database, clock, ["5", "6"], notifyEmails=EMAILS)
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
    an_ended_run(database, clock, ["5"], breakdown="The worker was killed")
    [row] = records(database)
    assert (row.payload["status"], row.payload["error"]) == ("failed", "The worker was killed")
    assert "failures" not in row.payload


def test_notification_of_a_successful_run_has_the_counts(database: Database, clock: Clock) -> None:
    an_ended_run(database, clock)
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
    assert an_ended_run(database, clock, **fields) == []
    assert (records(database), outbox(database)) == ([], [])


def test_repeated_notify_run_files_one_notification(database: Database, clock: Clock) -> None:
    an_ended_run(database, clock, notifyEmails=EMAILS)
    with database.transaction() as session:
        run = as_run(session.get_one(RunRow, records(database)[0].run_id))
        notify_run(session, run, get_schedule(session, run.schedule_id), now=clock.now())
    assert (len(records(database)), len(outbox(database))) == (3, 3)
