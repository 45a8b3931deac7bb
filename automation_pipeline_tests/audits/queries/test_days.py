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
from automation_pipeline_tests.audits.bench import Bench
from automation_pipeline_tests.audits.configurations import step_document
from automation_pipeline_tests.audits.days import (
    DAY,
    WEAK,
    answer_by_transcript,
    audit_the_day,
    record_sales,
    the_day,
)
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel, StepInPrompt, honest, step_answer
from automation_pipeline_tests.fiches.queries.mirror import statements


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock, FakeLanguageModel(answer_by_transcript))


def missing(bench: Bench, *config_ids: int) -> list[tuple[str, int]]:
    with bench.database.reading() as session:
        return missing_audits(session, DAY, config_ids)


def test_an_unaudited_fiche_is_missing_once_per_configuration(bench: Bench) -> None:
    first, second = bench.configure(name="First"), bench.configure(name="Second")
    record_sales(bench, "1", "2")
    record_sales(bench, "3", text=None)
    record_sales(bench, "4", day=date(2026, 2, 4))
    assert missing(bench, first, second) == [
        ("1", first),
        ("2", first),
        ("1", second),
        ("2", second),
    ]
    assert missing(bench, second) == [("1", second), ("2", second)]
    assert missing(bench) == []


def test_a_call_removed_from_the_crm_needs_no_audit(bench: Bench) -> None:
    config_id = bench.configure()
    record_sales(bench, "1")
    with bench.database.transaction() as session:
        session.execute(update(CallRecordingRow).values(vanished_at=bench.clock.now()))
    assert missing(bench, config_id) == []


def test_a_fiche_without_a_completed_latest_audit_is_missing(bench: Bench) -> None:
    config_id, other = bench.configure(), bench.configure(name="Other")
    record_sales(bench, "1")
    bench.audit("1", other, "of-another-configuration")
    assert missing(bench, config_id) == [("1", config_id)]
    done = bench.audit("1", config_id, "done")
    assert missing(bench, config_id) == []
    with bench.database.transaction() as session:
        set_deleted(session, done.audit_id, bench.clock.now())
    assert missing(bench, config_id) == [("1", config_id)]
    bench.audit("1", config_id, "again")
    bench.model.refuse_everything(PermanentError("LLM call failed status=401"))
    assert bench.audit("1", config_id, "incomplete").status == "incomplete"
    assert missing(bench, config_id) == []


def test_an_unfinished_audit_is_missing(bench: Bench) -> None:
    config_id = bench.configure()
    record_sales(bench, "1")
    bench.audit("1", config_id)
    with bench.database.transaction() as session:
        session.execute(update(AuditRow).values(status="running"))
    assert missing(bench, config_id) == [("1", config_id)]


def test_the_statistics_of_a_day_count_completed_audits(bench: Bench) -> None:
    bench.configure(steps=2, name="Automatic", runAutomatically=True)
    record_sales(bench, "1", "2")
    record_sales(bench, "3", text=WEAK)
    record_sales(bench, "4", text=None)
    record_sales(bench, "5", day=date(2026, 2, 4))
    audit_the_day(bench)
    day = the_day(bench)
    assert (day.configs, day.fiches, day.wanted, day.audited) == (1, 3, 3, 3)
    assert list(day.by_niveau.items()) == [("EXCELLENT", 2), ("INSUFFISANT", 1)]
    assert day.mean_score == pytest.approx((100 + 100 + 40) / 3, abs=0.01)
    assert (day.non_compliant, day.non_compliant_share) == (1, pytest.approx(1 / 3))
    assert (day.steps, day.steps_failed, dict(day.failures)) == (6, 0, {})
    assert (day.citations, day.citations_removed) == (2 * 4 + 2, 0)


def test_audits_by_other_configurations_are_not_counted(bench: Bench) -> None:
    by_hand = bench.configure(name="By hand")
    retired = bench.configure(name="Retired", runAutomatically=True, isActive=False)
    record_sales(bench, "1")
    for config_id in (by_hand, retired):
        bench.audit("1", config_id, f"by-{config_id}")
    day = the_day(bench)
    assert (day.configs, day.fiches, day.audited, day.steps, day.mean_score) == (0, 1, 0, 0, None)


