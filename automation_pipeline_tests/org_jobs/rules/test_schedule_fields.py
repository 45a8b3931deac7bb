"""What single fields of a schedule must be."""

import pytest
from pydantic import TypeAdapter, ValidationError

from automation_pipeline.core.days import Days
from automation_pipeline.org_jobs.models.organisations import (
    CronText,
    Payload,
    TimeOfDay,
    TimeZone,
)
from automation_pipeline_tests.tables import every_case


@every_case(
    ("kind", "given", "kept"),
    [
        (CronText, "0 9 * * 1-5", "0 9 * * 1-5"),
        (CronText, "@daily", "@daily"),
        (TimeZone, "Europe/Paris", "Europe/Paris"),
        (TimeOfDay, "23:59", "23:59"),
        (Days, ["2026-12-25", "2026-05-01", "2026-12-25"], ("2026-05-01", "2026-12-25")),
        (Days, None, ()),
        (Payload, {"a": [1]}, {"a": [1]}),
    ],
)
def test_a_field_that_is_well_is_kept(kind: object, given: object, kept: object) -> None:
    assert TypeAdapter(kind).validate_python(given) == kept


@every_case(
    ("kind", "given"),
    [
        (CronText, "0 0 2 * * *"),
        (CronText, "0 24 * * *"),
        (CronText, "0 0 31 2 *"),
        (CronText, "0 0 * * 8"),
        (TimeZone, "Mars/Olympus"),
        (TimeZone, "Europe"),
        (TimeZone, "localtime"),
        (TimeOfDay, "24:00"),
        (TimeOfDay, "2:00"),
        (TimeOfDay, "02:60"),
        (TimeOfDay, "02:00\n"),
        (TimeOfDay, "٠٢:00"),
        (Days, ["2026-02-30"]),
        (Days, ["25/12/2026"]),
        (Days, [20261225]),
        (Payload, None),
        (Payload, [1]),
    ],
)
def test_a_field_that_is_not_well_is_refused(kind: object, given: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(given)
