"""Realtime routes: event streams of runs and fiches, and channel authentication."""

import asyncio
import json
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import SecretStr
from starlette.responses import StreamingResponse

from automation_pipeline.api import realtime as streams
from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.events import Event
from automation_pipeline.fiches.tables import FicheCacheRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import BEGINNING, Bookmark, enqueue
from automation_pipeline_tests.api.conftest import MACHINE, Login, user_token
from automation_pipeline_tests.api.served import served
from automation_pipeline_tests.audits.configurations import add

NOW = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
RUN_EVENTS = "/api/automation/runs/1/events"
EVERYTHING = {"Authorization": f"Bearer {MACHINE}"}


def enqueue_event(database: Database, number: int, **payload: object) -> None:
    """Enqueues an event of run 1, or of the fiche in the payload."""
    of_fiche = "fiche_id" in payload
    producer = str(payload.pop("producer", "automation"))
    event = Event(
        tenant_id="main",
        key=f"event-{number}",
        name="transcription.progress" if of_fiche else "automation.run.progress",
        producer=producer,
        correlation_id="x" if of_fiche else "automation-run-1",
        occurred_at=NOW,
        payload={"number": number, **payload},
    )
    with database.transaction() as session:
        enqueue(session, [event])


def store_fiche(database: Database, fiche_id: str, groupe: str = "NORD") -> None:
    """Stores a fiche from the sales list."""
    row = FicheCacheRow(
        fiche_id=fiche_id, groupe=groupe, raw_data={}, fetched_at=NOW, expires_at=NOW
    )
    with database.transaction() as session:
        session.add(row)