def test_only_the_latest_audit_of_a_fiche_counts(bench: Bench) -> None:
    config_id = bench.configure(runAutomatically=True)
    record_sales(bench, "1", text=WEAK)
    bench.audit("1", config_id, "weak")
    bench.transcribe("1")
    bench.audit("1", config_id, "better")
    day = the_day(bench)
    assert (day.audited, dict(day.by_niveau), day.failing_points) == (1, {"EXCELLENT": 1}, ())


def test_audits_without_a_verdict_are_counted_by_cause(bench: Bench) -> None:
    config_id = bench.configure(steps=2, runAutomatically=True)
    record_sales(bench, "1", "2", text="")
    record_sales(bench, "3")
    bench.model.refuse_everything(PermanentError("LLM call failed status=401"))
    for fiche_id in ("1", "2", "3"):
        bench.audit(fiche_id, config_id, f"audit-{fiche_id}")
    day = the_day(bench)
    assert dict(day.failures) == {
        "No usable transcribed recordings available for fiche (timeline empty)": 2,
        "Audit incomplete: 0 of 2 steps judged: LLM call failed status=401": 1,
    }
    assert (day.audited, day.steps, day.steps_failed, day.mean_score) == (0, 2, 2, None)


def test_invented_quotations_are_counted(bench: Bench) -> None:
    bench.model = FakeLanguageModel(
        lambda question: step_answer(question, quotation="Voilà ce que personne ne dit.")
    )
    bench.configure(steps=2, runAutomatically=True)
    record_sales(bench, "1")
    day = audit_the_day(bench)
    assert (day.citations, day.citations_removed) == (4, 4)


def test_failing_points_are_listed_by_count_with_their_share(bench: Bench) -> None:
    points = {
        "weak": ["PARTIEL", "ABSENT", "NON_APPLICABLE"],
        "strong": ["PRESENT", "ABSENT", "PRESENT"],
    }
    bench.model = FakeLanguageModel(
        lambda question: step_answer(
            question,
            statuts=points[
                "weak" if any(WEAK in one.content for one in question.messages) else "strong"
            ],
        )
    )
    step = step_document(1, name="Welcome", controlPoints=["Name", "Notice", "Thanks"])
    given = {"name": "Points", "runAutomatically": True, "steps": [step]}
    import_config(given, database=bench.database, clock=bench.clock)
    record_sales(bench, "1", text=WEAK)
    record_sales(bench, "2")
    day = audit_the_day(bench)
    assert day.failing_points == (
        FailingPoint("Welcome", "Notice", 2, 2),
        FailingPoint("Welcome", "Name", 1, 2),
    )


def test_an_unjudged_step_counts_no_failing_points(bench: Bench) -> None:
    bench.model = FakeLanguageModel(
        lambda question: (
            PermanentError("No.") if StepInPrompt.of(question).position == 1 else honest(question)
        )
    )
    bench.configure(steps=2, runAutomatically=True)
    record_sales(bench, "1")
    day = audit_the_day(bench)
    assert (day.audited, day.steps, day.steps_failed, day.failing_points) == (0, 2, 1, ())


def test_at_most_ten_failing_points_are_named(bench: Bench) -> None:
    bench.model = FakeLanguageModel(lambda question: step_answer(question, statuts="ABSENT"))
    bench.configure(steps=6, runAutomatically=True)
    record_sales(bench, "1")
    assert len(audit_the_day(bench).failing_points) == 10


def test_the_number_of_queries_per_day_is_constant(bench: Bench) -> None:
    bench.configure(steps=1, runAutomatically=True)
    counts: list[int] = []
    for fiche_ids in (["1"], [str(number) for number in range(2, 8)]):
        record_sales(bench, *fiche_ids)
        audit_the_day(bench, attempt=f"run-{len(counts)}")
        with statements(bench.database) as made:
            assert the_day(bench).audited == (7 if counts else 1)
        counts.append(len(made))
    assert counts[0] == counts[1] <= 9
