"""What callers of limited reach may put into schedules and runs."""

from collections.abc import Mapping
from typing import cast

from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.automation.domain.selection import FicheSelection, SelectionMode, parse_selection
from automation_pipeline.automation.domain.visibility import fault_of_selection
from automation_pipeline.core.access import Caller, Reach
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.fiches.store.visibility import check_visible
from automation_pipeline.storage.database import Database


def signed(body: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
    """A new schedule is its caller's. A machine may name somebody else."""
    return {**body, "createdBy": body.get("createdBy", caller.id) if caller.is_machine else caller.id}


def check_selection(given: object, reach: Reach, database: Database) -> None:
    """AuthorizationError for more than is within reach; NotFoundError for a fiche that is not. What is no selection is
    left to those who parse it."""
    if reach.is_whole or not isinstance(given, Mapping):
        return
    try:
        selection = parse_selection(cast("Mapping[str, object]", given))
    except InvalidInputError:
        return
    check_parsed_selection(selection, reach, database)


def check_parsed_selection(selection: FicheSelection, reach: Reach, database: Database) -> None:
    fault = fault_of_selection(selection, reach)
    if fault is not None:
        raise AuthorizationError(f"{fault[0]} {fault[1]}")
    if selection.mode is SelectionMode.MANUAL and not reach.is_whole:
        with database.reading() as session:
            check_visible(session, reach, selection.fiche_ids)
