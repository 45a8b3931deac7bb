"""A schedule as it is written and shown."""

from automation_pipeline.core.json_model import as_document
from automation_pipeline.org_jobs.models.schedules import (
    OrgScheduleDefinition,
    input_document,
    last_run_status,
)
from automation_pipeline_tests.org_jobs.rules.schedules import stored
from automation_pipeline_tests.tables import every_case


@every_case(
    ("dispatch", "job", "status"),
    [
        (None, None, None),
        ("dispatched", None, "success"),
        ("dispatched", "failed", "failed"),
        ("dispatched", "cancelled", "cancelled"),
        ("skipped_overlap", "success", "skipped"),
        ("skipped_overlap", "failed", "failed"),
        ("scheduler_failed", "success", "scheduler_failed"),
    ],
)
def test_the_last_run_has_one_status(
    dispatch: str | None, job: str | None, status: str | None
) -> None:
    assert last_run_status(dispatch, job) == status


def test_what_is_left_out_has_its_default() -> None:
    document = input_document(stored())
    expected = {
        "priority": 5,
        "enabled": True,
        "timezone": "UTC",
        "windowPolicy": "CLAMP",
        "misfirePolicy": "FIRE_ONCE",
        "misfireGraceS": 3600,
        "overlapPolicy": "SKIP",
        "jitterS": 0,
        "autoPauseAfter": 10,
        "excludedOn": [],
    }
    assert (
        expected.items()
        <= {name: value for name, value in document.items() if name in expected}.items()
    )
    assert len(document) == len(OrgScheduleDefinition.model_fields)


def test_a_stored_one_is_shown_as_others_read_it() -> None:
    schedule = stored({"startAt": "2026-06-01T02:00:00+02:00"})
    document = as_document(schedule)
    assert document["startAt"] == "2026-06-01T00:00:00.000Z"
    assert type(schedule).model_validate(document) == schedule
