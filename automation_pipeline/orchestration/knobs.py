"""How the first steps of a run work, as this process's settings say; `workshops` has the later one's."""

from datetime import timedelta
from typing import TYPE_CHECKING

from automation_pipeline.orchestration.executor import processes_of

if TYPE_CHECKING:
    from automation_pipeline.automation.stages.fetch_batch import FetchKnobs
    from automation_pipeline.automation.stages.select_fiches import SelectionKnobs
    from automation_pipeline.bootstrap import Services
    from automation_pipeline.fiches.ports import FicheSource


def crm_of_run(services: "Services", run_id: int) -> "FicheSource":
    """The CRM with the key of the run's schedule, where the schedule has one."""
    from automation_pipeline.automation.store.runs import external_key_of  # noqa: PLC0415  few steps need it

    with services.database.reading() as session:
        key = external_key_of(session, run_id)
    return services.crm_with(key)


def selection_knobs(services: "Services") -> "SelectionKnobs":
    from automation_pipeline.automation.stages.select_fiches import SelectionKnobs  # noqa: PLC0415  its step's only

    cooldown = timedelta(milliseconds=services.settings.automation_revalidation_cooldown_ms)
    return SelectionKnobs(processes=processes_of(services.settings), cooldown=cooldown)


def fetch_knobs(services: "Services") -> "FetchKnobs":
    from automation_pipeline.automation.stages.fetch_batch import FetchKnobs  # noqa: PLC0415  its step's only

    settings = services.settings
    seconds = settings.automation_fiche_details_max_wait_ms / 1000
    return FetchKnobs(
        budget_seconds=seconds,
        most_recordings=settings.automation_max_recordings_per_fiche,
        poll_seconds=settings.automation_fiche_details_poll_interval_seconds,
    )
