"""Audits of a day: each missing audit runs once, and one failure does not affect the others."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.audits.models.chat import Question
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.days import audit_day_of_sales, record_sales
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import fiche
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.transcription.harness import call


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    harness = AuditHarness(database, clock)
    harness.set_options(steps_at_once=1)
    return harness


def rows(harness: AuditHarness) -> list[AuditRow]:
    with harness.database.reading() as session:
        return list(session.scalars(select(AuditRow).order_by(AuditRow.id)))


def expire_cached_details(harness: AuditHarness) -> None:
    """Expire the cached CRM data and clear the log of requests."""
    harness.clock.advance(timedelta(hours=1))
    harness.crm.requests.clear()


def test_every_automatic_configuration_judges_every_fiche_once(harness: AuditHarness) -> None:
    first = harness.configure(steps=1, name="First", runAutomatically=True)
    second = harness.configure(steps=2, name="Second", runAutomatically=True)
    harness.configure(name="By hand")
    record_sales(harness, "1", "2")
    day = audit_day_of_sales(harness, attempt="run-1")
    assert (day.configs, day.fiches, day.audited, dict(day.failures)) == (2, 2, 4, {})
    assert {row.tracking_id for row in rows(harness)} == {
        f"day-2026-02-03-audit-{fiche_id}-{config_id}-run-1"
        for fiche_id in "12"
        for config_id in (first, second)
    }
    assert {row.trigger_source for row in rows(harness)} == {"asset"}
    assert harness.model.calls == 2 * 1 + 2 * 2


def test_a_repeated_day_calls_neither_the_crm_nor_the_model(harness: AuditHarness) -> None:
    harness.configure(runAutomatically=True)
    record_sales(harness, "1", "2")
    first, calls = audit_day_of_sales(harness, attempt="run-1"), harness.model.calls
    harness.crm.requests.clear()
    assert audit_day_of_sales(harness, attempt="run-2") == first
    assert (harness.model.calls, harness.crm.requests, harness.audits()) == (calls, [], 2)


def test_a_completed_manual_audit_counts_for_the_day(harness: AuditHarness) -> None:
    config_id = harness.configure(runAutomatically=True)
    record_sales(harness, "1", "2")
    harness.audit("1", config_id, "by-hand")
    assert audit_day_of_sales(harness).audited == 2
    assert harness.audits() == 2


def test_without_an_automatic_configuration_no_fiche_is_audited(harness: AuditHarness) -> None:
    harness.configure(name="By hand")
    record_sales(harness, "1")
    day = audit_day_of_sales(harness)
    assert (day.configs, day.fiches, day.wanted, harness.audits(), harness.model.calls) == (
        0,
        1,
        0,
        0,
        0,
    )


def test_a_crm_error_for_one_fiche_does_not_affect_others(
    harness: AuditHarness,
) -> None:
    harness.configure(runAutomatically=True)
    record_sales(harness, "1", "2", "3")
    expire_cached_details(harness)
    harness.crm.fail_always("2", PermanentError("The CRM refuses fiche 2."))
    day = audit_day_of_sales(harness)
    assert (day.audited, day.wanted, dict(day.failures)) == (2, 3, {"The CRM refuses fiche.": 1})


def test_if_every_audit_fails_the_first_error_is_raised(harness: AuditHarness) -> None:
    harness.configure(runAutomatically=True)
    record_sales(harness, "1", "2")
    expire_cached_details(harness)
    for fiche_id in ("1", "2"):
        harness.crm.fail_always(fiche_id, TransientError(f"The CRM is unavailable for {fiche_id}."))
    with pytest.raises(TransientError, match=r"The CRM is unavailable for 1\."):
        audit_day_of_sales(harness, width=1)
    assert harness.audits() == 0


def test_an_incomplete_audit_is_finished_by_the_next_attempt(harness: AuditHarness) -> None:
    harness.configure(steps=1, runAutomatically=True)
    record_sales(harness, "1", "2")
    harness.model.refuse_everything(PermanentError("LLM call failed status=401"))
    day = audit_day_of_sales(harness, attempt="run-1")
    assert (day.audited, day.failed) == (0, 2)
    harness.model.refuse_everything(None)
    again = audit_day_of_sales(harness, attempt="run-1")
    assert (again.audited, again.failed) == (2, 0)
    assert Counter(row.version for row in rows(harness) if row.is_latest) == {1: 2}


def test_an_audit_of_a_fiche_unknown_to_the_crm_fails(harness: AuditHarness) -> None:
    harness.configure(steps=1, runAutomatically=True)
    record_sales(harness, "1", "2")
    expire_cached_details(harness)
    harness.crm.remove("1")
    day = audit_day_of_sales(harness)
    assert (day.audited, dict(day.failures)) == (1, {"Fiche not found (404)": 1})


def test_a_new_call_is_transcribed_before_the_audit(harness: AuditHarness) -> None:
    harness.configure(steps=1, runAutomatically=True)
    record_sales(harness, "1")
    expire_cached_details(harness)
    harness.crm.add(fiche("1", call("101"), call("102")))

    async def transcribe(fiche_id: str) -> None:
        harness.transcribed.append(fiche_id)
        harness.transcribe(fiche_id)

    harness.ensure_transcribed = transcribe
    assert audit_day_of_sales(harness).audited == 1
    assert harness.transcribed == ["1"]


@pytest.mark.parametrize("width", [1, 3])
def test_audits_run_concurrently_up_to_the_limit(harness: AuditHarness, width: int) -> None:
    barrier = asyncio.Barrier(width)

    async def wait_for_others(_: Question) -> None:
        await asyncio.wait_for(barrier.wait(), timeout=60)

    harness.model = FakeLanguageModel(during_call=wait_for_others)
    harness.configure(steps=1, runAutomatically=True)
    record_sales(harness, *map(str, range(1, 2 * width + 1)))
    assert audit_day_of_sales(harness, width=width).audited == 2 * width
    assert harness.model.max_concurrent == width
