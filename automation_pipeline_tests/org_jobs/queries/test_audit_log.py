"""Who changed what of an organisation."""

from automation_pipeline.org_jobs.models.organisations import (
    ALL_ORGANISATIONS,
    AuditEntry,
    OrgScope,
)
from automation_pipeline.org_jobs.queries.organisations import add_audit_entry, audit_log
from automation_pipeline_tests.org_jobs.bench import ACTOR, ORG, OTHER_ORG, Bench


def noted(bench: Bench, org_id: str, entity: str, entity_id: str) -> None:
    bench.organisation(org_id)
    about = {"org_id": org_id, "entity": entity, "entity_id": entity_id}
    with bench.database.transaction() as session:
        add_audit_entry(
            session,
            **about,
            actor=ACTOR,
            action="pause",
            after={"state": "PAUSED"},
            reason="Why",
            now=bench.now,
        )


def read(bench: Bench, within: OrgScope, **chosen: object) -> list[AuditEntry]:
    with bench.database.reading() as session:
        return audit_log(session, within, **({"limit": 10} | chosen))


def test_each_organisation_reads_its_own_from_either_end(org_bench: Bench) -> None:
    for org_id, entity_id in ((ORG, "a"), (OTHER_ORG, "a"), (ORG, "b")):
        noted(org_bench, org_id, "schedule", entity_id)
    noted(org_bench, ORG, "host", "a")
    mine = read(org_bench, OrgScope(ORG))
    assert [(one.entity, one.entity_id) for one in mine] == [
        ("schedule", "a"),
        ("schedule", "b"),
        ("host", "a"),
    ]
    assert (mine[0].action, mine[0].before, mine[0].after, mine[0].reason) == (
        "pause",
        None,
        {"state": "PAUSED"},
        "Why",
    )
    assert len(read(org_bench, ALL_ORGANISATIONS)) == 4
    assert read(org_bench, OrgScope(ORG), entity="schedule", entity_id="b") == [mine[1]]
    assert read(org_bench, OrgScope(ORG), after_id=mine[0].id) == mine[1:]
    assert read(org_bench, OrgScope(ORG), newest_first=True, limit=2) == [mine[2], mine[1]]
    assert read(org_bench, OrgScope(ORG), newest_first=True, after_id=mine[1].id) == [mine[0]]
