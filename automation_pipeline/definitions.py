"""The doorway that Dagster opens. `whole` is everything; a run loads its own job alone
(orchestration/repository)."""

from functools import cache, partial
from importlib import import_module
from pathlib import Path

import dagster as dg

from automation_pipeline.core.background import gc_paused
from automation_pipeline.orchestration.repository import NAME, OwnJobFirst

# Jobs that need no other definition, and where they are.
ALONE = {
    "automation_run": "automation.job",
    "transcribe_fiche": "transcription.job",
    "audit_fiche": "audits.job",
    "audit_rerun": "audits.rerun",
    "sales_range_fetch": "fiches.range",
    "rule_run": "pricing.job",
    "rule_reconciliation": "pricing.reconciliation",
    "company_enrichment": "enrichment.job",
    "org_job": "org_jobs.job",
    "housekeeping": "housekeeping.job",
}
OF_ASSETS = ("sales_list_revalidation", "sales_list_staleness", "__ASSET_JOB")


@dg.definitions  # pyright: ignore[reportArgumentType]  it takes a repository too
def defs() -> dg.RepositoryDefinition:
    return _repository()


@cache
def _repository() -> dg.RepositoryDefinition:
    """Dagster asks for it several times a run."""
    alone = {name: partial(_alone, name, module) for name, module in ALONE.items()}
    return dg.RepositoryDefinition(NAME, repository_data=OwnJobFirst(alone, OF_ASSETS, whole))


def whole() -> dg.Definitions:
    with gc_paused():
        return dg.Definitions.merge(
            dg.load_from_defs_folder(path_within_project=Path(__file__).parent), _ground()
        )


def _alone(name: str, module: str) -> dg.Definitions:
    ground = _ground()
    job: dg.JobDefinition = getattr(import_module(f"automation_pipeline.defs.{module}"), name)
    return dg.Definitions.merge(dg.Definitions(jobs=[job]), ground)


def _ground() -> dg.Definitions:
    """What all jobs stand on. Imported here: whoever only looks for the doorway pays for none of
    it."""
    from automation_pipeline.core.logs import configure_logs  # noqa: PLC0415  see above
    from automation_pipeline.core.settings import load_settings  # noqa: PLC0415  see above
    from automation_pipeline.orchestration.automation_runs import Tickets  # noqa: PLC0415  see above
    from automation_pipeline.orchestration.executor import executor_of  # noqa: PLC0415  see above
    from automation_pipeline.orchestration.resource import ServicesResource  # noqa: PLC0415  see above

    settings = load_settings()
    configure_logs(settings.log_level, settings.log_format, of="package")
    resources = {"services": ServicesResource(), "io_manager": Tickets()}
    return dg.Definitions(resources=resources, executor=executor_of(settings))
