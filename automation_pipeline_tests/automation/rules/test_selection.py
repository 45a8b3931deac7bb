"""Which fiches a selection is about (reference 3.2): its fields, and what manual ids come to."""

import pytest

from automation_pipeline.automation.models.schedules import (
    DatePreset,
    FicheCandidate,
    FicheSelection,
    SelectionMode,
    parse_selection,
    split_ids,
)
from automation_pipeline.automation.rules.fiches import filter_candidates
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.tables import every_case

CUSTOM = {"mode": "date_range", "dateRange": "custom", "customStartDate": "03/02/2026"}


def chosen(selection: FicheSelection) -> tuple[str, ...]:
    return filter_candidates(
        [FicheCandidate(fiche_id) for fiche_id in split_ids(selection.fiche_ids)], selection
    ).kept


def test_omitted_fields_have_their_defaults() -> None:
    assert parse_selection({"mode": "manual"}).model_dump() == {
        "mode": SelectionMode.MANUAL,
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


@every_case("mode", SelectionMode)
@every_case("preset", DatePreset)
def test_every_mode_takes_every_preset(mode: SelectionMode, preset: DatePreset) -> None:
    selection = parse_selection(
        {"mode": mode, "dateRange": preset, "customStartDate": "03/02/2026"}
    )
    assert (selection.mode, selection.date_range) == (mode, preset)


@every_case(
    ("fields", "faults"),
    [
        ({"mode": "date_range"}, {"dateRange": "is required when the mode is date_range"}),
        (
            {"mode": "filter", "ficheIds": ["1"]},
            {"dateRange": "is required when the mode is filter"},
        ),
        (
            {"mode": "filter", "dateRange": None},
            {"dateRange": "is required when the mode is filter"},
        ),
        ({"mode": "all"}, {"mode": "must be 'date_range', 'manual' or 'filter'"}),
        (
            {**CUSTOM, "customStartDate": None},
            {"customStartDate": "is required when dateRange is custom"},
        ),
        (
            {**CUSTOM, "customStartDate": ""},
            {"customStartDate": "is required when dateRange is custom"},
        ),
        (
            {**CUSTOM, "customEndDate": "02/02/2026"},
            {"customEndDate": "must not lie before customStartDate"},
        ),
        (
            {**CUSTOM, "customEndDate": "2025-12-31"},
            {"customEndDate": "must not lie before customStartDate"},
        ),
        (
            {**CUSTOM, "customStartDate": "soon"},
            {"customStartDate": "must be a day as DD/MM/YYYY or YYYY-MM-DD"},
        ),
        (
            {**CUSTOM, "customEndDate": "3/2/2026"},
            {"customEndDate": "must be a day as DD/MM/YYYY or YYYY-MM-DD"},
        ),
        (
            {**CUSTOM, "customEndDate": "2026-02-03T00:00"},
            {"customEndDate": "must be a day as DD/MM/YYYY or YYYY-MM-DD"},
        ),
        (
            {**CUSTOM, "customEndDate": "٠٣/٠٢/٢٠٢٦"},
            {"customEndDate": "must be a day as DD/MM/YYYY or YYYY-MM-DD"},
        ),
        (
            {**CUSTOM, "customEndDate": "29/02/2026"},
            {"customEndDate": "29/02/2026 is not a day of the calendar"},
        ),
        (
            {**CUSTOM, "customEndDate": "02/13/2026"},
            {"customEndDate": "02/13/2026 is not a day of the calendar"},
        ),
        (
            {**CUSTOM, "customEndDate": "0000-01-01"},
            {"customEndDate": "0000-01-01 is not a day of the calendar"},
        ),
        (
            {"mode": "manual", "customEndDate": "never"},
            {"customEndDate": "must be a day as DD/MM/YYYY or YYYY-MM-DD"},
        ),
    ],
)
def test_invalid_days_are_refused(fields: dict[str, object], faults: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_selection(fields)
    assert dict(caught.value.fields) == faults


@every_case(
    ("written", "kept"),
    [
        ("03/02/2026", "03/02/2026"),
        ("2026-02-03", "03/02/2026"),
        ("2028-02-29", "29/02/2028"),
        ("0026-02-03", "03/02/0026"),
        ("", None),
        (None, None),
    ],
)
def test_a_day_is_kept_in_one_form(written: str | None, kept: str | None) -> None:
    assert parse_selection({"mode": "manual", "customStartDate": written}).custom_start_date == kept


def test_one_custom_day_may_be_given_alone_or_as_both_ends() -> None:
    assert parse_selection(CUSTOM).custom_end_date is None
    assert (
        parse_selection({**CUSTOM, "customEndDate": "2026-02-03"}).custom_end_date == "03/02/2026"
    )


@every_case(
    ("field", "value", "read"),
    [
        ("groupes", [" TEAM R1 ", "", "  ", "TEAM  R2"], ("TEAM R1", "TEAM  R2")),
        ("groupes", None, ()),
        ("ficheIds", None, ()),
        ("maxFiches", None, None),
        ("maxRecordingsPerFiche", None, None),
        ("maxFiches", 5, 5),
    ],
)
def test_a_field_is_read_as_meant(field: str, value: object, read: object) -> None:
    assert (
        parse_selection({"mode": "manual", field: value}).model_dump(by_alias=True)[field] == read
    )


def test_a_stored_selection_from_before_the_rules_is_still_read() -> None:
    old = {"mode": "date_range", "customStartDate": "soon"}
    assert FicheSelection.model_validate(old).custom_start_date == "soon"
    assert FicheSelection.model_validate({"mode": "manual", "maxFiches": "5"}).max_fiches == 5


@every_case(
    ("field", "value", "problem"),
    [
        ("mode", "all", "must be 'date_range', 'manual' or 'filter'"),
        (
            "dateRange",
            "today",
            "must be 'last_24h', 'yesterday', 'last_week', 'last_month' or 'custom'",
        ),
        ("maxFiches", 0, "must be at least 1"),
        ("maxFiches", 2**31, "must be at most 2147483647"),
        ("maxRecordingsPerFiche", -3, "must be at least 1"),
        ("maxRecordingsPerFiche", "3", "must be a whole number"),
        ("maxFiches", True, "must be a whole number"),
        ("useRlm", "yes", "must be true or false"),
        ("onlyUnaudited", 1, "must be true or false"),
        ("groupes", ["TEAM\0"], "must not hold the character NUL"),
        ("ficheIds", "1 2", "must be a list"),
        ("ficheIds", ["1\0"], "must not hold the character NUL"),
        ("useRLM", True, "is not a known field"),
        ("ficheIds", ["1"] * 10_001, "must have at most 10000 entries"),
        ("ficheIds", ["1 " * 10_001], "must have at most 10000 entries"),
        ("groupes", ["NORD"] * 1001, "must have at most 1000 entries"),
    ],
)
def test_a_wrong_field_is_named_with_its_problem(field: str, value: object, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_selection({"mode": "manual", field: value})
    assert caught.value.fields == ((field, problem),)


@every_case(
    ("field", "given", "most"),
    [
        ("ficheIds", ["1", "1" * 65], 64),
        ("ficheIds", [f"1 {'1' * 65}"], 64),
        ("groupes", ["A", "A" * 256], 255),
    ],
)
def test_one_entry_that_is_too_long_is_named(field: str, given: list[str], most: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_selection({"mode": "manual", field: given})
    assert caught.value.fields == ((f"{field}.1", f"must have at most {most} characters"),)


def test_maximum_lengths_are_accepted() -> None:
    ids = [f"{number:064}" for number in range(10_000)]
    selection = parse_selection(
        {"mode": "manual", "ficheIds": [" ".join(ids)], "groupes": ["A" * 255] * 1000}
    )
    assert (list(selection.fiche_ids), len(selection.groupes)) == (ids, 1000)


@every_case(
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
def test_manual_ids_are_split_and_each_is_there_once_in_order(
    entries: list[str], ids: tuple[str, ...]
) -> None:
    assert chosen(parse_selection({"mode": "manual", "ficheIds": entries})) == ids


@every_case(
    ("most", "ids"),
    [
        (None, ("3", "1", "2")),
        (1, ("3",)),
        (2, ("3", "1")),
        (3, ("3", "1", "2")),
        (9, ("3", "1", "2")),
    ],
)
def test_the_limit_counts_distinct_ids(most: int | None, ids: tuple[str, ...]) -> None:
    assert (
        chosen(parse_selection({"mode": "manual", "ficheIds": ["3 3", "1 2"], "maxFiches": most}))
        == ids
    )
