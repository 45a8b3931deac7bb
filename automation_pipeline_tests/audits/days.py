"""A day of sales, and its audits as the asset runs them."""

import asyncio
from datetime import date

from automation_pipeline.audits.audits import DayAuditRequest, audit_day
from automation_pipeline.audits.days import DayAudits, audits_of_day
from automation_pipeline.audits.models.chat import Question, Reply
from automation_pipeline.fiches.models.fiches import SalesList
from automation_pipeline.fiches.queries.mirror import save_sales_list
from automation_pipeline_tests.audits.harness import CALL_TEXT, AuditHarness
from automation_pipeline_tests.fakes.crm import summary
from automation_pipeline_tests.fakes.llm import honest_answer, step_answer

DAY = date(2026, 2, 3)
WEAK = "speaker_0: Bonjour, je vous appelle sans rien annoncer."


def record_sales(
    harness: AuditHarness, *fiche_ids: str, day: date = DAY, text: str | None = CALL_TEXT
) -> None:
    """Store fiches sold on the day, each with one call of this text."""
    for fiche_id in fiche_ids:
        harness.sell(fiche_id, text=text)
    listed = SalesList(day, len(fiche_ids), tuple(summary(fiche_id) for fiche_id in fiche_ids))
    with harness.database.transaction() as session:
        save_sales_list(session, listed, harness.clock.now())


def answer_by_transcript(question: Question) -> Reply:
    """Answer honestly; in a weak call, the second of two points is absent."""
    is_weak = any(WEAK in message.content for message in question.messages)
    return (
        step_answer(question, statuts=["PRESENT", "ABSENT"]) if is_weak else honest_answer(question)
    )


def audit_day_of_sales(harness: AuditHarness, attempt: str = "run-1", width: int = 2) -> DayAudits:
    async def transcribe(fiche_id: str) -> None:
        harness.transcribed.append(fiche_id)

    work = DayAuditRequest(day=DAY, attempt=attempt, width=width)
    return asyncio.run(
        audit_day(
            work,
            database=harness.database,
            source=harness.crm,
            ensure_transcribed=harness.ensure_transcribed or transcribe,
            judge=harness.judge,
            clock=harness.clock,
        )
    )


def read_day(harness: AuditHarness) -> DayAudits:
    with harness.database.reading() as session:
        return audits_of_day(session, DAY)
