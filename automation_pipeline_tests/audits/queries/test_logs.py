"""What was written down about an audit is found by the audit, whoever wrote it."""

import pytest

from automation_pipeline.audits.models.audits import StepLocation
from automation_pipeline.audits.queries.documents import audit_logs
from automation_pipeline.audits.requests import request_rerun
from automation_pipeline.audits.reviews import record_review
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.conftest import StandingClock


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


def test_an_audit_has_only_its_own_log_lines(bench: Bench) -> None:
    config = bench.configure(steps=1)
    ids = []
    for fiche_id in ("1900417", "1900418"):
        bench.sell(fiche_id)
        ids.append(bench.audit(fiche_id, config, f"audit-{fiche_id}").audit_id)
    record_review(StepLocation(ids[0], 1), {"conforme": "PARTIEL"}, database=bench.database)
    request_rerun(StepLocation(ids[0], 1), database=bench.database, clock=bench.clock)
    with bench.database.reading() as session:
        lines, total = audit_logs(session, ids[0])
        page, same = audit_logs(session, ids[0], limit=1, offset=1)
        errors, none = audit_logs(session, ids[0], level="error")
    messages = [str(line["message"]) for line in lines]
    assert [message.split(":")[0] for message in messages][:1] == ["START"]
    assert any(message.startswith("END: ") for message in messages)
    assert messages[-1].startswith("REVIEW: step 1")
    assert {line["entity_id"] for line in lines} == {"1900417"}
    assert (total, same, page) == (len(lines), len(lines), lines[1:2])
    assert (errors, none) == ([], 0)


def test_an_unknown_audit_has_no_logs(bench: Bench) -> None:
    with bench.database.reading() as session, pytest.raises(NotFoundError, match="Audit not found"):
        audit_logs(session, 77)
