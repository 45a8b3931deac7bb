"""Tests of remote operations: requests, responses, and the choice of the API."""

import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import cast

import pytest

from automation_pipeline.bootstrap import Services
from automation_pipeline.cli import operations
from automation_pipeline.cli.operations import Document, RemoteApi, actor, every, operation
from automation_pipeline.cli.progress import remote_obstacle
from automation_pipeline.core.errors import UpstreamError
from automation_pipeline.core.json_model import Id, JsonModel
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.remote.served import TOKEN, RemoteTerminal
from automation_pipeline_tests.cli.terminal import Terminal


class Thing(JsonModel):
    id: Id
    long_name: str


@dataclass(frozen=True)
class StampedThing:
    made_at: datetime
    of_thing: Thing | None = None


class RecordingApi:
    """A fake API that records requests and returns a fixed response."""

    def __init__(self, answer: Document) -> None:
        self.answer, self.requests = answer, list[tuple[object, ...]]()

    def call(self, method: str, path: str, **rest: object) -> Document:
        self.requests.append((method, path, rest["query"], rest["body"], rest["repeatable"]))
        return self.answer


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> RecordingApi:
    sent = RecordingApi({"success": True, "data": {"id": "7", "longName": "x", "unknown": 1}})
    monkeypatch.setattr(operations, "remote_api", lambda: sent)
    return sent


@operation("GET /things/{thing_id}")
def thing(services: Services, thing_id: str, *, q: str | None = None, all_: bool = True) -> Thing:
    raise AssertionError(services)


@operation("DELETE /things/{thing_id}")
def drop_thing(services: Services, thing_id: str, *, why: str | None) -> None:
    raise AssertionError(services)


@operation("POST /things/{thing_id}[/parts/{part}]/turn", query=["how"], repeatable=False)
def turn(
    services: Services, thing_id: int, part: int | None, *, how: str, from_: date, due_at: int = 3
) -> Document:
    raise AssertionError(services)


@operation("PUT /things")
def put_thing(
    services: Services, given: Document, *, require_local_machine: bool = True
) -> StampedThing:
    raise AssertionError(services)


@operation("GET /things", whole=True)
def answer_about_things(services: Services) -> Document:
    raise AssertionError(services)


def test_arguments_are_sent_in_the_path_the_query_or_the_body(sent: RecordingApi) -> None:
    thing("a/b c")
    thing("1", q="x", all_=False)
    drop_thing("1", why=None)
    turn(1, None, how="left", from_=date(2026, 5, 1))
    turn(1, 2, how="left", from_=date(2026, 5, 1), due_at=0)
    assert sent.requests == [
        ("GET", "/things/a%2Fb%20c", {"all": True}, None, True),
        ("GET", "/things/1", {"q": "x", "all": False}, None, True),
        ("DELETE", "/things/1", {}, None, True),
        ("POST", "/things/1/turn", {"how": "left"}, {"from": "2026-05-01", "dueAt": 3}, False),
        (
            "POST",
            "/things/1/parts/2/turn",
            {"how": "left"},
            {"from": "2026-05-01", "dueAt": 0},
            False,
        ),
    ]


def test_a_given_body_is_sent_unchanged(sent: RecordingApi) -> None:
    sent.answer = {"madeAt": "2026-05-01T00:00:00Z"}
    put_thing({"snake_case": {}, "none": None})
    put_thing({})
    bodies = [body for _, _, _, body, _ in sent.requests]
    assert bodies == [{"snake_case": {}, "none": None}, {}]


def test_a_response_is_parsed_as_the_result_type(sent: RecordingApi) -> None:
    assert thing("7") == Thing(id=7, long_name="x")
    assert drop_thing("7", why="x") is None
    assert answer_about_things() == sent.answer
    found = {"id": 1, "longName": "y", "new": True}
    sent.answer = {"data": {"madeAt": "2026-05-01T00:00:00Z", "ofThing": found, "new": 1}}
    assert put_thing({}) == StampedThing(
        datetime(2026, 5, 1, tzinfo=UTC), Thing(id=1, long_name="y")
    )
    sent.answer = {"data": {"longName": "x"}}
    with pytest.raises(UpstreamError, match="cannot be parsed: its version differs"):
        thing("7")


