"""The launchpad speaks of a selection as a schedule's JSON does, and hands on what was said
alone."""

import dagster as dg
import pytest

from automation_pipeline.automation.models.selections import (
    SelectionInput,
    SelectionMode,
    parse_selection,
)
from automation_pipeline.orchestration.ops import SelectionConfig
from automation_pipeline_tests.tables import every_case


def said(**given: object) -> dict[str, object]:
    """As an op gets it, with the defaults that Dagster fills in."""
    heard: list[dict[str, object]] = []

    @dg.op
    def listen(config: SelectionConfig) -> None:
        heard.append(config.said())

    @dg.job
    def launchpad() -> None:
        listen()

    launchpad.execute_in_process({"ops": {"listen": {"config": given}}})
    return heard[0]


def test_every_field_of_a_selection_is_there_and_described() -> None:
    fields = SelectionConfig.model_fields.values()
    assert [field.alias for field in fields] == [
        field.alias for field in SelectionInput.model_fields.values()
    ]
    assert all(field.description for field in fields)


@every_case(
    "given",
    [
        {"mode": "manual", "ficheIds": ["1", "2"]},
        {"mode": "filter", "dateRange": "yesterday", "groupes": ["NORD"], "onlyWithRecordings": True},
        {"mode": "date_range", "dateRange": "custom", "customStartDate": "2026-02-03", "customEndDate": "2026-02-04",
         "onlyUnaudited": True, "useRlm": True, "maxFiches": 5, "maxRecordingsPerFiche": 2},
    ],
)  # fmt: skip
def test_what_is_said_arrives_and_nothing_else(given: dict[str, object]) -> None:
    assert said(**given) == given


@every_case("mode", SelectionMode)
def test_what_is_left_out_is_as_in_a_schedule(mode: SelectionMode) -> None:
    given = {"mode": mode.value, "dateRange": "yesterday"}
    assert parse_selection(said(**given)) == parse_selection(given)


@every_case("wrong", [{}, {"mode": "all"}, {"mode": "manual", "fiche_ids": ["1"]}])
def test_what_is_misspelt_is_refused_at_launch(wrong: dict[str, object]) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError):
        said(**wrong)
