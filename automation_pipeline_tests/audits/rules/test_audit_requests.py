"""Bodies that ask for audits: what is missing is said as such, everything at fault is named."""

import pytest

from automation_pipeline.audits.routes.requests import (
    AuditBatchInput,
    AuditInput,
    LatestAuditInput,
    RerunInput,
    RunAuditInput,
    parse_request,
)
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import parse
from automation_pipeline_tests.tables import every_case


def test_a_wish_may_be_written_in_older_ways() -> None:
    old = {"fiche_id": "1900417", "audit_id": 11, "useRlm": True}
    new = {"fiche_id": "1900417", "audit_config_id": "11", "use_rlm": True}
    assert parse_request(AuditInput, old) == parse_request(AuditInput, new)


@every_case(
    ("model", "given", "sentence"),
    [
        (AuditInput, {}, "Missing required parameters"),
        (AuditInput, {"fiche_id": "1"}, "Missing required parameters"),
        (RunAuditInput, {"audit_config_id": 1}, "Missing required parameters"),
        (
            RunAuditInput,
            {"fiche_id": "1", "audit_config_id": 1, "automation_run_id": 2},
            "The audit cannot be asked for so",
        ),
        (LatestAuditInput, {}, "Missing required parameter"),
        (LatestAuditInput, {"fiche_id": 1900417}, "The audit cannot be asked for so"),
        (LatestAuditInput, {"fiche_id": "19-x"}, "The audit cannot be asked for so"),
        (
            AuditInput,
            {"fiche_id": "1", "audit_config_id": 1, "use_rlm": "no"},
            "The audit cannot be asked for so",
        ),
    ],
)
def test_what_is_wrong_is_said(
    model: type[LatestAuditInput], given: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"^{sentence}$") as refused:
        parse_request(model, given)
    assert refused.value.fields


def test_a_batch_names_each_fiche_once() -> None:
    assert parse(AuditBatchInput, {"fiche_ids": ["2", "1", "2"]}, "no").fiche_ids == ("2", "1")
    for fiche_ids in ([], [1], ["x"], "1", None, ["1"] * 10_001):
        with pytest.raises(InvalidInputError):
            parse(AuditBatchInput, {"fiche_ids": fiche_ids}, "no")


def test_instructions_have_two_names() -> None:
    assert parse(RerunInput, {"customPrompt": "Listen."}, "no").instructions == "Listen."
    assert parse(RerunInput, {"customInstructions": "Listen."}, "no").instructions == "Listen."
    assert parse(RerunInput, {}, "no").instructions is None


@every_case("given", [11, "11", 11.0])
def test_an_id_is_a_number_or_its_digits(given: object) -> None:
    assert (
        parse_request(RunAuditInput, {"fiche_id": "1", "audit_config_id": given}).audit_config_id
        == 11
    )


@every_case("given", [True, 0, -1, 1.5, "011", "1e3", "", None, 2**63, float("1e300"), [11]])
def test_anything_else_is_no_id(given: object) -> None:
    with pytest.raises(InvalidInputError):
        parse_request(RunAuditInput, {"fiche_id": "1", "audit_config_id": given})
