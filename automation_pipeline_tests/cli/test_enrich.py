"""The command `automation enrich`: it reads, requests, shows and exports companies."""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from errno import ENOSPC
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from automation_pipeline import bootstrap
from automation_pipeline.cli.output import screen
from automation_pipeline.cli.progress import LaunchWait
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.enrichment.commands import (
    CONTINUES_HERE,
    read_wanted,
    request_companies,
    request_shown,
    with_statuses,
    work_on,
)
from automation_pipeline.enrichment.jobs import work_enrichment
from automation_pipeline.enrichment.models import NOT_CONFIGURED, REQUESTS, claim_key
from automation_pipeline.enrichment.queries.jobs import start_job
from automation_pipeline.enrichment.tables import CompanyRequestRow, EnrichmentJobRow
from automation_pipeline.storage.claims import DatabaseClaims, LeaseRow
from automation_pipeline.storage.monitoring import DAEMON, record_heartbeat
from automation_pipeline_tests.cli.registry import DANONE, LVMH, UNKNOWN_COMPANY, fake_registry
from automation_pipeline_tests.cli.terminal import Terminal, during_pauses, open_terminal
from automation_pipeline_tests.fakes.registries import FakeRegistry


@pytest.fixture
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setattr(screen, "_width", 250)
    with open_terminal(request) as terminal:
        terminal.export(LOGNAME="ada")
        yield terminal


