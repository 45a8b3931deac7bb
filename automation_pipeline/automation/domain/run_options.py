"""What a schedule asks a run to do, as it was when the run selected its fiches: later edits are for later runs."""

from automation_pipeline.automation.domain.schedule import Schedule

_FROZEN = {
    "run_transcription",
    "skip_if_transcribed",
    "transcription_priority",
    "run_audits",
    "use_automatic_audits",
    "specific_audit_configs",
    "continue_on_error",
    "retry_failed",
    "max_retries",
}


def options_document(schedule: Schedule) -> dict[str, object]:
    return schedule.model_dump(mode="json", include=_FROZEN)


def with_options(schedule: Schedule, document: object) -> Schedule:
    """The schedule as the run knows it; without a document, as it is now."""
    if not isinstance(document, dict):
        return schedule
    frozen = Schedule.model_validate({**schedule.model_dump(), **document})
    return schedule.model_copy(update={name: getattr(frozen, name) for name in _FROZEN})
