"""What a schedule may say (reference 3.1): fields, defaults, what each type needs, and when it is
due."""

import json
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.automation.models.schedules import (
    CatchUp,
    DatePreset,
    Priority,
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
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import parse
from automation_pipeline.core.scheduling.cron import occurrences
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline_tests.tables import every_case

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
def test_nothing_is_without_bounds(field: str, given: object, fault: tuple[str, str]) -> None:
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
def test_a_type_needs_its_fields(fields: dict[str, object], problem: str) -> None:
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
def test_each_type_is_due_at_its_own_times(fields: dict[str, object], crons: str) -> None:
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
def test_a_wrong_field_is_named_with_its_problem(field: str, value: object, problem: str) -> None:
    assert [(name.split(".")[0], why) for name, why in faults(**{field: value})] == [
        (field, problem)
    ]


@every_case("field", ["name", "scheduleType", "ficheSelection"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schedule({name: value for name, value in MANUAL.items() if name != field})
    assert caught.value.fields == ((field, "is required"),)


def test_every_field_at_fault_is_named_at_once() -> None:
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
def test_a_field_is_read_as_meant(field: str, value: object, read: object) -> None:
    schedule = parse_schedule(MANUAL | {field: value})
    assert schedule.model_dump(by_alias=True)[field] == read


@every_case("number", ["eleven", "", "-1", 0, -1, 1.5, 11.0, True, None, 2**63])
def test_an_audit_configuration_that_cannot_exist_is_refused(number: object) -> None:
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
def test_a_schedule_written_as_json_is_read_again(document: dict[str, Any]) -> None:
    schedule = parse_schedule(document)
    assert parse_schedule(json.loads(schedule.model_dump_json(by_alias=True))) == schedule


@given(TIMED)
def test_no_two_crons_of_a_schedule_fire_together(document: dict[str, Any]) -> None:
    schedule = parse_schedule(document)
    start, place = datetime(2027, 12, 1, tzinfo=UTC), zone("UTC")
    fired = [
        at for cron in crons_of(schedule) for at in islice(occurrences(cron, place, start), 15)
    ]
    assert len(fired) == len(set(fired))


def trigger(given: dict[str, object]) -> TriggerInput:
    return parse(TriggerInput, given, "Invalid trigger automation data")


@every_case("schedule_id", [3, "3"])
def test_a_trigger_names_its_schedule_and_perhaps_a_selection(schedule_id: object) -> None:
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


def test_a_wrong_selection_is_named_inside_its_schedule() -> None:
    assert [
        field
        for field, _ in faults(ficheSelection={"mode": "manual", "ficheIds": [1], "maxfiches": 2})
    ] == [
        "ficheSelection.ficheIds.0",
        "ficheSelection.maxfiches",
    ]


def test_faults_of_several_fields_name_one_of_them_and_a_blank_name_is_refused() -> None:
    """Finding 2.6: the field was empty."""
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
    for fields, _field, _words in cases:
        with pytest.raises(InvalidInputError) as refused:
            parse_schedule(
                {
                    "name": "Nightly",
                    "ficheSelection": {"mode": "manual", "ficheIds": ["1"]},
                    **fields,
                }
            )
        messages.append(refused.value.fields)
    assert messages == [((field, words),) for _fields, field, words in cases]


def test_a_cron_expression_is_derived_from_daily_weekly_and_monthly_times() -> None:
    """Finding 2.6: it was null."""
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
