"""The number of statements per fiche, measured by two runs with different numbers of fiches."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from automation_pipeline import bootstrap
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.harness import AutomationHarness
from automation_pipeline_tests.defs.automation.test_job import execute, services_of
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.harness import transcript_of

MOST_STATEMENTS_PER_FICHE = 30
FEW, MANY = 40, 80


def test_the_number_of_statements_per_fiche_is_bounded(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fiche has two recordings and two steps; 20 fiches are processed concurrently."""

    async def answer_later(_request: object) -> None:
        await asyncio.sleep(0.02)

    harness = AutomationHarness(database, clock)
    harness.speech = FakeSpeechToText(otherwise=transcript_of, at_once=20, during_call=answer_later)
    harness.model = FakeLanguageModel(during_call=answer_later)
    monkeypatch.setenv("AUDIT_RUN_CONCURRENCY", "20")
    monkeypatch.setattr(bootstrap, "services", lambda: services_of(harness))
    harness.automatic(2)
    counts = [
        statements_of_run(harness, fiches, first) for fiches, first in ((FEW, 1000), (MANY, 2000))
    ]
    few, many = counts
    assert (many - few) / (MANY - FEW) <= MOST_STATEMENTS_PER_FICHE


def statements_of_run(harness: AutomationHarness, fiches: int, first_id: int) -> int:
    fiche_ids = [str(first_id + number) for number in range(fiches)]
    harness.add_to_crm(*fiche_ids, calls=2)
    with counted(harness.database) as statements:
        result, _ = execute(harness, *fiche_ids)
    assert result.success
    return len(statements)


@contextmanager
def counted(database: Database) -> Generator[list[str]]:
    """All statements sent to the database, including BEGIN."""
    statements: list[str] = []

    def count(_connection: object, _cursor: object, sql: str, *_: object) -> None:
        statements.append(sql)

    event.listen(database.engine, "before_cursor_execute", count)
    try:
        yield statements
    finally:
        event.remove(database.engine, "before_cursor_execute", count)
