"""Missing audits of a day, and statistics of its audits."""

from datetime import date

import pytest
from sqlalchemy import update

from automation_pipeline.audits.configs import import_config
from automation_pipeline.audits.days import FailingPoint, missing_audits
from automation_pipeline.audits.queries.audits import set_deleted
from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.fiches.tables import CallRecordingRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.configurations import step_document
from automation_pipeline_tests.audits.days import (
    DAY,
    WEAK,
    answer_by_transcript,
    audit_day_of_sales,
    read_day,
    record_sales,
)
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import (
    FakeLanguageModel,
    StepInPrompt,
    honest_answer,
    step_answer,
)
from automation_pipeline_tests.fiches.queries.mirror import statements


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    return AuditHarness(database, clock, FakeLanguageModel(answer_by_transcript))


def missing(harness: AuditHarness, *config_ids: int) -> list[tuple[str, int]]:
    with harness.database.reading() as session:
        return missing_audits(session, DAY, config_ids)


def test_an_unaudited_fiche_is_missing_once_per_configuration(harness: AuditHarness) -> None:
    first, second = harness.configure(name="First"), harness.configure(name="Second")
    record_sales(harness, "1", "2")
    record_sales(harness, "3", text=None)
    record_sales(harness, "4", day=date(2026, 2, 4))
    assert missing(harness, first, second) == [
        ("1", first),
        ("2", first),
        ("1", second),
        ("2", second),
    ]
    assert missing(harness, second) == [("1", second), ("2", second)]
    assert missing(harness) == []


def test_a_call_removed_from_the_crm_needs_no_audit(harness: AuditHarness) -> None:
    config_id = harness.configure()
    record_sales(harness, "1")
    with harness.database.transaction() as session:
        session.execute(update(CallRecordingRow).values(vanished_at=harness.clock.now()))
    assert missing(harness, config_id) == []


def test_a_fiche_without_a_completed_latest_audit_is_missing(harness: AuditHarness) -> None:
    config_id, other = harness.configure(), harness.configure(name="Other")
    record_sales(harness, "1")
    harness.audit("1", other, "of-another-configuration")
    assert missing(harness, config_id) == [("1", config_id)]
    done = harness.audit("1", config_id, "done")
    assert missing(harness, config_id) == []
    with harness.database.transaction() as session:
        set_deleted(session, done.audit_id, harness.clock.now())
    assert missing(harness, config_id) == [("1", config_id)]
    harness.audit("1", config_id, "again")
    harness.model.refuse_everything(PermanentError("LLM call failed status=401"))
    assert harness.audit("1", config_id, "incomplete").status == "incomplete"
    assert missing(harness, config_id) == []


def test_an_unfinished_audit_is_missing(harness: AuditHarness) -> None:
    config_id = harness.configure()
    record_sales(harness, "1")
    harness.audit("1", config_id)
    with harness.database.transaction() as session:
        session.execute(update(AuditRow).values(status="running"))
    assert missing(harness, config_id) == [("1", config_id)]


def test_the_statistics_of_a_day_count_completed_audits(harness: AuditHarness) -> None:
    harness.configure(steps=2, name="Automatic", runAutomatically=True)
    record_sales(harness, "1", "2")
    record_sales(harness, "3", text=WEAK)
    record_sales(harness, "4", text=None)
    record_sales(harness, "5", day=date(2026, 2, 4))
    audit_day_of_sales(harness)
    day = read_day(harness)
    assert (day.configs, day.fiches, day.wanted, day.audited) == (1, 3, 3, 3)
    assert list(day.by_niveau.items()) == [("EXCELLENT", 2), ("INSUFFISANT", 1)]
    assert day.mean_score == pytest.approx((100 + 100 + 40) / 3, abs=0.01)
    assert (day.non_compliant, day.non_compliant_share) == (1, pytest.approx(1 / 3))
    assert (day.steps, day.steps_failed, dict(day.failures)) == (6, 0, {})
    assert (day.citations, day.citations_removed) == (2 * 4 + 2, 0)


def test_audits_by_other_configurations_are_not_counted(harness: AuditHarness) -> None:
    by_hand = harness.configure(name="By hand")
    retired = harness.configure(name="Retired", runAutomatically=True, isActive=False)
    record_sales(harness, "1")
    for config_id in (by_hand, retired):
        harness.audit("1", config_id, f"by-{config_id}")
    day = read_day(harness)
    assert (day.configs, day.fiches, day.audited, day.steps, day.mean_score) == (0, 1, 0, 0, None)


