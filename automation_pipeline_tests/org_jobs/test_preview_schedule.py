"""When a schedule would be due."""

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.org_jobs.schedules import preview_schedule
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.org_jobs.rules.schedules import NOW, said


def test_it_is_told_in_words_and_by_its_coming_runs(database: Database) -> None:
    shown = preview_schedule(
        said(timezone="Europe/Paris", jitterS=60),
        count=3,
        after=NOW,
        org_id=None,
        database=database,
    )
    assert (shown.in_words, shown.timezone, len(shown.runs)) == (
        "At 02:00 every day",
        "Europe/Paris",
        3,
    )
    assert {run.scheduled_for == run.effective_for for run in shown.runs} == {True}
    assert all("up to 60 s" in (run.note or "") for run in shown.runs)


def test_what_could_not_be_stored_is_refused_with_every_field_at_fault(database: Database) -> None:
    with pytest.raises(InvalidInputError) as refused:
        preview_schedule(
            said(cronExpression="0 24 * * *", priority=0),
            count=3,
            after=NOW,
            org_id=None,
            database=database,
        )
    assert {field for field, _ in refused.value.fields} == {"cronExpression", "priority"}
    with pytest.raises(InvalidInputError) as refused:
        preview_schedule(said(), count=0, after=NOW, org_id=None, database=database)
    assert [field for field, _ in refused.value.fields] == ["count"]
