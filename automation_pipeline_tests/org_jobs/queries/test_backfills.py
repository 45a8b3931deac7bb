"""Queries of backfills: newest first, by scope."""

from automation_pipeline.org_jobs.fires import backfill_schedule
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.queries.fires import list_backfills
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench

PERIOD = {"from": "2026-05-01T00:00:00Z", "until": "2026-05-02T12:00:00Z"}
PAGE = {"limit": 10, "offset": 0}


def made(bench: Bench, schedule: str, **given: object) -> int | None:
    world = {
        "within": ALL_ORGANISATIONS,
        "database": bench.database,
        "clock": bench.clock,
        "actor": ACTOR,
    }
    return backfill_schedule(schedule, PERIOD | given, **world).id


def test_backfills_are_listed_by_scope(org_bench: Bench) -> None:
    own, theirs = org_bench.schedule(), org_bench.schedule(OTHER_ORG)
    first, second = made(org_bench, own), made(org_bench, own)
    other = made(org_bench, theirs)

    def listed(within: OrgScope = ALL_ORGANISATIONS, **chosen: object) -> list[int | None]:
        with org_bench.database.reading() as session:
            return [one.id for one in list_backfills(session, within, **(PAGE | chosen))]

    assert listed() == [other, second, first]
    assert listed(OrgScope(ORG)) == [second, first]
    assert (
        listed(OrgScope(ORG), org_id=OTHER_ORG) == listed(OrgScope(ORG), schedule_id=theirs) == []
    )
    assert listed(org_id=OTHER_ORG) == listed(schedule_id=theirs) == [other]
    assert listed(status="running") == [other, first]
    assert listed(limit=1, offset=1) == [second]


def test_each_backfill_counts_its_own_jobs(org_bench: Bench) -> None:
    one, two = org_bench.schedule(), org_bench.schedule()
    made(org_bench, one)
    made(org_bench, two, until="2026-05-01T12:00:00Z")
    org_bench.set_run(
        org_bench.run_row(org_bench.jobs(one)[0].id).id, status="running", started_at=org_bench.now
    )
    with org_bench.database.reading() as session:
        second, first = list_backfills(session, ALL_ORGANISATIONS, **PAGE)
    assert (first.total, first.pending, first.running) == (2, 1, 1)
    assert (second.total, second.pending, second.running) == (1, 1, 0)
