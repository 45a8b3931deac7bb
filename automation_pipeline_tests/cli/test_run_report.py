"""Tests of the HTML report of a run."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.commands.report import Html, element, joined, run_page, text
from automation_pipeline.automation.models.runs import (
    LedgerTally,
    OutcomeStatus,
    ReportedFiche,
    Run,
)
from automation_pipeline.automation.queries.reports import (
    PointVerdict,
    Quotation,
    ReportedAudit,
    ReportedPhase,
    RunReport,
    StepVerdict,
    run_report,
)
from automation_pipeline_tests.audits.days import answer_by_transcript
from automation_pipeline_tests.audits.harness import AuditHarness
from automation_pipeline_tests.automation.reports import (
    EVIL,
    change_run,
    end,
    make_reported_run,
    open_a_run,
)
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.llm import FakeLanguageModel

STARTED_AT = datetime(2026, 2, 4, 3, 0, tzinfo=UTC)
SUMMARY = {
    "days": ["2026-02-03"],
    "failed_days": [{"day": "2026-02-02", "error": f"The CRM said {EVIL}"}],
    "picked": 4,
    "dropped": {"too_many_recordings": ["77", "78"]},
    "only_unaudited": False,
    "ids": [str(number) for number in range(250)],
}
VOID_TAGS = {"meta", "br"}


def audit(audit_id: int, configuration: str, **fields: object) -> ReportedAudit:
    values = {
        "fiche_id": "1",
        "status": "completed",
        "niveau": "PENDING",
        "score": None,
        "critical_passed": 1,
        "critical_total": 2,
        "error": None,
        **fields,
    }
    return ReportedAudit(audit_id=audit_id, configuration=configuration, **values)  # type: ignore[arg-type]


QUOTATION = Quotation("Allô", "", "", "", "10:14")
STEP = StepVerdict(
    position=1,
    name="Identity",
    is_critical=True,
    conforme="NON_CONFORME",
    score=0,
    weight=5,
    commentaire="",
    error=None,
    points=(PointVerdict("Name", "ABSENT", "", (QUOTATION,)),),
)
UNJUDGED_STEP = replace(
    STEP, position=2, name="Consent", is_critical=False, points=(), error="The model was silent"
)
ACTIVE_RUN = Run.model_validate(
    {
        **dict.fromkeys(Run.model_fields, 0),
        **dict.fromkeys(("due_at", "completed_at", "duration_ms", "error_details"), None),
        "id": 7,
        "schedule_id": 3,
        "status": "running",
        "phase": "auditing",
        "trigger": "retry",
        "attempt": 2,
        "dagster_run_id": "dagster-9",
        "started_at": STARTED_AT,
        "queued_at": STARTED_AT,
        "began_at": STARTED_AT + timedelta(seconds=5),
        "error_message": "It was slow",
        "selection_summary": {"nothing": None, "empty": [], "whole": True, "many": [0] * 101},
        "retry_of_run_id": 3,
    }
)
ACTIVE_REPORT = RunReport(
    run=ACTIVE_RUN,
    schedule_name="Weekly",
    phases=(ReportedPhase("selection", STARTED_AT + timedelta(seconds=5), None),),
    tally=LedgerTally(selected=3, pending=2, successful=1),
    causes=[],
    fiches=(
        ReportedFiche(
            fiche_id="1",
            groupe="NORD",
            status=OutcomeStatus.SUCCESSFUL,
            reason=None,
            why=None,
            recordings=2,
        ),
    ),
    audits=(
        audit(4, "Sales", niveau="REJET", score=12.5, steps=(STEP, UNJUDGED_STEP)),
        audit(5, "Service", status="incomplete", error="Too slow"),
    ),
    audit_count=3,
)


class Page(HTMLParser):
    """Parses a page; fails on a tag that is not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.printed = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.printed += f" {data}"

    def values(self, name: str) -> list[str]:
        return [value for attribute, value in self.attributes if attribute == name]


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


@pytest.fixture
def harness(terminal: Terminal) -> AuditHarness:
    return AuditHarness(
        terminal.database, FakeClock(STARTED_AT), FakeLanguageModel(answer_by_transcript)
    )


@pytest.fixture
def run_id(harness: AuditHarness) -> int:
    """Create a run that ended after 9 s, with 1 s for selection and 2 s for fetching."""
    run_id = make_reported_run(harness)
    with harness.database.transaction() as session:
        change_run(
            session,
            run_id,
            status="partial",
            duration_ms=120_040,
            selected_at=STARTED_AT + timedelta(seconds=1),
            fetched_at=STARTED_AT + timedelta(seconds=3),
            completed_at=STARTED_AT + timedelta(seconds=9),
            selection_summary=SUMMARY,
            error_details={"failed_days": ["2026-02-02"], "stack": "secret frames"},
        )
    return run_id


