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
from automation_pipeline_tests.org_jobs.bench import ORG, OTHER_ORG, Bench
from automation_pipeline_tests.tables import every_case

MINE = OrgScope(ORG)


def names(bench: Bench, within: OrgScope = MINE, **chosen: Any) -> set[str]:
    with bench.database.reading() as session:
        wanted = ScheduleFilter(**chosen)
        found = list_schedules(session, within, chosen=wanted, limit=10, offset=0)
        return {one.name for one in found}


def test_each_organisation_sees_its_own_schedules(org_bench: Bench) -> None:
    org_bench.schedule(name="mine")
    org_bench.schedule(OTHER_ORG, name="theirs")
    org_bench.schedule(name="gone", deleted_at=org_bench.now)
    assert names(org_bench) == {"mine"}
    assert names(org_bench, ALL_ORGANISATIONS) == {"mine", "theirs"}
    assert names(org_bench, org_id=OTHER_ORG) == set()
    assert names(org_bench, ALL_ORGANISATIONS, org_id=OTHER_ORG) == {"theirs"}


def test_schedules_are_filtered_by_state_type_server_and_name(org_bench: Bench) -> None:
    server = org_bench.server()
    org_bench.schedule(name="Élan 100%", server_instance_id=server)
    org_bench.schedule(name="call", job_type="HTTPS_CALL", state="PAUSED", enabled=False)
    assert names(org_bench, state="PAUSED") == names(org_bench, job_type="HTTPS_CALL") == {"call"}
    assert (
        names(org_bench, server_instance_id=server) == names(org_bench, q="élan") == {"Élan 100%"}
    )
    assert names(org_bench, q="0%") == {"Élan 100%"}
    assert names(org_bench, q="_") == set()


def test_schedules_are_listed_newest_first_in_pages(org_bench: Bench) -> None:
    for number in range(3):
        org_bench.schedule(name=f"{number}")
        org_bench.pass_minutes(1)
    with org_bench.database.reading() as session:
        pages = [list_schedules(session, MINE, limit=2, offset=offset) for offset in (0, 2)]
    assert [[one.name for one in page] for page in pages] == [["2", "1"], ["0"]]


@every_case("look", [get_schedule, lock_schedule, lock_with_organisation])
def test_schedule_of_another_organisation_is_not_found(org_bench: Bench, look: Any) -> None:
    theirs, gone = org_bench.schedule(OTHER_ORG), org_bench.schedule(deleted_at=org_bench.now)
    with org_bench.database.transaction() as session:
        for missing in (theirs, gone, "none", "a\0b", "\ud800"):
            with pytest.raises(NotFoundError) as refused:
                look(session, missing, MINE)
            assert str(refused.value) == f"Schedule {missing} not found"
        assert look(session, theirs, ALL_ORGANISATIONS)


def test_fires_are_listed_with_their_jobs_in_either_order(org_bench: Bench) -> None:
    schedule_id = org_bench.schedule()
    first = org_bench.fire(schedule_id)
    job_id = org_bench.job(schedule_id=schedule_id, fire_id=first)
    org_bench.pass_minutes(1)
    second = org_bench.fire(schedule_id, outcome="SKIPPED", skip_reason="overlap")
    with org_bench.database.reading() as session:
        oldest = fires_of(session, schedule_id, MINE, 1)
        assert [(one.id, one.job_id, one.job_status) for one in oldest] == [
            (first, job_id, "pending")
        ]
        assert [one.id for one in fires_of(session, schedule_id, MINE, 5, first)] == [second]
        newest = fires_of(session, schedule_id, MINE, 1, newest_first=True)
        assert [(one.id, one.skip_reason, one.job_id) for one in newest] == [
            (second, "overlap", None)
        ]
        assert [
            one.id for one in fires_of(session, schedule_id, MINE, 5, second, newest_first=True)
        ] == [first]
        with pytest.raises(NotFoundError):
            fires_of(session, schedule_id, OrgScope(OTHER_ORG), 5)
