"""The report of a run: a self-contained HTML page that escapes every stored text."""

import html
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import cast

from automation_pipeline.automation.queries.reports import (
    Quotation,
    ReportedAudit,
    ReportedPhase,
    RunReport,
    StepVerdict,
)

# Characters that HTML does not allow and browsers do not show.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_VOID = frozenset({"meta"})


class Html(str):
    """Escaped markup."""

    __slots__ = ()


Part = object


def text(part: Part) -> Html:
    """None becomes an empty string."""
    if isinstance(part, Html):
        return part
    return Html("" if part is None else html.escape(_UNPRINTABLE.sub("\ufffd", str(part))))


def joined(*parts: Part) -> Html:
    return Html("".join(map(text, parts)))


def element(name: str, /, *parts: Part, **attributes: str) -> Html:
    """`class_` sets the attribute `class`, and underscores such as in `http_equiv` become
    hyphens."""
    written = "".join(
        f' {key.strip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items()
    )
    opening = f"<{name}{written}>"
    return Html(opening if name in _VOID else f"{opening}{joined(*parts)}</{name}>")


STYLE = """
:root { color-scheme: light dark; --ink: #1e293b; --soft: #64748b; --ground: #ffffff; --panel: #f5f7fa;
  --line: #dfe5ec; --good: #14795b; --warn: #8f5b00; --bad: #b3263e; --link: #1d5fbf; }
@media (prefers-color-scheme: dark) { :root { --ink: #e2e8f0; --soft: #98a6b9; --ground: #12171f; --panel: #1b222d;
  --line: #313c4b; --good: #5fd0a6; --warn: #e8b65a; --bad: #ff8497; --link: #8fbcff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; color: var(--ink); background: var(--ground);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 0.5rem; }
h3 { font-size: 1rem; margin: 1rem 0 0.25rem; }
a { color: var(--link); } .soft { color: var(--soft); } p { margin: 0.4rem 0; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.word { font-weight: 600; white-space: nowrap; }
.law { display: flex; flex-wrap: wrap; gap: 0.5rem; margin: 1rem 0; }
.law div { flex: 1 1 6rem; padding: 0.5rem 0.75rem; background: var(--panel); border-radius: 0.5rem; }
.law b { display: block; font-size: 1.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.93rem; }
th, td { text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  padding: 0.35rem 0.75rem 0.35rem 0; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; } td { min-width: 4rem; overflow-wrap: break-word; }
details { margin: 0.5rem 0; padding: 0.5rem 0.75rem; background: var(--panel); border-radius: 0.5rem; }
summary { cursor: pointer; }
blockquote { margin: 0.3rem 0 0.3rem 0.5rem; padding-left: 0.75rem; border-left: 3px solid var(--line); }
ul { margin: 0.2rem 0; padding-left: 1.2rem; } :target { scroll-margin-top: 4rem; }
@media print { details { break-inside: avoid; } }
"""


MAX_LIST_ITEMS = 100


def document_part(document: Mapping[str, object]) -> Html:
    """Empty for an empty document. Long values are collapsed."""
    return (
        element("ul", *(_entry(name, value) for name, value in document.items()))
        if document
        else Html()
    )


def _entry(name: str, value: object) -> Html:
    content = _value(value)
    if isinstance(value, Mapping | list | tuple) and content:
        count = len(cast("Sequence[object]", value))
        return element(
            "li", element("details", element("summary", _spaced(name), f" ({count})"), content)
        )
    return element("li", _spaced(name), ": ", element("b", content or "none"))


def _value(value: object) -> Html:
    if isinstance(value, Mapping):
        return document_part(cast("Mapping[str, object]", value))
    if isinstance(value, list | tuple):
        return _list(cast("Sequence[object]", value))
    if value is None or isinstance(value, bool):
        return joined("yes" if value else "no" if value is False else "none")
    return joined(value)


def _list(values: Sequence[object]) -> Html:
    if not values:
        return Html()
    rest = len(values) - MAX_LIST_ITEMS
    more = element("li", f"and {rest} more", class_="soft") if rest > 0 else ""
    return element("ul", *(element("li", _value(value)) for value in values[:MAX_LIST_ITEMS]), more)


