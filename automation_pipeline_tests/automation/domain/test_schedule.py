"""What a schedule may say (reference 3.1): fields, defaults, what each type needs, and when it is due."""

from typing import Any

import pytest

from automation_pipeline.automation.domain.schedule import (
    Priority,
    ScheduleInput,
    ScheduleType,
    cron_of,
    parse_schedule,
    parse_selection,
)
from automation_pipeline.core.errors import InvalidInputError

MANUAL: dict[str, Any] = {"name": "Sales", "scheduleType": "MANUAL", "ficheSelection": {"mode": "manual"}}


def faults(**fields: object) -> tuple[tuple[str, str], ...]:
    with pytest.raises(InvalidInputError, match="Invalid automation schedule data") as caught:
        parse_schedule(MANUAL | fields)
    return caught.value.fields


def test_what_is_not_said_has_its_default() -> None:
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
    }


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"scheduleType": "DAILY"}, "DAILY schedule requires timeOfDay"),
        ({"scheduleType": "DAILY", "timeOfDay": None}, "DAILY schedule requires timeOfDay"),
        ({"scheduleType": "DAILY", "timeOfDay": ""}, "DAILY schedule requires timeOfDay"),
        ({"scheduleType": "DAILY", "dayOfWeek": 1}, "DAILY schedule requires timeOfDay"),
        ({"scheduleType": "WEEKLY"}, "WEEKLY schedule requires timeOfDay and dayOfWeek"),
        ({"scheduleType": "WEEKLY", "timeOfDay": "09:00"}, "WEEKLY schedule requires timeOfDay and dayOfWeek"),
        ({"scheduleType": "WEEKLY", "dayOfWeek": 0}, "WEEKLY schedule requires timeOfDay and dayOfWeek"),
        ({"scheduleType": "MONTHLY"}, "MONTHLY schedule requires timeOfDay and dayOfMonth"),
        ({"scheduleType": "MONTHLY", "timeOfDay": "09:00"}, "MONTHLY schedule requires timeOfDay and dayOfMonth"),
        ({"scheduleType": "MONTHLY", "dayOfMonth": 1}, "MONTHLY schedule requires timeOfDay and dayOfMonth"),
        ({"scheduleType": "CRON"}, "CRON schedule requires cronExpression"),
        ({"scheduleType": "CRON", "cronExpression": ""}, "CRON schedule requires cronExpression"),
        ({"scheduleType": "CRON", "timeOfDay": "09:00"}, "CRON schedule requires cronExpression"),
    ],
)
def test_a_type_needs_its_fields(given: dict[str, object], problem: str) -> None:
    assert faults(**given) == (("", problem),)


