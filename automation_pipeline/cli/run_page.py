"""The page of a run: one HTML file that needs nothing else, and lets nothing that was stored act as markup."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from automation_pipeline.automation.domain.run_report import PhaseSpan, ReportedAudit, ReportedFiche, RunReport
from automation_pipeline.cli.markup import Html, Part, element, joined
from automation_pipeline.cli.run_page_document import document_part
from automation_pipeline.cli.run_page_style import STYLE
from automation_pipeline.cli.run_page_verdicts import audit_anchor, audit_part, toned

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
# A stack is for whoever mends the code: it stays in the database.
UNTOLD = ("stack",)


def run_page(report: RunReport) -> str:
    run = report.run
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Run {run.id}: {run.status}"),
        element("style", Html(STYLE)),
    )
    details = {key: value for key, value in (run.error_details or {}).items() if key not in UNTOLD}
    body = element(
        "body",
        _heading(report),
        _law(report),
        _section("Phases", _phases(report.phases)),
        _section("Why fiches were left out or failed", _causes(report)),
        _section("Selection", document_part(run.selection_summary or {})),
        _section("What else went wrong", document_part(details)),
        _section("Fiches", _fiches(report)),
        _section("Audits", _audits(report)),
        _section("Verdicts, step by step", joined(*(audit_part(audit) for audit in report.audits if audit.steps))),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _heading(report: RunReport) -> Html:
    run = report.run
    facts = [
        report.schedule_name,
        f"asked for by: {run.trigger}",
        f"queued {_moment(run.started_at)}",
        run.began_at and f"began {_moment(run.began_at)}",
        f"{run.duration_ms / 1000:.1f} seconds" if run.duration_ms is not None else f"in phase {run.phase or 'none'}",
        f"attempt {run.attempt}",
        run.retry_of_run_id and f"repeats what failed in run {run.retry_of_run_id}",
        run.dagster_run_id and f"Dagster run {run.dagster_run_id}",
    ]
    return element(
        "header",
        element("h1", f"Run {run.id}: ", toned(run.status)),
        element("p", " · ".join(str(fact) for fact in facts if fact), class_="soft"),
        element("p", run.error_message, class_="bad") if run.error_message else "",
    )


def _law(report: RunReport) -> Html:
    """Every selected fiche has ended, exactly once; or what is lacking to that."""
    tally = report.tally
    counters = [
        ("selected", tally.selected, ""),
        ("successful", tally.successful, "good"),
        ("failed", tally.failed, "bad" if tally.failed else ""),
        ("ignored", tally.ignored, "warn" if tally.ignored else ""),
        ("pending", tally.pending, ""),
    ]
    shown = [counter for counter in counters if counter[0] != "pending" or counter[1]]
    sum_ = (
        f"{tally.selected} selected = {tally.successful} successful + {tally.failed} failed + {tally.ignored} ignored"
    )
    if tally.is_whole:
        law, tone = f"{sum_}: every fiche has ended, once.", "good"
    elif tally.pending:
        law, tone = f"{tally.pending} of {tally.selected} fiches have not ended.", "warn"
    else:
        law, tone = f"It does not add up: {sum_} is not so.", "bad"
    boxes = (element("div", element("b", str(count), class_=tone_), name) for name, count, tone_ in shown)
    return joined(element("div", *boxes, class_="law"), element("p", law, class_=tone))


def _phases(spans: Iterable[PhaseSpan]) -> Html:
    rows = [
        (span.name, _moment(span.begun_at), _moment(span.ended_at) if span.ended_at else "not ended", _length(span))
        for span in spans
    ]
    return _table(("phase", "begun", "ended", "seconds"), rows)


def _causes(report: RunReport) -> Html:
    rows = [(toned(status), cause, count) for (status, cause), count in report.causes.items()]
    return _table(("outcome", "cause", "fiches"), rows)


def _fiches(report: RunReport) -> Html:
    audits: dict[str, list[ReportedAudit]] = {}
    for audit in report.audits:
        audits.setdefault(audit.fiche_id, []).append(audit)
    rows = [_fiche(fiche, audits.get(fiche.fiche_id, ())) for fiche in report.fiches]
    heads = ("fiche", "groupe", "outcome", "recordings", "why", "audits")
    told = sum((report.tally.successful, report.tally.failed, report.tally.ignored, report.tally.pending))
    return joined(_table(heads, rows), _rest(told - len(report.fiches), "fiches"))


def _fiche(fiche: ReportedFiche, audits: Sequence[ReportedAudit]) -> Sequence[Part]:
    why = ": ".join(filter(None, (fiche.reason, fiche.why)))
    links = joined(*(element("p", _link(audit)) for audit in audits))
    return fiche.fiche_id, fiche.groupe, toned(fiche.status), fiche.recordings, why, links


def _audits(report: RunReport) -> Html:
    rows = [
        (
            audit.fiche_id,
            audit.configuration,
            toned(audit.niveau if audit.status == "completed" else audit.status),
            None if audit.score is None else f"{audit.score:g} %",
            f"{audit.critical_passed}/{audit.critical_total}" if audit.status == "completed" else None,
            audit.error,
            _link(audit),
        )
        for audit in report.audits
    ]
    heads = ("fiche", "configuration", "niveau", "score", "critical", "why it failed", "verdicts")
    in_full = sum(bool(audit.steps) for audit in report.audits)
    short = element("p", f"The steps of the {in_full} with the lowest scores are told below; the others': ", _COMMAND)
    untold = short if 0 < in_full < len(report.audits) else ""
    return joined(_table(heads, rows), _rest(report.audit_count - len(report.audits), "audits"), untold)


_COMMAND = Html("<code>automation audits show ID --steps</code>")


def _link(audit: ReportedAudit) -> Html:
    name = f"audit {audit.audit_id}"
    return element("a", name, href=f"#{audit_anchor(audit)}") if audit.steps else element("span", name, class_="soft")


def _section(title: str, content: Html) -> Html:
    """Nothing, where there is nothing to tell."""
    return element("section", element("h2", title), content) if content else Html()


def _table(heads: Sequence[str], rows: Sequence[Sequence[Part]]) -> Html:
    if not rows:
        return Html()
    head = element("thead", element("tr", *(element("th", name) for name in heads)))
    body = element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows))
    return element("div", element("table", head, body), class_="wide")


def _rest(count: int, of: str) -> Html:
    return element("p", f"And {count} more {of}, which this page leaves out.", class_="soft") if count > 0 else Html()


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _length(span: PhaseSpan) -> str | None:
    return f"{(span.ended_at - span.begun_at).total_seconds():.1f}" if span.ended_at else None
