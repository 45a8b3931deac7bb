"""Which schedules somebody may see and make: whose fiches, as far as the schedule itself says, are within reach."""

from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.selection import FicheSelection, SelectionMode
from automation_pipeline.core.access import Reach, Scope


def is_visible(schedule: Schedule, reach: Reach) -> bool:
    return is_selection_visible(schedule.fiche_selection, schedule.created_by, reach)


def is_selection_visible(selection: FicheSelection, made_by: str | None, reach: Reach) -> bool:
    """GROUP: it names groupes, and only ones of the caller's. SELF: the caller made it, and it names fiches."""
    match reach.scope:
        case Scope.ALL:
            return True
        case Scope.GROUP:
            return _names_only(selection, reach)
        case Scope.SELF:
            return made_by == reach.caller and selection.mode is SelectionMode.MANUAL


def fault_of_selection(selection: FicheSelection, reach: Reach) -> tuple[str, str] | None:
    """The field that reaches too far and why, or None. Fiches named one by one are looked up by the caller."""
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