@pytest.mark.parametrize(
    ("given", "cron"),
    [
        ({"scheduleType": "MANUAL"}, None),
        ({"scheduleType": "MANUAL", "timeOfDay": "09:00", "cronExpression": "0 9 * * *"}, None),
        ({"scheduleType": "DAILY", "timeOfDay": "00:00"}, "0 0 * * *"),
        ({"scheduleType": "DAILY", "timeOfDay": "23:59", "dayOfWeek": 3, "dayOfMonth": 9}, "59 23 * * *"),
        ({"scheduleType": "WEEKLY", "timeOfDay": "09:05", "dayOfWeek": 0}, "5 9 * * 0"),
        ({"scheduleType": "WEEKLY", "timeOfDay": "09:05", "dayOfWeek": 6}, "5 9 * * 6"),
        ({"scheduleType": "MONTHLY", "timeOfDay": "18:30", "dayOfMonth": 31}, "30 18 31 * *"),
        ({"scheduleType": "CRON", "cronExpression": "*/15 8-18 * * MON-FRI"}, "*/15 8-18 * * MON-FRI"),
        ({"scheduleType": "CRON", "cronExpression": "@daily", "timeOfDay": "09:00"}, "@daily"),
    ],
)
def test_each_type_is_due_at_its_own_times(given: dict[str, object], cron: str | None) -> None:
    found = cron_of(parse_schedule(MANUAL | given))
    assert (found and found.text) == cron


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("name", "", "String should have at least 1 character"),
        ("name", "x" * 256, "String should have at most 255 characters"),
        ("name", "a\0b", "must not hold the character NUL"),
        ("name", None, "should be a valid string"),
        ("description", "\0", "must not hold the character NUL"),
        ("scheduleType", "daily", "should be 'MANUAL', 'DAILY', 'WEEKLY', 'MONTHLY' or 'CRON'"),
        ("timezone", "Mars/Olympus", "'Mars/Olympus' is not a known time zone."),
        ("timezone", "Europe", "'Europe' is not a known time zone."),
        ("timezone", "../etc/passwd", "'../etc/passwd' is not a known time zone."),
        ("timeOfDay", "9:00", "must be a time of day between 00:00 and 23:59"),
        ("timeOfDay", "24:00", "must be a time of day between 00:00 and 23:59"),
        ("timeOfDay", "09:60", "must be a time of day between 00:00 and 23:59"),
        ("timeOfDay", "09:00:00", "must be a time of day between 00:00 and 23:59"),
        ("timeOfDay", "09:00\n", "must be a time of day between 00:00 and 23:59"),
        ("timeOfDay", "٠٩:٠٠", "must be a time of day between 00:00 and 23:59"),
        ("dayOfWeek", 7, "should be less than or equal to 6"),
        ("dayOfWeek", -1, "should be greater than or equal to 0"),
        ("dayOfMonth", 0, "should be greater than or equal to 1"),
        ("dayOfMonth", 32, "should be less than or equal to 31"),
        ("cronExpression", "61 * * * *", "'61' is not a valid minute in a cron expression."),
        ("maxRetries", 6, "should be less than or equal to 5"),
        ("maxRetries", -1, "should be greater than or equal to 0"),
        ("transcriptionPriority", "urgent", "should be 'low', 'normal' or 'high'"),
        ("isActive", "perhaps", "should be a valid boolean, unable to interpret input"),
        ("webhookUrl", "not an address", "should be a valid URL, relative URL without a base"),
        ("webhookUrl", "ftp://hooks.test", "URL scheme should be 'http' or 'https'"),
        ("notifyEmails", "a@b.test", "should be a list"),
        ("nmae", "Sales", "is not a known field"),
        ("schedule_type", "DAILY", "is not a known field"),
    ],
)
def test_a_wrong_field_is_named_with_its_problem(field: str, value: object, problem: str) -> None:
    assert faults(**{field: value}) == ((field, problem),)


@pytest.mark.parametrize("field", ["name", "scheduleType", "ficheSelection"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schedule({name: value for name, value in MANUAL.items() if name != field})
    assert caught.value.fields == ((field, "is required"),)


def test_every_field_at_fault_is_named_at_once() -> None:
    assert [field for field, _ in faults(name="", maxRetries=9, timezone="?", notifyEmails=["a@b.test", "nobody"])] == [
        "name",
        "timezone",
        "maxRetries",
        "notifyEmails.1",
    ]


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("notifyEmails", [" a@b.test ", "", "  "], ("a@b.test",)),
        ("notifyEmails", None, ()),
        ("specificAuditConfigs", ["11", 12], (11, 12)),
        ("specificAuditConfigs", [], ()),
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


@pytest.mark.parametrize("number", ["eleven", 1.5, 2**63])
def test_an_audit_configuration_that_cannot_exist_is_refused(number: object) -> None:
    assert [field for field, _ in faults(specificAuditConfigs=[11, number])] == ["specificAuditConfigs.1"]


def test_an_api_key_is_not_shown() -> None:
    schedule = parse_schedule(MANUAL | {"externalApiKey": "s3cret"})
    assert schedule.external_api_key is not None
    assert schedule.external_api_key.get_secret_value() == "s3cret"
    assert "s3cret" not in f"{schedule!r} {schedule.model_dump(mode='json')}"


def test_a_schedule_written_as_json_is_read_again() -> None:
    schedule = parse_schedule(MANUAL | {"specificAuditConfigs": [11], "notifyEmails": ["a@b.test"]})
    assert ScheduleInput.model_validate_json(schedule.model_dump_json(by_alias=True)) == schedule


def test_a_wrong_selection_has_a_sentence_of_its_own_when_it_comes_alone() -> None:
    with pytest.raises(InvalidInputError, match="Invalid fiche selection data") as caught:
        parse_selection({"mode": "all", "maxFiches": 0})
    assert [field for field, _ in caught.value.fields] == ["mode", "maxFiches"]


def test_a_wrong_selection_is_named_inside_its_schedule() -> None:
    assert [field for field, _ in faults(ficheSelection={"mode": "manual", "ficheIds": [1], "maxfiches": 2})] == [
        "ficheSelection.ficheIds.0",
        "ficheSelection.maxfiches",
    ]
