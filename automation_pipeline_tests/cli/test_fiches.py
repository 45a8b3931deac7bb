"""The commands `automation fiches`: they sync days, report failures and show a fiche."""

from collections.abc import Iterator
from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from automation_pipeline.simulator import Kind, World
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal
from automation_pipeline_tests.simulator_control import TOKEN, add_faults, call_count

DAY = "2026-02-03"
FICHES = World(7, vary=False).day(date(2026, 2, 3))
MISSING = next(fiche.id for fiche in FICHES if fiche.kind is Kind.MISSING)
CALLED = next(fiche for fiche in FICHES if fiche.kind is Kind.MANY_RECORDINGS)


@pytest.fixture
def terminal(request: pytest.FixtureRequest, simulator_url: str) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        terminal.export(FICHE_API_BASE_URL=simulator_url, FICHE_API_AUTH_TOKEN=TOKEN)
        yield terminal


def test_a_synced_day_is_one_row_with_its_counts(terminal: Terminal) -> None:
    ended = terminal.run("fiches", "sync", "--date", DAY, "--details")
    assert (ended.code, ended.err) == (0, "")
    assert [DAY, "24", "24", "0", "23", "1"] in [line.split() for line in ended.out.splitlines()]


def test_several_days_can_be_printed_as_json(terminal: Terminal) -> None:
    document = terminal.json("fiches", "sync", "--from", "2026-02-02", "--to", DAY)
    assert [day["day"] for day in document["days"]] == ["2026-02-02", DAY]
    assert document["days"][0] == {
        "day": "2026-02-02", "fiches": 24, "new": 24, "changed": 0,
        "withDetails": 0, "notFound": 0, "withoutDetails": 24,
    }  # fmt: skip
    assert document["errors"] == {}


def test_a_second_sync_does_not_fetch_details_again(terminal: Terminal, simulator_url: str) -> None:
    terminal.run("fiches", "sync", "--date", DAY, "--details")
    terminal.run("fiches", "sync", "--date", DAY, "--details")
    assert call_count(simulator_url, CALLED.id) == 1
    assert call_count(simulator_url, MISSING) == 1


def test_a_second_sync_fetches_final_lists_again_only_by_force(
    terminal: Terminal, simulator_url: str
) -> None:
    first = terminal.json("fiches", "sync", "--date", DAY)
    assert terminal.json("fiches", "sync", "--date", DAY) == first
    assert call_count(simulator_url, DAY, "crm.sales_list") == 1
    forced = terminal.json("fiches", "sync", "--date", DAY, "--force")
    assert (forced["days"][0]["fiches"], forced["days"][0]["new"]) == (24, 0)
    assert call_count(simulator_url, DAY, "crm.sales_list") == 2
    assert "--force" in terminal.run("fiches", "sync", "--help").out


def test_a_day_rejected_by_the_crm_is_reported_and_exits_with_1(terminal: Terminal) -> None:
    terminal.export(FICHE_API_AUTH_TOKEN="wr0ng")
    ended = terminal.run("fiches", "sync", "--date", DAY)
    assert ended.code == 1
    assert (
        f"{DAY}: The CRM refused the token for the sales list of {DAY} (status 401)." in ended.out
    )


def test_failed_fiches_are_counted_by_cause(terminal: Terminal, simulator_url: str) -> None:
    add_faults(simulator_url, {"route": "crm.details", "status": 403, "first": 3})
    document = terminal.json("fiches", "sync", "--date", DAY, "--details", code=1)
    assert document["errors"] == {"The CRM refused the token for a fiche (status 403).": 3}
    assert document["days"][0]["withoutDetails"] == 3


def test_a_fiche_is_shown_with_its_calls(terminal: Terminal) -> None:
    terminal.run("fiches", "sync", "--date", DAY, "--details")
    ended = terminal.run("fiches", "show", CALLED.id)
    assert ended.code == 0
    assert "full details" in ended.out
    assert f"{len(CALLED.recordings)}, " in ended.out
    assert CALLED.recordings[0].call_id in ended.out


