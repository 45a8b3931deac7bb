"""The part of a run's page that tells an audit in full: its steps, their control points, and what proves them."""

from automation_pipeline.automation.domain.run_report import PointVerdict, Quotation, ReportedAudit, StepVerdict
from automation_pipeline.cli.markup import Html, element, joined

_TONES = {
    "good": {"completed", "successful", "CONFORME", "PRESENT", "EXCELLENT", "BON"},
    "warn": {"partial", "ignored", "cancelled", "PARTIEL", "ACCEPTABLE"},
    "bad": {"failed", "NON_CONFORME", "ABSENT", "INSUFFISANT", "REJET"},
}
_TONE = {word: tone for tone, words in _TONES.items() for word in words}


def toned(word: str | None) -> Html:
    """A verdict's word in its colour."""
    return element("span", str(word), class_=f"word {_TONE.get(str(word), 'soft')}")


def audit_anchor(audit: ReportedAudit) -> str:
    return f"audit-{audit.audit_id}"


def audit_part(audit: ReportedAudit) -> Html:
    """The anchor stands inside: a browser that goes there opens what is folded around it."""
    has_verdict = audit.score is not None
    score = f" {audit.score:g} %" if has_verdict else ""
    verdict = toned(audit.niveau if has_verdict else audit.status)
    title = element("summary", f"Fiche {audit.fiche_id}, {audit.configuration}: ", verdict, score)
    return element("details", title, element("div", *map(_step, audit.steps), id=audit_anchor(audit)))


def _step(step: StepVerdict) -> Html:
    critical = " (critical)" if step.is_critical else ""
    verdict = toned("not judged") if step.error else toned(step.conforme)
    score = "" if step.error else f" {step.score}/{step.weight}"
    return joined(
        element("h3", f"{step.position}. {step.name}{critical}: ", verdict, score),
        element("p", step.error, class_="bad") if step.error else "",
        element("p", step.commentaire) if step.commentaire else "",
        element("ul", *map(_point, step.points)) if step.points else "",
    )


def _point(point: PointVerdict) -> Html:
    comment = element("p", point.commentaire, class_="soft") if point.commentaire else ""
    return element("li", toned(point.statut), " ", point.point, comment, *map(_quotation, point.quotations))


def _quotation(said: Quotation) -> Html:
    where = ", ".join(
        filter(None, (said.speaker, said.minutage, f"{said.recording_date} {said.recording_time}".strip()))
    )
    return element("blockquote", f"« {said.texte} » ", element("span", where, class_="soft"))
