"""Queries of backfills: newest first, by scope."""

from automation_pipeline.org_jobs.fires import backfill_schedule
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.fires import list_backfills
from automation_pipeline_tests.org_jobs.data import ORG, OTHER_ORG, OrgJobsData

PERIOD = {"from": "2026-05-01T00:00:00Z", "until": "2026-05-02T12:00:00Z"}
PAGE = {"limit": 10, "offset": 0}


def make_backfill(data: OrgJobsData, schedule: str, **given: object) -> int | None:
    return backfill_schedule(schedule, PERIOD | given, **data.context()).id


def test_backfills_are_listed_by_scope(data: OrgJobsData) -> None:
    own, theirs = data.schedule(), data.schedule(OTHER_ORG)
    first, second = make_backfill(data, own), make_backfill(data, own)
    other = make_backfill(data, theirs)

    def listed(within: OrgScope = ALL_ORGANISATIONS, **chosen: object) -> list[int | None]:
        with data.database.reading() as session:
            return [one.id for one in list_backfills(session, within, **(PAGE | chosen))]

    assert listed() == [other, second, first]
    assert listed(OrgScope(ORG)) == [second, first]
    assert (
        listed(OrgScope(ORG), org_id=OTHER_ORG) == listed(OrgScope(ORG), schedule_id=theirs) == []
    )
    assert listed(org_id=OTHER_ORG) == listed(schedule_id=theirs) == [other]
    assert listed(status="running") == [other, first]
    assert listed(limit=1, offset=1) == [second]


def test_each_backfill_counts_its_own_jobs(data: OrgJobsData) -> None:
    one, two = data.schedule(), data.schedule()
    make_backfill(data, one)
    make_backfill(data, two, until="2026-05-01T12:00:00Z")
    data.set_run(data.run_row(data.jobs(one)[0].id).id, status="running", started_at=data.now)
    with data.database.reading() as session:
        second, first = list_backfills(session, ALL_ORGANISATIONS, **PAGE)
    assert (first.total, first.pending, first.running) == (2, 1, 1)
    assert (second.total, second.pending, second.running) == (1, 1, 0)
