"""Audits of a day: missing audits are run, failures are isolated, and finished audits are not repeated."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.audits.models.chat import Question
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import Bench, call
from automation_pipeline_tests.audits.days import audit_the_day, record_sales
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.crm import fiche
from automation_pipeline_tests.fakes.llm import FakeLanguageModel


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    bench = Bench(database, clock)
    bench.set_options(steps_at_once=1)
    return bench


def rows(bench: Bench) -> list[AuditRow]:
    with bench.database.reading() as session:
        return list(session.scalars(select(AuditRow).order_by(AuditRow.id)))


def expire_crm_cache(bench: Bench) -> None:
    """Expire the cached CRM data and clear the log of requests."""
    bench.clock.pass_time(timedelta(hours=1))
    bench.crm.asked.clear()


def test_every_automatic_configuration_judges_every_fiche_once(bench: Bench) -> None:
    first = bench.configure(steps=1, name="First", runAutomatically=True)
    second = bench.configure(steps=2, name="Second", runAutomatically=True)
    bench.configure(name="By hand")
    record_sales(bench, "1", "2")
    day = audit_the_day(bench, attempt="run-1")
    assert (day.configs, day.fiches, day.audited, dict(day.failures)) == (2, 2, 4, {})
    assert {row.tracking_id for row in rows(bench)} == {
        f"day-2026-02-03-audit-{fiche_id}-{config_id}-run-1"
        for fiche_id in "12"
        for config_id in (first, second)
    }
    assert {row.trigger_source for row in rows(bench)} == {"asset"}
    assert bench.model.calls == 2 * 1 + 2 * 2


def test_a_repeated_day_calls_neither_the_crm_nor_the_model(bench: Bench) -> None:
    bench.configure(runAutomatically=True)
    record_sales(bench, "1", "2")
    first, calls = audit_the_day(bench, attempt="run-1"), bench.model.calls
    bench.crm.asked.clear()
    assert audit_the_day(bench, attempt="run-2") == first
    assert (bench.model.calls, bench.crm.asked, bench.audits()) == (calls, [], 2)


def test_a_completed_manual_audit_counts_for_the_day(bench: Bench) -> None:
    config_id = bench.configure(runAutomatically=True)
    record_sales(bench, "1", "2")
    bench.audit("1", config_id, "by-hand")
    assert audit_the_day(bench).audited == 2
    assert bench.audits() == 2


def test_without_an_automatic_configuration_no_fiche_is_audited(bench: Bench) -> None:
    bench.configure(name="By hand")
    record_sales(bench, "1")
    day = audit_the_day(bench)
    assert (day.configs, day.fiches, day.wanted, bench.audits(), bench.model.calls) == (
        0,
        1,
        0,
        0,
        0,
    )


def test_a_crm_error_for_one_fiche_does_not_affect_others(
    bench: Bench,
) -> None:
    bench.configure(runAutomatically=True)
    record_sales(bench, "1", "2", "3")
    expire_crm_cache(bench)
    bench.crm.fail_always("2", PermanentError("The CRM refuses fiche 2."))
    day = audit_the_day(bench)
    assert (day.audited, day.wanted, dict(day.failures)) == (2, 3, {"The CRM refuses fiche.": 1})


def test_if_every_audit_fails_the_first_error_is_raised(bench: Bench) -> None:
    bench.configure(runAutomatically=True)
    record_sales(bench, "1", "2")
    expire_crm_cache(bench)
    for fiche_id in ("1", "2"):
        bench.crm.fail_always(fiche_id, TransientError(f"The CRM is away for {fiche_id}."))
    with pytest.raises(TransientError, match=r"The CRM is away for 1\."):
        audit_the_day(bench, width=1)
    assert bench.audits() == 0


def test_an_incomplete_audit_is_finished_by_the_next_attempt(bench: Bench) -> None:
    bench.configure(steps=1, runAutomatically=True)
    record_sales(bench, "1", "2")
    bench.model.refuse_everything(PermanentError("LLM call failed status=401"))
    day = audit_the_day(bench, attempt="run-1")
    assert (day.audited, day.failed) == (0, 2)
    bench.model.refuse_everything(None)
    again = audit_the_day(bench, attempt="run-1")
    assert (again.audited, again.failed) == (2, 0)
    assert Counter(row.version for row in rows(bench) if row.is_latest) == {1: 2}


def test_an_audit_of_a_fiche_unknown_to_the_crm_fails(bench: Bench) -> None:
    bench.configure(steps=1, runAutomatically=True)
    record_sales(bench, "1", "2")
    expire_crm_cache(bench)
    bench.crm.remove("1")
    day = audit_the_day(bench)
    assert (day.audited, dict(day.failures)) == (1, {"Fiche not found (404)": 1})


def test_a_new_call_is_transcribed_before_the_audit(bench: Bench) -> None:
    bench.configure(steps=1, runAutomatically=True)
    record_sales(bench, "1")
    expire_crm_cache(bench)
    bench.crm.add(fiche("1", call("101"), call("102")))

    async def listen(fiche_id: str) -> None:
        bench.transcribed.append(fiche_id)
        bench.transcribe(fiche_id)

    bench.ensure_transcribed = listen
    assert audit_the_day(bench).audited == 1
    assert bench.transcribed == ["1"]


@pytest.mark.parametrize("width", [1, 3])
def test_audits_run_concurrently_up_to_the_limit(bench: Bench, width: int) -> None:
    together = asyncio.Barrier(width)

    async def until_all_are_there(_: Question) -> None:
        await asyncio.wait_for(together.wait(), timeout=60)

    bench.model = FakeLanguageModel(during_call=until_all_are_there)
    bench.configure(steps=1, runAutomatically=True)
    record_sales(bench, *map(str, range(1, 2 * width + 1)))
    assert audit_the_day(bench, width=width).audited == 2 * width
    assert bench.model.most_at_once == width
