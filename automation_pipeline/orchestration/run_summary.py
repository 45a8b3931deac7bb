"""What `finalise_run` shows about a run in Dagster: counts, reasons, the failed fiches, and where the report is."""

import dagster as dg

from automation_pipeline.automation.domain.run import Run
from automation_pipeline.automation.store.run_report import failed_fiches, reasons_of_run
from automation_pipeline.bootstrap import Services
from automation_pipeline.orchestration import metadata
from automation_pipeline.orchestration.markdown import table

MOST_FAILED_FICHES = 100


def run_summary(services: Services, run: Run) -> dict[str, dg.MetadataValue]:
    with services.database.reading() as session:
        reasons = reasons_of_run(session, run.id)
        failed = failed_fiches(session, run.id, MOST_FAILED_FICHES)
    counts = f"{run.successful_fiches} successful + {run.failed_fiches} failed + {run.ignored_fiches} ignored"
    summary = {
        "run_id": metadata.integer(run.id),
        "status": metadata.text(run.status),
        "selected": metadata.integer(run.selected_fiches),
        "successful": metadata.integer(run.successful_fiches),
        "failed": metadata.integer(run.failed_fiches),
        "ignored": metadata.integer(run.ignored_fiches),
        "conservation": metadata.text(f"{run.selected_fiches} selected = {counts}"),
        "report": metadata.text(f"automation runs report {run.id}"),
    }
    if reasons:
        rows = [(status, reason, count) for (status, reason), count in reasons.items()]
        summary["reasons"] = metadata.markdown(table(("status", "reason", "fiches"), rows))
    if failed:
        summary["failed_fiches"] = metadata.markdown(table(("fiche", "reason", "error"), failed))
    if run.failed_fiches > len(failed):
        summary["failed_fiches_shown"] = metadata.text(f"the first {len(failed)} of {run.failed_fiches}")
    if run.error_message:
        summary["error"] = metadata.text(run.error_message)
    return summary