@pytest.fixture
def search(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> FakeRegistry:
    assert terminal.folder
    return fake_registry(monkeypatch)


def states(terminal: Terminal) -> list[str]:
    with terminal.database.reading() as session:
        return list(session.scalars(select(EnrichmentJobRow.state).order_by(EnrichmentJobRow.id)))


@pytest.mark.usefixtures("search")
def test_the_here_option_enriches_in_process(terminal: Terminal) -> None:
    ended = terminal.run("enrich", "552 032 534", LVMH, "--here")
    assert (ended.code, ended.err) == (0, "")
    assert f"{DANONE} SUCCESS DANONE [SA] PARIS 70.10Z Sièges sociaux" in " ".join(
        ended.out.split()
    )
    assert states(terminal) == ["DONE", "DONE"]
    with terminal.database.reading() as session:
        assert set(session.scalars(select(CompanyRequestRow.created_by))) == {"cli:ada"}


@pytest.mark.usefixtures("search")
def test_with_a_daemon_the_command_only_follows_the_work(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal.database.transaction() as session:
        record_heartbeat(session, DAEMON)
    during_pauses(monkeypatch)
    ended = terminal.run("enrich", DANONE, "--wait", "--json")
    assert (ended.code, states(terminal)) == (130, ["PENDING"])
    assert ended.err.startswith("The enrichment continues")


def expire_leases(terminal: Terminal) -> None:
    with terminal.database.transaction() as session:
        session.execute(update(LeaseRow).values(expires_at=datetime(2020, 1, 1, tzinfo=UTC)))


def test_a_job_of_a_killed_worker_is_taken_over_after_its_lease_expires(
    terminal: Terminal, search: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.json("enrich", DANONE)
    lease = DatabaseClaims(terminal.database).take(claim_key(DANONE), "killed", 120)
    assert lease is not None
    with terminal.database.transaction() as session:
        start_job(session, 1, lease, 3, datetime.now(UTC))
    calls_before = []

    def expire_lease() -> None:
        calls_before.extend(search.calls)
        expire_leases(terminal)

    during_pauses(monkeypatch, expire_lease)
    [document] = terminal.json("enrich", DANONE, "--here")["companies"]
    assert (document["outcome"], document["status"], states(terminal)) == (
        "ATTACHED",
        "SUCCESS",
        ["DONE"],
    )
    assert (calls_before, len(search.calls)) == ([], 1)


@pytest.mark.usefixtures("search")
def test_ctrl_c_prints_which_process_continues_the_work(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DatabaseClaims(terminal.database).take(claim_key(DANONE), "another", 120)
    during_pauses(monkeypatch)
    ended = terminal.run("enrich", DANONE, "--here", "--json")
    assert (ended.code, ended.err) == (130, f"{CONTINUES_HERE}\n")


@pytest.mark.parametrize(("options", "has_started"), [((), [False, True]), (("--here",), [True])])
def test_the_command_waits_for_the_start_of_the_work(
    terminal: Terminal,
    search: FakeRegistry,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    has_started: list[bool],
) -> None:
    terminal.json("enrich", DANONE, "--here")
    services, recorded = bootstrap.services(), []
    assert DatabaseClaims(terminal.database).take(claim_key(UNKNOWN_COMPANY), "another", 120)

    def pause(_wait: LaunchWait, *, has_started: bool) -> None:
        recorded.append(has_started)
        if options or len(recorded) == 2:
            raise KeyboardInterrupt
        work = work_enrichment(
            2,
            registries=services.registries,
            database=services.database,
            clock=services.clock,
            owner="another",
        )
        services.run(work)

    monkeypatch.setattr(LaunchWait, "pause", pause)
    assert terminal.run("enrich", DANONE, LVMH, UNKNOWN_COMPANY, "--wait", *options).code == 130
    assert (recorded, len(search.calls)) == (has_started, 2)


@pytest.mark.usefixtures("search")
def test_only_jobs_that_end_count_as_progress(terminal: Terminal) -> None:
    wanted = read_wanted([DANONE, LVMH], None, strict=False)
    lookups = with_statuses(request_companies(wanted, force=False, quiet=True))
    outcomes = {
        labels: amount
        for (name, labels), amount in bootstrap.services().meter.drain().items()
        if name == REQUESTS
    }
    assert outcomes == {'outcome="ENQUEUED"': 2}
    assert [one.known.request for one in lookups if one.known] == [
        request_shown(request_id).request for request_id in (1, 2)
    ]
    assert DatabaseClaims(terminal.database).take(claim_key(LVMH), "another", 120)
    ended: list[str] = []
    work_on(lookups, lambda: ended.append("a job"))
    assert (ended, states(terminal)) == (["a job"], ["DONE", "PENDING"])


def test_without_wait_the_known_results_are_shown(terminal: Terminal, search: FakeRegistry) -> None:
    [requested] = terminal.json("enrich", DANONE)["companies"]
    assert (requested["outcome"], requested["status"], requested["company"]) == (
        "ENQUEUED",
        "PENDING",
        None,
    )
    terminal.json("enrich", DANONE, "--here")
    [known] = terminal.json("enrich", DANONE)["companies"]
    assert (known["outcome"], known["status"], known["company"]["city"]) == (
        "CACHE_HIT",
        "SUCCESS",
        "PARIS",
    )
    assert len(search.calls) == 1


def test_fresh_companies_are_refreshed_only_by_force(
    terminal: Terminal, search: FakeRegistry
) -> None:
    for options in ((), ("--force",), ()):
        terminal.json("enrich", DANONE, "--here", *options)
    assert len(search.calls) == 2


@pytest.mark.usefixtures("search")
def test_a_failed_company_is_reported_and_exits_with_1(terminal: Terminal) -> None:
    ended = terminal.run("enrich", UNKNOWN_COMPANY, DANONE, "--here")
    assert ended.code == 1
    assert "API_RECHERCHE_ENTREPRISES:404:NOT_FOUND" in ended.out
    assert "DANONE" in ended.out


@pytest.mark.usefixtures("search")
def test_a_csv_file_is_read_and_a_csv_file_is_written(terminal: Terminal) -> None:
    (terminal.folder / "in.csv").write_text(
        f"name;SIREN\nDanone;{DANONE}\nLVMH;{LVMH}\nWrong;12\n;\n", encoding="utf-8"
    )
    ended = terminal.run("enrich", DANONE, "--csv", "in.csv", "--out", "out.csv", "--here")
    assert ended.code == 1
    with (terminal.folder / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["siren"], row["status"], row["legal_name"]) for row in rows] == [
        (DANONE, "SUCCESS", "DANONE [SA]"),
        (LVMH, "SUCCESS", "'=LVMH"),
        ("", "INVALID", ""),
    ]
    assert (rows[0]["vat_number"], rows[2]["given"]) == ("FR27552032534", "12")
    assert "must be nine digits" in rows[2]["error"]


@pytest.mark.parametrize("out", ["no/where.csv", "folder"])
def test_no_request_is_sent_if_the_output_file_is_not_writable(
    terminal: Terminal, search: FakeRegistry, out: str
) -> None:
    (terminal.folder / "folder").mkdir()
    ended = terminal.run("enrich", DANONE, "--here", "--out", out)
    assert (ended.code, ended.out, search.calls, states(terminal)) == (2, "", [], [])
    assert ended.err.startswith(f"{out} cannot be written: ")


@pytest.mark.usefixtures("search")
def test_results_are_printed_if_the_output_file_cannot_be_written(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    ended = terminal.run("enrich", DANONE, "--here", "--out", "out.csv")
    assert (ended.code, ended.err) == (2, "out.csv cannot be written: No space left on device.\n")
    assert "DANONE [SA]" in ended.out
    assert not (terminal.folder / "out.csv").exists()


def test_an_existing_output_file_is_kept_if_no_request_can_be_sent(terminal: Terminal) -> None:
    file = terminal.folder / "out.csv"
    file.write_text("yesterday", encoding="utf-8")
    assert NOT_CONFIGURED in terminal.run("enrich", DANONE, "--out", "out.csv").err
    assert file.read_text(encoding="utf-8") == "yesterday"


def test_a_dry_run_only_validates_the_numbers(terminal: Terminal, search: FakeRegistry) -> None:
    ended = terminal.run("enrich", DANONE, "123456789", "12", "--dry-run")
    assert ended.code == 1
    assert "the check digit of the SIREN 123456789 is wrong" in ended.out
    assert "must be nine digits" in ended.out
    assert (search.calls, states(terminal)) == ([], [])
    assert terminal.run("enrich", DANONE, "123456789", "--dry-run").code == 0
    assert terminal.run("enrich", DANONE, "123456789", "--dry-run", "--strict").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("enrich", 2, "Which companies? Give SIRENs or SIRETs"),
        ("enrich 12", 2, "Invalid company identifier: siren: must be nine digits"),
        ("enrich 552032534 --csv nowhere.csv", 2, "nowhere.csv cannot be read"),
        ("enrich 552032534 --dry-run --out no/where.csv", 2, "no/where.csv cannot be written"),
        ("enrich 552032534", 1, NOT_CONFIGURED),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    terminal: Terminal, arguments: str, code: int, sentence: str
) -> None:
    ended = terminal.run(*arguments.split())
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(sentence)
    assert len(ended.err.splitlines()) == 1


LVMH_SIRET = "73282932000074"


def companies_of_csv(path: Path, text: str) -> list[tuple[str | None, str | None]]:
    file = path / "companies.csv"
    file.write_bytes(text.encode("utf-8-sig"))
    return [(one.siren, one.siret) for one in read_wanted([], file, strict=False)]


@pytest.mark.parametrize(
    "text",
    [
        f"{DANONE}\n{LVMH_SIRET}\n",
        f"number,name\n{DANONE},Danone\n{LVMH_SIRET},Other\n",
        f"name;siren;siret\nDanone;{DANONE};\nOther;;{LVMH_SIRET}\n",
        f"SIRET\tSIREN\n\t552 032 534\n{LVMH_SIRET}\t732829320\n",
    ],
)
def test_common_csv_formats_are_accepted(tmp_path: Path, text: str) -> None:
    assert companies_of_csv(tmp_path, text) == [(DANONE, None), ("732829320", LVMH_SIRET)]


def test_duplicate_numbers_are_one_company() -> None:
    assert len(read_wanted([DANONE, DANONE, LVMH_SIRET], None, strict=False)) == 2


def test_contradictory_numbers_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "companies.csv"
    file.write_text(f"siren,siret\n{DANONE},{LVMH_SIRET}\n", encoding="utf-8")
    [request] = read_wanted([], file, strict=False)
    assert request.fault == "Invalid company identifier: siret: must begin with the SIREN"


def test_an_invalid_csv_file_is_rejected_with_the_line_number(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"companies\.csv cannot be read: line 3: field larger than"
    ):
        companies_of_csv(
            tmp_path,
            f"siren,name\n{DANONE},Danone\n{DANONE},{'x' * (csv.field_size_limit() + 1)}\n",
        )


@given(st.text(max_size=20))
def test_any_text_yields_either_a_company_or_an_error(text: str) -> None:
    [request] = read_wanted([text], None, strict=False)
    assert (request.siren is None) is (request.fault is not None)
