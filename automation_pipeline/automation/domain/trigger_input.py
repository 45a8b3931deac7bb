"""What is said to have a schedule run at once."""

from collections.abc import Mapping

from automation_pipeline.automation.domain.field_rules import KnownId
from automation_pipeline.automation.domain.selection import SelectionInput
from automation_pipeline.core.json_model import JsonModel, parse


class TriggerInput(JsonModel):
    """The selection replaces the schedule's whole, for this run."""

    schedule_id: KnownId
    override_fiche_selection: SelectionInput | None = None


def parse_trigger(given: Mapping[str, object]) -> TriggerInput:
    return parse(TriggerInput, given, "Invalid trigger automation data")
