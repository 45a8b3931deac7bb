"""The OpenAPI document: unique schema names, valid examples, and accurate limits."""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
from fastapi.testclient import TestClient

from automation_pipeline.api.app import create_app
from automation_pipeline.api.permissions import RULES
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.settings import Settings
from automation_pipeline.fiches.models.days import parse_day
from automation_pipeline_tests.cases import every_case


@cache
def document() -> dict[str, Any]:
    return create_app(Services(Settings())).openapi()


def parts() -> dict[str, Any]:
    return document()["components"]["schemas"]


@cache
def bodies() -> dict[str, dict[str, Any]]:
    """The JSON content of each request body, by operation."""
    return dict(_bodies())


def _bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            if "requestBody" in operation:
                yield f"{method} {path}", operation["requestBody"]["content"]["application/json"]


def parameter(path: str, name: str) -> dict[str, Any]:
    return next(
        one for one in document()["paths"][path]["get"]["parameters"] if one["name"] == name
    )


def fits(value: object, schema: dict[str, Any]) -> bool:
    whole = {**schema, "components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True).is_valid(value)


def test_schema_titles_are_unique() -> None:
    titled = defaultdict(list)
    for name, part in parts().items():
        titled[part.get("title", name)].append(name)
    assert [names for names in titled.values() if len(names) > 1] == []


def test_schemas_are_not_named_after_modules() -> None:
    assert [
        name
        for name in parts()
        if "automation_pipeline" in name or name.endswith(("-Input", "-Output"))
    ] == []


def test_schemas_with_the_same_name_are_prefixed_by_package() -> None:
    """Both organisation jobs and pricing have a RunState."""
    for prefix, status in (("OrgJobs", "success"), ("Pricing", "PREVIEW")):
        part = parts()[f"{prefix}RunState"]
        assert (part["title"], status in part["enum"]) == (f"{prefix}RunState", True)
    assert (
        parts()["OrgJob"]["properties"]["status"]["$ref"] == "#/components/schemas/OrgJobsRunState"
    )


def test_titles_of_bodies_are_unique() -> None:
    bodies_of = defaultdict(list)
    for content in bodies().values():
        if content["schema"] not in bodies_of[content["schema"]["title"]]:
            bodies_of[content["schema"]["title"]].append(content["schema"])
    assert [
        title for title, different in bodies_of.items() if len(different) > 1 or title in parts()
    ] == []


def test_every_body_example_is_valid() -> None:
    assert [operation for operation, content in bodies().items() if not content["examples"]] == []
    wrong = [
        f"{operation}: {name}"
        for operation, content in bodies().items()
        for name, one in content["examples"].items()
        if not fits(one["value"], content["schema"])
    ]
    assert wrong == []


@every_case(
    ("operation", "field"),
    [
        ("post /api/automation/trigger", "scheduleId"),
        ("post /api/automation/schedules", "specificAuditConfigs"),
        ("post /api/audits", "audit_config_id"),
        ("post /api/audits", "automation_run_id"),
        ("put /api/audit-configs/{config_id}/steps/reorder", "stepIds"),
    ],
)
def test_ids_in_bodies_are_positive_integers_or_digit_strings(operation: str, field: str) -> None:
    schema = bodies()[operation]["schema"]["properties"][field]
    for one, fitting in (
        (3, True),
        ("3", True),
        (0, False),
        ("0", False),
        ("x", False),
        (True, False),
        (1.5, False),
    ):
        assert fits([one] if schema.get("type") == "array" else one, schema) is fitting


def test_ids_in_responses_are_strings() -> None:
    shown = parts()["ScheduleShown"]["properties"]
    assert (shown["id"]["type"], shown["specificAuditConfigs"]["items"]["type"]) == (
        "string",
        "string",
    )


@every_case("day", ["1900-01-01", "2199-12-31", "2026-02-30", ""])
def test_date_parameters_have_a_matching_schema(day: str) -> None:
    try:
        is_read = bool(parse_day(day, "no day"))
    except InvalidInputError:
        is_read = False
    for path, name in (
        ("by-date", "date"),
        ("by-date-range", "startDate"),
        ("by-date-range", "endDate"),
    ):
        described = parameter(f"/api/fiches/status/{path}", name)
        assert fits(day, described["schema"]) is is_read
        assert "From 1900 to 2199." in described["description"]


@every_case("path", sorted({path for _, path in RULES if "_id}" in path}))
def test_path_ids_have_minimum_and_maximum(path: str) -> None:
    for operation in document()["paths"][path].values():
        for one in operation["parameters"]:
            if one["in"] == "path" and one["schema"].get("type") == "integer":
                assert (one["schema"]["minimum"], one["schema"]["maximum"]) == (1, 2**63 - 1)


@every_case(
    ("path", "names"),
    [
        ("/api/audits", ("sales_date_to", "score_min", "status")),
        ("/api/audits/grouped", ("date_from",)),
        ("/api/audits/grouped-by-fiches", ("sales_dates",)),
        ("/api/transcriptions/{fiche_id}/logs", ("since", "limit")),
    ],
)
def test_parameters_that_ignore_empty_values_allow_them_in_the_document(
    path: str, names: tuple[str, ...]
) -> None:
    assert all(parameter(path, name)["allowEmptyValue"] for name in names)


def test_empty_filters_of_a_list_are_ignored(client: TestClient) -> None:
    assert client.get("/api/audits?sales_date_to=&date_from=&status=").status_code == 200
