"""Incomplete audits have no verdict, are finished by the next attempt and do not hide completed ones."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from sqlalchemy import select

from automation_pipeline.audits.models.audits import (
    CallRecording,
    Niveau,
    TranscriptCoverage,
    coverage_of,
)
from automation_pipeline.audits.models.chat import Question, Reply
from automation_pipeline.audits.queries.audits import set_deleted
from automation_pipeline.audits.queries.documents import audit_document
from automation_pipeline.audits.reviews import set_audit_deleted
from automation_pipeline.audits.tables import CitationRow, StepResultRow
from automation_pipeline.core.errors import (
    AutomationError,
    InvalidInputError,
    PermanentError,
    TransientError,
)
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import step_document
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import USAGE, FakeLanguageModel, StepInPrompt, step_answer
from automation_pipeline_tests.transcription.harness import call

FICHE = "1900417"
Answer = Callable[[Question], Reply | Exception]


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    return AuditHarness(database, clock)


def positions(model: FakeLanguageModel) -> Counter[int]:
    return Counter(StepInPrompt.of(question).position for question in model.questions)


def reply_at_step(position: int, reply: Reply | Exception) -> Answer:
    """A model that gives this reply about one step, and correct answers about others."""
    return lambda asked: (
        reply if StepInPrompt.of(asked).position == position else step_answer(asked)
    )


def has_no_verdict(harness: AuditHarness, tracking_id: str = "audit-1") -> bool:
    row = harness.row(tracking_id)
    scores = {row.score_percentage, row.overall_score, row.is_compliant}
    return (row.status, row.niveau, scores) == ("incomplete", Niveau.PENDING, {None})


@pytest.mark.parametrize(
    ("reply", "cause", "tokens"),
    [
        (PermanentError("LLM call failed status=401"), "LLM call failed status=401", 0),
        (TransientError("LLM call failed status=503"), "LLM call failed status=503", 0),
        (Reply("?", USAGE), "The model gave no usable answer", 3 * USAGE.total_tokens),
        (Reply("", USAGE, refusal="No."), "The model refuses to answer: No.", USAGE.total_tokens),
    ],
    ids=["permanent", "transient", "invalid", "refusal"],
)
def test_an_audit_with_a_step_that_was_not_judged_is_incomplete(
    harness: AuditHarness, reply: Reply | Exception, cause: str, tokens: int
) -> None:
    harness.model = FakeLanguageModel(reply_at_step(2, reply))
    harness.sell(FICHE)
    audit = harness.audit(FICHE, harness.configure(steps=3))
    assert (audit.status, audit.score_percentage, audit.done, audit.failed) == (
        "incomplete",
        None,
        2,
        1,
    )
    assert (audit.error or "").startswith(f"Audit incomplete: 2 of 3 steps judged: {cause}")
    assert has_no_verdict(harness)
    assert harness.row().total_tokens == tokens + 2 * USAGE.total_tokens
    assert [event["step_position"] for event in harness.events("audit.step_failed")] == [2]
    [event] = harness.events("audit.incomplete")
    assert (event["completed_steps"], event["failed_steps"], event["total_steps"]) == (2, 1, 3)
    assert harness.events("audit.completed") == harness.events("audit.failed") == []
    with harness.database.reading() as session:
        document = audit_document(session, audit.audit_id)
    steps = {
        step["stepPosition"]: (step["conforme"], step["score"]) for step in document["stepResults"]
    }  # type: ignore[attr-defined]  # JSON
    assert steps == {1: ("CONFORME", 5), 2: (None, None), 3: ("CONFORME", 5)}


def test_the_next_attempt_judges_only_what_is_missing(harness: AuditHarness) -> None:
    harness.model = FakeLanguageModel(reply_at_step(2, Reply("?", USAGE)))
    harness.sell(FICHE)
    config = harness.configure(steps=3)
    harness.audit(FICHE, config)
    harness.model = FakeLanguageModel()
    audit = harness.audit(FICHE, config)
    assert (audit.status, audit.score_percentage, audit.error) == (
        "completed",
        100.0,
        None,
    )
    assert positions(harness.model) == {2: 1}
    assert (harness.audits(), harness.row().is_latest, harness.row().error_message) == (
        1,
        True,
        None,
    )
    assert harness.row().total_tokens == (3 + 3) * USAGE.total_tokens
    assert harness.audit(FICHE, config) == audit
    assert harness.model.calls == 1


def test_two_incomplete_attempts_emit_two_events(harness: AuditHarness) -> None:
    harness.model.refuse_everything(PermanentError("Away."))
    harness.sell(FICHE)
    config = harness.configure(steps=1)
    for _ in range(2):
        assert harness.audit(FICHE, config).error == "Audit incomplete: 0 of 1 steps judged: Away."
    assert len(harness.events("audit.incomplete")) == len(harness.events("audit.step_failed")) == 2


@pytest.mark.both_databases
def test_a_new_request_reuses_the_judged_steps_of_an_incomplete_audit(
    harness: AuditHarness,
) -> None:
    harness.model = FakeLanguageModel(reply_at_step(2, PermanentError("Away.")))
    harness.sell(FICHE)
    config = harness.configure(steps=3)
    harness.audit(FICHE, config, "first")
    harness.audit(FICHE, config, "second")
    assert positions(harness.model) == {1: 1, 2: 2, 3: 1}
    harness.model = FakeLanguageModel()
    assert harness.audit(FICHE, config, "third").score_percentage == 100.0
    assert positions(harness.model) == {2: 1}
    assert harness.row("third").total_tokens == USAGE.total_tokens
    assert harness.steps("third")[0].finding == harness.steps("first")[0].finding
    with harness.database.reading() as session:
        cited = Counter(session.scalars(select(CitationRow.audit_id)))
        copies = session.scalars(
            select(StepResultRow)
            .where(StepResultRow.audit_id == 3, StepResultRow.total_tokens == 0)
            .order_by(StepResultRow.step_position)
        ).all()
    assert cited[3] == cited[1] + 2
    assert [(row.step_position, row.raw_result["judged_in_audit"]) for row in copies] == [
        (1, "2"),
        (3, "2"),
    ]
    nothing = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert [row.raw_result["usage"] for row in copies] == [nothing] * 2
    latest = [harness.row(name).is_latest for name in ("first", "second", "third")]
    assert latest == [False, False, True]
    assert has_no_verdict(harness, "first")


@pytest.mark.parametrize("what", ["configuration", "calls", "deleted", "tools"])
def test_steps_judged_on_other_transcripts_are_judged_again(
    harness: AuditHarness, what: str
) -> None:
    harness.model = FakeLanguageModel(reply_at_step(2, PermanentError("Away.")))
    harness.sell(FICHE)
    config = harness.configure(steps=2)
    first = harness.audit(FICHE, config, "first")
    harness.model = FakeLanguageModel()
    if what == "configuration":
        harness.replace_config("Sales", [step_document(1, name="Renamed"), step_document(2)])
    elif what == "calls":
        harness.transcribe(FICHE, "speaker_0: Bonjour, cet appel est enregistré pour nos besoins.")
    elif what == "deleted":
        set_audit_deleted(first.audit_id, deleted=True, database=harness.database)
    harness.audit(FICHE, config, "second", use_rlm=what == "tools")
    analyses = [note for note in harness.notes() if note.startswith("ANALYSE")]
    assert analyses[-1].endswith("0 of 2 steps judged before")
    if what != "tools":
        assert harness.row("second").status == "completed"
        assert positions(harness.model) == {1: 1, 2: 1}
    if what == "calls":
        assert harness.audit(FICHE, config, "first").score_percentage == 100.0
        assert positions(harness.model) == {1: 2, 2: 2}


def sell_partly_transcribed(harness: AuditHarness, *, of: int) -> None:
    """Store `of` calls of which the first is transcribed."""
    calls = [call(f"{FICHE}{number}") for number in range(of)]
    harness.sell(FICHE, calls[0])
    harness.clock.advance_one_second()
    harness.sell(FICHE, *calls, text=None)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (None, ""),
        (
            PermanentError("ElevenLabs API key not configured (set ELEVENLABS_API_KEY)"),
            ": ElevenLabs API key not",
        ),
        (TransientError("The CRM does not answer"), ": The CRM does not answer"),
        (InvalidInputError("No", (("a", "b"),)), ": No: a: b"),
    ],
    ids=["none", "permanent", "transient", "invalid"],
)
def test_an_audit_waits_for_the_transcripts_of_all_recordings(
    harness: AuditHarness, error: AutomationError | None, cause: str
) -> None:
    sell_partly_transcribed(harness, of=4)

    async def transcribe(_: str) -> None:
        if error is not None:
            raise error

    harness.ensure_transcribed = transcribe
    config = harness.configure(steps=2)
    audit = harness.audit(FICHE, config)
    assert (audit.error or "").startswith(
        f"Audit incomplete: transcripts of 1 of 4 recordings{cause}"
    )
    assert has_no_verdict(harness)
    assert harness.row().coverage == {
        "recordings": 4,
        "required": 4,
        "transcribed": 1,
        "missing": [f"{FICHE}{number}" for number in (1, 2, 3)],
        "without_audio": [],
    }
    assert harness.model.calls == 0
    harness.transcribe(FICHE)
    finished = harness.audit(FICHE, config)
    assert (finished.status, harness.row().recordings_count, harness.audits()) == (
        "completed",
        4,
        1,
    )
    assert positions(harness.model) == {1: 1, 2: 1}


def test_without_any_transcript_the_error_names_the_reason(harness: AuditHarness) -> None:
    harness.sell(FICHE, *(call(f"{FICHE}{number}") for number in range(3)), text=None)
    audit = harness.audit(FICHE, harness.configure(steps=1))
    known = f"No transcriptions available for fiche {FICHE} (0/3)"
    assert audit.error == f"Audit incomplete: transcripts of 0 of 3 recordings. {known}"
    assert has_no_verdict(harness)


def test_recordings_without_audio_are_shown_but_not_required(harness: AuditHarness) -> None:
    harness.sell(FICHE, call(f"{FICHE}1"))
    harness.clock.advance_one_second()
    harness.sell(FICHE, call(f"{FICHE}1"), call(f"{FICHE}2", url=" "), text=None)
    assert harness.audit(FICHE, harness.configure(steps=1)).score_percentage == 100.0
    coverage = harness.row().coverage or {}
    assert (coverage["required"], coverage["transcribed"], coverage["without_audio"]) == (
        1,
        1,
        [f"{FICHE}2"],
    )


def test_transcript_coverage_per_set_of_recordings() -> None:
    transcribed, missing, silent, without_audio = (
        CallRecording("transcribed", has_audio=True, has_transcript=True),
        CallRecording("missing", has_audio=True, has_transcript=False),
        CallRecording("silent", has_audio=False, has_transcript=False),
        CallRecording("without audio", has_audio=False, has_transcript=True),
    )
    table: dict[tuple[CallRecording, ...], tuple[TranscriptCoverage, bool, str]] = {
        (): (TranscriptCoverage((), (), ()), True, "transcripts of 0 of 0 recordings"),
        (transcribed,): (
            TranscriptCoverage(("transcribed",), (), ()),
            True,
            "transcripts of 1 of 1 recordings",
        ),
        (missing,): (
            TranscriptCoverage((), ("missing",), ()),
            False,
            "transcripts of 0 of 1 recordings",
        ),
        (transcribed, missing): (
            TranscriptCoverage(("transcribed",), ("missing",), ()),
            False,
            "transcripts of 1 of 2 recordings",
        ),
        (transcribed, silent): (
            TranscriptCoverage(("transcribed",), (), ("silent",)),
            True,
            "transcripts of 1 of 1 recordings (1 more without audio)",
        ),
        (without_audio,): (
            TranscriptCoverage((), (), ("without audio",)),
            True,
            "transcripts of 0 of 0 recordings (1 more without audio)",
        ),
    }
    found = {calls: coverage_of(calls) for calls in table}
    assert {calls: (one, one.is_whole, one.sentence) for calls, one in found.items()} == table


@pytest.mark.both_databases
def test_an_incomplete_audit_does_not_hide_a_completed_one(harness: AuditHarness) -> None:
    harness.sell(FICHE)
    config = harness.configure(steps=1)

    def latest() -> list[str]:
        return [name for name in names if harness.row(name).is_latest]

    names: list[str] = []

    def audit(name: str, error: AutomationError | None = None) -> None:
        harness.model.refuse_everything(error)
        harness.audit(FICHE, config, name)
        names.append(name)

    error = PermanentError("Away.")
    audit("incomplete", error)
    assert latest() == ["incomplete"]
    audit("incomplete too", error)
    assert latest() == ["incomplete too"]
    audit("good")
    assert latest() == ["good"]
    audit("incomplete again", error)
    assert latest() == ["good"]
    audit("better")
    assert latest() == ["better"]
    audit("incomplete again")
    assert latest() == ["better"]
    with harness.database.transaction() as session:
        set_deleted(session, 5, harness.clock.now())
    assert set(latest()) == {"incomplete again"}


@pytest.mark.both_databases
def test_the_newest_of_concurrently_ended_audits_is_the_latest(harness: AuditHarness) -> None:
    harness.sell(FICHE)
    config, names = harness.configure(steps=1), [f"audit-{number}" for number in range(4)]
    harness.audit(FICHE, config, "before")

    async def together() -> None:
        await asyncio.gather(*(harness.auditing(FICHE, config, name) for name in names))

    asyncio.run(together())
    rows = [harness.row(name) for name in names]
    assert [row.version for row in rows if row.is_latest] == [5]
    assert not harness.row("before").is_latest


def test_the_completed_audit_is_the_latest_while_another_runs(harness: AuditHarness) -> None:
    harness.sell(FICHE)
    config = harness.configure(steps=1)
    harness.audit(FICHE, config, "good")
    seen: list[tuple[bool, bool]] = []

    async def observe(_: Question) -> None:
        await asyncio.sleep(0)
        seen.append((harness.row("good").is_latest, harness.row("again").is_latest))

    harness.model = FakeLanguageModel(during_call=observe)
    harness.audit(FICHE, config, "again")
    assert seen == [(True, False)]
    assert (harness.row("good").is_latest, harness.row("again").is_latest) == (False, True)


def test_an_unjudged_step_has_no_verdict(harness: AuditHarness) -> None:
    harness.model.refuse_everything(PermanentError("Away."))
    harness.sell(FICHE)
    harness.audit(FICHE, harness.configure(steps=2))
    with harness.database.reading() as session:
        rows = session.scalars(select(StepResultRow)).all()
        found = {
            (row.conforme, row.score, row.niveau_conformite, row.traite, row.error) for row in rows
        }
    assert found == {(None, None, None, False, "Away.")}
