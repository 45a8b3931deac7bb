"""What becomes of runs that nobody speaks for any more."""

from datetime import UTC, datetime, timedelta

from automation_pipeline.org_jobs.models.jobs import Performer, end_of_unattended
from automation_pipeline.org_jobs.models.states import OrgJobsRunState
from automation_pipeline_tests.tables import every_case

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
SOON = NOW + timedelta(seconds=1)
BEGUN = {
    "status": OrgJobsRunState.RUNNING,
    "started_at": NOW - timedelta(minutes=3),
    "deadline_at": SOON,
}
WAITS = {"status": OrgJobsRunState.PENDING, "expires_at": NOW}


@every_case(
    ("standing", "outcome"),
    [
        (BEGUN, None),
        (BEGUN | {"silent_seconds": 60.0}, ("failed", "STALE")),
        (BEGUN | {"deadline_at": NOW}, ("failed", "TIME_LIMIT")),
        (BEGUN | {"deadline_at": NOW, "silent_seconds": 60.0}, ("failed", "TIME_LIMIT")),
        (BEGUN | {"is_cancel_wanted": True}, None),
        (BEGUN | {"is_cancel_wanted": True, "silent_seconds": 60.0}, ("cancelled", None)),
        (BEGUN | {"is_cancel_wanted": True, "deadline_at": NOW}, ("cancelled", None)),
        (BEGUN | {"is_followed": True, "deadline_at": NOW}, None),
        (BEGUN | {"deadline_at": None, "expires_at": NOW}, None),
        (WAITS, ("failed", "EXPIRED")),
        (WAITS | {"expires_at": SOON}, None),
        (WAITS | {"expires_at": None}, None),
        (WAITS | {"is_held": True}, None),
        (
            {
                "status": OrgJobsRunState.FAILED,
                "silent_seconds": 60.0,
                "deadline_at": NOW,
                "expires_at": NOW,
            },
            None,
        ),
    ],
)
def test_what_becomes_of_a_run(
    standing: dict[str, object], outcome: tuple[str, str | None] | None
) -> None:
    end = end_of_unattended(NOW, **{"performer": Performer.AGENT} | standing)
    assert (end and (end.status, end.error_code)) == outcome


@every_case(
    ("performer", "words"),
    [
        (
            Performer.AGENT,
            "Nobody began it by 2026-05-04T10:00:00.000Z: is an agent at work for its server?",
        ),
        (
            Performer.SERVICE,
            "Nobody began it by 2026-05-04T10:00:00.000Z: does Dagster start workers",
        ),
    ],
)
def test_what_was_never_begun_says_who_should_have(performer: Performer, words: str) -> None:
    end = end_of_unattended(
        NOW, performer=performer, status=OrgJobsRunState.PENDING, expires_at=NOW
    )
    assert end is not None
    assert end.error is not None
    assert end.error.startswith(words)
    assert ("agent" in end.error) == (performer is Performer.AGENT)
