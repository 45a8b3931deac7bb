"""What a patch makes of a schedule (reference 3.1), and what follows from the change."""

from datetime import UTC, datetime

import pytest

from automation_pipeline.automation.models.schedules import Schedule, parse_schedule
from automation_pipeline.automation.rules.schedules import apply_patch, derived_changes
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.tables import every_case

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
def test_an_empty_address_is_none(empty: str | None) -> None:
    assert apply_patch(stored(), {"webhookUrl": empty}).webhook_url is None


def test_fields_that_a_patch_does_not_name_stay() -> None:
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
def test_a_wrong_patch_is_refused_with_its_faults(
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
