"""Rules of schedules: validation, times, changes, due times and stale runs."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automation_pipeline.automation.models.schedules import (
    CatchUp,
    DatePreset,
    FicheSelection,
    Priority,
    Schedule,
    ScheduleFields,
    ScheduleType,
    SelectionMode,
    ShortMonths,
    cron_expression_of,
    crons_of,
    parse_schedule,
    parse_selection,
)
from automation_pipeline.automation.routes.runs import TriggerInput
from automation_pipeline.automation.rules.schedules import (
    AND_EARLIER_ONES,
    EXCLUDED,
    MAX_LISTED,
    MISSED,
    OVER_LIMIT,
    OVERLAP_REASONS,
    SKIPPED,
    SUPERSEDED,
    DueDecision,
    DuePolicy,
    DueReport,
    DueSchedule,
    ScheduleLoad,
    ScheduleWork,
    SkippedOccurrence,
    StartedRun,
    UnendedRun,
    apply_patch,
    decide_due,
    derived_changes,
    is_selection_visible,
    next_due,
    next_to_skip,
    next_undecided,
    occurrences_after,
    schedule_load,
    selection_scope_error,
    stale_mark,
)
from automation_pipeline.core.access import Reach, Scope
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.scheduling.cron import Cron, OverlapPolicy, occurrences
from automation_pipeline.core.scheduling.timing import Timing, planned_after
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline_tests.cases import every_case

MANUAL: dict[str, Any] = {
    "name": "Sales",
    "scheduleType": "MANUAL",
    "ficheSelection": {"mode": "manual"},
}

PASTED = {"mode": "manual", "ficheIds": ["1"] * 10_001}

LAST_DAY: dict[str, Any] = {
    "scheduleType": "MONTHLY",
    "timeOfDay": "18:30",
    "shortMonths": "last_day",
}


def faults(**fields: object) -> tuple[tuple[str, str], ...]:
    with pytest.raises(InvalidInputError, match="Invalid automation schedule data") as caught:
        parse_schedule(MANUAL | fields)
    return caught.value.fields


def test_omitted_fields_have_their_defaults() -> None:
    assert parse_schedule(MANUAL).model_dump(exclude={"fiche_selection"}) == {
        "name": "Sales",
        "description": None,
        "created_by": None,
        "is_active": True,
        "schedule_type": ScheduleType.MANUAL,
        "cron_expression": None,
        "timezone": "UTC",
        "time_of_day": None,
        "day_of_week": None,
        "day_of_month": None,
        "run_transcription": True,
        "skip_if_transcribed": True,
        "transcription_priority": Priority.NORMAL,
        "run_audits": True,
        "use_automatic_audits": True,
        "specific_audit_configs": (),
        "continue_on_error": True,
        "retry_failed": False,
        "max_retries": 0,
        "notify_on_complete": True,
        "notify_on_error": True,
        "webhook_url": None,
        "notify_emails": (),
        "external_api_key": None,
        "short_months": "skip",
        "catch_up": "skip",
        "catch_up_limit": 10,
        "jitter_seconds": 0,
        "pause_after_failures": None,
        "overlap_policy": "SKIP",
        "excluded_on": (),
    }


@every_case(
    ("field", "given", "fault"),
    [
        ("description", "x" * 50_001, ("description", "must have at most 50000 characters")),
        ("createdBy", "x" * 256, ("createdBy", "must have at most 255 characters")),
        (
            "cronExpression",
            "0 2 * * " + "1," * 130 + "1",
            ("cronExpression", "must have at most 255 characters"),
        ),
        ("externalApiKey", "x" * 1001, ("externalApiKey", "must have at most 1000 characters")),
        ("notifyEmails", ["a@b.fr"] * 1001, ("notifyEmails", "must have at most 1000 entries")),
        (
            "notifyEmails",
            ["a" * 320 + "@b.fr"],
            ("notifyEmails.0", "must have at most 320 characters"),
        ),
        (
            "specificAuditConfigs",
            ["1"] * 1001,
            ("specificAuditConfigs", "must have at most 1000 entries"),
        ),
        ("ficheSelection", PASTED, ("ficheSelection.ficheIds", "must have at most 10000 entries")),
    ],
)
def test_field_values_out_of_bounds_are_reported(
    field: str, given: object, fault: tuple[str, str]
) -> None:
    assert faults(**{field: given}) == (fault,)


@every_case(
    ("fields", "problem"),
    [
        ({"scheduleType": "DAILY"}, "DAILY schedule requires timeOfDay"),
        ({"scheduleType": "DAILY", "timeOfDay": None}, "DAILY schedule requires timeOfDay"),
        ({"scheduleType": "DAILY", "timeOfDay": ""}, "DAILY schedule requires timeOfDay"),
        ({"scheduleType": "DAILY", "dayOfWeek": 1}, "DAILY schedule requires timeOfDay"),
        ({"scheduleType": "WEEKLY"}, "WEEKLY schedule requires timeOfDay and dayOfWeek"),
        (
            {"scheduleType": "WEEKLY", "timeOfDay": "09:00"},
            "WEEKLY schedule requires timeOfDay and dayOfWeek",
        ),
        (
            {"scheduleType": "WEEKLY", "dayOfWeek": 0},
            "WEEKLY schedule requires timeOfDay and dayOfWeek",
        ),
        ({"scheduleType": "MONTHLY"}, "MONTHLY schedule requires timeOfDay and dayOfMonth"),
        (
            {"scheduleType": "MONTHLY", "timeOfDay": "09:00"},
            "MONTHLY schedule requires timeOfDay and dayOfMonth",
        ),
        (
            {"scheduleType": "MONTHLY", "dayOfMonth": 1},
            "MONTHLY schedule requires timeOfDay and dayOfMonth",
        ),
        ({"scheduleType": "CRON"}, "CRON schedule requires cronExpression"),
        ({"scheduleType": "CRON", "cronExpression": ""}, "CRON schedule requires cronExpression"),
        ({"scheduleType": "CRON", "timeOfDay": "09:00"}, "CRON schedule requires cronExpression"),
    ],
)
def test_each_schedule_type_requires_its_fields(fields: dict[str, object], problem: str) -> None:
    [(field, result)] = faults(**fields)
    assert (bool(field), result) == (True, problem)


@every_case(
    ("fields", "crons"),
    [
        ({"scheduleType": "MANUAL"}, ""),
        ({"scheduleType": "MANUAL", "timeOfDay": "09:00", "cronExpression": "0 9 * * *"}, ""),
        ({"scheduleType": "DAILY", "timeOfDay": "00:00"}, "0 0 * * *"),
        (
            {"scheduleType": "DAILY", "timeOfDay": "23:59", "dayOfWeek": 3, "dayOfMonth": 9},
            "59 23 * * *",
        ),
        ({"scheduleType": "WEEKLY", "timeOfDay": "09:05", "dayOfWeek": 0}, "5 9 * * 0"),
        ({"scheduleType": "WEEKLY", "timeOfDay": "09:05", "dayOfWeek": 6}, "5 9 * * 6"),
        ({"scheduleType": "MONTHLY", "timeOfDay": "18:30", "dayOfMonth": 31}, "30 18 31 * *"),
        ({**LAST_DAY, "dayOfMonth": 28}, "30 18 28 * *"),
        ({**LAST_DAY, "dayOfMonth": 29}, "30 18 29 1,3-12 * | 30 18 L 2 *"),
        ({**LAST_DAY, "dayOfMonth": 30}, "30 18 30 1,3-12 * | 30 18 L 2 *"),
        ({**LAST_DAY, "dayOfMonth": 31}, "30 18 L * *"),
        (
            {
                "scheduleType": "DAILY",
                "timeOfDay": "18:30",
                "dayOfMonth": 31,
                "shortMonths": "last_day",
            },
            "30 18 * * *",
        ),
        (
            {"scheduleType": "CRON", "cronExpression": "*/15 8-18 * * MON-FRI"},
            "*/15 8-18 * * MON-FRI",
        ),
        ({"scheduleType": "CRON", "cronExpression": "@daily", "timeOfDay": "09:00"}, "@daily"),
    ],
)
def test_each_schedule_type_maps_to_its_cron_expressions(
    fields: dict[str, object], crons: str
) -> None:
    assert " | ".join(cron.text for cron in crons_of(parse_schedule(MANUAL | fields))) == crons


@every_case(
    "broken",
    [
        {"schedule_type": "DAILY"},
        {"schedule_type": "WEEKLY", "time_of_day": "09:00"},
        {"schedule_type": "CRON"},
        {"schedule_type": "CRON", "cron_expression": "a b c d e"},
    ],
)
def test_an_invalid_stored_schedule_can_be_read_and_is_never_due(
    broken: dict[str, object],
) -> None:
    with pytest.raises(InvalidInputError):
        crons_of(
            ScheduleFields.model_validate({"name": "Old", "timezone": "Mars/Olympus", **broken})
        )


@every_case(
    ("field", "value", "problem"),
    [
        ("name", "", "must have at least 1 character"),
        ("name", "x" * 256, "must have at most 255 characters"),
        ("name", "a\0b", "must not hold the character NUL"),
        ("name", None, "must be a text"),
        ("description", "\0", "must not hold the character NUL"),
        ("scheduleType", "daily", "must be 'MANUAL', 'DAILY', 'WEEKLY', 'MONTHLY' or 'CRON'"),
        ("timezone", "Mars/Olympus", "'Mars/Olympus' is not a known time zone."),
        ("timezone", "Europe", "'Europe' is not a known time zone."),
        ("timezone", "../etc/passwd", "'../etc/passwd' is not a known time zone."),
        ("timeOfDay", "9:00", "must be a time of day between 00:00 and 23:59"),
        ("timeOfDay", "24:00", "must be a time of day between 00:00 and 23:59"),
        ("timeOfDay", "09:60", "must be a time of day between 00:00 and 23:59"),
        ("timeOfDay", "09:00:00", "must be a time of day between 00:00 and 23:59"),
        ("timeOfDay", "09:00\n", "must be a time of day between 00:00 and 23:59"),
        ("timeOfDay", "٠٩:٠٠", "must be a time of day between 00:00 and 23:59"),
        ("dayOfWeek", 7, "must be at most 6"),
        ("dayOfWeek", -1, "must be at least 0"),
        ("dayOfMonth", 0, "must be at least 1"),
        ("dayOfMonth", 32, "must be at most 31"),
        ("cronExpression", "61 * * * *", "'61' is not a valid minute in a cron expression."),
        ("maxRetries", 6, "must be at most 5"),
        ("maxRetries", -1, "must be at least 0"),
        ("transcriptionPriority", "urgent", "must be 'low', 'normal' or 'high'"),
        ("isActive", "yes", "must be true or false"),
        ("retryFailed", 1, "must be true or false"),
        ("dayOfWeek", "1", "must be a whole number"),
        ("maxRetries", 2.0, "must be a whole number"),
        ("catchUpLimit", True, "must be a whole number"),
        ("pauseAfterFailures", "3", "must be a whole number"),
        ("webhookUrl", "not an address", "must be a web address"),
        ("webhookUrl", "ftp://hooks.test", "must be an address that begins with 'http' or 'https'"),
        ("notifyEmails", "a@b.test", "must be a list"),
        ("notifyEmails", ["nobody"], "is not an e-mail address"),
        (
            "externalApiKey",
            "*****",
            "is the mask of a key, not a key: leave it out to keep the stored one",
        ),
        ("shortMonths", "first_day", "must be 'skip' or 'last_day'"),
        ("catchUp", "some", "must be 'skip', 'latest' or 'all'"),
        ("catchUpLimit", 0, "must be at least 1"),
        ("catchUpLimit", 101, "must be at most 100"),
        ("catchUpLimit", None, "must be a whole number"),
        ("jitterSeconds", -1, "must be at least 0"),
        ("jitterSeconds", 3601, "must be at most 3600"),
        ("pauseAfterFailures", 0, "must be at least 1"),
        ("pauseAfterFailures", 101, "must be at most 100"),
        (
            "overlapPolicy",
            "skip",
            "must be 'SKIP', 'BUFFER_ONE', 'BUFFER_ALL', 'CANCEL_OTHER', 'TERMINATE_OTHER' or 'ALLOW_ALL'",
        ),
        (
            "overlapPolicy",
            None,
            "must be 'SKIP', 'BUFFER_ONE', 'BUFFER_ALL', 'CANCEL_OTHER', 'TERMINATE_OTHER' or 'ALLOW_ALL'",
        ),
        ("excludedOn", ["25/12/2026"], "must be a day as YYYY-MM-DD"),
        ("excludedOn", ["2026-02-30"], "2026-02-30 is not a day of the calendar"),
        ("excludedOn", "2026-12-25", "must be a list"),
        ("nmae", "Sales", "is not a known field"),
        ("totalRuns", 7, "is not a known field"),
        ("schedule_type", "DAILY", "is not a known field"),
    ],
)
def test_an_invalid_field_is_reported_with_its_problem(
    field: str, value: object, problem: str
) -> None:
    assert [(name.split(".")[0], why) for name, why in faults(**{field: value})] == [
        (field, problem)
    ]


@every_case("field", ["name", "scheduleType", "ficheSelection"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schedule({name: value for name, value in MANUAL.items() if name != field})
    assert caught.value.fields == ((field, "is required"),)


def test_all_invalid_fields_are_reported_together() -> None:
    assert [
        field
        for field, _ in faults(
            name="", maxRetries=9, timezone="?", notifyEmails=["a@b.test", "nobody"]
        )
    ] == [
        "name",
        "timezone",
        "maxRetries",
        "notifyEmails.1",
    ]


@every_case(
    ("field", "value", "read"),
    [
        ("notifyEmails", [" a@b.test ", "", "  "], ("a@b.test",)),
        ("notifyEmails", None, ()),
        ("specificAuditConfigs", ["11", 12], (11, 12)),
        ("specificAuditConfigs", ["11", 12, 11], (11, 12)),
        ("specificAuditConfigs", [], ()),
        ("pauseAfterFailures", None, None),
        ("pauseAfterFailures", 100, 100),
        ("jitterSeconds", 3600, 3600),
        ("catchUpLimit", 100, 100),
        ("externalApiKey", "", None),
        ("description", None, None),
        ("specificAuditConfigs", None, ()),
        ("webhookUrl", "", None),
        ("webhookUrl", None, None),
        ("webhookUrl", "https://hooks.test/a", "https://hooks.test/a"),
        ("cronExpression", "", None),
        ("timeOfDay", "", None),
        ("name", "É" * 255, "É" * 255),
        ("timezone", "Europe/Paris", "Europe/Paris"),
    ],
)
def test_field_values_are_normalised(field: str, value: object, read: object) -> None:
    schedule = parse_schedule(MANUAL | {field: value})
    assert schedule.model_dump(by_alias=True)[field] == read


@every_case("number", ["eleven", "", "-1", 0, -1, 1.5, 11.0, True, None, 2**63])
def test_an_impossible_audit_configuration_id_is_rejected(number: object) -> None:
    assert [field for field, _ in faults(specificAuditConfigs=[11, number])] == [
        "specificAuditConfigs.1"
    ]


def test_an_api_key_is_masked() -> None:
    schedule = parse_schedule(MANUAL | {"externalApiKey": "s3cret"})
    assert schedule.external_api_key is not None
    assert schedule.external_api_key.get_secret_value() == "s3cret"
    assert "s3cret" not in f"{schedule!r} {schedule.model_dump(mode='json')}"


TIMED = st.fixed_dictionaries(
    {
        "name": st.text(
            st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=255
        ),
        "scheduleType": st.sampled_from(ScheduleType),
        "timeOfDay": st.times().map("{:%H:%M}".format),
        "dayOfWeek": st.integers(0, 6),
        "dayOfMonth": st.integers(1, 31),
        "cronExpression": st.sampled_from(["*/5 * * * *", "@weekly", "0 9 L * MON"]),
        "ficheSelection": st.fixed_dictionaries(
            {
                "mode": st.sampled_from(SelectionMode),
                "dateRange": st.sampled_from(DatePreset),
                "customStartDate": st.dates(max_value=date(2026, 1, 1)).map(str),
                "groupes": st.lists(st.sampled_from(["TEAM R1", " TEAM  R2 ", "  "])),
                "ficheIds": st.lists(st.sampled_from(["1", "2, 3"])),
            },
            optional={
                "customEndDate": st.dates(min_value=date(2026, 1, 1)).map("{:%d/%m/%Y}".format),
                "maxFiches": st.none() | st.integers(1, 2**31 - 1),
                "maxRecordingsPerFiche": st.none() | st.integers(1, 2**31 - 1),
            },
        ),
    },
    optional={
        "timezone": st.sampled_from(["UTC", "Europe/Paris", "America/New_York"]),
        "specificAuditConfigs": st.lists(st.integers(1, 2**63 - 1)),
        "shortMonths": st.sampled_from(ShortMonths),
        "catchUp": st.sampled_from(CatchUp),
        "pauseAfterFailures": st.none() | st.integers(1, 100),
        "notifyEmails": st.lists(st.sampled_from(["a@b.test", " c@d.test "])),
    },
)


@given(TIMED)
def test_a_schedule_survives_a_json_round_trip(document: dict[str, Any]) -> None:
    schedule = parse_schedule(document)
    assert parse_schedule(json.loads(schedule.model_dump_json(by_alias=True))) == schedule


@given(TIMED)
def test_no_two_crons_of_a_schedule_fire_together(document: dict[str, Any]) -> None:
    schedule = parse_schedule(document)
    start, time_zone = datetime(2027, 12, 1, tzinfo=UTC), zone("UTC")
    fired = [
        at for cron in crons_of(schedule) for at in islice(occurrences(cron, time_zone, start), 15)
    ]
    assert len(fired) == len(set(fired))


def trigger(given: dict[str, object]) -> TriggerInput:
    return parse(TriggerInput, given, "Invalid trigger automation data")


@every_case("schedule_id", [3, "3"])
def test_a_trigger_has_a_schedule_id_and_an_optional_selection(schedule_id: object) -> None:
    assert trigger({"scheduleId": schedule_id}).schedule_id == 3
    selection = {"mode": "manual", "ficheIds": ["7"]}
    override = trigger(
        {"scheduleId": schedule_id, "overrideFicheSelection": selection}
    ).override_fiche_selection
    assert override == parse_selection(selection)


@every_case(
    ("body", "faults"),
    [
        ({}, {"scheduleId": "is required"}),
        ({"scheduleId": 0}, {"scheduleId": "must be at least 1"}),
        ({"scheduleId": "x"}, {"scheduleId": "must be a whole number, or its digits as a string"}),
        ({"scheduleId": 1, "dueAt": None}, {"dueAt": "is not a known field"}),
        (
            {"scheduleId": 1, "overrideFicheSelection": {"mode": "filter"}},
            {"overrideFicheSelection.dateRange": "is required when the mode is filter"},
        ),
    ],
)
def test_an_invalid_trigger_has_its_own_message(
    body: dict[str, object], faults: dict[str, str]
) -> None:
    with pytest.raises(InvalidInputError, match=r"^Invalid trigger automation data$") as caught:
        trigger(body)
    assert dict(caught.value.fields) == faults


def test_an_invalid_selection_alone_has_its_own_message() -> None:
    with pytest.raises(InvalidInputError, match="Invalid fiche selection data") as caught:
        parse_selection({"mode": "all", "maxFiches": 0})
    assert [field for field, _ in caught.value.fields] == ["mode", "maxFiches"]


def test_an_invalid_selection_is_reported_with_its_path_in_the_schedule() -> None:
    assert [
        field
        for field, _ in faults(ficheSelection={"mode": "manual", "ficheIds": [1], "maxfiches": 2})
    ] == [
        "ficheSelection.ficheIds.0",
        "ficheSelection.maxfiches",
    ]


def test_cross_field_errors_name_one_field_and_a_blank_name_is_rejected() -> None:
    """Regression: the error named no field."""
    cases: list[tuple[dict[str, object], str, str]] = [
        ({"scheduleType": "DAILY"}, "timeOfDay", "DAILY schedule requires timeOfDay"),
        (
            {"scheduleType": "WEEKLY", "timeOfDay": "02:00"},
            "dayOfWeek",
            "WEEKLY schedule requires timeOfDay and dayOfWeek",
        ),
        (
            {"scheduleType": "MONTHLY", "timeOfDay": "02:00"},
            "dayOfMonth",
            "MONTHLY schedule requires timeOfDay and dayOfMonth",
        ),
        ({"scheduleType": "CRON"}, "cronExpression", "CRON schedule requires cronExpression"),
        ({"scheduleType": "MANUAL", "name": "   "}, "name", "must not be blank"),
    ]
    messages: list[tuple[tuple[str, str], ...]] = []
    for fields, _field, _message in cases:
        with pytest.raises(InvalidInputError) as refused:
            parse_schedule(
                {
                    "name": "Nightly",
                    "ficheSelection": {"mode": "manual", "ficheIds": ["1"]},
                    **fields,
                }
            )
        messages.append(refused.value.fields)
    assert messages == [((field, message),) for _fields, field, message in cases]


def test_a_cron_expression_is_derived_from_daily_weekly_and_monthly_times() -> None:
    """Regression: the cron expression was null."""
    cases: list[tuple[dict[str, object], str | None]] = [
        ({"scheduleType": "DAILY", "timeOfDay": "02:05"}, "5 2 * * *"),
        ({"scheduleType": "WEEKLY", "timeOfDay": "23:00", "dayOfWeek": 0}, "0 23 * * 0"),
        ({"scheduleType": "MONTHLY", "timeOfDay": "04:30", "dayOfMonth": 31}, "30 4 31 * *"),
        ({"scheduleType": "CRON", "cronExpression": "*/5 * * * *"}, "*/5 * * * *"),
        ({"scheduleType": "MANUAL"}, None),
    ]
    common = {"name": "Nightly", "ficheSelection": {"mode": "manual", "ficheIds": ["1"]}}
    derived = [cron_expression_of(parse_schedule({**common, **fields})) for fields, _ in cases]
    assert derived == [expected for _, expected in cases]


NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
WEEKLY: dict[str, object] = {
    "name": "Sales",
    "description": "Every Monday",
    "createdBy": "ops",
    "scheduleType": "WEEKLY",
    "timezone": "Europe/Paris",
    "timeOfDay": "09:00",
    "dayOfWeek": 1,
    "dayOfMonth": 31,
    "cronExpression": "0 9 * * *",
    "ficheSelection": {"mode": "manual", "ficheIds": ["1"], "groupes": ["TEAM R1"], "maxFiches": 5},
    "specificAuditConfigs": [11],
    "maxRetries": 3,
    "webhookUrl": "https://hooks.test/a",
    "notifyEmails": ["a@b.test"],
    "externalApiKey": "s3cret",
    "shortMonths": "last_day",
    "jitterSeconds": 60,
    "pauseAfterFailures": 3,
}
NEVER_NULL = "cannot be null: leave it out to keep it"


def stored(**fields: object) -> Schedule:
    nothing = dict.fromkeys(
        ("last_run_at", "last_run_status", "paused_reason", "skip_due_at", "last_due_at")
    )
    counters = dict.fromkeys(
        ("failures_in_a_row", "total_runs", "successful_runs", "failed_runs"), 0
    )
    read = parse_schedule(WEEKLY | fields).model_dump()
    return Schedule.model_validate(
        {**read, "id": 1, "created_at": NOW, "updated_at": NOW, **nothing, **counters}
    )


@every_case(
    ("field", "cleared"),
    [
        ("description", None),
        ("createdBy", None),
        ("dayOfMonth", None),
        ("cronExpression", None),
        ("specificAuditConfigs", ()),
        ("webhookUrl", None),
        ("notifyEmails", ()),
        ("externalApiKey", None),
        ("pauseAfterFailures", None),
    ],
)
def test_null_clears_a_field_and_leaves_the_others(field: str, cleared: object) -> None:
    before = parse_schedule(WEEKLY).model_dump(by_alias=True)
    after = apply_patch(stored(), {field: None}).model_dump(by_alias=True)
    assert after == before | {field: cleared}


@every_case("field", ["timeOfDay", "dayOfWeek"])
def test_null_clears_fields_that_the_type_does_not_require(field: str) -> None:
    assert (
        apply_patch(stored(), {field: None, "scheduleType": "MANUAL"}).model_dump(by_alias=True)[
            field
        ]
        is None
    )


@every_case("empty", ["", None])
def test_an_empty_address_becomes_none(empty: str | None) -> None:
    assert apply_patch(stored(), {"webhookUrl": empty}).webhook_url is None


def test_fields_missing_from_a_patch_keep_their_values() -> None:
    changed = apply_patch(stored(), {"name": "New"})
    assert changed == parse_schedule(WEEKLY | {"name": "New"})
    assert changed.external_api_key is not None
    assert changed.external_api_key.get_secret_value() == "s3cret"


def test_a_selection_is_replaced_as_a_whole() -> None:
    selection = {"mode": "filter", "dateRange": "custom", "customStartDate": "2026-02-03"}
    changed = apply_patch(stored(), {"ficheSelection": selection})
    assert (
        changed.fiche_selection
        == parse_schedule(WEEKLY | {"ficheSelection": selection}).fiche_selection
    )
    assert (changed.fiche_selection.groupes, changed.fiche_selection.max_fiches) == ((), None)


@every_case(
    ("patch", "faults"),
    [
        ({"timeOfDay": None}, {"timeOfDay": "WEEKLY schedule requires timeOfDay and dayOfWeek"}),
        ({"dayOfWeek": None}, {"dayOfWeek": "WEEKLY schedule requires timeOfDay and dayOfWeek"}),
        ({"scheduleType": "DAILY", "timeOfDay": ""}, {"timeOfDay": "DAILY schedule requires timeOfDay"}),
        (
            {"scheduleType": "MONTHLY", "dayOfMonth": None},
            {"dayOfMonth": "MONTHLY schedule requires timeOfDay and dayOfMonth"},
        ),
        ({"scheduleType": "CRON", "cronExpression": None}, {"cronExpression": "CRON schedule requires cronExpression"}),
        ({"name": None}, {"name": NEVER_NULL}),
        ({"continueOnError": None}, {"continueOnError": NEVER_NULL}),
        ({"retryFailed": None, "maxRetries": 9}, {"retryFailed": NEVER_NULL, "maxRetries": "must be at most 5"}),
        ({"ficheSelection": None}, {"ficheSelection": NEVER_NULL}),
        ({"nmae": None}, {"nmae": "is not a known field"}),
        ({"timezone": None}, {"timezone": NEVER_NULL}),
        ({"maxRetries": None}, {"maxRetries": NEVER_NULL}),
        ({"id": "1"}, {"id": "is not a known field"}),
        ({"day_of_week": 2}, {"day_of_week": "is not a known field"}),
        ({"externalApiKey": "**********"}, {"externalApiKey": "is the mask of a key, not a key: leave it out to "
                                                               "keep the stored one"}),
        ({"ficheSelection": {"maxFiches": 3}}, {"ficheSelection.mode": "is required"}),
    ],
)  # fmt: skip
def test_an_invalid_patch_is_rejected_with_its_errors(
    patch: dict[str, object], faults: dict[str, str]
) -> None:
    with pytest.raises(
        InvalidInputError, match=r"^Invalid automation schedule update data$"
    ) as caught:
        apply_patch(stored(), patch)
    assert dict(caught.value.fields) == faults


def test_an_invalid_schedule_can_be_corrected() -> None:
    broken = stored().model_copy(update={"timezone": "Mars/Olympus", "time_of_day": None})
    with pytest.raises(InvalidInputError):
        apply_patch(broken, {"name": "New"})
    assert apply_patch(broken, {"timezone": "UTC", "timeOfDay": "10:00"}).timezone == "UTC"


@every_case(
    ("patch", "moved"),
    [
        ({"name": "New", "jitterSeconds": 0, "catchUp": "all"}, {}),
        ({"timeOfDay": "09:00", "timezone": "Europe/Paris"}, {}),
        ({"isActive": False}, {}),
        ({"timeOfDay": "09:01"}, {"last_due_at": NOW, "skip_due_at": None}),
        ({"timezone": "UTC"}, {"last_due_at": NOW, "skip_due_at": None}),
        ({"dayOfWeek": 2}, {"last_due_at": NOW, "skip_due_at": None}),
        ({"scheduleType": "MONTHLY"}, {"last_due_at": NOW, "skip_due_at": None}),
        ({"shortMonths": "skip"}, {"last_due_at": NOW, "skip_due_at": None}),
        ({"cronExpression": None}, {}),
    ],
)
def test_new_times_do_not_fire_for_past_due_times(
    patch: dict[str, object], moved: dict[str, object]
) -> None:
    before = stored()
    assert derived_changes(before, apply_patch(before, patch), NOW) == moved


def test_a_resumed_schedule_starts_with_the_next_due_time() -> None:
    before = stored(isActive=False)
    assert derived_changes(before, apply_patch(before, {"isActive": True}), NOW) == {
        "is_active": True,
        "paused_reason": None,
        "failures_in_a_row": 0,
        "last_due_at": NOW,
    }


MONTHLY = {"scheduleType": "MONTHLY", "timeOfDay": "09:00"}
DAILY = {"scheduleType": "DAILY", "timeOfDay": "09:00"}


def stored_schedule(**fields: object) -> Schedule:
    given, known = MANUAL | DAILY, set(Schedule.model_fields)
    columns = {name: value for name, value in fields.items() if name in known}
    read = parse_schedule(
        given | {name: value for name, value in fields.items() if name not in known}
    )
    nothing = dict.fromkeys(
        ("last_run_at", "last_run_status", "paused_reason", "skip_due_at", "last_due_at")
    )
    counters = dict.fromkeys(
        ("failures_in_a_row", "total_runs", "successful_runs", "failed_runs"), 0
    )
    of_row = {"id": 1, "created_at": NOW, "updated_at": NOW, **nothing, **counters}
    return Schedule.model_validate({**read.model_dump(), **of_row, **columns})


@every_case(
    ("day", "short_months", "year", "days"),
    [
        (31, "skip", 2027, "01-31 03-31 05-31 07-31 08-31 10-31 12-31"),
        (
            31,
            "last_day",
            2027,
            "01-31 02-28 03-31 04-30 05-31 06-30 07-31 08-31 09-30 10-31 11-30 12-31",
        ),
        (
            31,
            "last_day",
            2028,
            "01-31 02-29 03-31 04-30 05-31 06-30 07-31 08-31 09-30 10-31 11-30 12-31",
        ),
        (30, "skip", 2027, "01-30 03-30 04-30 05-30 06-30 07-30 08-30 09-30 10-30 11-30 12-30"),
        (
            30,
            "last_day",
            2027,
            "01-30 02-28 03-30 04-30 05-30 06-30 07-30 08-30 09-30 10-30 11-30 12-30",
        ),
        (
            30,
            "last_day",
            2028,
            "01-30 02-29 03-30 04-30 05-30 06-30 07-30 08-30 09-30 10-30 11-30 12-30",
        ),
        (29, "skip", 2027, "01-29 03-29 04-29 05-29 06-29 07-29 08-29 09-29 10-29 11-29 12-29"),
        (
            29,
            "skip",
            2028,
            "01-29 02-29 03-29 04-29 05-29 06-29 07-29 08-29 09-29 10-29 11-29 12-29",
        ),
        (
            29,
            "last_day",
            2027,
            "01-29 02-28 03-29 04-29 05-29 06-29 07-29 08-29 09-29 10-29 11-29 12-29",
        ),
        (
            29,
            "last_day",
            2028,
            "01-29 02-29 03-29 04-29 05-29 06-29 07-29 08-29 09-29 10-29 11-29 12-29",
        ),
        (
            28,
            "last_day",
            2027,
            "01-28 02-28 03-28 04-28 05-28 06-28 07-28 08-28 09-28 10-28 11-28 12-28",
        ),
    ],
)
def test_the_short_months_policy_skips_the_month_or_uses_its_last_day(
    day: int, short_months: str, year: int, days: str
) -> None:
    schedule = parse_schedule({**MANUAL, **MONTHLY, "dayOfMonth": day, "shortMonths": short_months})
    coming = islice(occurrences_after(schedule, datetime(year, 1, 1, tzinfo=UTC)), 20)
    assert " ".join(f"{at:%m-%d}" for at in coming if at.year == year) == days


@every_case(
    ("now", "fields", "due", "to_skip"),
    [
        ("04 10:00", {}, "05 09:00", "05 09:00"),
        ("04 08:59", {}, "04 09:00", "04 09:00"),
        ("04 10:00", {"scheduleType": "MANUAL"}, None, None),
        ("04 10:00", {"is_active": False}, None, None),
        ("04 10:00", {"skip_due_at": "05 09:00"}, "06 09:00", "06 09:00"),
        ("04 10:00", {"skip_due_at": "07 09:00"}, "08 09:00", "08 09:00"),
        ("04 10:00", {"skip_due_at": "01 09:00"}, "05 09:00", "05 09:00"),
        ("04 09:00", {}, "05 09:00", "04 09:00"),
        ("04 09:00", {"last_due_at": "04 09:00"}, "05 09:00", "05 09:00"),
        ("04 09:20", {"jitterSeconds": 1800, "last_due_at": "03 09:00"}, "05 09:00", "04 09:00"),
        ("04 09:20", {"jitterSeconds": 1800, "last_due_at": "04 09:00"}, "05 09:00", "05 09:00"),
        ("04 09:20", {"jitterSeconds": 1800, "skip_due_at": "04 09:00"}, "05 09:00", "05 09:00"),
    ],
)
def test_the_next_occurrence_is_the_first_that_is_neither_decided_nor_skipped(
    now: str, fields: dict[str, object], due: str | None, to_skip: str | None
) -> None:
    def at(text: object) -> object:
        is_instant = isinstance(text, str) and ":" in text
        return (
            datetime.strptime(f"2026-05-{text} +0000", "%Y-%m-%d %H:%M %z") if is_instant else text
        )

    schedule, instant = (
        stored_schedule(**{name: at(value) for name, value in fields.items()}),
        at(now),
    )
    assert isinstance(instant, datetime)
    assert (next_due(schedule, instant), next_to_skip(schedule, instant)) == (at(due), at(to_skip))


@every_case(
    ("time_zone", "changes_on", "local"),
    [
        ("Europe/Paris", (2026, 3, 29), "03:00 +02:00, 02:30 +02:00"),
        ("Europe/Paris", (2026, 10, 25), "02:30 +01:00, 02:30 +01:00"),
        ("America/New_York", (2026, 3, 8), "03:00 -04:00, 02:30 -04:00"),
        ("America/New_York", (2026, 11, 1), "01:30 -05:00, 01:30 -05:00"),
    ],
)
def test_a_daylight_saving_change_yields_one_occurrence(
    time_zone: str, changes_on: tuple[int, int, int], local: str
) -> None:
    schedule = parse_schedule(
        {**MANUAL, **DAILY, "timezone": time_zone, "timeOfDay": local[-12:-7]}
    )
    day_before = datetime(*changes_on, 12, tzinfo=UTC) - timedelta(days=1)
    coming = [
        at.astimezone(zone(time_zone)) for at in islice(occurrences_after(schedule, day_before), 2)
    ]
    assert ", ".join(f"{at:%H:%M} {at.isoformat()[-6:]}" for at in coming) == local
    assert coming[0].date() == datetime(*changes_on, tzinfo=UTC).date()


THRESHOLD = timedelta(minutes=70)


def ago(minutes: int) -> datetime:
    return NOW - timedelta(minutes=minutes)


def run(minutes: int, *, alive: bool = False) -> UnendedRun:
    return UnendedRun(1, 1, ago(minutes), alive)


WAITING = UnendedRun(1, 0, ago(5000), alive=False)


@every_case(
    ("at_work", "status"),
    [
        (ScheduleWork(), ScheduleLoad.IDLE),
        (ScheduleWork(last_run_at=ago(1)), ScheduleLoad.IDLE),
        (ScheduleWork(True, ago(69)), ScheduleLoad.BUSY),
        (ScheduleWork(True, ago(70)), ScheduleLoad.STALE),
        (ScheduleWork(True, None), ScheduleLoad.STALE),
        (ScheduleWork(True, None, (run(1),)), ScheduleLoad.BUSY),
        (ScheduleWork(True, ago(500), (run(1),)), ScheduleLoad.BUSY),
        (ScheduleWork(True, ago(1), (run(70),)), ScheduleLoad.STALE),
        (ScheduleWork(True, ago(500), (run(70, alive=True),)), ScheduleLoad.OUTLASTING),
        (ScheduleWork(True, ago(500), (run(70), run(70, alive=True))), ScheduleLoad.OUTLASTING),
        (ScheduleWork(False, ago(1), (run(5),)), ScheduleLoad.BUSY),
        (ScheduleWork(False, ago(1), (run(70),)), ScheduleLoad.STALE),
        (ScheduleWork(True, ago(500), (WAITING,)), ScheduleLoad.BUSY),
        (ScheduleWork(False, None, (run(70), WAITING)), ScheduleLoad.BUSY),
    ],
)
def test_the_stored_run_status_counts_only_without_active_runs(
    at_work: ScheduleWork, status: ScheduleLoad
) -> None:
    assert schedule_load(at_work, NOW, THRESHOLD) is status


def test_the_error_message_of_a_stale_run_is_fixed() -> None:
    mark = stale_mark(ago(83), NOW, THRESHOLD)
    assert mark.message == "Marked stale by scheduler after 83m (threshold 70m)"
    assert mark.details["marked_stale"] is True
    assert mark.details["stale_before"] == ago(70).isoformat()
    assert mark.details["marked_at"] == NOW.isoformat()


RULES = DuePolicy(timedelta(minutes=20), timedelta(minutes=70), 120)
BUSY, OUTLASTING = OVERLAP_REASONS[ScheduleLoad.BUSY], OVERLAP_REASONS[ScheduleLoad.OUTLASTING]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def make_schedule(cron: str, since: str, zone_name: str = "UTC", **fields: Any) -> DueSchedule:
    jitter_seconds = fields.pop("jitter_seconds", 0)
    excluded_on = frozenset(map(date.fromisoformat, fields.pop("excluded_on", ())))
    timing = Timing(
        crons=(Cron.parse(cron),),
        zone=zone(zone_name),
        seed="7",
        jitter_seconds=jitter_seconds,
        excluded_on=excluded_on,
    )
    return DueSchedule(
        id=7,
        name="Nightly",
        timing=timing,
        decided_until=at(since),
        **{"catch_up_limit": 10, **fields},
    )


def working(now: str, minutes: int, *, alive: bool = False) -> ScheduleWork:
    started_at = at(now) - timedelta(minutes=minutes)
    return ScheduleWork(True, started_at, (UnendedRun(1, 1, started_at, alive),))


def summary_of(decision: DueDecision) -> tuple[list[str], list[tuple[str, str]]]:
    run = [f"{due:%d %H:%M}" for due in decision.to_run]
    return run, [(f"{entry.due_at:%d %H:%M}", entry.because) for entry in decision.not_run]


@every_case(
    ("now", "due"),
    [
        ("2026-05-04T08:59:59", False),
        ("2026-05-04T09:00:00", True),
        ("2026-05-04T09:20:00", True),
        ("2026-05-04T09:20:59", True),
        ("2026-05-04T09:21:00", False),
    ],
)
def test_the_execution_window_includes_both_boundary_minutes(now: str, due: bool) -> None:
    decision = decide_due(make_schedule("0 9 * * *", "2026-05-03T09:00"), at(now), RULES)
    assert bool(decision.to_run) is due
    assert [entry.because for entry in decision.not_run] == [MISSED] * (now > "2026-05-04T09:21")


@every_case(
    ("zone_name", "cron", "since", "now", "expected"),
    [
        # Spring: 02:30 does not exist; the schedule is due right after the clock change.
        ("Europe/Paris", "30 2 * * *", "2026-03-28T12:00", "2026-03-29T00:59", []),
        ("Europe/Paris", "30 2 * * *", "2026-03-28T12:00", "2026-03-29T01:05", ["29 01:00"]),
        ("America/New_York", "30 2 * * *", "2026-03-07T12:00", "2026-03-08T07:05", ["08 07:00"]),
        # Autumn: 02:30 occurs twice and is due once.
        ("Europe/Paris", "30 2 * * *", "2026-10-24T12:00", "2026-10-25T00:35", []),
        ("Europe/Paris", "30 2 * * *", "2026-10-24T12:00", "2026-10-25T01:35", ["25 01:30"]),
        ("Europe/Paris", "30 2 * * *", "2026-10-25T01:30", "2026-10-25T01:35", []),
        ("America/New_York", "30 1 * * *", "2026-10-31T12:00", "2026-11-01T05:35", []),
        ("America/New_York", "30 1 * * *", "2026-10-31T12:00", "2026-11-01T06:35", ["01 06:30"]),
        # The same local time is a different UTC instant before and after the clock change.
        ("Europe/Paris", "0 9 * * *", "2026-03-28T12:00", "2026-03-29T07:00", ["29 07:00"]),
        ("Europe/Paris", "0 9 * * *", "2026-03-27T12:00", "2026-03-28T08:00", ["28 08:00"]),
        # Ends of months.
        ("UTC", "0 9 L * *", "2026-02-20T00:00", "2026-02-28T09:01", ["28 09:00"]),
        ("UTC", "0 9 31 * *", "2026-04-01T00:00", "2026-04-30T09:01", []),
        ("UTC", "0 9 29 2 *", "2027-03-01T00:00", "2028-02-29T09:01", ["29 09:00"]),
        ("UTC", "0 9 29 2 *", "2028-02-29T09:00", "2029-03-01T09:01", []),
        # A window that extends into the previous day.
        ("Europe/Paris", "55 23 * * *", "2026-05-03T12:00", "2026-05-03T22:10", ["03 21:55"]),
    ],
)
def test_due_times_use_the_schedules_time_zone(
    zone_name: str, cron: str, since: str, now: str, expected: list[str]
) -> None:
    assert summary_of(decide_due(make_schedule(cron, since, zone_name), at(now), RULES)) == (
        expected,
        [],
    )


@every_case(
    ("day", "month_end"),
    [(29, "2026-02-28T09:00"), (30, "2026-02-28T09:00"), (31, "2026-04-30T09:00")],
)
def test_a_monthly_schedule_with_several_crons_is_due_on_the_last_day(
    day: int, month_end: str
) -> None:
    fields = {"name": "x", "schedule_type": "MONTHLY", "time_of_day": "09:00", "day_of_month": day}
    crons = crons_of(ScheduleFields.model_validate({**fields, "short_months": "last_day"}))
    since = at(month_end) - timedelta(days=10)
    monthly = DueSchedule(
        id=1,
        name="x",
        timing=Timing(crons=crons, zone=zone("UTC")),
        decided_until=since,
        catch_up_limit=10,
    )
    assert decide_due(monthly, at(month_end), RULES).to_run == (at(month_end),)


HOURLY, EVERY_FIVE_MINUTES = "0 * * * *", "*/5 * * * *"


@every_case(
    ("catch_up", "cron", "since", "now", "run", "not_run"),
    [
        (
            "skip",
            HOURLY,
            "04 06:00",
            "04 09:10",
            ["04 09:00"],
            [("04 07:00", MISSED), ("04 08:00", MISSED)],
        ),
        ("skip", HOURLY, "04 06:00", "04 08:30", [], [("04 07:00", MISSED), ("04 08:00", MISSED)]),
        (
            "skip",
            EVERY_FIVE_MINUTES,
            "04 08:50",
            "04 09:01",
            ["04 09:00"],
            [("04 08:55", SUPERSEDED)],
        ),
        ("latest", HOURLY, "04 06:00", "04 08:30", ["04 08:00"], [("04 07:00", SUPERSEDED)]),
        ("latest", "0 9 3 * *", "01 00:00", "10 08:59", ["03 09:00"], []),
        ("latest", "0 9 3 * *", "01 00:00", "28 09:01", ["03 09:00"], []),
        ("all", HOURLY, "04 06:00", "04 08:30", ["04 07:00", "04 08:00"], []),
        (
            "all",
            HOURLY,
            "04 04:00",
            "04 08:30",
            ["04 06:00", "04 07:00", "04 08:00"],
            [("04 05:00", OVER_LIMIT)],
        ),
        ("all", "0 9 3 * *", "01 00:00", "28 09:01", ["03 09:00"], []),
    ],
)
def test_after_an_outage_the_schedule_follows_its_catch_up_policy(
    catch_up: str, cron: str, since: str, now: str, run: list[str], not_run: list[tuple[str, str]]
) -> None:
    after = make_schedule(
        cron, f"2026-05-{since.replace(' ', 'T')}", catch_up=CatchUp(catch_up), catch_up_limit=3
    )
    assert summary_of(decide_due(after, at(f"2026-05-{now.replace(' ', 'T')}"), RULES)) == (
        run,
        not_run,
    )


@every_case(
    ("catch_up", "now", "run", "not_run", "decided"),
    [
        ("skip", "09:11", ["04 09:10"], [], "09:10"),
        ("all", "09:11", ["04 09:10"], [], "09:10"),
        ("latest", "09:11", ["04 09:10"], [], "09:10"),
        ("skip", "09:21", ["04 09:20"], [], "09:20"),
        ("all", "09:21", ["04 09:20"], [], "09:20"),
        ("skip", "09:31", ["04 09:30"], [("04 09:20", SUPERSEDED)], "09:30"),
        ("all", "09:31", ["04 09:20", "04 09:30"], [], "09:20"),
    ],
)
def test_only_the_newest_due_time_before_creation_runs_without_a_record(
    catch_up: str, now: str, run: list[str], not_run: list[tuple[str, str]], decided: str
) -> None:
    created_at = at("2026-05-04T09:11")
    new = make_schedule(
        "*/10 * * * *", "2026-05-04T08:50", created_at=created_at, catch_up=CatchUp(catch_up)
    )
    decision = decide_due(new, at(f"2026-05-04T{now}"), RULES)
    assert summary_of(decision) == (run, not_run)
    assert decision.decided_until(new.decided_until) == at(f"2026-05-04T{decided}")


@every_case("catch_up", CatchUp)
def test_older_due_times_before_creation_are_neither_run_nor_recorded(
    catch_up: CatchUp,
) -> None:
    new = make_schedule(
        HOURLY, "2026-05-04T08:45", created_at=at("2026-05-04T09:05"), catch_up=catch_up
    )
    decision = decide_due(new, at("2026-05-04T09:50"), RULES)
    assert summary_of(decision) == ([], [])
    assert decision.decided_until(new.decided_until) == at("2026-05-04T09:00")


def test_due_times_before_creation_are_not_recorded_during_a_manual_run() -> None:
    now = "2026-05-04T09:06"
    new = make_schedule(
        HOURLY, "2026-05-04T08:45", created_at=at("2026-05-04T09:05"), at_work=working(now, 1)
    )
    decision = decide_due(new, at(now), RULES)
    assert summary_of(decision) == ([], [])
    assert decision.unrecorded == (at("2026-05-04T09:00"),)


@every_case(
    ("catch_up", "minutes", "alive", "not_run"),
    [
        ("skip", 60, False, [("04 08:00", MISSED), ("04 09:00", BUSY)]),
        ("skip", 69, True, [("04 08:00", MISSED), ("04 09:00", BUSY)]),
        ("skip", 70, True, [("04 08:00", MISSED), ("04 09:00", OUTLASTING)]),
        ("latest", 60, False, []),
        ("latest", 700, True, []),
        ("all", 60, False, []),
    ],
)
def test_an_active_run_blocks_starts_and_only_catch_up_schedules_wait(
    catch_up: str, minutes: int, alive: bool, not_run: list[tuple[str, str]]
) -> None:
    now = "2026-05-04T09:10"
    busy = make_schedule(
        HOURLY,
        "2026-05-04T07:00",
        at_work=working(now, minutes, alive=alive),
        catch_up=CatchUp(catch_up),
    )
    decision = decide_due(busy, at(now), RULES)
    assert summary_of(decision) == ([], not_run)
    assert not decision.reconcile


def test_a_stale_run_is_ended_first_and_does_not_block_the_next_run() -> None:
    now = "2026-05-04T09:10"
    stale = make_schedule(HOURLY, "2026-05-04T08:00", at_work=working(now, 70))
    assert decide_due(stale, at(now), RULES) == DueDecision(
        (at("2026-05-04T09:00"),), (), reconcile=True
    )


@every_case("fields", [{"is_active": False}, {"crons": ()}])
def test_paused_and_manual_schedules_are_reconciled_but_never_due(
    fields: dict[str, Any],
) -> None:
    stale = {"at_work": ScheduleWork(marked_running=True), **fields}
    crons = stale.pop("crons", (Cron.parse(HOURLY),))
    schedule = DueSchedule(
        id=1,
        name="x",
        timing=Timing(crons=crons, zone=zone("UTC")),
        decided_until=at("2026-05-04T00:00"),
        catch_up_limit=10,
        **stale,
    )
    assert decide_due(schedule, at("2026-05-04T09:10"), RULES) == DueDecision(reconcile=True)


@every_case("last_run_at", ["2026-05-04T09:05", "2026-05-04T10:00"])
def test_a_finished_manual_run_does_not_suppress_due_times(last_run_at: str) -> None:
    ended = make_schedule(
        "0 9 * * *", "2026-05-03T09:00", at_work=ScheduleWork(last_run_at=at(last_run_at))
    )
    assert summary_of(decide_due(ended, at("2026-05-04T09:10"), RULES)) == (["04 09:00"], [])


def test_an_occurrence_skipped_by_an_operator_does_not_run_and_the_next_does() -> None:
    skipping = make_schedule(HOURLY, "2026-05-04T08:00", skip_due_at=at("2026-05-04T09:00"))
    assert summary_of(decide_due(skipping, at("2026-05-04T09:10"), RULES)) == (
        [],
        [("04 09:00", SKIPPED)],
    )
    assert summary_of(decide_due(skipping, at("2026-05-04T10:00"), RULES)) == (
        ["04 10:00"],
        [("04 09:00", SKIPPED)],
    )


def test_jitter_delays_the_start_by_a_stable_amount() -> None:
    due = at("2026-05-04T09:00")
    jittered = make_schedule(HOURLY, "2026-05-04T08:00", jitter_seconds=3600)
    [planned] = islice(planned_after(jittered.timing, at("2026-05-04T08:59")), 1)
    starts_at = planned.effective_for
    assert timedelta(0) < starts_at - due <= timedelta(hours=1)
    assert decide_due(jittered, starts_at - timedelta(seconds=1), RULES) == DueDecision()
    assert decide_due(jittered, starts_at, RULES).to_run == (due,)
    assert decide_due(jittered, starts_at + timedelta(minutes=20), RULES).to_run[:1] == (due,), (
        "late by its jitter is not missed"
    )


def test_a_long_list_of_missed_due_times_is_truncated() -> None:
    decision = decide_due(
        make_schedule("* * * * *", "2025-05-04T00:00"), at("2026-05-04T09:10"), RULES
    )
    assert decision.to_run == (at("2026-05-04T09:10"),)
    assert len(decision.not_run) == MAX_LISTED
    assert decision.not_run[0].because == SUPERSEDED + AND_EARLIER_ONES
    whole = decide_due(
        make_schedule("0 1 * * *", "2026-04-14T01:00"), at("2026-05-04T09:10"), RULES
    )
    assert [entry.because for entry in whole.not_run] == [MISSED] * MAX_LISTED
    daily = decide_due(
        make_schedule("0 1 * * *", "2025-05-04T00:00"), at("2026-05-04T09:10"), RULES
    )
    assert daily.not_run[0] == SkippedOccurrence(at("2026-04-15T01:00"), MISSED + AND_EARLIER_ONES)


@every_case(
    ("policy", "catch_up", "busy", "run", "not_run", "waiting", "replaces"),
    [
        ("SKIP", "skip", True, [], ["09:00", "09:05", "09:10"], [], False),
        ("SKIP", "latest", True, [], [], [], False),
        ("SKIP", "all", True, [], [], [], False),
        ("BUFFER_ONE", "skip", True, [], [], ["09:10"], False),
        ("BUFFER_ONE", "all", True, [], [], ["09:00", "09:05", "09:10"], False),
        ("BUFFER_ALL", "skip", True, [], [], ["09:00", "09:05", "09:10"], False),
        ("CANCEL_OTHER", "skip", True, ["09:10"], ["09:00", "09:05"], [], True),
        ("TERMINATE_OTHER", "latest", True, ["09:10"], ["09:00", "09:05"], [], True),
        ("ALLOW_ALL", "skip", True, ["09:10"], ["09:00", "09:05"], [], False),
        ("BUFFER_ONE", "skip", False, ["09:10"], ["09:00", "09:05"], [], False),
        ("BUFFER_ALL", "skip", False, ["09:00", "09:05", "09:10"], [], [], False),
        ("CANCEL_OTHER", "skip", False, ["09:10"], ["09:00", "09:05"], [], False),
    ],
)
def test_the_overlap_policy_decides_what_starts_during_a_run(
    policy: str,
    catch_up: str,
    busy: bool,
    run: list[str],
    not_run: list[str],
    waiting: list[str],
    replaces: bool,
) -> None:
    now = "2026-05-04T09:10"
    schedule = make_schedule(
        EVERY_FIVE_MINUTES,
        "2026-05-04T08:55",
        overlap_policy=OverlapPolicy(policy),
        catch_up=CatchUp(catch_up),
        at_work=working(now, 60) if busy else ScheduleWork(),
    )
    decision = decide_due(schedule, at(now), RULES)
    assert [f"{due:%H:%M}" for due in decision.to_run] == run
    assert [f"{one.due_at:%H:%M}" for one in decision.not_run] == not_run
    assert [f"{due:%H:%M}" for due in decision.waiting] == waiting
    assert decision.replaces is replaces
    started = [] if replaces else run[:1]
    until = max(["08:55", *not_run, *started])
    assert f"{decision.decided_until(schedule.decided_until):%H:%M}" == until


def test_a_due_time_delayed_by_a_run_is_not_missed() -> None:
    due = at("2026-05-04T09:00")
    waited = make_schedule(
        HOURLY,
        "2026-05-04T08:00",
        overlap_policy=OverlapPolicy.BUFFER_ONE,
        waited=frozenset({due}),
    )
    assert decide_due(waited, at("2026-05-04T09:50"), RULES).to_run == (due,)
    still_busy = replace(waited, at_work=working("2026-05-04T09:50", 60, alive=True))
    assert decide_due(still_busy, at("2026-05-04T09:50"), RULES) == DueDecision()
    newer = decide_due(still_busy, at("2026-05-04T10:00"), RULES)
    assert newer.waiting == (at("2026-05-04T10:00"),), "the newest waits from now on"


def test_excluded_days_use_the_schedules_time_zone_and_are_recorded() -> None:
    nightly = make_schedule(
        "30 23 * * *", "2026-05-03T22:00", "Europe/Paris", excluded_on=("2026-05-04",)
    )
    excluded = decide_due(nightly, at("2026-05-04T21:40"), RULES)
    assert summary_of(excluded) == ([], [("04 21:30", EXCLUDED)])
    assert next_undecided(nightly.timing, at("2026-05-03T22:00")) == at("2026-05-04T21:30")
    catching_up = replace(nightly, catch_up=CatchUp.LATEST)
    assert summary_of(decide_due(catching_up, at("2026-05-05T10:00"), RULES)) == (
        [],
        [("04 21:30", EXCLUDED)],
    )


CRONS = st.sampled_from(
    ["0 2 * * *", "30 2 * * 0", "*/7 * * * *", "0 * * * *", "15 2,3 28-31 * *", "0 0 L 2,3,10 *"]
)
ZONES = st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu"])
STARTS = st.sampled_from(
    ["2026-03-07T00:00", "2026-03-28T12:00", "2026-10-24T12:00", "2026-10-31T12:00"]
)
STEPS = st.lists(st.tuples(st.integers(1, 900), st.booleans()), min_size=1, max_size=25)


@settings(deadline=None)
@given(CRONS, ZONES, STARTS, STEPS, st.sampled_from(CatchUp), st.sampled_from([0, 90, 1500]))
def test_every_due_time_is_decided_at_most_once_in_order_and_runs_do_not_overlap(
    cron: str,
    zone_name: str,
    start: str,
    steps: list[tuple[int, bool]],
    catch_up: CatchUp,
    jitter: int,
) -> None:
    now, since, running = at(start), at(start), ScheduleWork()
    decided: list[datetime] = []
    for minutes, ends in steps:
        now += timedelta(minutes=minutes)
        running = ScheduleWork() if ends else running
        schedule = make_schedule(
            cron, start, zone_name, catch_up=catch_up, at_work=running, jitter_seconds=jitter
        )
        schedule = DueSchedule(**{**vars(schedule), "decided_until": since})
        decision = decide_due(schedule, now, RULES)
        assert not (running.runs and decision.to_run and not decision.reconcile)
        decided += [*(entry.due_at for entry in decision.not_run), *decision.started]
        since = decision.decided_until(since)
        assert since == (decided[-1] if decided else at(start))
        assert next_undecided(schedule.timing, since) > since
        if decision.to_run:
            running = ScheduleWork(True, now, (UnendedRun(1, 1, now, alive=False),))
    assert decided == sorted(set(decided))
    assert all(due <= now for due in decided)


GROUP = Reach(Scope.GROUP, groupes=frozenset({"NORD", "EST"}), caller="user:12")
OWN = Reach(Scope.SELF, crm_user_id="u1", caller="user:12")


@every_case(
    ("reach", "mode", "groupes", "created_by", "is_visible", "fault"),
    [
        (Reach(Scope.ALL), "filter", (), None, True, None),
        (GROUP, "filter", ("NORD",), None, True, None),
        (GROUP, "manual", ("NORD", "EST"), None, True, None),
        (
            GROUP,
            "filter",
            ("NORD", "SUD"),
            "user:12",
            False,
            ("ficheSelection.groupes", "must name groupes of yours: EST, NORD"),
        ),
        (
            replace(GROUP, groupes=frozenset()),
            "manual",
            (),
            "user:12",
            False,
            ("ficheSelection.groupes", "must name groupes of yours: none"),
        ),
        (OWN, "manual", (), "user:12", True, None),
        (OWN, "manual", (), "user:13", False, None),
        (OWN, "manual", (), None, False, None),
        (
            OWN,
            "filter",
            (),
            "user:12",
            False,
            ("ficheSelection.mode", "must be manual: you may pick fiches of your own only"),
        ),
    ],
)
def test_the_reach_of_a_caller_limits_the_selections(
    reach: Reach,
    mode: str,
    groupes: tuple[str, ...],
    created_by: str | None,
    is_visible: bool,
    fault: tuple[str, str] | None,
) -> None:
    selection = FicheSelection(mode=SelectionMode(mode), groupes=groupes)
    assert is_selection_visible(selection, created_by, reach) is is_visible
    assert selection_scope_error(selection, reach) == fault


def test_a_due_report_is_one_sentence_with_the_first_actions() -> None:
    started = StartedRun(3, "Nightly", at("2026-05-04T10:00"), 7)
    skipped = SkippedOccurrence(at("2026-05-04T09:00"), MISSED)
    report = DueReport(
        checked=9,
        triggered=(started,),
        not_run=((4, skipped),),
        reconciled=(5,),
        broken=((6, "x"),),
    )
    actions = (
        "Ended the stale runs of schedule 5; Started schedule 3, due 2026-05-04 10:00 UTC, as run 7; "
        f"Schedule 4, due 2026-05-04 09:00 UTC, is not run: {MISSED}; Schedule 6 cannot be read: x"
    )
    assert str(report) == f"9 schedules checked; {actions}."
    assert str(DueReport(checked=9)) == "9 schedules checked, none is due."
    ten, eleven = (DueReport(checked=9, reconciled=tuple(range(count))) for count in (10, 11))
    assert str(ten).endswith("schedule 8; Ended the stale runs of schedule 9.")
    assert str(eleven).endswith("schedule 9; and 1 more.")