def _spaced(name: str) -> str:
    """For example, `failed days` for `failed_days`."""
    return name.replace("_", " ")


_TONES = {
    "good": {"completed", "successful", "CONFORME", "PRESENT", "EXCELLENT", "BON"},
    "warn": {"partial", "ignored", "cancelled", "PARTIEL", "ACCEPTABLE"},
    "bad": {"failed", "NON_CONFORME", "ABSENT", "INSUFFISANT", "REJET"},
}
_TONE = {word: tone for tone, words in _TONES.items() for word in words}


def toned(word: str | None) -> Html:
    return element("span", str(word), class_=f"word {_TONE.get(str(word), 'soft')}")


def audit_anchor(audit: ReportedAudit) -> str:
    return f"audit-{audit.audit_id}"


def audit_part(audit: ReportedAudit) -> Html:
    """The anchor is inside the element, so that a browser that follows it opens the enclosing
    `details`."""
    has_verdict = audit.score is not None
    score = f" {audit.score:g} %" if has_verdict else ""
    verdict = toned(audit.niveau if has_verdict else audit.status)
    title = element("summary", f"Fiche {audit.fiche_id}, {audit.configuration}: ", verdict, score)
    return element(
        "details", title, element("div", *map(_step, audit.steps), id=audit_anchor(audit))
    )


def _step(step: StepVerdict) -> Html:
    critical = " (critical)" if step.is_critical else ""
    verdict = toned("not judged") if step.error else toned(step.conforme)
    score = "" if step.error else f" {step.score}/{step.weight}"
    points: list[Html] = []
    for point in step.points:
        comment = element("p", point.commentaire, class_="soft") if point.commentaire else ""
        quotations = map(_quotation, point.quotations)
        title = joined(toned(point.statut), " ", point.point)
        points.append(element("li", title, comment, *quotations))
    return joined(
        element("h3", f"{step.position}. {step.name}{critical}: ", verdict, score),
        element("p", step.error, class_="bad") if step.error else "",
        element("p", step.commentaire) if step.commentaire else "",
        element("ul", *points) if points else "",
    )


def _quotation(quoted: Quotation) -> Html:
    at = f"{quoted.recording_date} {quoted.recording_time}".strip()
    where = ", ".join(filter(None, (quoted.speaker, quoted.minutage, at)))
    return element("blockquote", f"« {quoted.texte} » ", element("span", where, class_="soft"))


POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def run_page(report: RunReport) -> str:
    """The page of a run: one HTML file without external resources, in which no stored text acts as
    markup."""
    run = report.run
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Run {run.id}: {run.status}"),
        element("style", Html(STYLE)),
    )
    body = element(
        "body",
        _heading(report),
        _conservation(report),
        _section("Phases", _phases(report.phases)),
        _section(
            "Why fiches were ignored or failed",
            _table(
                ("outcome", "cause", "fiches"),
                [(toned(one.status), one.reason, one.fiches) for one in report.causes],
            ),
        ),
        _section("Selection", document_part(run.selection_summary or {})),
        _section("Other errors", document_part(run.error_details or {})),
        _section("Fiches", _fiches(report)),
        _section("Audits", _audits(report)),
        _section(
            "Verdicts, step by step",
            joined(*(audit_part(audit) for audit in report.audits if audit.steps)),
        ),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _heading(report: RunReport) -> Html:
    run = report.run
    facts = [
        report.schedule_name,
        f"trigger: {run.trigger}",
        f"queued {_moment(run.started_at)}",
        run.began_at and f"started {_moment(run.began_at)}",
        f"{run.duration_ms / 1000:.1f} seconds"
        if run.duration_ms is not None
        else f"in phase {run.phase or 'none'}",
        f"attempt {run.attempt}",
        run.retry_of_run_id and f"retry of run {run.retry_of_run_id}",
        run.dagster_run_id and f"Dagster run {run.dagster_run_id}",
    ]
    return element(
        "header",
        element("h1", f"Run {run.id}: ", toned(run.status)),
        element("p", " · ".join(str(fact) for fact in facts if fact), class_="soft"),
        element("p", run.error_message, class_="bad") if run.error_message else "",
    )


def _conservation(report: RunReport) -> Html:
    """The conservation law of the ledger: every selected fiche has ended exactly once, or the
    difference."""
    tally = report.tally
    counters = [
        ("selected", tally.selected, ""),
        ("successful", tally.successful, "good"),
        ("failed", tally.failed, "bad" if tally.failed else ""),
        ("ignored", tally.ignored, "warn" if tally.ignored else ""),
        ("pending", tally.pending, ""),
    ]
    shown = [counter for counter in counters if counter[0] != "pending" or counter[1]]
    ended = f"{tally.successful} successful + {tally.failed} failed + {tally.ignored} ignored"
    sum_ = f"{tally.selected} selected = {ended}"
    if tally.is_whole:
        law, tone = f"{sum_}: every fiche has ended, once.", "good"
    elif tally.pending:
        law, tone = f"{tally.pending} of {tally.selected} fiches have not ended.", "warn"
    else:
        law, tone = f"The counts do not add up: {sum_} is false.", "bad"
    boxes = (
        element("div", element("b", str(count), class_=tone_), name) for name, count, tone_ in shown
    )
    return joined(element("div", *boxes, class_="law"), element("p", law, class_=tone))


def _phases(spans: Iterable[ReportedPhase]) -> Html:
    rows: list[Sequence[Part]] = []
    for span in spans:
        ended, seconds = "not ended", None
        if span.ended_at is not None:
            ended = _moment(span.ended_at)
            seconds = f"{(span.ended_at - span.begun_at).total_seconds():.1f}"
        rows.append((span.name, _moment(span.begun_at), ended, seconds))
    return _table(("phase", "started", "ended", "seconds"), rows)


def _fiches(report: RunReport) -> Html:
    links: defaultdict[str, Html] = defaultdict(Html)
    for audit in report.audits:
        links[audit.fiche_id] = joined(links[audit.fiche_id], element("p", _link(audit)))
    rows = [
        (
            fiche.fiche_id,
            fiche.groupe,
            toned(fiche.status),
            fiche.recordings,
            ": ".join(filter(None, (fiche.reason, fiche.why))),
            links[fiche.fiche_id],
        )
        for fiche in report.fiches
    ]
    heads = ("fiche", "groupe", "outcome", "recordings", "why", "audits")
    tally = report.tally
    total = tally.successful + tally.failed + tally.ignored + tally.pending
    return joined(_table(heads, rows), _rest(total - len(report.fiches), "fiches"))


def _audits(report: RunReport) -> Html:
    rows = [
        (
            audit.fiche_id,
            audit.configuration,
            toned(audit.niveau if audit.status == "completed" else audit.status),
            None if audit.score is None else f"{audit.score:g} %",
            f"{audit.critical_passed}/{audit.critical_total}"
            if audit.status == "completed"
            else None,
            audit.error,
            _link(audit),
        )
        for audit in report.audits
    ]
    heads = ("fiche", "configuration", "niveau", "score", "critical", "why it failed", "verdicts")
    in_full = sum(bool(audit.steps) for audit in report.audits)
    short = element(
        "p",
        f"The steps of the {in_full} with the lowest scores are shown below; the others': ",
        _COMMAND,
    )
    note = short if 0 < in_full < len(report.audits) else ""
    return joined(
        _table(heads, rows), _rest(report.audit_count - len(report.audits), "audits"), note
    )


_COMMAND = Html("<code>automation audits show ID --steps</code>")


def _link(audit: ReportedAudit) -> Html:
    name = f"audit {audit.audit_id}"
    return (
        element("a", name, href=f"#{audit_anchor(audit)}")
        if audit.steps
        else element("span", name, class_="soft")
    )


def _section(title: str, content: Html) -> Html:
    """Empty if the content is empty."""
    return element("section", element("h2", title), content) if content else Html()


def _table(heads: Sequence[str], rows: Sequence[Sequence[Part]]) -> Html:
    if not rows:
        return Html()
    head = element("thead", element("tr", *(element("th", name) for name in heads)))
    body = element(
        "tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows)
    )
    return element("div", element("table", head, body), class_="wide")


def _rest(count: int, of: str) -> Html:
    return (
        element("p", f"And {count} more {of}, which this page leaves out.", class_="soft")
        if count > 0
        else Html()
    )


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