def test_a_list_is_fetched_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "PAGE", 2)
    things = [Thing(id=number, long_name="x") for number in (3, 5, 8, 9)]

    def after_id(*, limit: int, after: int) -> Sequence[Thing]:
        return [one for one in things if one.id > after][:limit]

    def from_offset(*, limit: int, offset: int) -> Sequence[Thing]:
        return things[offset : offset + limit]

    assert list(every(after_id)) == things
    assert list(every(after_id, start=3)) == things[1:]
    assert list(every(from_offset, by="offset")) == things


def test_the_api_and_the_token_come_from_the_environment(remote: RemoteTerminal) -> None:
    remote.local.create()
    remote.local.export(
        AUTOMATION_API_URL=remote.url,
        AUTOMATION_API_TOKEN=TOKEN,
        DATABASE_URL="sqlite:///elsewhere.db",
    )
    assert [one["id"] for one in remote.local.json("schedules", "list")["schedules"]] == ["1"]


def test_options_override_the_environment(remote: RemoteTerminal) -> None:
    remote.local.export(
        AUTOMATION_API_URL="http://127.0.0.1:9", AUTOMATION_API_TOKEN="another-token-altogether"
    )
    assert remote.json("schedules", "list") == {"schedules": []}


def test_without_an_api_commands_run_locally(terminal: Terminal) -> None:
    assert terminal.json("schedules", "list") == {"schedules": []}


DEAD_URL = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--token", TOKEN], 2, "--token needs --api, which names the other machine's API."),
        (["--api", DEAD_URL], 2, "The API needs a token: set AUTOMATION_API_TOKEN, or pass one with --token."),
        (["--api", "ftp://x"], 2, "--api cannot be used: it must be an http:// or https:// address."),
        (["--api", DEAD_URL, "--token", "naïve"], 2, "The API token contains characters that cannot be sent."),
        (["--api", DEAD_URL, "--token", "two\nlines"], 2, "The API token contains characters that cannot be sent."),
        (["--api", f"{DEAD_URL}/?x=s3cret"], 2,
         "--api cannot be used: it must be an address without user, query and fragment."),
        (["--api", f"{DEAD_URL}/deep", "--token", TOKEN], 1,
         f"The API at {DEAD_URL} could not be reached (ConnectError)."),
    ],
)  # fmt: skip
def test_an_invalid_api_setting_is_one_sentence(
    terminal: Terminal, options: list[str], code: int, sentence: str
) -> None:
    ended = terminal.run(*options, "schedules", "list")
    assert (ended.code, ended.out, ended.err) == (code, "", f"{sentence}\n")


def test_a_user_is_identified_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    assert actor() == "cli:ada"


@pytest.mark.parametrize(
    "error", [KeyError("uid not found"), ImportError(), OSError("No username set")]
)
def test_a_user_without_a_name_is_identified_by_number(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def unknown() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert actor() == f"cli:uid-{os.getuid()}"


class Readiness:
    def __init__(self, checks: object) -> None:
        self._checks = checks

    def call(self, method: str, path: str, **options: object) -> dict[str, object]:
        assert (method, path) == ("GET", "/health/ready")
        assert options == {"query": {}, "body": None, "repeatable": True}
        return {"checks": self._checks}


@every_case(
    ("checks", "reason"),
    [
        ([{"name": "daemon", "state": "failed", "detail": "is silent."}], "daemon there is silent"),
        ([{"name": "daemon", "state": "ok"}], None),
        ([{"name": "database", "state": "failed", "detail": "is away."}], None),
        (None, None),
    ],
)
def test_only_a_failed_daemon_check_is_an_obstacle(checks: object, reason: str | None) -> None:
    missing = remote_obstacle(cast("RemoteApi", Readiness(checks)))
    assert (missing is None) if reason is None else reason in str(missing)
    assert missing is None or missing.code == "NO_DAEMON"
