"""Which fiches a selection is about (reference 3.2): its fields, and what manual ids come to."""

import pytest

from automation_pipeline.automation.domain.schedule import parse_selection
from automation_pipeline.automation.domain.selection import DatePreset, SelectionMode, manual_ids
from automation_pipeline.core.errors import InvalidInputError


def test_what_is_not_said_has_its_default() -> None:
    assert parse_selection({"mode": "filter"}).model_dump() == {
        "mode": SelectionMode.FILTER,
        "date_range": None,
        "custom_start_date": None,
        "custom_end_date": None,
        "groupes": (),
        "only_with_recordings": False,
        "only_unaudited": False,
        "use_rlm": False,
        "max_fiches": None,
        "max_recordings_per_fiche": None,
        "fiche_ids": (),
    }


@pytest.mark.parametrize("mode", SelectionMode)
@pytest.mark.parametrize("preset", [*DatePreset, None])
def test_every_mode_takes_every_preset(mode: SelectionMode, preset: DatePreset | None) -> None:
    selection = parse_selection({"mode": mode, "dateRange": preset})
    assert (selection.mode, selection.date_range) == (mode, preset)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("mode", "all", "should be 'date_range', 'manual' or 'filter'"),
        ("dateRange", "today", "should be 'last_24h', 'yesterday', 'last_week', 'last_month' or 'custom'"),
        ("maxFiches", 0, "should be greater than or equal to 1"),
        ("maxFiches", 2**31, "should be less than or equal to 2147483647"),
        ("maxRecordingsPerFiche", -3, "should be greater than or equal to 1"),
        ("maxRecordingsPerFiche", "many", "should be a valid integer, unable to parse string as an integer"),
        ("groupes", ["TEAM\0"], "must not hold the character NUL"),
        ("ficheIds", "1 2", "should be a list"),
        ("ficheIds", ["1\0"], "must not hold the character NUL"),
        ("useRLM", True, "is not a known field"),
    ],
)
def test_a_wrong_field_is_named_with_its_problem(field: str, value: object, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_selection({"mode": "manual", field: value})
    assert caught.value.fields == ((field, problem),)


@pytest.mark.parametrize(
    ("entries", "ids"),
    [
        ([], ()),
        (["1"], ("1",)),
        (["2", "1"], ("2", "1")),
        (["1 2", "3,4", "5, 6"], ("1", "2", "3", "4", "5", "6")),
        (["1\n2\t3\u00a04"], ("1", "2", "3", "4")),
        ([" 1 ", ",2,", ",,"], ("1", "2")),
        (["", "  "], ()),
        (["1", "2 1", "3"], ("1", "2", "3")),
        (["01", "1"], ("01", "1")),
        (["1;2"], ("1;2",)),
    ],
)
def test_manual_ids_are_split_and_each_is_there_once_in_order(entries: list[str], ids: tuple[str, ...]) -> None:
    assert manual_ids(parse_selection({"mode": "manual", "ficheIds": entries})) == ids


@pytest.mark.parametrize(
    ("most", "ids"), [(None, ("3", "1", "2")), (1, ("3",)), (2, ("3", "1")), (3, ("3", "1", "2")), (9, ("3", "1", "2"))]
)
def test_the_limit_counts_ids_after_repeated_ones_are_gone(most: int | None, ids: tuple[str, ...]) -> None:
    assert manual_ids(parse_selection({"mode": "manual", "ficheIds": ["3 3", "1 2"], "maxFiches": most})) == ids