def test_the_stored_fiches_of_a_day_are_listed_without_a_request(
    terminal: Terminal, simulator_url: str
) -> None:
    terminal.run("fiches", "sync", "--date", DAY, "--details")
    terminal.json("fiches", "sync", "--date", "2026-02-02")
    document = terminal.json("fiches", "list", "--date", DAY)
    assert (document["date"], document["total"]) == (DAY, len(FICHES))
    assert [one["ficheId"] for one in document["fiches"]] == [one.id for one in FICHES]
    page = terminal.json("fiches", "list", "--date", DAY, "--limit", "2", "--offset", "1")
    assert (page["total"], page["fiches"]) == (len(FICHES), document["fiches"][1:3])
    shown = terminal.run("fiches", "list", "--date", DAY, "--limit", "2")
    first, second = FICHES[:2]
    assert [line.split()[0] for line in shown.out.splitlines()] == [
        "fiche",
        first.id,
        second.id,
        "2",
    ]
    assert shown.out.splitlines()[-1] == f"2 of {len(FICHES)} fiches."
    assert terminal.json("fiches", "list", "--date", "2026-01-30")["fiches"] == []
    missing = terminal.run("fiches", "list", "--date", "2026-01-30").out
    assert missing.splitlines()[-1] == (
        "No fiche of 2026-01-30 is stored. `automation fiches sync --date 2026-01-30` fetches them."
    )
    assert call_count(simulator_url, DAY, "crm.sales_list") == 1


def test_the_fiches_of_today_are_listed_by_default(terminal: Terminal) -> None:
    paris = ZoneInfo("Europe/Paris")
    before = datetime.now(paris).date()
    listed = terminal.json("fiches", "list")
    assert before.isoformat() <= listed["date"] <= datetime.now(paris).date().isoformat()
    assert listed["fiches"] == []


@pytest.mark.parametrize(
    ("details", "fiche_id", "state"),
    [
        (False, CALLED.id, "sales list only"),
        (True, CALLED.id, "full details"),
        (True, MISSING, "not found"),
    ],
)
def test_the_status_of_a_fiche_is_shown(
    terminal: Terminal, details: bool, fiche_id: str, state: str
) -> None:
    terminal.run("fiches", "sync", "--date", DAY, *(["--details"] if details else []))
    document = terminal.json("fiches", "show", fiche_id)
    assert (document["fiche_id"], document["state"]) == (fiche_id, state)
    assert (document["information"] is None) == (state != "full details")


@every_case(
    ("arguments", "sentence"),
    [
        ("sync", "Give either --date, or --from and --to."),
        ("sync --to 2026-02-03", "Give either --date, or --from and --to."),
        ("sync --date 2026-02-03 --from 2026-02-03", "Give either --date, or --from and --to."),
        ("sync --date 2026-02-03 --to 2026-02-03", "Give either --date, or --from and --to."),
        ("sync --date tomorrow", "--date is not a day as YYYY-MM-DD: tomorrow."),
        ("sync --date 03/02/2026", "--date is not a day as YYYY-MM-DD: 03/02/2026."),
        ("sync --from 2026-02-30", "--from is not a day as YYYY-MM-DD: 2026-02-30."),
        ("sync --from 2026-02-03 --to 2026-02-02", "--to is before --from."),
        ("list --date 03/02/2026", "--date is not a day as YYYY-MM-DD: 03/02/2026."),
        ("sync --from 2020-01-01 --to 2026-01-01", "At most 366 days can be fetched at a time."),
    ],
)
def test_invalid_days_are_rejected_before_any_request(
    terminal: Terminal, arguments: str, sentence: str
) -> None:
    ended = terminal.run("fiches", *arguments.split())
    assert (ended.code, ended.out, ended.err) == (2, "", f"{sentence}\n")


def test_a_fiche_that_is_not_mirrored_exits_with_1(terminal: Terminal) -> None:
    ended = terminal.run("fiches", "show", "12")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "Fiche 12 not found: `automation fiches sync` fetches it.\n"


def test_sync_requires_a_crm_url(terminal: Terminal) -> None:
    terminal.export(FICHE_API_BASE_URL="")
    ended = terminal.run("fiches", "sync", "--date", DAY)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("FICHE_API_BASE_URL is not set")
