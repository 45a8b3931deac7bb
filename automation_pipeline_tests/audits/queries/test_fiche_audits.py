"""What audits found of fiches, in short: the latest of each configuration, for many fiches at
once."""

import pytest

from automation_pipeline.audits.queries.documents import (
    fiche_status,
    fiche_statuses,
    fiches_with_audits,
)
from automation_pipeline.audits.reviews import set_audit_deleted
from automation_pipeline.core.access import EVERYTHING, Reach, Scope
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.fiches.queries.fiches import FichePage
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fiches.queries.mirror import DAY, statements

SUD = Reach(Scope.GROUP, groupes=frozenset({"SUD"}))
EMPTY = {
    "total": 0, "completed": 0, "pending": 0, "running": 0, "compliant": 0, "nonCompliant": 0, "averageScore": None,
    "latestAudit": None, "audits": [],
}  # fmt: skip


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


def test_the_latest_audit_of_each_configuration_counts(bench: Bench) -> None:
    one, other = bench.configure(steps=1), bench.configure(steps=1, name="Other")
    bench.sell("7")
    for config_id, tracking_id in ((one, "a"), (one, "b"), (other, "c")):
        bench.audit("7", config_id, tracking_id)
        bench.clock.pass_time_a_second()
    with bench.database.reading() as session:
        result = fiche_status(session, "7", EVERYTHING)["audit"]
    assert (result["total"], result["completed"], result["compliant"] + result["nonCompliant"]) == (
        2,
        2,
        2,
    )
    assert [audit["auditConfigName"] for audit in result["audits"]] == ["Other", "Sales"]
    assert result["latestAudit"] == result["audits"][0]
    scores = [float(bench.row(name).score_percentage) for name in "bc"]
    assert result["averageScore"] == pytest.approx(sum(scores) / 2, abs=0.01)
    assert [audit["id"] for audit in result["audits"]] == [str(bench.row(name).id) for name in "cb"]


def test_deleted_audits_are_not_counted(bench: Bench) -> None:
    bench.sell("7")
    bench.audit("7", bench.configure(steps=1))
    set_audit_deleted(bench.row().id, deleted=True, database=bench.database)
    with bench.database.reading() as session:
        assert fiche_status(session, "7", EVERYTHING)["audit"] == EMPTY


def test_hidden_and_missing_look_the_same(bench: Bench) -> None:
    bench.sell("7")
    bench.audit("7", bench.configure(steps=1))
    with bench.database.reading() as session:
        result = fiche_statuses(session, ["7", "8"], SUD)
        for fiche_id in ("7", "8"):
            with pytest.raises(NotFoundError, match="Fiche not found in database"):
                fiche_status(session, fiche_id, SUD)
        rows, total = fiches_with_audits(session, [DAY], SUD, FichePage(9))
    assert {**result["7"], "ficheId": "8"} == result["8"]
    assert (result["8"]["audit"], rows, total) == (EMPTY, [], 0)


def test_many_fiches_cost_as_many_statements_as_one(bench: Bench) -> None:
    config_id = bench.configure(steps=1)

    def cost() -> int:
        with bench.database.reading() as session, statements(bench.database) as sent:
            fiche_statuses(session, [str(n) for n in range(1, 9)], EVERYTHING)
            rows, _ = fiches_with_audits(session, [DAY], EVERYTHING, FichePage(100))
            assert all(row["audit"]["total"] == 1 for row in rows)
        assert not any("result_data" in one for one in sent)
        return len(sent)

    costs: list[int] = []
    for n in range(1, 5):
        bench.sell(str(n))
        bench.audit(str(n), config_id, f"audit-{n}")
        costs.append(cost())
    assert len(set(costs)) == 1
    assert costs[0] <= 8
