"""The audit that a Dagster run works on, and the metadata of audits."""

from collections.abc import Mapping
from typing import Any, cast

import dagster as dg

from automation_pipeline.audits.audits import fail_audit
from automation_pipeline.audits.days import NOT_CONFIGURED, DayAudits
from automation_pipeline.audits.models.audits import AuditSummary
from automation_pipeline.bootstrap import Services
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.metadata import table

OP = "audit"


def tracking_id_of(run: dg.DagsterRun) -> str:
    """Retries of a run work on its audit."""
    config = cast("Mapping[str, Any]", run.run_config)["ops"][OP]["config"]
    generated = (
        f"audit-{config['fiche_id']}-{config['audit_config_id']}-{run.root_run_id or run.run_id}"
    )
    return config.get("tracking_id") or generated


def fail_audit_of(run: dg.DagsterRun, reason: str, services: Services) -> None:
    """Fail the audit of a Dagster run that failed for good."""
    with services.database.transaction() as session:
        fail_audit(session, tracking_id_of(run), reason, "run")


def audit_metadata(audit: AuditSummary) -> dict[str, dg.MetadataValue]:
    return {
        "audit": metadata.text(audit.audit_id),
        "status": metadata.text(audit.status),
        "niveau": metadata.text(audit.niveau),
        **(
            {}
            if audit.score_percentage is None
            else {"score": metadata.real(audit.score_percentage)}
        ),
        "steps": metadata.integer(audit.steps),
        "failed_steps": metadata.integer(audit.failed),
        **({"error": metadata.text(audit.error)} if audit.error else {}),
    }


def day_metadata(day: DayAudits) -> dict[str, dg.MetadataValue]:
    """The tables of the day, without empty ones."""
    counts = {
        "configurations": day.configs,
        "fiches": day.fiches,
        "wanted": day.wanted,
        "audited": day.audited,
        "failed": day.failed,
        "steps": day.steps,
        "failed_steps": day.steps_failed,
        "citations": day.citations,
        "removed_citations": day.citations_removed,
    }
    return {
        **{name: metadata.integer(count) for name, count in counts.items()},
        "coverage": metadata.real(day.coverage),
        "non_compliant_share": metadata.real(day.non_compliant_share),
        **({} if day.mean_score is None else {"mean_score": metadata.real(day.mean_score)}),
        **({} if day.configs else {"note": metadata.text(NOT_CONFIGURED)}),
        **_day_tables(day),
    }


def _day_tables(day: DayAudits) -> dict[str, dg.MetadataValue]:
    points = [
        (point.step, point.point, point.failing, point.judged, f"{point.share:.0%}")
        for point in day.failing_points
    ]
    failures = sorted(day.failures.items(), key=lambda pair: -pair[1])
    tables = {
        "by_niveau": table(("niveau", "audits"), day.by_niveau.items()),
        "failing_points": table(("step", "control point", "not met", "judged", "share"), points),
        "failures": table(("cause", "audits"), failures),
    }
    return {name: metadata.markdown(table) for name, table in tables.items() if table}


def step_metadata(document: Mapping[str, Any]) -> dict[str, dg.MetadataValue]:
    """The metadata of a step after a rerun."""
    return {
        "step": metadata.text(document["step_metadata"]["name"]),
        "conforme": metadata.text(document["conforme"]),
        "score": metadata.integer(document["score"]),
        "weight": metadata.integer(document["step_metadata"]["weight"]),
        "reruns": metadata.integer(len(document["rerun_history"])),
    }