def parse_events(lines: Iterator[str]) -> Iterator[Mapping[str, str]]:
    """Yields the fields of each event, without comments and retry fields."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line and name:
            fields[name] = value
        elif not line:
            if "data" in fields:
                yield fields
            fields = {}


def numbers(events: Iterator[Mapping[str, str]]) -> list[int]:
    return [number for event in events if (number := json.loads(event["data"]).get("number"))]


@pytest.fixture
def url(api: FastAPI, client: TestClient) -> Generator[str]:
    """The URL of a server with one pending run."""
    selection = {"mode": "manual", "ficheIds": ["1"]}
    schedule = {"name": "By hand", "scheduleType": "MANUAL", "ficheSelection": selection}
    client.post("/api/automation/schedules", json=schedule)
    client.post("/api/automation/trigger", json={"scheduleId": "1"})
    with served(api) as address:
        yield address


class TestRunStream:
    def test_a_run_stream_starts_at_the_first_event_and_ends_with_the_run(
        self, url: str, client: TestClient, database: Database
    ) -> None:
        for number in (1, 2, 3):
            enqueue_event(database, number)
        with httpx.stream("GET", url + RUN_EVENTS, headers=EVERYTHING, timeout=60) as response:
            events = parse_events(response.iter_lines())
            assert [json.loads(next(events)["data"])["number"] for _ in range(3)] == [1, 2, 3]
            enqueue_event(database, 4)
            assert json.loads(next(events)["data"])["number"] == 4
            client.post("/api/automation/runs/1/cancel")
            rest = list(events)
        assert [event["event"] for event in rest] == ["automation.run.cancelled"]
        again = httpx.get(
            url + RUN_EVENTS, headers={**EVERYTHING, "Last-Event-ID": rest[-1]["id"]}, timeout=60
        )
        assert again.status_code == 204

    def test_a_resumed_stream_sends_only_new_events(
        self, url: str, client: TestClient, database: Database
    ) -> None:
        enqueue_event(database, 1)
        enqueue_event(database, 2)
        with httpx.stream("GET", url + RUN_EVENTS, headers=EVERYTHING, timeout=60) as response:
            last = next(parse_events(response.iter_lines()))["id"]
        enqueue_event(database, 3)
        client.post("/api/automation/runs/1/cancel")
        with httpx.stream(
            "GET", url + RUN_EVENTS, headers={**EVERYTHING, "Last-Event-ID": last}, timeout=60
        ) as response:
            assert numbers(parse_events(response.iter_lines())) == [2, 3]

    def test_a_stream_ends_when_the_server_stops(
        self, api: FastAPI, client: TestClient, database: Database
    ) -> None:
        client.post(
            "/api/automation/schedules",
            json={
                "name": "x",
                "scheduleType": "MANUAL",
                "ficheSelection": {"mode": "manual", "ficheIds": ["1"]},
            },
        )
        client.post("/api/automation/trigger", json={"scheduleId": "1"})
        enqueue_event(database, 1)
        with (
            served(api) as address,
            httpx.stream("GET", address + RUN_EVENTS, headers=EVERYTHING, timeout=60) as got,
        ):
            events = parse_events(got.iter_lines())
            next(events)
            api.state.stopping.set()
            assert list(events) == []

    def test_a_stream_ends_when_its_token_is_revoked(
        self, url: str, client: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streams, "ADMITTED_SECONDS", 0.0)
        wanted = {"name": "short", "permissions": ["automation.read"], "scope": "ALL"}
        created = client.post("/api/admin/tokens", json=wanted).json()["data"]
        enqueue_event(database, 1)
        headers = {"Authorization": f"Bearer {created['token']}"}
        with httpx.stream("GET", url + RUN_EVENTS, headers=headers, timeout=60) as response:
            events = parse_events(response.iter_lines())
            next(events)
            assert client.delete(f"/api/admin/tokens/{created['id']}").status_code == 200
            assert list(events) == []

    @pytest.mark.parametrize("last", ["x", "-1", "1-2", "1-2-3-4", "9" * 101])
    def test_an_invalid_last_event_id_is_refused(self, url: str, last: str) -> None:
        answered = httpx.get(url + RUN_EVENTS, headers={**EVERYTHING, "Last-Event-ID": last})
        assert (answered.status_code, answered.json()["details"][0]["field"]) == (
            400,
            "Last-Event-ID",
        )

    def test_a_stream_of_an_unknown_run_is_404(self, url: str) -> None:
        assert (
            httpx.get(f"{url}/api/automation/runs/9/events", headers=EVERYTHING).status_code == 404
        )


class TestFicheStream:
    PATH = "/api/fiches/77/events"

    def test_a_fiche_stream_sends_new_events_the_caller_can_read(
        self, url: str, database: Database
    ) -> None:
        store_fiche(database, "77")
        enqueue_event(database, 1, fiche_id="77", producer="transcription")
        token = user_token({"fiches.read": "ALL", "transcriptions.read": "ALL"})
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.stream("GET", url + self.PATH, headers=headers, timeout=60) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("retry:")
            enqueue_event(database, 2, fiche_id="77", producer="audits")
            enqueue_event(database, 3, fiche_id="78", producer="transcription")
            enqueue_event(database, 4, fiche_id="77", producer="transcription")
            assert json.loads(next(parse_events(lines))["data"])["number"] == 4

    def test_a_stream_of_an_unknown_fiche_is_404(self, url: str) -> None:
        assert httpx.get(f"{url}/api/fiches/1/events", headers=EVERYTHING).status_code == 404


class TestChannelErrors:
    AUTH = "/api/realtime/pusher/auth"

    def ask(self, client: TestClient, channel: str, **more: Any) -> httpx.Response:
        return client.post(
            self.AUTH, json={"socket_id": "1234.5678", "channel_name": channel, **more}
        )

    def test_a_machine_token_cannot_join_a_channel(self, client: TestClient) -> None:
        answered = self.ask(client, "private-global")
        assert (answered.status_code, answered.json()["error"]) == (
            401,
            "User authentication required",
        )

    def test_joining_a_channel_without_pusher_is_503(self, login: Login) -> None:
        answered = self.ask(login({"realtime.read": "ALL"}), "private-global")
        assert (answered.status_code, answered.json()["error"]) == (503, "Pusher not configured")

    @pytest.mark.parametrize("channel", ["pusher-x", "private-über", "x" * 201])
    def test_an_invalid_channel_name_is_400(self, login: Login, channel: str) -> None:
        assert self.ask(login({"realtime.read": "ALL"}), channel).status_code == 400


@pytest.fixture
def with_pusher(services: Services) -> None:
    account = {
        "pusher_app_id": "1",
        "pusher_key": "key",
        "pusher_secret": SecretStr("x"),
        "pusher_cluster": "eu",
    }
    services.settings = services.settings.model_copy(update=account)


ALL = {"realtime.read": "ALL", "automation.read": "ALL", "audits.read": "ALL", "fiches.read": "ALL"}
GROUP = dict.fromkeys(ALL, "GROUP")


@pytest.mark.usefixtures("with_pusher")
class TestChannelAuthentication:
    def test_channel_authentication_is_signed_with_the_pusher_key(self, login: Login) -> None:
        answered = TestChannelErrors().ask(login(ALL), "private-fiche-77")
        assert answered.status_code == 200
        assert answered.json()["auth"].startswith("key:")

    def test_channel_authentication_accepts_a_form(self, login: Login) -> None:
        form = {"socket_id": "1.2", "channel_name": "presence-global"}
        answered = login(ALL).post("/api/realtime/pusher/auth", data=form)
        assert json.loads(answered.json()["channel_data"])["user_id"] == "user:12"

    @pytest.mark.parametrize(
        ("channel", "needed"),
        [
            ("private-fiche-77", "fiches.read"),
            ("private-audit-audit-77-11-1700000000000", "audits.read"),
            ("private-audit-automation-4-audit-77-11", "audits.read"),
            ("private-audit-batch-a1-audit-77-11", "audits.read"),
            ("private-job-automation-run-1", "automation.read"),
            ("presence-org-1", "automation.read"),
            ("private-global", None),
            ("presence-global", None),
        ],
    )
    def test_joining_a_channel_needs_the_read_permission_of_its_subject(
        self, url: str, database: Database, login: Login, channel: str, needed: str | None
    ) -> None:
        store_fiche(database, "77")
        ask = TestChannelErrors().ask
        assert ask(login(ALL), channel).status_code == 200
        without = {name: scope for name, scope in ALL.items() if name != needed}
        assert ask(login(without), channel).status_code == (200 if needed is None else 403)

    @pytest.mark.parametrize(
        "channel",
        [
            "private-fiche-77",
            "private-fiche-78",
            "private-audit-audit-77-11-1700000000000",
            "private-audit-5",
            "private-audit-nonsense",
            "private-job-automation-run-1",
            "private-job-automation-run-9",
            "private-job-9",
            "private-user-12",
            "private-org-1",
            "private-tenant-1",
            "private-realtime-test",
        ],
    )
    def test_hidden_missing_and_forbidden_channels_look_the_same(
        self, url: str, database: Database, login: Login, channel: str
    ) -> None:
        store_fiche(database, "77", groupe="SUD")
        answered = TestChannelErrors().ask(login(GROUP, groupes=["NORD"]), channel)
        assert (answered.status_code, answered.json()["error"]) == (403, "Channel not allowed")

    def test_a_batch_of_audits_can_be_followed_if_all_its_fiches_are_in_reach(
        self, client: TestClient, services: Services, database: Database, login: Login
    ) -> None:
        config_id = add(database)
        for fiche_id, groupe in (("77", "NORD"), ("78", "SUD")):
            store_fiche(database, fiche_id, groupe=groupe)
        body = {"fiche_ids": ["77", "78"], "audit_config_id": config_id}
        batch = client.post("/api/audits/batch", json=body).json()["batch_id"]
        ask, channel = TestChannelErrors().ask, f"private-job-{batch}"
        statuses = [
            ask(login({"realtime.read": "ALL", **grants}, groupes=groupes), channel).status_code
            for grants, groupes in (
                ({"audits.read": "ALL"}, []),
                ({"audits.read": "GROUP"}, ["NORD", "SUD"]),
                ({"audits.read": "GROUP"}, ["NORD"]),
                ({"fiches.read": "ALL"}, []),
                ({}, []),
            )
        ]
        assert statuses == [200, 200, 403, 403, 403]
        assert ask(login(ALL), "private-job-unknown").status_code == 403

    def test_a_fetch_job_can_be_followed_by_its_creator(
        self, client: TestClient, services: Services, login: Login
    ) -> None:
        days = "startDate=2026-02-02&endDate=2026-02-03"
        grants = {"fiches.read": "GROUP", "realtime.read": "ALL"}
        owner, other = (login(grants, sub=sub) for sub in ("1", "2"))
        answered = owner.get(f"/api/fiches/status/by-date-range?{days}").json()
        channel = f"private-job-{answered['meta']['backgroundJobId']}"
        ask = TestChannelErrors().ask
        assert (ask(owner, channel).status_code, ask(other, channel).status_code) == (200, 403)

    def test_sending_a_test_event_needs_an_admin(self, login: Login) -> None:
        event = {"channel": "private-global", "event": "notification", "payload": {}}
        assert (
            login(ALL | {"realtime.write": "ALL"})
            .post("/api/realtime/pusher/test", json=event)
            .status_code
            == 403
        )


def stored(number: int) -> tuple[Bookmark, Event]:
    event = Event(
        tenant_id="main",
        key=f"event-{number}",
        name="automation.run.progress",
        producer="automation",
        correlation_id="x",
        occurred_at=NOW,
        payload={"number": number},
    )
    return Bookmark(id=number), event


def text_of(number: int) -> str:
    return f'id: 0-0-{number}\nevent: automation.run.progress\ndata: {{"number": {number}}}\n\n'


class FakeSource:
    """A source of the events 1 to `count`, which is over after `polls` reads."""

    def __init__(self, count: int, polls: int = 1) -> None:
        self.count, self.polls = count, polls
        self.read_after: list[int] = []
        self.admissions = 0

    def after(self, _session: object, after: Bookmark, limit: int) -> list[tuple[Bookmark, Event]]:
        self.read_after.append(after.id)
        last = min(after.id + limit, self.count)
        return [stored(number) for number in range(after.id + 1, last + 1)]

    def is_over(self, _session: object) -> bool:
        return len(self.read_after) >= self.polls

    def admit(self) -> None:
        self.admissions += 1
        if self.admissions > 2:
            raise AuthorizationError("Missing permission")

    def stream(self, database: Database, after: Bookmark = BEGINNING, **options: Any) -> list[str]:
        """Read a stream to its end; return its lines, or the status if it has none."""

        async def read() -> list[str]:
            source = streams.Source(self.after, self.is_over, self.admit, **options)
            response = await streams.stream(source, database, after, asyncio.Event())
            if not isinstance(response, StreamingResponse):
                return [str(response.status_code)]
            assert response.media_type == "text/event-stream"
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["x-accel-buffering"] == "no"
            return [str(line) async for line in response.body_iterator]

        return asyncio.run(read())


class TestStreamLines:
    @pytest.fixture(autouse=True)
    def _without_pauses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streams, "POLL_SECONDS", 0.0)
        monkeypatch.setattr(streams, "PAGE", 2)

    def test_a_stream_reads_pages_until_its_source_is_over(self, database: Database) -> None:
        source = FakeSource(5)
        lines = source.stream(database)
        assert lines == ["retry: 2000\n\n", *map(text_of, (1, 2, 3, 4, 5))]
        assert source.read_after == [0, 0, 2, 4]

    def test_a_full_last_page_is_followed_by_another_read(self, database: Database) -> None:
        source = FakeSource(2)
        assert source.stream(database) == ["retry: 2000\n\n", text_of(1), text_of(2)]
        assert source.read_after == [0, 0, 2]

    def test_a_source_without_events_is_polled_until_it_is_over(self, database: Database) -> None:
        assert FakeSource(0, polls=0).stream(database) == ["204"]
        assert FakeSource(3, polls=0).stream(database, Bookmark(id=3)) == ["204"]
        assert len(FakeSource(3, polls=0).stream(database, Bookmark(id=2))) == 2
        source = FakeSource(0, polls=4)
        assert source.stream(database) == ["retry: 2000\n\n"]
        assert source.read_after == [0, 0, 0, 0, 0]

    def test_hidden_events_are_skipped(self, database: Database) -> None:
        lines = FakeSource(4).stream(database, shows=lambda one: one[0].id % 2 == 0)
        assert lines == ["retry: 2000\n\n", text_of(2), text_of(4)]

    def test_a_quiet_stream_sends_comments(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.0)
        lines = FakeSource(0, polls=4).stream(database)
        assert lines == ["retry: 2000\n\n", *[": still here\n\n"] * 3]
        monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 60.0)
        assert FakeSource(0, polls=4).stream(database) == ["retry: 2000\n\n"]

    def test_access_is_checked_again_at_intervals(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = FakeSource(9)
        assert len(source.stream(database)) == 10
        assert source.admissions == 0
        monkeypatch.setattr(streams, "ADMITTED_SECONDS", 0.0)
        source = FakeSource(9)
        assert source.stream(database) == ["retry: 2000\n\n", *map(text_of, (1, 2, 3, 4))]
        assert source.admissions == 3


def test_a_test_event_is_published_on_a_known_channel(
    client: TestClient, services: Services
) -> None:
    published: list[tuple[object, ...]] = []

    class FakeChannels:
        async def trigger(self, *given: object) -> None:
            published.append(given)

    services.__dict__["realtime"] = FakeChannels()
    path = "/api/realtime/pusher/test"
    event = {"channel": "private-global", "event": "notification", "payload": {"a": 1}}
    answered = client.post(path, json=event)
    assert (answered.status_code, answered.json()) == (
        200,
        {"success": True, "message": "Test event published"},
    )
    refused = client.post(path, json={**event, "channel": "nonsense"})
    assert (refused.status_code, refused.json()["details"]) == (
        400,
        [{"field": "channel", "message": "is not a known channel"}],
    )
    assert published == [("private-global", "notification", {"a": 1})]
