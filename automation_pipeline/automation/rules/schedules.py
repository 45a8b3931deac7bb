"""Changes of schedules, the options that a run freezes, and the visibility of selections."""

from collections.abc import Collection, Mapping
from datetime import datetime

from automation_pipeline.automation.models.schedules import (
    INVALID_SCHEDULE,
    TIMING_FIELDS,
    Schedule,
    ScheduleFields,
    ScheduleInput,
    ScheduleType,
)
from automation_pipeline.automation.models.selections import FicheSelection, SelectionMode
from automation_pipeline.core.access import Reach, Scope
from automation_pipeline.core.addresses import check_url
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import parse

INVALID_UPDATE = "Invalid automation schedule update data"
# A field of a schedule type may be null unless the schedule has that type.
SCHEDULE_REQUIRES = " schedule requires "
NEVER_NULL = "cannot be null: leave it out to keep it"


def apply_patch(stored: Schedule, patch: Mapping[str, object]) -> ScheduleInput:
    """Apply a patch: fields that it does not name stay, null clears a field, and a selection is
    replaced as a whole. The result is validated as a whole."""
    current = stored.model_dump(by_alias=True, include=set(ScheduleInput.model_fields))
    try:
        return parse(ScheduleInput, {**current, **patch}, INVALID_UPDATE)
    except InvalidInputError as error:
        nulls = {field for field in current if patch.get(field, current) is None}
        faults = tuple(
            (field, NEVER_NULL if field in nulls and SCHEDULE_REQUIRES not in why else why)
            for field, why in error.fields
        )
        raise InvalidInputError(INVALID_UPDATE, faults) from None


def derived_changes(
    before: ScheduleFields, after: ScheduleFields, now: datetime
) -> dict[str, object]:
    """The columns that also change, so that neither new times nor the end of a pause start runs for
    past due times."""
    resumed = resume_changes(now) if after.is_active and not before.is_active else {}
    retimed = {"last_due_at": now, "skip_due_at": None} if _timing(before) != _timing(after) else {}
    return {**resumed, **retimed}


def resume_changes(now: datetime) -> dict[str, object]:
    return {"is_active": True, "paused_reason": None, "failures_in_a_row": 0, "last_due_at": now}


def _timing(schedule: ScheduleFields) -> Mapping[str, object]:
    counting = (
        TIMING_FIELDS
        if schedule.schedule_type is ScheduleType.CRON
        else TIMING_FIELDS - {"cron_expression"}
    )
    return schedule.model_dump(include=counting)


def check_webhook_url(
    url: str | None, allowed_origins: Collection[str], complaint: str = INVALID_SCHEDULE
) -> None:
    if not url:
        return
    try:
        check_url(url, allowed_origins)
    except InvalidInputError as error:
        raise InvalidInputError(complaint, (("webhookUrl", str(error)),)) from None


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


def frozen_options(schedule: Schedule) -> dict[str, object]:
    return schedule.model_dump(mode="json", include=_FROZEN)


def with_frozen_options(schedule: Schedule, document: object) -> Schedule:
    """The schedule with the options that the run froze. Without a document, the schedule with its
    current options."""
    if not isinstance(document, dict):
        return schedule
    frozen = Schedule.model_validate({**schedule.model_dump(), **document})
    return schedule.model_copy(update={name: getattr(frozen, name) for name in _FROZEN})


def is_visible(schedule: Schedule, reach: Reach) -> bool:
    return is_selection_visible(schedule.fiche_selection, schedule.created_by, reach)


def is_selection_visible(selection: FicheSelection, made_by: str | None, reach: Reach) -> bool:
    """GROUP: the selection names only groupes of the caller. SELF: the caller created it and it
    names fiches."""
    match reach.scope:
        case Scope.ALL:
            return True
        case Scope.GROUP:
            return _names_only(selection, reach)
        case Scope.SELF:
            return made_by == reach.caller and selection.mode is SelectionMode.MANUAL


def selection_scope_error(selection: FicheSelection, reach: Reach) -> tuple[str, str] | None:
    """The field that exceeds the caller's scope, and the reason. This function does not check
    fiches that are named by id: its caller does."""
    match reach.scope:
        case Scope.GROUP if not _names_only(selection, reach):
            mine = ", ".join(sorted(reach.groupes)) or "none"
            return "ficheSelection.groupes", f"must name groupes of yours: {mine}"
        case Scope.SELF if selection.mode is not SelectionMode.MANUAL:
            return "ficheSelection.mode", "must be manual: you may pick fiches of your own only"
        case _:
            return None


def _names_only(selection: FicheSelection, reach: Reach) -> bool:
    return bool(selection.groupes) and set(selection.groupes) <= reach.groupes
