"""Tests of run reports and of daily quality."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta

import pytest
from sqlalchemy import update

from automation_pipeline.audits.days import FailingPoint
from automation_pipeline.audits.queries.audits import set_deleted
from automation_pipeline.audits.tables import AuditRow, ControlPointRow, StepResultRow
from automation_pipeline.automation.models.runs import LedgerTally, OutcomeStatus, ReasonCount
from automation_pipeline.automation.queries.ledger import CoveredDay, days_covered
from automation_pipeline.automation.queries.reports import (
    DayAudit,
    FicheSold,
    PointVerdict,
    QualityDay,
    Quotation,
    ReportedAudit,
    RunReport,
    StepVerdict,
    audits_on,
    quality_of,
    run_report,
)
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.days import DAY, answer_by_transcript, record_sales
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.automation.reports import (
    EVIL,
    change_run,
    end,
    make_reported_run,
    open_a_run,
)
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.fiches.queries.mirror import statements


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> AuditHarness:
    return AuditHarness(database, clock, FakeLanguageModel(answer_by_transcript))


def report(harness: AuditHarness, run_id: int, **most: int) -> RunReport:
    with harness.database.reading() as session:
        return run_report(session, run_id, **most)


def test_failed_fiches_are_listed_first_with_their_errors(harness: AuditHarness) -> None:
    result = report(harness, make_reported_run(harness))
    assert [(fiche.fiche_id, fiche.status, fiche.reason, fiche.why) for fiche in result.fiches] == [
        ("3", "failed", "transcription_incomplete", f"The call {EVIL}"),
        ("4", "ignored", "not_found", "Fiche not found (404)"),
        ("1", "successful", None, None),
        ("2", "successful", None, None),
    ]
    assert [fiche.groupe for fiche in result.fiches] == [EVIL, None, "NORD", "SUD"]
    assert result.tally == LedgerTally(selected=4, successful=2, failed=1, ignored=1)
    assert result.causes == [
        ReasonCount(OutcomeStatus.FAILED, "transcription_incomplete", 1),
        ReasonCount(OutcomeStatus.IGNORED, "not_found", 1),
    ]


def test_reported_audits_include_their_quotations(harness: AuditHarness) -> None:
    good, bad = report(harness, make_reported_run(harness)).audits
    assert (good.fiche_id, good.niveau, good.score) == ("1", "EXCELLENT", 100.0)
    quotation = Quotation(
        "Bonjour, je vous appelle sans rien annoncer.", "speaker_0", "00:00", "03/02/2026", "10:14"
    )
    first = StepVerdict(
        position=1,
        name="Step 1",
        is_critical=False,
        conforme="PARTIEL",
        score=2,
        weight=5,
        commentaire="Étape analysée.",
        error=None,
        points=(
            PointVerdict("Name given", "PRESENT", "Jugé PRESENT.", (quotation,)),
            PointVerdict("Recording announced", "ABSENT", "Jugé ABSENT.", ()),
        ),
    )
    assert bad == ReportedAudit(
        audit_id=2,
        fiche_id="2",
        configuration=f"Sales {EVIL}",
        status="completed",
        niveau="INSUFFISANT",
        score=40.0,
        critical_passed=0,
        critical_total=0,
        error=None,
        steps=(first, replace(first, position=2, name="Step 2")),
    )


def test_only_the_worst_audits_include_steps_and_the_fiche_list_is_limited(
    harness: AuditHarness,
) -> None:
    run_id = make_reported_run(harness)
    result = report(harness, run_id, max_detailed_audits=1)
    assert [(audit.fiche_id, bool(audit.steps)) for audit in result.audits] == [
        ("1", False),
        ("2", True),
    ]
    with harness.database.transaction() as session:
        of_first = update(AuditRow).where(AuditRow.id == 1)
        session.execute(of_first.values(score_percentage=None))
    result = report(harness, run_id, max_detailed_audits=1)
    assert [bool(audit.steps) for audit in result.audits] == [False, True], (
        "an audit without a score comes last"
    )
    short = report(harness, run_id, max_listed_fiches=3)
    assert [fiche.fiche_id for fiche in short.fiches] == ["3", "4", "1"]
    assert ([audit.fiche_id for audit in short.audits], short.audit_count) == (["1"], 2)
    assert short.tally.selected == 4


def test_started_phases_are_reported_with_their_ends(harness: AuditHarness) -> None:
    run_id = open_a_run(harness, ("1",))
    at = harness.clock.now()
    assert [(span.name, span.ended_at) for span in report(harness, run_id).phases] == [
        ("selection", at),
        ("fetching", None),
    ]
    with harness.database.transaction() as session:
        change_run(session, run_id, fetched_at=at + timedelta(seconds=3))
    assert [span.name for span in report(harness, run_id).phases][2:] == [
        "transcribing and auditing"
    ]
    with harness.database.transaction() as session:
        change_run(session, run_id, began_at=at - timedelta(seconds=9))
    assert report(harness, run_id).phases[0].begun_at == at - timedelta(seconds=9)


def test_the_query_count_does_not_depend_on_the_size_of_the_run(harness: AuditHarness) -> None:
    config_id = harness.configure()
    record_sales(harness, *"123456")
    counts = []
    for number, ids in enumerate((("1",), tuple("23456"))):
        run_id = open_a_run(harness, ids)
        for fiche_id in ids:
            harness.audit(fiche_id, config_id, f"audit-{number}-{fiche_id}", run_id=run_id)
        with statements(harness.database) as sent:
            assert len(report(harness, run_id).audits) == len(ids)
        counts.append(len(sent))
        with harness.database.transaction() as session:
            change_run(session, run_id, status="completed", completed_at=harness.clock.now())
    assert counts[0] == counts[1]


def test_the_report_lists_the_sales_days_of_the_fiches(harness: AuditHarness) -> None:
    record_sales(harness, "1", "2")
    record_sales(harness, "3", day=date(2026, 2, 1))
    record_sales(harness, "5", day=date(2026, 1, 31))
    run_id = open_a_run(harness, ("1", "3", "4"))
    with harness.database.reading() as session:
        assert days_covered(session, run_id) == {
            date(2026, 2, 1): CoveredDay(is_whole=True, is_reduced=False),
            DAY: CoveredDay(is_whole=False, is_reduced=False),
        }


def test_an_unknown_run_has_no_report(harness: AuditHarness) -> None:
    with pytest.raises(NotFoundError):
        report(harness, 99)


def quality(harness: AuditHarness) -> QualityDay:
    with harness.database.reading() as session:
        found = quality_of(session, DAY)
        assert audits_on(session, DAY) == len(found.audits)
        return found


def found(audits: tuple[DayAudit, ...]) -> list[tuple[str, int, str]]:
    return [(audit.fiche_id, audit.audit_id, audit.status) for audit in audits]


def test_a_day_has_fiches_audits_failed_points_and_causes(
    harness: AuditHarness,
) -> None:
    make_reported_run(harness)
    harness.audit("3", 1, "audit-3")
    mark_points(harness)
    day = quality(harness)
    assert day.fiches == (
        FicheSold("1", "NORD", True),
        FicheSold("2", "SUD", True),
        FicheSold("3", EVIL, True),
    )
    good, bad, _ = day.audits
    assert good == DayAudit(
        sales_date=DAY,
        fiche_id="1",
        groupe="NORD",
        audit_config_id=1,
        configuration=f"Sales {EVIL}",
        audit_id=1,
        version=1,
        status="completed",
        niveau="EXCELLENT",
        score=100.0,
        is_compliant=True,
        critical_passed=0,
        critical_total=0,
        steps=2,
        failed_steps=0,
        error=None,
        created_at=good.created_at,
        completed_at=good.completed_at,
    )
    assert (bad.fiche_id, bad.score, bad.niveau, bad.is_compliant) == (
        "2",
        40.0,
        "INSUFFISANT",
        False,
    )
    assert day.failing_points == (
        FailingPoint("Step 2", "Name given", 2, 2),
        FailingPoint("Step 1", "Recording announced", 1, 2),
        FailingPoint("Step 2", "Recording announced", 1, 2),
    )
    assert day.failures == {"transcription_incomplete": 1}


def mark_points(harness: AuditHarness) -> None:
    """Change verdicts of control points: audit, step, index, verdict. One step has an error."""
    verdicts = ((1, 2, 1, "PARTIEL"), (2, 2, 1, "ABSENT"))
    with harness.database.transaction() as session:
        for audit_id, position, index, statut in (*verdicts, (3, 1, 2, "NON_APPLICABLE")):
            of_point = (
                ControlPointRow.audit_id == audit_id,
                ControlPointRow.step_position == position,
                ControlPointRow.control_point_index == index,
            )
            session.execute(update(ControlPointRow).where(*of_point).values(statut=statut))
        of_step = StepResultRow.audit_id == 3, StepResultRow.step_position == 2
        unjudged = {"conforme": None, "score": None, "error": "The model was silent"}
        session.execute(update(StepResultRow).where(*of_step).values(unjudged))


def test_only_the_latest_audit_that_was_not_deleted_counts(harness: AuditHarness) -> None:
    config_id = harness.configure()
    record_sales(harness, "1", "2")
    harness.audit("1", config_id, "first")
    second = harness.audit("1", config_id, "second")
    gone = harness.audit("2", config_id, "gone")
    with harness.database.transaction() as session:
        set_deleted(session, gone.audit_id, harness.clock.now())
    assert found(quality(harness).audits) == [("1", second.audit_id, "completed")]


def test_an_audit_without_a_verdict_has_no_score(harness: AuditHarness) -> None:
    config_id = harness.configure()
    record_sales(harness, "1", text=None)
    harness.audit("1", config_id)
    [audit] = quality(harness).audits
    assert (audit.status, audit.score, audit.is_compliant) == ("incomplete", None, None)
    assert audit.error


def test_only_the_newest_run_of_a_fiche_counts(harness: AuditHarness) -> None:
    record_sales(harness, "1", "2", "3", "4")
    values = {"1": "fetch_failed", "2": "fetch_failed", "3": "fetch_failed", "4": None}
    _a_run_failed(harness, values)
    assert list(quality(harness).failures.items()) == [("fetch_failed", 3), ("unknown", 1)]
    _a_run_failed(harness, {"2": "transcription_incomplete"})
    retried = open_a_run(harness, ("1",))
    with harness.database.transaction() as session:
        end(session, retried, "1", "successful")
    assert quality(harness).failures == {
        "fetch_failed": 1,
        "transcription_incomplete": 1,
        "unknown": 1,
    }


def _a_run_failed(harness: AuditHarness, reasons: Mapping[str, str | None]) -> None:
    run_id = open_a_run(harness, tuple(reasons))
    with harness.database.transaction() as session:
        for fiche_id, reason in reasons.items():
            end(session, run_id, fiche_id, "failed", reason=reason, error="It failed")
        change_run(session, run_id, status="failed", completed_at=harness.clock.now())


def test_an_unknown_day_is_empty(harness: AuditHarness) -> None:
    assert quality(harness) == QualityDay(
        day=DAY, fiches=(), audits=(), failing_points=(), failures={}
    )


def test_the_query_count_does_not_depend_on_the_size_of_the_day(harness: AuditHarness) -> None:
    config_id = harness.configure()
    record_sales(harness, "1")
    harness.audit("1", config_id)
    with statements(harness.database) as short:
        quality(harness)
    record_sales(harness, *"123456")
    for fiche_id in "23456":
        harness.audit(fiche_id, config_id, f"audit-{fiche_id}")
    with statements(harness.database) as long:
        assert len(quality(harness).audits) == 6
    assert len(long) == len(short)
