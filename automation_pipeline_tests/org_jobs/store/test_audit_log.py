"""Who changed what of an organisation."""

from automation_pipeline.org_jobs.domain.audit_entry import AuditEntry
from automation_pipeline.org_jobs.domain.tenancy import EVERYWHERE, Within
from automation_pipeline.org_jobs.store.audit_log import audit_log, note
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench


def noted(bench: Bench, org_id: str, entity: str, entity_id: str) -> None:
    bench.organisation(org_id)
    about = {"org_id": org_id, "entity": entity, "entity_id": entity_id}
    with bench.database.transaction() as session:
        note(session, **about, actor=ACTOR, action="pause", after={"state": "PAUSED"}, reason="Why", now=bench.now)


def read(bench: Bench, within: Within, **chosen: object) -> list[AuditEntry]:
    with bench.database.reading() as session:
        return audit_log(session, within, **({"limit": 10} | chosen))


def test_each_organisation_reads_its_own_from_either_end(org_bench: Bench) -> None:
    for org_id, entity_id in ((ORG, "a"), (OTHER_ORG, "a"), (ORG, "b")):
        noted(org_bench, org_id, "schedule", entity_id)
    noted(org_bench, ORG, "host", "a")
    mine = read(org_bench, Within(ORG))
    assert [(one.entity, one.entity_id) for one in mine] == [("schedule", "a"), ("schedule", "b"), ("host", "a")]
    assert (mine[0].action, mine[0].before, mine[0].after, mine[0].reason) == (
        "pause",
        None,
        {"state": "PAUSED"},
        "Why",
    )
    assert len(read(org_bench, EVERYWHERE)) == 4
    assert read(org_bench, Within(ORG), entity="schedule", entity_id="b") == [mine[1]]
    assert read(org_bench, Within(ORG), after_id=mine[0].id) == mine[1:]
    assert read(org_bench, Within(ORG), newest_first=True, limit=2) == [mine[2], mine[1]]
    assert read(org_bench, Within(ORG), newest_first=True, after_id=mine[1].id) == [mine[0]]
