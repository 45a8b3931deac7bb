"""HTTPS_CALL jobs over real sockets: secrets are sent and masked, and the response decides about retries."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from automation_pipeline.clients.service_jobs import HttpsCallJob
from automation_pipeline.clients.webhooks import HttpsCallClient, HttpsGuard
from automation_pipeline.core.errors import InvalidInputError, TransientError
from automation_pipeline.org_jobs.models.jobs import AttemptEnd, is_retryable
from automation_pipeline.org_jobs.ports import InProcessRunner
from automation_pipeline_tests.clients.receiver import Receiver, hang_up, receiver, respond
from automation_pipeline_tests.clients.service_jobs.job_contexts import job_context
from automation_pipeline_tests.simulator_control import NO_CERTIFICATES
from automation_pipeline_tests.waiting import run_with_fake_time

TOKEN = "Bearer s3cret-t0ken"
ENVIRONMENT = {
    "ORG_SECRET__ACME__TOKEN": TOKEN,
    "ORG_SECRET__ACME__PASSWORD": "pa55-w0rd",
    "ORG_SECRET__ACME__BROKEN": "two\nlines",
    "ORG_SECRET__GLOBEX__THEIRS": "not yours",
}


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def call(
    hook: Receiver,
    *,
    environment: dict[str, str] | None = None,
    org_id: str = "acme",
    **payload: Any,
) -> AttemptEnd:
    client = HttpsCallClient(HttpsGuard(exceptions=(hook.url,)), verify=NO_CERTIFICATES)
    runner: InProcessRunner = HttpsCallJob(
        lambda: client, ENVIRONMENT if environment is None else environment
    )
    return run_with_fake_time(
        runner.work(
            job_context(
                "HTTPS_CALL", org_id, **{"url": f"{hook.url}/hook", "timeoutSeconds": 120} | payload
            )
        )
    )


def test_secrets_are_resolved_and_the_idempotency_key_is_sent(hook: Receiver) -> None:
    hook.answer(respond(200, f'{{"echo": "{TOKEN}", "password": "pa55-w0rd"}}'))
    headers = {"Authorization": {"secretRef": "TOKEN"}, "X-Plain": "1"}
    end = call(
        hook, headers=headers, body={"password": {"secretRef": "PASSWORD"}, "name": "Élodie"}
    )
    [arrived] = hook.calls
    assert (arrived.method, arrived.path) == ("POST", "/hook")
    assert json.loads(arrived.body) == {"password": "pa55-w0rd", "name": "Élodie"}
    assert (arrived.headers["Authorization"], arrived.headers["X-Plain"]) == (TOKEN, "1")
    assert (arrived.headers["Idempotency-Key"], arrived.headers["Content-Type"]) == (
        "org-job-run-12",
        "application/json",
    )
    assert (end.status, end.result) == (
        "success",
        {"status": 200, "text": '{"echo": "[masked]", "password": "[masked]"}'},
    )


def test_a_whole_url_can_be_a_secret(hook: Receiver) -> None:
    hook.answer(respond(500))
    end = call(
        hook,
        url={"secretRef": "HOOK"},
        environment={"ORG_SECRET__ACME__HOOK": f"{hook.url}/s3cret"},
    )
    assert hook.calls[0].path == "/s3cret"
    assert end.error == f"{hook.url} answered 500."


def test_a_request_without_a_body_has_no_content_type(hook: Receiver) -> None:
    assert call(hook).status == "success"
    assert "Content-Type" not in hook.calls[0].headers
    assert hook.calls[0].body == b""
    call(hook, body=[1], headers={"content-type": "application/x-list"})
    assert hook.calls[1].headers["content-type"] == "application/x-list"


@pytest.mark.parametrize(
    ("status", "expected", "ends", "code", "is_retried"),
    [
        (204, [], "success", None, True),
        (404, [404], "success", None, True),
        (200, [201], "failed", "FAILED", True),
        (302, [], "failed", "VALIDATION", False),
        (400, [], "failed", "VALIDATION", False),
        (404, [], "failed", "VALIDATION", False),
        (408, [], "failed", "FAILED", True),
        (425, [], "failed", "FAILED", True),
        (429, [], "failed", "FAILED", True),
        (500, [], "failed", "FAILED", True),
        (503, [], "failed", "FAILED", True),
    ],
)
def test_the_response_status_decides_the_job_status_and_retry(
    hook: Receiver,
    status: int,
    expected: list[int],
    ends: str,
    code: str | None,
    *,
    is_retried: bool,
) -> None:
    hook.answer(respond(status))
    end = call(hook, expectStatus=expected)
    assert (end.status, end.error_code, is_retryable(end.error_code)) == (ends, code, is_retried)
    assert end.result == {"status": status, "text": ""}
    assert end.error == (None if ends == "success" else f"{hook.url} answered {status}.")


@pytest.mark.parametrize(
    ("org_id", "name", "variable"),
    [
        ("acme", "MISSING", "ORG_SECRET__ACME__MISSING"),
        ("acme", "THEIRS", "ORG_SECRET__ACME__THEIRS"),
        ("globex", "TOKEN", "ORG_SECRET__GLOBEX__TOKEN"),
        ("acme", "BROKEN", "ORG_SECRET__ACME__BROKEN"),
    ],
)
def test_a_missing_or_unsendable_secret_is_named_and_no_call_is_made(
    hook: Receiver, org_id: str, name: str, variable: str
) -> None:
    with pytest.raises(InvalidInputError, match=variable) as caught:
        call(hook, org_id=org_id, headers={"X-Key": {"secretRef": name}})
    assert "lines" not in str(caught.value)
    assert hook.calls == []


def test_a_missing_response_is_retryable_and_a_refused_address_is_not(hook: Receiver) -> None:
    hook.answer(hang_up)
    with pytest.raises(TransientError):
        call(hook)
    with pytest.raises(InvalidInputError):
        call(hook, url="http://127.0.0.1:9/")


def test_a_stored_payload_that_no_longer_validates_is_an_input_error(hook: Receiver) -> None:
    job = job_context("PRICING_RULE_APPLY", ruleId=1)
    with pytest.raises(InvalidInputError, match="The stored payload is refused"):
        run_with_fake_time(HttpsCallJob(lambda: pytest.fail("nothing is called"), {}).work(job))
