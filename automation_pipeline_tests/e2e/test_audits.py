"""Audits by whole processes, against the simulated model: faults, a kill in the middle, the ledger as the witness."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from automation_pipeline.audits.tables import AuditRow, StepResultRow
from automation_pipeline.clients.crm import CrmClient
from automation_pipeline.core.clock import SystemClock
from automation_pipeline.fiches.stages.fetch_fiches import fetch_fiches
from automation_pipeline.fiches.tables import RecordingRow
from automation_pipeline.simulator import Fiche, World
from automation_pipeline.simulator.speech.conversation import conversation
from automation_pipeline.storage.database import Database
from automation_pipeline.transcription.domain.chunks import chunks_of
from automation_pipeline.transcription.domain.transcript import Transcript, Word
from automation_pipeline.transcription.store.transcripts import save_transcript
from automation_pipeline_tests.e2e.system import PATIENCE, REPOSITORY, System, kill
from automation_pipeline_tests.outside import LLM_KEY, TOKEN, fault, forget, model_totals, simulator
from automation_pipeline_tests.waiting import wait_until

WORLD = World(7, 200, vary=False)
AUDITS, STEPS = {"sqlite": 100, "postgres": 30}, 18
AT_ONCE = 6


def says_something(fiche: Fiche) -> bool:
    return any(call.has_url and conversation(fiche, call).words for call in fiche.recordings)


@pytest.fixture
def provider() -> Iterator[str]:
    with simulator("--exact", "--fiches-per-day", "200") as url:
        yield url


@pytest.fixture
def system(tmp_path: Path, database_url: str, provider: str) -> System:
    return System(
        tmp_path,
        database_url,
        provider,
        LLM_BASE_URL=f"{provider}/v1",
        LLM_API_KEY=LLM_KEY,
        LLM_RATE_LIMIT_PER_MINUTE="1000000",
        LLM_BACKOFF_BASE_SECONDS="0.05",
        LLM_MAX_ATTEMPTS="8",
        AUDIT_RUN_CONCURRENCY=str(AT_ONCE),
        AUDIT_LEASE_SECONDS="8",
    )


def heard(database: Database, provider: str, fiches: Sequence[Fiche]) -> None:
    """The fiches mirrored, and their calls transcribed: what the simulated provider would have heard."""
    clock = SystemClock()
    crm = CrmClient(provider, TOKEN, now=clock.now)
    ids = [fiche.id for fiche in fiches]
    fetched = fetch_fiches(
        ids, since=clock.now(), settle=lambda _s, _o: None, database=database, source=crm, clock=clock
    )
    asyncio.run(fetched)
    said = {call.call_id: conversation(fiche, call) for fiche in fiches for call in fiche.recordings}
    with database.transaction() as session:
        for recording_id, call_id in session.execute(select(RecordingRow.id, RecordingRow.call_id)).tuples().all():
            heard = said[call_id]
            words = tuple(Word(word.text, word.start, word.end, word.kind, word.speaker) for word in heard.words)
            transcript = Transcript(f"tr_{call_id}", heard.text, "fra", 0.98, words)
            save_transcript(session, recording_id, transcript, chunks_of(words))


def auditor(system: System, config_id: str, fiches: Sequence[Fiche]) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("auditor.py")
    command = [sys.executable, str(script), config_id, *(fiche.id for fiche in fiches)]
    return subprocess.Popen(command, env=system.environment, cwd=system.room)


def import_demo(system: System) -> str:
    return system.automation("audit-configs", "import", str(REPOSITORY / "demo" / "audit_config.json"))["id"]


def judged(database: Database, fiche_of: dict[str, str]) -> dict[str, int]:
    """The tokens of every stored step, by the name that the simulator gives it."""
    with database.reading() as session:
        found = session.execute(
            select(AuditRow.tracking_id, StepResultRow.step_position, StepResultRow.total_tokens).join(
                StepResultRow, StepResultRow.audit_id == AuditRow.id
            )
        ).tuples()
        return {f"{fiche_of[tracking_id]}/{position}": tokens for tracking_id, position, tokens in found}


def trouble(provider: str) -> None:
    """One call in twenty gets no answer."""
    strikes = ((0.02, {"status": 503}), (0.02, {"drop": True}), (0.01, {"body": "truncated"}))
    fault(provider, *({"route": "llm.complete", "probability": share, **strike} for share, strike in strikes))


def test_many_audits_end_through_faults_and_a_kill_and_no_judged_step_is_asked_again(
    system: System, database: Database, database_kind: str, provider: str
) -> None:
    many = AUDITS[database_kind]
    days = (WORLD.day(date(2026, 2, 3) + timedelta(days=later)) for later in range(3))
    fiches = [fiche for day in days for fiche in day if says_something(fiche)][:many]
    fiche_of = {f"e2e-{fiche.id}": fiche.id for fiche in fiches}
    wanted = {f"{fiche.id}/{position}" for fiche in fiches for position in range(1, STEPS + 1)}
    heard(database, provider, fiches)
    config_id = import_demo(system)

    trouble(provider)
    first = auditor(system, config_id, fiches)
    wait_until(lambda: len(judged(database, fiche_of)) > len(wanted) // 3, PATIENCE)
    kill(first.pid)
    first.wait()
    before = judged(database, fiche_of)

    forget(provider)
    trouble(provider)
    assert auditor(system, config_id, fiches).wait() == 0
    after, totals = judged(database, fiche_of), model_totals(provider)
    assert set(after) == wanted
    assert totals["items"] == dict.fromkeys(wanted - set(before), 1)
    told = totals["prompt_tokens"] + totals["completion_tokens"]
    assert sum(after.values()) - sum(before.values()) == told
    assert totals["calls"] > totals["answered"]

    with database.reading() as session:
        audits = session.scalars(select(AuditRow)).all()
        errors = session.scalars(select(StepResultRow.error).where(StepResultRow.error.is_not(None))).all()
    assert (len(audits), {audit.status for audit in audits}, errors) == (many, {"completed"}, [])
    assert sum(audit.total_tokens or 0 for audit in audits) == sum(after.values())
    assert {audit.niveau for audit in audits} > {"EXCELLENT", "REJET"}