def page_of(harness: AuditHarness, run_id: int, **most: int) -> Page:
    with harness.database.reading() as session:
        return Page(run_page(run_report(session, run_id, **most)))


def test_the_page_shows_status_ledger_check_phases_causes_and_selection(
    harness: AuditHarness, run_id: int
) -> None:
    result = " ".join(page_of(harness, run_id).printed.split())
    ids = " ".join(str(number) for number in range(100))
    heading, _, rest = result.partition(" Fiches fiche groupe ")
    assert heading == (
        "Run 1: partial Run 1: partial Nightly · trigger: manual · queued 2026-02-04 03:00:00 UTC · 120.0 seconds · "
        "attempt 1 4 selected 2 successful 1 failed 1 ignored "
        "4 selected = 2 successful + 1 failed + 1 ignored: every fiche has ended, once. "
        "Phases phase started ended seconds selection 2026-02-04 03:00:00 UTC 2026-02-04 03:00:01 UTC 1.0 "
        "fetching 2026-02-04 03:00:01 UTC 2026-02-04 03:00:03 UTC 2.0 "
        "transcribing and auditing 2026-02-04 03:00:03 UTC 2026-02-04 03:00:09 UTC 6.0 "
        "Why fiches were ignored or failed outcome cause fiches failed transcription_incomplete 1 ignored not_found 1 "
        f"Selection days (1) 2026-02-03 failed days (1) day: 2026-02-02 error: The CRM said {EVIL} picked: 4 "
        f"dropped (1) too many recordings (2) 77 78 only unaudited: no ids (250) {ids} and 150 more "
        "Other errors failed days (1) 2026-02-02"
    )
    quoted = "speaker_0, 00:00, 03/02/2026 10:14"
    assert rest.startswith(
        f"outcome recordings why audits 3 {EVIL} failed transcription_incomplete: The call {EVIL} "
        "4 ignored not_found: Fiche not found (404) 1 NORD successful 1 audit 1 2 SUD successful 1 audit 2 "
        "Audits fiche configuration niveau score critical why it failed verdicts "
        f"1 Sales {EVIL} EXCELLENT 100 % 0/0 audit 1 2 Sales {EVIL} INSUFFISANT 40 % 0/0 audit 2 "
        f"Verdicts, step by step Fiche 1, Sales {EVIL}: EXCELLENT 100 % 1. Step 1: CONFORME 5/5 Étape analysée. "
        f"PRESENT Name given Jugé PRESENT. « Bonjour, cet appel est enregistré. » {quoted} "
    )
    active = Page(run_page(ACTIVE_REPORT))
    assert " ".join(active.printed.split()) == (
        "Run 7: running Run 7: running Weekly · trigger: retry · queued 2026-02-04 03:00:00 UTC · "
        "started 2026-02-04 03:00:05 UTC · in phase auditing · attempt 2 · retry of run 3 · Dagster run dagster-9 "
        "It was slow 3 selected 1 successful 0 failed 0 ignored 2 pending 2 of 3 fiches have not ended. "
        "Phases phase started ended seconds selection 2026-02-04 03:00:05 UTC not ended "
        f"Selection nothing: none empty: none whole: yes many (101) {'0 ' * 100}and 1 more "
        "Fiches fiche groupe outcome recordings why audits "
        "1 NORD successful 2 audit 4 audit 5 And 2 more fiches, which this page leaves out. "
        "Audits fiche configuration niveau score critical why it failed verdicts "
        "1 Sales REJET 12.5 % 1/2 audit 4 1 Service incomplete Too slow audit 5 "
        "And 1 more audits, which this page leaves out. "
        "The steps of the 1 with the lowest scores are shown below; the others': automation audits show ID --steps "
        "Verdicts, step by step Fiche 1, Sales: REJET 12.5 % "
        "1. Identity (critical): NON_CONFORME 0/5 ABSENT Name « Allô » 10:14 "
        "2. Consent: not judged The model was silent"
    )
    assert active.values("class") == [
        *("word soft", "soft", "bad", "law", "", "good", "", "", "", "warn"),
        *(
            "wide",
            "soft",
            "wide",
            "word good",
            "soft",
            "soft",
            "wide",
            "word bad",
            "word soft",
            "soft",
            "soft",
        ),
        *("word bad", "word bad", "word bad", "soft", "word soft", "bad"),
    ]
    assert active.values("href") == ["#audit-4", "#audit-4"]
    assert active.values("id") == ["audit-4"]


