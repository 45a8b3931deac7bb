"""Faults, the ledger and the control endpoints over a real socket."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.waiting import wait_until

FICHE, OTHER = "953000003", "953000004"
TOKEN = {"Authorization": "Bearer sim-token"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "automation_pipeline.simulator",
        "--fiches-per-day",
        "9",
        "--exact",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().split()[-1]
        process.terminate()


@pytest.fixture
def simulator(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers=TOKEN) as client:
        assert client.post("/_sim/reset").json() == {"reset": True}
        yield client


def details(simulator: httpx.Client, fiche_id: str = FICHE) -> httpx.Response:
    return simulator.get(f"/api/fiches/by-id/{fiche_id}")


def fault(simulator: httpx.Client, *rules: dict[str, Any]) -> None:
    assert simulator.post("/_sim/faults", json=list(rules)).status_code == 200


def ledger(simulator: httpx.Client, route: str = "crm.details", **params: str) -> Any:
    return simulator.get("/_sim/calls", params={"route": route, **params}).json()["routes"][route]


def statuses(simulator: httpx.Client, count: int, fiche_id: str = FICHE) -> list[int]:
    return [details(simulator, fiche_id).status_code for _ in range(count)]


def test_a_status_replaces_the_answer_and_may_have_a_retry_after(
    simulator: httpx.Client,
) -> None:
    fault(simulator, {"route": "crm.details", "status": 503, "retry_after": 2.5})
    answer = details(simulator)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2.5")
    assert answer.json() == {"detail": "Simulated answer 503."}


def test_a_retry_after_may_be_a_date(simulator: httpx.Client) -> None:
    when = "Tue, 03 Feb 2026 10:00:00 GMT"
    fault(simulator, {"route": "crm.details", "status": 429, "retry_after": when})
    assert details(simulator).headers["retry-after"] == when


def test_latency_delays_a_good_answer(simulator: httpx.Client) -> None:
    fault(simulator, {"route": "crm.details", "latency_seconds": 0.2})
    answer = details(simulator)
    assert answer.elapsed.total_seconds() > 0.19  # timers round to a millisecond
    assert answer.json()["success"] is True


def test_a_hanging_call_ends_when_the_client_disconnects(simulator: httpx.Client) -> None:
    fault(simulator, {"route": "crm.details", "hang": True})
    with pytest.raises(httpx.ReadTimeout):
        simulator.get(f"/api/fiches/by-id/{FICHE}", timeout=0.1)
    wait_until(lambda: ledger(simulator)["statuses"] == {"none": 1})
    assert ledger(simulator)["in_flight"] == 0


def test_a_dropped_call_gets_no_answer(simulator: httpx.Client) -> None:
    fault(simulator, {"route": "crm.details", "drop": True})
    with pytest.raises(httpx.RemoteProtocolError):
        details(simulator)
    wait_until(lambda: ledger(simulator)["statuses"] == {"none": 1})


def test_a_truncated_body_ends_in_the_middle(simulator: httpx.Client) -> None:
    whole = details(simulator).content
    fault(simulator, {"route": "crm.details", "body": "truncated"})
    answer = details(simulator)
    assert (answer.status_code, answer.content) == (200, whole[: len(whole) // 2])
    with pytest.raises(json.JSONDecodeError):
        answer.json()


def test_a_body_cut_short_ends_before_its_declared_length(simulator: httpx.Client) -> None:
    fault(simulator, {"route": "crm.details", "body": "cut_short"})
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        details(simulator)


def test_a_body_that_is_not_json_looks_like_an_error_page(simulator: httpx.Client) -> None:
    fault(simulator, {"route": "crm.details", "body": "not_json", "status": 502})
    answer = details(simulator)
    assert (answer.status_code, answer.headers["content-type"]) == (502, "text/html; charset=utf-8")
    assert answer.text.startswith("<html>")


def test_wrong_types_keep_the_shape_and_change_the_values(simulator: httpx.Client) -> None:
    good = details(simulator).json()
    fault(simulator, {"route": "crm.details", "body": "wrong_types"})
    bad = details(simulator).json()
    assert set(bad) == set(good)
    assert bad["success"] == "True"
    assert bad["information"]["groupe"] == [good["information"]["groupe"]]
    assert bad["information"]["nombre_acces"] == str(good["information"]["nombre_acces"])


def test_an_empty_body_and_an_error_body_may_have_status_200(simulator: httpx.Client) -> None:
    fault(
        simulator,
        {"route": "crm.details", "item": FICHE, "body": "empty"},
        {"route": "crm.details", "body": "success_false"},
    )
    empty, failed = details(simulator), details(simulator, OTHER)
    assert (empty.status_code, empty.content) == (200, b"")
    assert (failed.status_code, failed.json()["success"]) == (200, False)


def test_audio_can_be_faulted_too(simulator: httpx.Client) -> None:
    recording = details(simulator).json()["recordings"][0]
    whole = simulator.get(recording["recording_url"]).content
    fault(simulator, {"route": "audio", "item": recording["call_id"], "body": "truncated"})
    assert simulator.get(recording["recording_url"]).content == whole[: len(whole) // 2]


def audio_url(simulator: httpx.Client) -> str:
    return details(simulator).json()["recordings"][0]["recording_url"]


def test_padded_audio_ends_with_zeros(
    simulator: httpx.Client,
) -> None:
    address = audio_url(simulator)
    whole = simulator.get(address).content
    fault(simulator, {"route": "audio", "pad_bytes": 200_001})
    padded = simulator.get(address)
    assert padded.content == whole + bytes(200_001)
    assert padded.headers["content-length"] == str(len(whole) + 200_001)


def test_a_trickling_answer_is_complete_after_its_time(
    simulator: httpx.Client,
) -> None:
    address = audio_url(simulator)
    whole = simulator.get(address).content
    fault(simulator, {"route": "audio", "trickle_seconds": 1.5})
    # A read timeout, which a slow answer does not reach.
    answer = simulator.get(address, timeout=1.4)
    assert answer.content == whole
    assert answer.elapsed.total_seconds() > 1.49
    assert simulator.get("/health").status_code == 200


def test_a_trickle_stops_when_the_client_disconnects_and_when_faults_are_cleared(
    simulator: httpx.Client,
) -> None:
    address = audio_url(simulator)
    fault(simulator, {"route": "audio", "trickle_seconds": 3600})
    with simulator.stream("GET", address):
        assert ledger(simulator, "audio")["in_flight"] == 1
    wait_until(lambda: not ledger(simulator, "audio")["in_flight"])
    with simulator.stream("GET", address) as answer:
        simulator.delete("/_sim/faults")
        with pytest.raises(
            httpx.RemoteProtocolError, match="without sending complete message body"
        ):
            answer.read()


def test_a_stalled_answer_stops_in_the_middle(simulator: httpx.Client) -> None:
    fault(simulator, {"route": "crm.details", "body": "stalled"})
    with simulator.stream("GET", f"/api/fiches/by-id/{FICHE}", timeout=1.0) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            answer.read()
    wait_until(lambda: not ledger(simulator)["in_flight"])


def test_faults_of_sales_lists_apply_by_day_or_range(simulator: httpx.Client) -> None:
    fault(
        simulator,
        {"route": "crm.sales_list", "item": "2026-02-03", "status": 500},
        {"route": "crm.sales_list", "item": "2026-02-03/2026-02-04", "status": 502},
    )
    periods = [
        ("2026-02-03", "2026-02-03"),
        ("2026-02-03", "2026-02-04"),
        ("2026-02-04", "2026-02-04"),
    ]
    answers = [
        simulator.get(
            "/api/fiches/sales-with-calls", params={"start_date": first, "end_date": last}
        ).status_code
        for first, last in periods
    ]
    assert answers == [500, 502, 200]


def test_first_applies_to_the_first_calls_of_an_item(simulator: httpx.Client) -> None:
    fault(simulator, {"route": "crm.details", "item": FICHE, "status": 500, "first": 2})
    assert statuses(simulator, 1, OTHER) + statuses(simulator, 3) == [200, 500, 500, 200]


def test_every_applies_to_each_kth_call_and_the_first_matching_rule_wins(
    simulator: httpx.Client,
) -> None:
    fault(
        simulator,
        {"route": "crm.details", "status": 500, "every": 3},
        {"route": "crm.details", "status": 429, "first": 1},
    )
    assert statuses(simulator, 6) == [429, 200, 500, 200, 200, 500]


def test_probability_is_about_right_and_repeats_after_a_reset(
    simulator: httpx.Client,
) -> None:
    def faulted_statuses() -> list[int]:
        fault(
            simulator,
            {"route": "crm.details", "status": 500, "probability": 0.3},
            {"route": "crm.details", "status": 429, "probability": 0.3},
        )
        return statuses(simulator, 200)

    first = faulted_statuses()
    simulator.post("/_sim/reset")
    assert faulted_statuses() == first
    assert 40 <= first.count(500) <= 80
    assert 24 <= first.count(429) <= 64


def test_clearing_the_faults_ends_hanging_calls(url: str, simulator: httpx.Client) -> None:
    fault(simulator, {"route": "crm.details", "hang": True})

    async def call_five_times() -> list[object]:
        async with httpx.AsyncClient(base_url=url, headers=TOKEN) as client:
            calls = [
                asyncio.create_task(client.get(f"/api/fiches/by-id/{FICHE}")) for _ in range(5)
            ]
            while (await client.get("/_sim/calls")).json()["routes"]["crm.details"][
                "in_flight"
            ] < 5:
                pass
            await client.delete("/_sim/faults")
            return list(await asyncio.gather(*calls, return_exceptions=True))

    assert [type(outcome) for outcome in asyncio.run(call_five_times())] == [
        httpx.RemoteProtocolError
    ] * 5
    after = ledger(simulator)
    assert (after["calls"], after["in_flight"], after["in_flight_max"]) == (5, 0, 5)
    assert details(simulator).status_code == 200


def test_the_ledger_counts_by_route_item_and_status(simulator: httpx.Client) -> None:
    statuses(simulator, 2)
    details(simulator, OTHER)
    details(simulator, "953000009")
    simulator.get("/health")
    whole = simulator.get("/_sim/calls").json()
    assert whole["total"] == 5
    assert set(whole["routes"]) == {
        *("crm.sales_list", "crm.details", "crm.health", "audio", "speech.transcribe"),
        *("llm.complete", "llm.models", "llm.model"),
        *("pusher.event", "pusher.batch", "pusher.channels"),
        "shop.graphql",
        *("registries.search", "registries.inpi.login", "registries.inpi.company"),
        *("registries.rcs", "registries.rcs.ping"),
    }
    assert whole["routes"]["crm.details"] == {
        "calls": 4,
        "statuses": {"200": 3, "404": 1},
        "items": {FICHE: 2, OTHER: 1, "953000009": 1},
        "in_flight": 0,
        "in_flight_max": 1,
    }
    assert ledger(simulator, item=FICHE)["items"] == {FICHE: 2}
    assert ledger(simulator, item="never")["items"] == {"never": 0}


def test_the_ledger_lists_arrival_times_on_request(simulator: httpx.Client) -> None:
    statuses(simulator, 3)
    details(simulator, OTHER)
    times = ledger(simulator, times="1")["times"]
    assert len(times) == 4
    assert times == sorted(times)
    assert ledger(simulator, times="1", item=OTHER)["times"] == times[-1:]


def test_the_base_latency_applies_to_every_call(simulator: httpx.Client) -> None:
    assert simulator.post("/_sim/latency", json={"seconds": 0.1}).json() == {"seconds": 0.1}
    assert simulator.get("/health").elapsed.total_seconds() > 0.09  # timers round to a millisecond
    simulator.post("/_sim/latency", json={"seconds": 0})
    assert details(simulator).status_code == 200


@every_case(
    ("posted", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("7", "must be a JSON object"),
        ('[{"route": "audio", "drop": true}, null]', "must be a JSON object"),
        ('{"status": 500}', "needs a 'route', one of crm.sales_list, crm.details"),
        ('{"route": "crm.detials", "status": 500}', "needs a 'route'"),
        ('{"route": ["audio"], "status": 500}', "'route' must be the name of a route"),
        ('{"route": "audio", "stauts": 500}', "no field 'stauts'"),
        ('{"route": "audio"}', "needs a status"),
        ('{"route": "audio", "status": 700}', "'status' must be a whole number"),
        ('{"route": "audio", "status": 204}', "'status' must be a whole number"),
        ('{"route": "audio", "status": true}', "'status' must be a whole number"),
        ('{"route": "audio", "latency_seconds": NaN}', "'latency_seconds' must be a number"),
        ('{"route": "audio", "status": 429, "retry_after": "a\\nb"}', "'retry_after' must be"),
        ('{"route": "audio", "drop": "yes"}', "'drop' must be true or false"),
        ('{"route": "audio", "body": "rotten"}', "'body' must be one of truncated"),
        (
            '{"route": "audio", "pad_bytes": 1073741825}',
            "'pad_bytes' must be a whole number from 0 to 1073741824",
        ),
        ('{"route": "audio", "pad_bytes": 0}', "pad_bytes or trickle_seconds"),
        (
            '{"route": "crm.details", "pad_bytes": 1}',
            "crm.details answers with JSON: no 'pad_bytes' there",
        ),
        (
            '{"route": "audio", "trickle_seconds": 1, "body": "stalled"}',
            "cannot both break off an answer and stretch",
        ),
        (
            '{"route": "audio", "trickle_seconds": 1, "hang": true}',
            "cannot both break off an answer and stretch",
        ),
        ('{"route": "audio", "body": "wrong_types"}', "does not answer with JSON"),
        ('{"route": "audio", "status": 500, "first": 0}', "'first' must be a whole number from 1"),
        (
            '{"route": "audio", "status": 500, "probability": 1.5}',
            "'probability' must be a number from 0 to 1",
        ),
        ('{"route": "audio", "status": 500, "hang": true}', "cannot both answer and not answer"),
        ('{"route": "audio", "drop": true, "hang": true}', "cannot both answer and not answer"),
    ],
)
def test_one_invalid_rule_rejects_all_with_one_sentence(
    simulator: httpx.Client, posted: str, message: str
) -> None:
    answer = simulator.post("/_sim/faults", content=posted)
    assert answer.status_code == 422
    assert message in answer.json()["detail"]
    assert simulator.post("/_sim/faults", json=[]).json() == {"rules": 0}


@every_case("posted", ["", "3", "{}", '{"seconds": "1"}', '{"seconds": -1}', '{"seconds": NaN}'])
def test_an_invalid_latency_is_refused(simulator: httpx.Client, posted: str) -> None:
    assert simulator.post("/_sim/latency", content=posted).status_code == 422


def test_the_ledger_of_an_unknown_route_is_refused(simulator: httpx.Client) -> None:
    answer = simulator.get("/_sim/calls?route=crm.detials")
    assert (answer.status_code, answer.json()["detail"].split(";")[0]) == (
        422,
        "There is no route 'crm.detials'",
    )
