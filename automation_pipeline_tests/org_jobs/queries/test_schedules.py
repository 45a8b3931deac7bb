"""Queries of schedules and their fires."""

from typing import Any

import pytest

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.schedules import (
    ScheduleFilter,
    fires_of,
    get_schedule,
    list_schedules,
    lock_schedule,
    lock_with_organisation,
)
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.org_jobs.data import ORG, OTHER_ORG, OrgJobsData

ORG_SCOPE = OrgScope(ORG)


def names(data: OrgJobsData, within: OrgScope = ORG_SCOPE, **chosen: Any) -> set[str]:
    with data.database.reading() as session:
        wanted = ScheduleFilter(**chosen)
        found = list_schedules(session, within, chosen=wanted, limit=10, offset=0)
        return {one.name for one in found}


def test_each_organisation_sees_its_own_schedules(data: OrgJobsData) -> None:
    data.schedule(name="mine")
    data.schedule(OTHER_ORG, name="theirs")
    data.schedule(name="gone", deleted_at=data.now)
    assert names(data) == {"mine"}
    assert names(data, ALL_ORGANISATIONS) == {"mine", "theirs"}
    assert names(data, org_id=OTHER_ORG) == set()
    assert names(data, ALL_ORGANISATIONS, org_id=OTHER_ORG) == {"theirs"}


def test_schedules_are_filtered_by_state_type_server_and_name(data: OrgJobsData) -> None:
    server = data.server()
    data.schedule(name="Élan 100%", server_instance_id=server)
    data.schedule(name="call", job_type="HTTPS_CALL", state="PAUSED", enabled=False)
    assert names(data, state="PAUSED") == names(data, job_type="HTTPS_CALL") == {"call"}
    assert names(data, server_instance_id=server) == names(data, q="élan") == {"Élan 100%"}
    assert names(data, q="0%") == {"Élan 100%"}
    assert names(data, q="_") == set()


def test_schedules_are_listed_newest_first_in_pages(data: OrgJobsData) -> None:
    for number in range(3):
        data.schedule(name=f"{number}")
        data.advance_minutes(1)
    with data.database.reading() as session:
        pages = [list_schedules(session, ORG_SCOPE, limit=2, offset=offset) for offset in (0, 2)]
    assert [[one.name for one in page] for page in pages] == [["2", "1"], ["0"]]


@every_case("query", [get_schedule, lock_schedule, lock_with_organisation])
def test_schedule_of_another_organisation_is_not_found(data: OrgJobsData, query: Any) -> None:
    theirs, gone = data.schedule(OTHER_ORG), data.schedule(deleted_at=data.now)
    with data.database.transaction() as session:
        for missing in (theirs, gone, "none", "a\0b", "\ud800"):
            with pytest.raises(NotFoundError) as refused:
                query(session, missing, ORG_SCOPE)
            assert str(refused.value) == f"Schedule {missing} not found"
        assert query(session, theirs, ALL_ORGANISATIONS)


def test_fires_are_listed_with_their_jobs_in_either_order(data: OrgJobsData) -> None:
    schedule_id = data.schedule()
    first = data.fire(schedule_id)
    job_id = data.job(schedule_id=schedule_id, fire_id=first)
    data.advance_minutes(1)
    second = data.fire(schedule_id, outcome="SKIPPED", skip_reason="overlap")
    with data.database.reading() as session:
        oldest = fires_of(session, schedule_id, ORG_SCOPE, 1)
        assert [(one.id, one.job_id, one.job_status) for one in oldest] == [
            (first, job_id, "pending")
        ]
        assert [one.id for one in fires_of(session, schedule_id, ORG_SCOPE, 5, first)] == [second]
        newest = fires_of(session, schedule_id, ORG_SCOPE, 1, newest_first=True)
        assert [(one.id, one.skip_reason, one.job_id) for one in newest] == [
            (second, "overlap", None)
        ]
        assert [
            one.id
            for one in fires_of(session, schedule_id, ORG_SCOPE, 5, second, newest_first=True)
        ] == [first]
        with pytest.raises(NotFoundError):
            fires_of(session, schedule_id, OrgScope(OTHER_ORG), 5)
