"""Auditing one fiche by every configuration: in order, under keys of their own, tried again as the
schedule says. What did not end keeps its key, and so the steps that are judged."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from automation_pipeline.audits.models.audits import AuditStatus, AuditSummary, FicheAuditRequest
from automation_pipeline.automation.auditing import audit_target
from automation_pipeline.automation.models.runs import LedgerMove
from automation_pipeline.core.errors import AutomationError, NotFoundError, TransientError
from automation_pipeline.storage.database import Database, DatabaseFullError
from automation_pipeline_tests.automation.bench import Bench
from automation_pipeline_tests.conftest import StandingClock

LOST = TransientError("The model did not answer.")
End = AuditStatus | str | AutomationError


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


class Judges:
    """Ends each audit as the script of its configuration says; a text is the error of a failed
    one."""

    def __init__(self, **scripts: Sequence[End]) -> None:
        self.requests: list[FicheAuditRequest] = []
        self._scripts = {
            int(name.removeprefix("config_")): list(script) for name, script in scripts.items()
        }

    @property
    def keys(self) -> list[str]:
        return [
            request.tracking_id.removeprefix("automation-1-audit-7-") for request in self.requests
        ]

    async def __call__(self, request: FicheAuditRequest) -> AuditSummary:
        self.requests.append(request)
        end = self._scripts[request.audit_config_id].pop(0)
        if isinstance(end, AutomationError):
            raise end
        status, error = (end, None) if isinstance(end, AuditStatus) else (AuditStatus.FAILED, end)
        if error == MISSING:
            status = AuditStatus.INCOMPLETE
        return AuditSummary(
            audit_id=1, tracking_id=request.tracking_id, fiche_id=request.fiche_id,
            audit_config_id=request.audit_config_id,
            status=status, niveau="PENDING", score_percentage=0, steps=1, done=1, failed=0, error=error,
        )  # fmt: skip


def audited(bench: Bench, judges: Judges, *config_ids: int, **fields: object) -> LedgerMove:
    bench.offer("7")
    ticket = bench.until_work("7", **fields)
    context = replace(bench.context, audit=judges)
    return asyncio.run(
        audit_target(ticket, "7", config_ids, plan=bench.plan(ticket), context=context)
    )


DONE, AT_WORK = AuditStatus.COMPLETED, AuditStatus.RUNNING
MISSING = "Audit incomplete: 17 of 18 steps judged: The model is away."


@pytest.mark.parametrize(
    ("retries", "script", "keys", "status", "words"),
    [
        (0, [DONE], ["4"], "successful", None),
        (2, [DONE], ["4"], "successful", None),
        (0, ["Refused"], ["4"], "failed", "Refused"),
        (1, ["Refused", DONE], ["4", "4-retry-1"], "successful", None),
        (2, ["Refused", "Again", "Still"], ["4", "4-retry-1", "4-retry-2"], "failed", "Still"),
        (0, [LOST, DONE], ["4", "4"], "successful", None),
        (0, [LOST, LOST], ["4", "4"], "failed", f"Audit incomplete: {LOST}"),
        (0, [LOST, "Refused"], ["4", "4"], "failed", "Refused"),
        (2, [LOST, LOST, DONE], ["4", "4", "4"], "successful", None),
        (2, [LOST, "Refused", DONE], ["4", "4", "4-retry-1"], "successful", None),
        (0, [AT_WORK, DONE], ["4", "4"], "successful", None),
        (0, [MISSING, DONE], ["4", "4"], "successful", None),
        (0, [MISSING, MISSING], ["4", "4"], "failed", MISSING),
        (2, [MISSING, "Refused", DONE], ["4", "4", "4-retry-1"], "successful", None),
        (0, [AT_WORK, AT_WORK], ["4", "4"], "failed", "Audit incomplete (timeout/stall)"),
    ],
)
def test_a_failed_audit_is_retried_where_failures_are_and_a_missing_one_once_more_in_any_case(
    retries: int, script: list[End], keys: list[str], status: str, words: str | None, bench: Bench
) -> None:
    judges = Judges(config_4=script)
    move = audited(bench, judges, 4, retryFailed=retries > 0, maxRetries=retries)
    assert (judges.keys, move.status, move.error) == (keys, status, words)


def test_without_retrying_failures_their_number_means_nothing(bench: Bench) -> None:
    judges = Judges(config_4=["Refused"])
    assert audited(bench, judges, 4, retryFailed=False, maxRetries=3).error == "Refused"


def test_a_failed_configuration_does_not_affect_the_others(
    bench: Bench,
) -> None:
    judges = Judges(config_9=["Nine refused"], config_4=[DONE], config_6=["Six refused"])
    move = audited(bench, judges, 9, 4, 6)
    assert judges.keys == ["9", "4", "6"]
    assert (move.status, move.reason, move.error, move.audits) == (
        "failed",
        "audit_failed",
        "Nine refused",
        3,
    )


@pytest.mark.parametrize("retries", [0, 2])
def test_a_database_in_trouble_is_no_end_of_an_audit(retries: int, bench: Bench) -> None:
    fields, full = (
        {"retryFailed": retries > 0, "maxRetries": retries},
        DatabaseFullError("It cannot grow."),
    )
    assert audited(bench, Judges(config_4=[full, DONE]), 4, **fields).status == "successful"
    judges = Judges(config_4=[full] * (1 + max(1, retries)))
    with pytest.raises(DatabaseFullError):
        audited(bench, judges, 4, **fields)
    assert set(judges.keys) == {"4"}, "the next attempt of the step takes it up"


def test_an_incomplete_audit_fails_its_fiche_and_is_not_counted(
    bench: Bench,
) -> None:
    move = audited(bench, Judges(config_4=[MISSING, MISSING], config_5=[DONE]), 4, 5)
    assert (move.status, move.reason, move.error, move.audits) == (
        "failed",
        "audit_incomplete",
        MISSING,
        1,
    )


def test_an_audit_has_its_run_and_the_selections_reading_mode(bench: Bench) -> None:
    judges = Judges(config_4=[DONE])
    audited(bench, judges, 4, ficheSelection={"mode": "manual", "ficheIds": ["7"], "useRlm": True})
    [request] = judges.requests
    assert (request.run_id, request.schedule_id, request.trigger_source, request.use_rlm) == (
        1,
        1,
        "automation",
        True,
    )


def test_an_audit_of_a_deleted_configuration_is_incomplete(bench: Bench) -> None:
    gone = NotFoundError("Audit configuration 4 not found")
    move = audited(bench, Judges(config_4=[gone, gone]), 4)
    assert (move.reason, move.audits) == ("audit_incomplete", 0)
    assert move.error == f"Audit incomplete: {gone}"
