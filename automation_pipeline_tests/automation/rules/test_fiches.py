"""Rules of fiches: the days and filters of a selection, batches, and ledger moves."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.models.runs import FicheStage, LedgerMove, OutcomeStatus, Reason
from automation_pipeline.automation.models.schedules import (
    DatePreset,
    DropReason,
    EmptyReason,
    FicheCandidate,
    FicheChoice,
    FicheSelection,
    SelectionMode,
    parse_selection,
    split_ids,
)
from automation_pipeline.automation.rules.fiches import (
    LARGEST_OF_SEVERAL,
    MOST_BATCHES,
    ConfigAuditResult,
    batch_size,
    days_of,
    failed_move,
    filter_candidates,
    ignore_reason,
    ignored_move,
    move_after_audits,
    move_after_fetch,
    move_after_transcription,
    work_key,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.fiches.models.fiches import DetailsFetched, DetailsKnown, FicheNotFound
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.fakes.crm import fiche, recording

PARIS, NEW_YORK = ZoneInfo("Europe/Paris"), ZoneInfo("America/New_York")
YEARS = datetime.fromisoformat("2000-01-01"), datetime.fromisoformat("2100-01-01")
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=PARIS)


def selection(
    preset: DatePreset | None, start: str | None = None, end: str | None = None
) -> FicheSelection:
    return FicheSelection(
        mode=SelectionMode.DATE_RANGE,
        date_range=preset,
        custom_start_date=start,
        custom_end_date=end,
    )


def days(preset: DatePreset | None, wall: str, zone: ZoneInfo, fold: int = 0) -> list[str]:
    """Return the first day, the last day, and the day count at a local time of the zone."""
    now = datetime.fromisoformat(wall).replace(tzinfo=zone, fold=fold).astimezone(UTC)
    found = days_of(selection(preset), now, zone)
    assert list(found) == [found[0] + timedelta(days=number) for number in range(len(found))]
    return [found[0].isoformat(), found[-1].isoformat(), str(len(found))]


@every_case(
    ("wall", "zone"),
    [
        # Europe: 29 March has 23 hours and 25 October has 25. Arithmetic with days of 24 hours
        # would be off by one day.
        ("2026-03-29 00:30", PARIS),
        ("2026-03-29 03:00", PARIS),
        ("2026-03-29 23:59", PARIS),
        ("2026-03-30 00:00", PARIS),
        ("2026-03-30 00:30", PARIS),
        ("2026-10-25 00:00", PARIS),
        ("2026-10-25 02:30", PARIS),
        ("2026-10-25 23:30", PARIS),
        ("2026-10-26 00:30", PARIS),
        # New York: 8 March and 1 November.
        ("2026-03-08 23:30", NEW_YORK),
        ("2026-03-09 00:30", NEW_YORK),
        ("2026-11-01 01:30", NEW_YORK),
        ("2026-11-01 23:30", NEW_YORK),
        ("2026-11-02 00:30", NEW_YORK),
        ("2026-05-04 12:00", PARIS),
        ("2024-03-01 00:00", PARIS),
        ("2026-01-01 00:00", NEW_YORK),
    ],
)
@every_case("fold", [0, 1])
def test_a_daylight_saving_change_does_not_alter_the_day_count(
    wall: str, zone: ZoneInfo, fold: int
) -> None:
    today = datetime.fromisoformat(wall).date()
    before, week = (today - timedelta(days=1)).isoformat(), (today - timedelta(days=7)).isoformat()
    assert days(DatePreset.LAST_24H, wall, zone, fold) == [before, today.isoformat(), "2"]
    assert days(DatePreset.YESTERDAY, wall, zone, fold) == [before, before, "1"]
    assert days(DatePreset.LAST_WEEK, wall, zone, fold) == [week, today.isoformat(), "8"]


@every_case(
    ("today", "first", "count"),
    [
        ("2026-05-04", "2026-04-04", 31),
        ("2026-03-31", "2026-02-28", 32),
        ("2026-03-30", "2026-02-28", 31),
        ("2026-03-29", "2026-02-28", 30),
        ("2026-03-28", "2026-02-28", 29),
        ("2026-03-01", "2026-02-01", 29),
        ("2024-03-31", "2024-02-29", 32),
        ("2024-03-29", "2024-02-29", 30),
        ("2024-02-29", "2024-01-29", 32),
        ("2026-02-28", "2026-01-28", 32),
        ("2026-05-31", "2026-04-30", 32),
        ("2026-07-31", "2026-06-30", 32),
        ("2026-08-31", "2026-07-31", 32),
        ("2026-12-31", "2026-11-30", 32),
        ("2026-01-31", "2025-12-31", 32),
        ("2026-01-01", "2025-12-01", 32),
    ],
)
@every_case("zone", [PARIS, NEW_YORK])
def test_last_month_starts_on_the_same_day_number_or_the_last_day_of_the_month(
    today: str, first: str, count: int, zone: ZoneInfo
) -> None:
    assert days(DatePreset.LAST_MONTH, f"{today} 12:00", zone) == [first, today, str(count)]


@every_case(
    ("now", "zone", "yesterday"),
    [
        (datetime(2026, 5, 4, 21, 59, tzinfo=UTC), PARIS, date(2026, 5, 3)),
        (datetime(2026, 5, 4, 22, 0, tzinfo=UTC), PARIS, date(2026, 5, 4)),
        (datetime(2026, 5, 4, 22, 0, tzinfo=UTC), NEW_YORK, date(2026, 5, 3)),
        (datetime(2026, 5, 4, 3, 59, tzinfo=UTC), NEW_YORK, date(2026, 5, 2)),
        (datetime(2026, 5, 4, 4, 0, tzinfo=UTC), NEW_YORK, date(2026, 5, 3)),
        (datetime(2026, 1, 1, 4, 59, tzinfo=UTC), NEW_YORK, date(2025, 12, 30)),
    ],
)
def test_today_is_computed_in_the_schedules_time_zone(
    now: datetime, zone: ZoneInfo, yesterday: date
) -> None:
    assert days_of(selection(DatePreset.YESTERDAY), now, zone) == (yesterday,)


@every_case(
    ("start", "end", "found"),
    [
        ("01/05/2026", "03/05/2026", ["2026-05-01", "2026-05-02", "2026-05-03"]),
        ("2026-05-01", "2026-05-03", ["2026-05-01", "2026-05-02", "2026-05-03"]),
        ("2026-05-01", "02/05/2026", ["2026-05-01", "2026-05-02"]),
        ("03/02/2026", "03/02/2026", ["2026-02-03"]),
        ("28/02/2024", "01/03/2024", ["2024-02-28", "2024-02-29", "2024-03-01"]),
        ("28/02/2026", "01/03/2026", ["2026-02-28", "2026-03-01"]),
        ("28/03/2026", "30/03/2026", ["2026-03-28", "2026-03-29", "2026-03-30"]),
        ("03/05/2026", "09/05/2026", ["2026-05-03", "2026-05-04"]),
        ("04/05/2026", "31/12/2199", ["2026-05-04"]),
        ("03/05/2026", None, ["2026-05-03"]),
        ("03/05/2026", "", ["2026-05-03"]),
        ("05/05/2026", "09/05/2026", []),
        ("03/05/2026", "02/05/2026", []),
        (None, "03/05/2026", []),
        (None, None, []),
        ("", "", []),
        ("yesterday", None, []),
        ("31/04/2026", "03/05/2026", []),
        ("2026-13-01", None, []),
        ("03/05/26", None, []),
        ("01/05/2026", "soon", []),
    ],
)
def test_a_custom_range_is_cut_off_at_today(
    start: str | None, end: str | None, found: list[str]
) -> None:
    result = days_of(selection(DatePreset.CUSTOM, start, end), NOON, PARIS)
    assert [day.isoformat() for day in result] == found


def test_a_selection_without_a_date_range_has_no_days() -> None:
    assert days_of(selection(None, "01/05/2026", "03/05/2026"), NOON, PARIS) == ()


@given(
    now=st.datetimes(YEARS[0], YEARS[1], timezones=st.just(UTC)),
    zone=st.sampled_from(
        [
            PARIS,
            NEW_YORK,
            ZoneInfo("UTC"),
            ZoneInfo("Pacific/Kiritimati"),
            ZoneInfo("Asia/Kathmandu"),
        ]
    ),
    preset=st.sampled_from([preset for preset in DatePreset if preset is not DatePreset.CUSTOM]),
)
def test_every_preset_has_its_day_count_and_no_future_days(
    now: datetime, zone: ZoneInfo, preset: DatePreset
) -> None:
    found = days_of(selection(preset), now, zone)
    fewest, most = {
        DatePreset.LAST_24H: (2, 2),
        DatePreset.YESTERDAY: (1, 1),
        DatePreset.LAST_WEEK: (8, 8),
        DatePreset.LAST_MONTH: (29, 32),
    }[preset]
    assert fewest <= len(found) <= most
    assert sorted(set(found)) == list(found)
    assert found[-1] <= now.astimezone(zone).date()


NORTH, SOUTH, UNKNOWN = FicheCandidate("1", "NORD"), FicheCandidate("2", "SUD"), FicheCandidate("3")
BLANK, AUDITED = FicheCandidate("4", "  "), FicheCandidate("5", "NORD", audited=True)
ALL = [NORTH, SOUTH, UNKNOWN, BLANK, AUDITED]


def selection_with(**fields: object) -> FicheSelection:
    return FicheSelection.model_validate({"mode": SelectionMode.DATE_RANGE, **fields})


def choose(candidates: list[FicheCandidate], **fields: object) -> tuple[str, dict[str, int]]:
    choice = filter_candidates(candidates, selection_with(**fields))
    assert list(choice.dropped) == list(DropReason)
    return "".join(choice.kept), {
        str(reason): count for reason, count in choice.dropped.items() if count
    }


@every_case(
    ("fields", "kept", "dropped"),
    [
        ({}, "12345", {}),
        ({"groupes": ("NORD",)}, "1345", {"groupe_not_selected": 1}),
        ({"groupes": (" NORD ", "SUD")}, "12345", {}),
        ({"groupes": ("nord",)}, "34", {"groupe_not_selected": 3}),
        ({"only_unaudited": True}, "1234", {"audited": 1}),
        ({"groupes": ("SUD",), "only_unaudited": True}, "234", {"groupe_not_selected": 2}),
        ({"only_with_recordings": True, "max_recordings_per_fiche": 1}, "12345", {}),
        ({"max_fiches": 2}, "12", {"over_max_fiches": 3}),
        ({"max_fiches": 9}, "12345", {}),
        (
            {"groupes": ("SUD",), "only_unaudited": True, "max_fiches": 2},
            "23",
            {"groupe_not_selected": 2, "over_max_fiches": 1},
        ),
    ],
)
def test_candidates_with_unknown_fields_pass_the_early_filters(
    fields: dict[str, object], kept: str, dropped: dict[str, int]
) -> None:
    assert choose(ALL, **fields) == (kept, dropped)


@every_case("mode", SelectionMode)
def test_early_filters_also_apply_to_manually_selected_fiches(mode: SelectionMode) -> None:
    assert choose(ALL, mode=mode, groupes=("NORD",), only_unaudited=True) == (
        "134",
        {"groupe_not_selected": 1, "audited": 1},
    )


def test_duplicate_fiches_are_removed_before_the_limit_applies() -> None:
    assert choose([SOUTH, SOUTH, NORTH, SOUTH, UNKNOWN], max_fiches=2) == (
        "21",
        {"duplicates": 2, "over_max_fiches": 1},
    )


CANDIDATES = st.lists(
    st.builds(
        FicheCandidate,
        st.sampled_from("123456789"),
        st.sampled_from([None, "", "NORD", "SUD"]),
        st.booleans(),
    )
)
SELECTIONS = st.builds(
    selection_with,
    max_fiches=st.none() | st.integers(1, 6),
    groupes=st.sampled_from([(), ("NORD",), ("NORD", "SUD")]),
    only_unaudited=st.booleans(),
)


@given(CANDIDATES, SELECTIONS)
def test_filtering_candidates_is_ordered_bounded_and_idempotent(
    candidates: list[FicheCandidate], wanted: FicheSelection
) -> None:
    choice: FicheChoice = filter_candidates(candidates, wanted)
    named = list(dict.fromkeys(candidate.fiche_id for candidate in candidates))
    assert len(choice.kept) <= (wanted.max_fiches or len(candidates))
    assert len(set(choice.kept)) == len(choice.kept)
    assert list(choice.kept) == [fiche_id for fiche_id in named if fiche_id in choice.kept]
    assert len(choice.kept) + sum(choice.dropped.values()) == len(candidates)
    assert (
        filter_candidates(
            [candidate for candidate in candidates if candidate.fiche_id in choice.kept], wanted
        ).kept
        == choice.kept
    )


@given(st.lists(st.text("12 ,\n\t\u00a0;")), st.none() | st.integers(1, 4))
def test_manual_ids_become_the_selected_ids(entries: list[str], most: int | None) -> None:
    wanted = selection_with(mode=SelectionMode.MANUAL, fiche_ids=tuple(entries), max_fiches=most)
    first_ids = tuple(dict.fromkeys(split_ids(wanted.fiche_ids)))[: wanted.max_fiches]
    assert (
        filter_candidates(
            [FicheCandidate(fiche_id) for fiche_id in split_ids(wanted.fiche_ids)], wanted
        ).kept
        == first_ids
    )


MISSING = (Reason.MISSING_GROUPE, "Missing groupe")
OTHER = (Reason.GROUPE_NOT_SELECTED, "Groupe not selected (SUD)")
NONE_AT_ALL = (Reason.NO_RECORDINGS, "No recordings")


def too_many(values: int, most: int) -> tuple[Reason, str]:
    return Reason.TOO_MANY_RECORDINGS, f"Too many recordings ({values} > {most})"


@every_case(
    ("groupe", "recordings", "fields", "ceiling", "verdict"),
    [
        (None, 0, {}, 0, None),
        ("SUD", 900, {}, 0, None),
        ("NORD", 1, {"groupes": ("NORD",)}, 0, None),
        ("SUD", 1, {"groupes": ("NORD",)}, 0, OTHER),
        (" SUD ", 1, {"groupes": ("NORD",)}, 0, OTHER),
        (None, 1, {"groupes": ("NORD",)}, 0, MISSING),
        ("", 1, {"groupes": ("NORD",)}, 0, MISSING),
        ("NORD", 3, {"max_recordings_per_fiche": 3}, 0, None),
        ("NORD", 4, {"max_recordings_per_fiche": 3}, 0, too_many(4, 3)),
        ("NORD", 4, {"max_recordings_per_fiche": 5}, 2, None),
        ("NORD", 6, {"max_recordings_per_fiche": 5}, 9, too_many(6, 5)),
        ("NORD", 3, {}, 2, too_many(3, 2)),
        ("NORD", 2, {}, 2, None),
        ("NORD", 0, {"only_with_recordings": True}, 0, NONE_AT_ALL),
        ("NORD", 1, {"only_with_recordings": True}, 0, None),
        # Filters apply in this order: groupe, number of recordings, presence of recordings.
        ("SUD", 9, {"groupes": ("NORD",)}, 2, OTHER),
        (None, 0, {"groupes": ("NORD",), "only_with_recordings": True}, 2, MISSING),
        ("NORD", 0, {"groupes": ("NORD",), "only_with_recordings": True}, 2, NONE_AT_ALL),
    ],
)
def test_a_fiche_with_details_is_ignored_for_one_reason_with_a_fixed_text(
    groupe: str | None,
    recordings: int,
    fields: dict[str, object],
    ceiling: int,
    verdict: tuple[Reason, str] | None,
) -> None:
    assert ignore_reason(groupe, recordings, selection_with(**fields), ceiling) == verdict


def test_an_empty_run_has_its_message() -> None:
    assert {str(reason): reason.message for reason in EmptyReason} == {
        "no_fiches_manual": "No fiches found",
        "no_dates": "No dates to query",
        "no_fiches_found": "No fiches found",
    }


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
def test_every_selection_mode_accepts_every_preset(mode: SelectionMode, preset: DatePreset) -> None:
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
def test_dates_are_normalised(written: str | None, kept: str | None) -> None:
    assert parse_selection({"mode": "manual", "customStartDate": written}).custom_start_date == kept


def test_a_single_custom_day_needs_only_one_bound() -> None:
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
def test_field_values_are_normalised(field: str, value: object, read: object) -> None:
    assert (
        parse_selection({"mode": "manual", field: value}).model_dump(by_alias=True)[field] == read
    )


def test_a_stored_selection_that_predates_validation_can_still_be_read() -> None:
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
def test_an_invalid_field_is_reported_with_its_problem(
    field: str, value: object, problem: str
) -> None:
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
def test_a_list_entry_that_is_too_long_is_reported(field: str, given: list[str], most: int) -> None:
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
def test_manual_ids_are_split_and_deduplicated_in_order(
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


@every_case(
    ("fiches", "processes", "cap", "size"),
    [
        (1, 1, None, 1000),
        (1_000, 1, None, 1000),
        (10_000, 1, None, 1000),
        (100_000, 1, None, 2500),
        (10, 2, None, 50),
        (400, 2, None, 50),
        (2_000, 2, None, 250),
        (10_000, 2, None, 500),
        (100_000, 2, None, 1000),
        (1_000_000, 64, None, 1000),
        (100, 1, 300, 25),
        (100, 1, 301, 26),
        (20, 1, 10, 10),
        (100, 1, 10, 13),
        (2_000, 1, 300, 250),
        (1_000, 1, 100_000, 1000),
        (10_000, 1, 300, 1000),
        (100_000, 1, 300, 2500),
        (400, 2, 10, 50),
    ],
)
def test_batch_size_depends_on_fiches_processes_and_cap(
    fiches: int, processes: int, cap: int | None, size: int
) -> None:
    assert batch_size(fiches, processes, cap) == size


@given(st.integers(min_value=0, max_value=2_000_000), st.integers(min_value=1, max_value=64))
def test_batch_count_is_limited_unless_batches_would_exceed_the_cap(
    fiches: int, processes: int
) -> None:
    size = batch_size(fiches, processes)
    assert size >= 1
    assert -(-fiches // size) <= MOST_BATCHES or (processes > 1 and size == LARGEST_OF_SEVERAL)


AT = datetime(2026, 5, 4, tzinfo=UTC)


@every_case(
    ("outcome", "move"),
    [
        (
            DetailsFetched("7", fiche("7", recording("a"), recording("b")), AT),
            LedgerMove("7", OutcomeStatus.PENDING, recordings_count=2, stage=FicheStage.FETCHED),
        ),
        (
            DetailsKnown("7", 0),
            LedgerMove("7", OutcomeStatus.PENDING, recordings_count=0, stage=FicheStage.FETCHED),
        ),
        (FicheNotFound("7"), ignored_move("7", Reason.NOT_FOUND, "Fiche not found (404)")),
    ],
)
def test_the_fetch_outcome_decides_the_next_move(
    outcome: DetailsFetched | DetailsKnown | FicheNotFound, move: LedgerMove
) -> None:
    everything = FicheSelection(mode=SelectionMode.MANUAL)
    assert move_after_fetch(outcome, None, everything, 0) == move


def test_an_ignored_fiche_has_its_reason_in_ignore_reason() -> None:
    assert failed_move("7", Reason.NO_AUDIT_CONFIG, "why").error == "why"
    assert failed_move("7", Reason.NO_AUDIT_CONFIG, "why").ignore_reason is None
    left_out = ignored_move("7", Reason.TOO_MANY_RECORDINGS, "why", 9)
    assert (left_out.error, left_out.ignore_reason, left_out.recordings_count) == (None, "why", 9)


DONE, SILENT = ConfigAuditResult(1, completed=True), ConfigAuditResult(4, None)
BROKEN, NO_SPEECH = (
    ConfigAuditResult(2, completed=False, error="The model refused"),
    ConfigAuditResult(3, completed=False),
)
LOST = ConfigAuditResult(5, None, "The model did not answer")
LATE = ConfigAuditResult(6, completed=False, error="No transcript")


@every_case(
    ("ends", "status", "reason", "error", "audits"),
    [
        ([DONE], "successful", None, None, 1),
        ([DONE, DONE], "successful", None, None, 2),
        ([DONE, BROKEN], "failed", "audit_failed", "The model refused", 2),
        ([BROKEN, LATE], "failed", "audit_failed", "The model refused", 2),
        ([LATE, BROKEN], "failed", "audit_failed", "No transcript", 2),
        ([NO_SPEECH, BROKEN], "failed", "audit_failed", "The model refused", 2),
        ([NO_SPEECH], "failed", "audit_failed", "Audit failed (1/1 config(s))", 1),
        ([DONE, NO_SPEECH, NO_SPEECH], "failed", "audit_failed", "Audit failed (2/3 config(s))", 3),
        ([LOST, BROKEN], "failed", "audit_failed", "The model refused", 1),
        (
            [replace(LOST, timed_out=True)],
            "failed",
            "audit_incomplete",
            "Audit incomplete (timeout/stall): The model did not answer",
            0,
        ),
        ([SILENT], "failed", "audit_incomplete", "Audit incomplete (timeout/stall)", 0),
        ([DONE, SILENT], "failed", "audit_incomplete", "Audit incomplete (timeout/stall)", 1),
        (
            [SILENT, LOST],
            "failed",
            "audit_incomplete",
            "Audit incomplete: The model did not answer",
            0,
        ),
    ],
)
def test_the_worst_audit_outcome_decides_the_fiche_outcome(
    ends: list[ConfigAuditResult], status: str, reason: str | None, error: str | None, audits: int
) -> None:
    move = move_after_audits("7", ends)
    assert (move.fiche_id, move.status, move.reason, move.error) == ("7", status, reason, error)
    assert (move.audits, move.stage) == (audits, FicheStage.FETCHED)


@given(
    st.lists(
        st.builds(
            ConfigAuditResult,
            st.integers(1, 9),
            st.sampled_from([True, False, None]),
            st.none() | st.text(),
        )
    )
)
def test_a_fiche_succeeds_only_if_all_its_audits_succeed(
    ends: list[ConfigAuditResult],
) -> None:
    move = move_after_audits("7", ends)
    assert (move.status is OutcomeStatus.SUCCESSFUL) == all(end.completed for end in ends)
    assert (
        (move.error is None) == (move.reason is None) == (move.status is OutcomeStatus.SUCCESSFUL)
    )
    assert move.audits == sum(end.completed is not None for end in ends)


def test_a_fiche_without_transcripts_fails_with_the_cause_and_reports_only_real_timeouts() -> None:
    stable = "Transcription incomplete"
    cases = [
        (None, True, f"{stable} (timeout/stall)"),
        (None, False, f"{stable} (timeout/stall)"),
        ("", True, f"{stable} (timeout/stall)"),
        ("status=429", True, f"{stable} (timeout/stall): status=429"),
        ("No recording URL available", False, f"{stable}: No recording URL available"),
    ]
    moves = [
        move_after_transcription("7", cause, timed_out=timed_out) for cause, timed_out, _ in cases
    ]
    assert [move.error for move in moves] == [error for *_, error in cases]
    assert {(move.status, move.reason) for move in moves} == {
        (OutcomeStatus.FAILED, Reason.TRANSCRIPTION_INCOMPLETE)
    }


def test_request_keys_are_stable_and_each_retry_gets_a_new_key() -> None:
    assert work_key(3, "transcribe", "1900417") == "automation-3-transcribe-1900417"
    assert work_key(3, "audit", "1900417", 12, attempt=2) == "automation-3-audit-1900417-12-retry-2"