def test_fiches_link_to_their_audits_and_quotations(harness: AuditHarness, run_id: int) -> None:
    page = page_of(harness, run_id)
    links, anchors = page.values("href"), page.values("id")
    assert {link.removeprefix("#") for link in links} == set(anchors)
    assert len(anchors) == 2
    assert "« Bonjour, je vous appelle" in page.printed
    result = " ".join(page.printed.split())
    assert "4 ignored not_found: Fiche not found (404)" in result


def test_stored_text_is_escaped(harness: AuditHarness, run_id: int) -> None:
    page = page_of(harness, run_id)
    assert not {"script", "img", "iframe", "link", "object"} & set(page.tags)
    assert not [name for name, _value in page.attributes if name.startswith("on")]
    assert f"The call {EVIL}" in page.printed
    assert f"The CRM said {EVIL}" in page.printed
    assert f"Sales {EVIL}" in page.printed


def test_the_page_has_no_external_resources(harness: AuditHarness, run_id: int) -> None:
    page = page_of(harness, run_id)
    assert page.values("src") == []
    assert all(link.startswith("#") for link in page.values("href"))
    assert "default-src 'none'; style-src 'unsafe-inline'" in page.values("content")
    with harness.database.reading() as session:
        style = run_page(run_report(session, run_id)).partition("</style>")[0]
    assert "prefers-color-scheme: dark" in style
    assert "url(" not in style
    assert "@import" not in style


def test_a_large_run_is_summarised(harness: AuditHarness, run_id: int) -> None:
    result = page_of(harness, run_id, max_listed_fiches=3, max_detailed_audits=0).printed
    assert "And 1 more fiches, which this page leaves out." in result
    assert "And 1 more audits, which this page leaves out." in result
    page_with_one_audit = page_of(harness, run_id, max_detailed_audits=1)
    assert (
        "The steps of the 1 with the lowest scores are shown below" in page_with_one_audit.printed
    )
    assert len(page_with_one_audit.values("id")) == 1


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (0, "2 of 2 fiches have not ended."),
        (1, "1 of 2 fiches have not ended."),
        (2, "2 selected = 2 successful + 0 "),
    ],
)
def test_an_active_run_shows_its_progress(harness: AuditHarness, ended: int, message: str) -> None:
    run_id = open_a_run(harness, ("1", "2"))
    with harness.database.transaction() as session:
        for fiche_id in ("1", "2")[:ended]:
            end(session, run_id, fiche_id, "successful")
    assert message in page_of(harness, run_id).printed


def test_rows_that_do_not_add_up_are_reported(harness: AuditHarness, run_id: int) -> None:
    with harness.database.transaction() as session:
        change_run(session, run_id, selected_fiches=5)
    assert (
        "The counts do not add up: 5 selected = 2 successful + 1 failed + 1 ignored is false."
        in page_of(harness, run_id).printed
    )


def test_the_command_writes_the_page_to_the_given_path(terminal: Terminal, run_id: int) -> None:
    written = terminal.folder / ".automation/reports" / f"run-{run_id}.html"
    ended = terminal.run("runs", "report", str(run_id))
    assert (ended.code, ended.out) == (0, f"The report of run {run_id} is {written}.\n")
    Page(written.read_text())
    document = terminal.json("runs", "report", str(run_id), "--output", "page.html")
    assert document == {"runId": str(run_id), "file": "page.html"}
    assert Path("page.html").read_text() == written.read_text()
    assert terminal.run("runs", "report", str(run_id), "-o", "-").out == written.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("999",), 1, "Run 999 not found.\n"),
        (
            ("1", "-o", "automation.db/page.html"),
            2,
            "automation.db/page.html cannot be written: Not a directory.\n",
        ),
    ],
)
def test_an_unknown_run_or_unusable_file_is_reported_in_one_sentence(
    terminal: Terminal, run_id: int, arguments: tuple[str, ...], code: int, message: str
) -> None:
    ended = terminal.run("runs", "report", *arguments)
    assert (ended.code, ended.out, ended.err) == (code, "", message)


class Reader(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.printed = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.printed += data


PRINTABLE = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"))


@given(content=PRINTABLE, value=PRINTABLE)
def test_any_escaped_text_parses_back_unchanged(content: str, value: str) -> None:
    reader = Reader(element("p", content, class_=value))
    assert (reader.tags, reader.printed) == (["p"], content)
    assert reader.attributes == [("class", value)]


def test_html_values_are_not_escaped_and_none_is_omitted() -> None:
    assert element("p", Html("<b>x</b>"), None, 3) == "<p><b>x</b>3</p>"
    assert joined("<", Html("<br>")) == "&lt;<br>"
    assert element("meta", http_equiv="x") == '<meta http-equiv="x">'


def test_characters_invalid_in_html_are_replaced() -> None:
    page = text("a\x00b\ud800c\x1b[31m")
    assert page == "a\ufffdb\ufffdc\ufffd[31m"
    assert page.encode()