def test_only_the_latest_audit_of_a_fiche_counts(harness: AuditHarness) -> None:
    config_id = harness.configure(runAutomatically=True)
    record_sales(harness, "1", text=WEAK)
    harness.audit("1", config_id, "weak")
    harness.transcribe("1")
    harness.audit("1", config_id, "better")
    day = read_day(harness)
    assert (day.audited, dict(day.by_niveau), day.failing_points) == (1, {"EXCELLENT": 1}, ())


def test_audits_without_a_verdict_are_counted_by_cause(harness: AuditHarness) -> None:
    config_id = harness.configure(steps=2, runAutomatically=True)
    record_sales(harness, "1", "2", text="")
    record_sales(harness, "3")
    harness.model.refuse_everything(PermanentError("LLM call failed status=401"))
    for fiche_id in ("1", "2", "3"):
        harness.audit(fiche_id, config_id, f"audit-{fiche_id}")
    day = read_day(harness)
    assert dict(day.failures) == {
        "No usable transcribed recordings available for fiche (timeline empty)": 2,
        "Audit incomplete: 0 of 2 steps judged: LLM call failed status=401": 1,
    }
    assert (day.audited, day.steps, day.steps_failed, day.mean_score) == (0, 2, 2, None)


def test_invented_quotations_are_counted(harness: AuditHarness) -> None:
    harness.model = FakeLanguageModel(
        lambda question: step_answer(question, quotation="Cette phrase est inventée.")
    )
    harness.configure(steps=2, runAutomatically=True)
    record_sales(harness, "1")
    day = audit_day_of_sales(harness)
    assert (day.citations, day.citations_removed) == (4, 4)


def test_failing_points_are_listed_by_count_with_their_share(harness: AuditHarness) -> None:
    points = {
        "weak": ["PARTIEL", "ABSENT", "NON_APPLICABLE"],
        "strong": ["PRESENT", "ABSENT", "PRESENT"],
    }
    harness.model = FakeLanguageModel(
        lambda question: step_answer(
            question,
            statuts=points[
                "weak" if any(WEAK in one.content for one in question.messages) else "strong"
            ],
        )
    )
    step = step_document(1, name="Welcome", controlPoints=["Name", "Notice", "Thanks"])
    given = {"name": "Points", "runAutomatically": True, "steps": [step]}
    import_config(given, database=harness.database, clock=harness.clock)
    record_sales(harness, "1", text=WEAK)
    record_sales(harness, "2")
    day = audit_day_of_sales(harness)
    assert day.failing_points == (
        FailingPoint("Welcome", "Notice", 2, 2),
        FailingPoint("Welcome", "Name", 1, 2),
    )


def test_an_unjudged_step_counts_no_failing_points(harness: AuditHarness) -> None:
    harness.model = FakeLanguageModel(
        lambda question: (
            PermanentError("No.")
            if StepInPrompt.of(question).position == 1
            else honest_answer(question)
        )
    )
    harness.configure(steps=2, runAutomatically=True)
    record_sales(harness, "1")
    day = audit_day_of_sales(harness)
    assert (day.audited, day.steps, day.steps_failed, day.failing_points) == (0, 2, 1, ())


def test_at_most_ten_failing_points_are_named(harness: AuditHarness) -> None:
    harness.model = FakeLanguageModel(lambda question: step_answer(question, statuts="ABSENT"))
    harness.configure(steps=6, runAutomatically=True)
    record_sales(harness, "1")
    assert len(audit_day_of_sales(harness).failing_points) == 10


def test_the_number_of_queries_per_day_is_constant(harness: AuditHarness) -> None:
    harness.configure(steps=1, runAutomatically=True)
    counts: list[int] = []
    for fiche_ids in (["1"], [str(number) for number in range(2, 8)]):
        record_sales(harness, *fiche_ids)
        audit_day_of_sales(harness, attempt=f"run-{len(counts)}")
        with statements(harness.database) as created:
            assert read_day(harness).audited == (7 if counts else 1)
        counts.append(len(created))
    assert counts[0] == counts[1] <= 9
