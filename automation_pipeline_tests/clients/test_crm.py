"""The CRM client against the simulator's faults: errors, retries and messages."""

import httpx
import pytest

from automation_pipeline.clients.crm import api_root, authorization
from automation_pipeline.core.errors import (
    AutomationError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.clients.crm_client import (
    FICHE,
    GOOD,
    SOLD,
    Crm,
    crm_with_answer,
    crm_with_document,
)
from automation_pipeline_tests.simulator_control import TOKEN, add_faults, call_count
from automation_pipeline_tests.waiting import wait_until


@pytest.fixture
def gateway(simulator_url: str) -> Crm:
    return Crm(simulator_url)


def add_fault(gateway: Crm, **rule: object) -> None:
    add_faults(gateway.url, {"route": "crm.details", **rule})


@every_case(
    ("configured", "root"),
    [
        ("https://crm.test", "https://crm.test/api"),
        ("https://crm.test/", "https://crm.test/api"),
        ("https://crm.test/api", "https://crm.test/api"),
        ("https://crm.test/api//", "https://crm.test/api"),
        ("https://crm.test:8443/gateway", "https://crm.test:8443/gateway/api"),
        ("https://api.test", "https://api.test/api"),
        ("https://crm.test/my-api", "https://crm.test/my-api/api"),
    ],
)
def test_the_base_url_ends_with_exactly_one_api_segment(configured: str, root: str) -> None:
    assert api_root(configured) == root


@every_case(
    ("token", "headers"),
    [
        (None, {}),
        ("", {}),
        ("  ", {}),
        ("abc", {"Authorization": "Bearer abc"}),
        (" abc\n", {"Authorization": "Bearer abc"}),
        ("Bearer abc", {"Authorization": "Bearer abc"}),
        ("bEaReR abc", {"Authorization": "bEaReR abc"}),
        ("bearerabc", {"Authorization": "Bearer bearerabc"}),
    ],
)
def test_the_token_is_sent_as_a_bearer_token_once(
    token: str | None, headers: dict[str, str]
) -> None:
    assert authorization(token) == headers


@pytest.mark.parametrize("token", [TOKEN, f"Bearer {TOKEN}", f"BEARER {TOKEN}"])
@pytest.mark.parametrize("suffix", ["", "/", "/api", "/api/"])
def test_every_accepted_form_of_url_and_token_reaches_the_crm(
    simulator_url: str, suffix: str, token: str
) -> None:
    Crm(simulator_url + suffix, token).check()


@every_case(
    ("fiche_id", "path"),
    [
        ("1900417", b"1900417"),
        ("a/b", b"a%2Fb"),
        ("..", b"%2E%2E"),
        (".", b"%2E"),
        ("é ?#&%41", b"%C3%A9%20%3F%23%26%2541"),
    ],
)
def test_a_fiche_id_is_escaped_as_one_path_segment(fiche_id: str, path: bytes) -> None:
    requested: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requested.append(request.url.raw_path)
        return httpx.Response(404)

    crm_with_answer(answer).error(fiche_id)
    wanted = b"?include_recordings=true&include_transcriptions=false"
    assert requested == [b"/api/fiches/by-id/" + path + wanted]


def test_an_overlong_fiche_id_is_refused_without_a_call(gateway: Crm) -> None:
    assert isinstance(gateway.error("7" * 70_000), PermanentError)


def test_details_contain_the_data_of_the_fiche(gateway: Crm) -> None:
    details = gateway.details()
    assert (details.fiche_id, details.information.cle, details.information.groupe) == (
        FICHE,
        SOLD.cle,
        SOLD.groupe,
    )
    assert details.prospect is not None
    assert (details.prospect.nom, details.prospect.mail) == (
        SOLD.prospect.nom,
        SOLD.prospect.email,
    )
    assert [call.call_id for call in details.recordings] == [
        call.call_id for call in SOLD.recordings
    ]
    assert [call.duration_seconds for call in details.recordings] == [
        call.duration_seconds for call in SOLD.recordings
    ]
    assert details.recordings[0].started_at == SOLD.recordings[0].started_at
    assert details.recordings[0].url.startswith(gateway.url)


@pytest.mark.parametrize(
    ("rule", "error", "attempts", "message"),
    [
        ({"status": 401}, PermanentError, 1, "refused the token for fiche {} (status 401)"),
        ({"status": 403}, PermanentError, 1, "refused the token for fiche {} (status 403)"),
        ({"status": 404}, NotFoundError, 1, "does not know fiche {}"),
        ({"status": 400}, PermanentError, 1, "answered 400 for fiche {}"),
        ({"status": 422}, PermanentError, 1, "answered 422 for fiche {}"),
        ({"status": 302}, PermanentError, 1, "answered 302 for fiche {}"),
        ({"status": 408}, TransientError, 3, "answered 408 for fiche {}"),
        ({"status": 429}, TransientError, 3, "answered 429 for fiche {}"),
        ({"status": 500}, TransientError, 3, "answered 500 for fiche {}"),
        ({"status": 502, "body": "not_json"}, TransientError, 3, "answered 502 for fiche {}"),
        ({"status": 503}, TransientError, 3, "answered 503 for fiche {}"),
        ({"status": 504}, TransientError, 3, "answered 504 for fiche {}"),
        (
            {"drop": True},
            TransientError,
            3,
            "could not be reached for fiche {} (RemoteProtocolError)",
        ),
        (
            {"body": "cut_short"},
            TransientError,
            3,
            "could not be reached for fiche {} (RemoteProtocolError)",
        ),
        ({"body": "truncated"}, TransientError, 3, "answer for fiche {} is cut short"),
        ({"body": "not_json"}, TransientError, 3, "answer for fiche {} is not JSON"),
        ({"body": "empty"}, TransientError, 3, "answer for fiche {} is cut short"),
        (
            {"body": "wrong_types"},
            PermanentError,
            1,
            "answer for fiche {} has an unexpected value at success",
        ),
        (
            {"body": "success_false"},
            PermanentError,
            1,
            "declined to give fiche {}: Simulated failure.",
        ),
    ],
)
def test_each_crm_response_has_its_error_message_and_number_of_attempts(
    gateway: Crm, rule: dict[str, object], error: type[AutomationError], attempts: int, message: str
) -> None:
    add_fault(gateway, **rule)
    raised = gateway.error()
    assert type(raised) is error
    assert message.format(FICHE) in str(raised)
    assert call_count(gateway.url, FICHE) == attempts
    assert len(gateway.waits.seconds) == attempts - 1


@pytest.mark.parametrize(
    "rule", [{"status": 503}, {"status": 429}, {"drop": True}, {"body": "truncated"}]
)
def test_a_temporary_failure_is_retried_until_it_succeeds(
    gateway: Crm, rule: dict[str, object]
) -> None:
    add_fault(gateway, first=2, **rule)
    assert gateway.details().fiche_id == FICHE
    assert gateway.waits.seconds == [1, 2]


def test_a_hanging_call_times_out_with_a_transient_error(simulator_url: str) -> None:
    gateway = Crm(simulator_url, timeout_seconds=0.1)
    add_fault(gateway, hang=True)
    raised = gateway.error()
    assert isinstance(raised, TransientError)
    assert "did not answer in time" in str(raised)
    wait_until(lambda: call_count(gateway.url, FICHE) == 3)


def test_a_refused_connection_is_a_transient_error() -> None:
    raised = Crm("http://127.0.0.1:9").error()
    assert isinstance(raised, TransientError)
    assert "could not be reached for fiche" in str(raised)


@pytest.mark.parametrize(
    ("retry_after", "waited"),
    [
        (7, 7),
        (2.5, 2.5),
        (0, 1),
        ("Mon, 04 May 2026 10:00:30 GMT", 30),
        ("Mon, 04 May 2026 09:00:00 GMT", 1),
        ("soon", 1),
    ],
)
def test_the_retry_after_of_the_crm_is_kept(
    gateway: Crm, retry_after: str | float, waited: float
) -> None:
    add_fault(gateway, first=1, status=429, retry_after=retry_after)
    gateway.details()
    assert gateway.waits.seconds == [waited]


def test_a_retry_after_beyond_the_limit_is_reported_without_waiting(gateway: Crm) -> None:
    add_fault(gateway, status=429, retry_after=3600)
    raised = gateway.error()
    assert isinstance(raised, TransientError)
    assert raised.retry_after_seconds == 3600
    assert (call_count(gateway.url, FICHE), gateway.waits.seconds) == (1, [])


def test_a_fiche_id_containing_404_is_not_mistaken_for_not_found(gateway: Crm) -> None:
    add_fault(gateway, item="404404", status=500)
    assert type(gateway.error("404404")) is TransientError


def test_a_response_for_another_fiche_is_a_permanent_error() -> None:
    raised = crm_with_document(GOOD).error("1")
    assert type(raised) is PermanentError
    assert str(raised) == f"The CRM answered with fiche {FICHE} for fiche 1."


@pytest.mark.parametrize(
    "rule",
    [
        {"status": 401},
        {"status": 404},
        {"status": 500},
        {"drop": True},
        {"hang": True},
        {"body": "truncated"},
        {"body": "wrong_types"},
        {"body": "success_false"},
    ],
)
def test_no_error_contains_the_token_or_the_url(
    simulator_url: str, rule: dict[str, object]
) -> None:
    gateway = Crm(simulator_url, timeout_seconds=0.1)
    add_fault(gateway, **rule)
    raised = gateway.error()
    shown = f"{raised!s} {raised!r} {raised.__cause__!r}"
    for secret in (TOKEN, "include_recordings", gateway.url, "Authorization"):
        assert secret not in shown
    assert raised.__suppress_context__ or raised.__context__ is None


def test_the_check_needs_a_valid_token_and_no_fiche(gateway: Crm) -> None:
    gateway.check()
    with pytest.raises(PermanentError):
        Crm(gateway.url, "another").check()
