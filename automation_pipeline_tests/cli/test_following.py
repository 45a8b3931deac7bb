"""Tests of following work: Ctrl-C stops only the command, and each phase has a progress bar."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from automation_pipeline import bootstrap
from automation_pipeline.automation.commands.runs import phase_bars, watch_run
from automation_pipeline.automation.models.runs import LedgerMove, OutcomeStatus, Phase
from automation_pipeline.automation.queries.ledger import open_ledger, record_moves
from automation_pipeline.automation.queries.run_details import RunProgress
from automation_pipeline.automation.queries.runs import get_run
from automation_pipeline.automation.runs import finalise_run, open_run, request_run
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli import progress
from automation_pipeline.cli.progress import LaunchWait
from automation_pipeline.core.settings import Settings
from automation_pipeline_tests.cli.terminal import Terminal, during_pauses, open_terminal
from automation_pipeline_tests.factories import make_launch, make_schedule
from automation_pipeline_tests.fakes.clock import FakeClock

RUN_GOES_ON = "Run 1 continues. `automation runs show 1` shows its status.\n"
WORK_GOES_ON = "The transcription continues. `automation fiches show FICHE_ID` shows its status.\n"


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


@pytest.fixture
def services(terminal: Terminal, clock: FakeClock) -> Iterator[Services]:
    services = Services(Settings(database_url=str(terminal.database.engine.url)), clock)
    yield services
    services.database.dispose()


@pytest.fixture
def run_id(services: Services) -> int:
    schedule = make_schedule(services.database, services.clock)
    return int(request_run(schedule.id, database=services.database, clock=services.clock).id)


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_while_following_a_run_prints_that_it_continues(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    during_pauses(monkeypatch)
    ended = terminal.run("schedules", "run-now", terminal.create(), "--wait", *flags)
    assert (ended.code, ended.err) == (130, RUN_GOES_ON)
    assert [run["status"] for run in terminal.json("runs", "list")["runs"]] == ["pending"]


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_while_following_a_transcription_prints_that_it_continues(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    during_pauses(monkeypatch)
    ended = terminal.run("transcribe", "7", "--wait", *flags)
    assert (ended.code, ended.err) == (130, WORK_GOES_ON)


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_ctrl_c_while_watching_a_run_prints_that_it_continues(
    terminal: Terminal, run_id: int, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    during_pauses(monkeypatch)
    ended = terminal.run("runs", "watch", str(run_id), *flags)
    assert (ended.code, ended.err) == (130, RUN_GOES_ON)


def test_a_run_advanced_by_another_thread_is_watched_to_its_end(
    services: Services, run_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, clock = services.database, services.clock

    def work() -> None:
        open_run(make_launch(1, run_id=run_id), database=database, clock=clock)
        with database.transaction() as session:
            open_ledger(session, run_id, ["1"], 1, clock.now())
            session.get_one(RunRow, run_id).selected_fiches = 1
        with database.transaction() as session:
            record_moves(session, run_id, [LedgerMove("1", OutcomeStatus.SUCCESSFUL)], clock.now())
        finalise_run(run_id, database=database, clock=clock)

    monkeypatch.setattr(progress, "pause", lambda: Event().wait(0.001))
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr(bootstrap, "services", lambda: services)
        worker = pool.submit(work)
        run = watch_run(run_id, quiet=True, waits=LaunchWait())
        worker.result(timeout=30)
    assert (run.status, run.successful_fiches) == ("completed", 1)


SELECTED, WORKING = RunProgress(9, 0, 0, 0, 0, 0, 0), RunProgress(9, 7, 5, 3, 2, 4, 6)


@pytest.mark.parametrize(
    ("phase", "ended", "selected", "advance", "bars"),
    [
        (None, False, 0, SELECTED, []),
        ("selection", False, 0, SELECTED, [(0, None), (0, None), (0, None), (0, None)]),
        ("fetching", False, 9, SELECTED, [(9, 9), (0, 9), (0, None), (0, None)]),
        ("transcribing", False, 9, WORKING, [(9, 9), (7, 9), (3, 5), (2, 5)]),
        ("finalizing", True, 0, RunProgress(0, 0, 0, 0, 0, 0, 0), [(0, 0), (0, 0), (0, 0), (0, 0)]),
    ],
)
def test_each_phase_has_a_progress_bar_with_its_known_total(
    services: Services, run_id: int,
    phase: str | None, ended: bool, selected: int, advance: RunProgress, bars: list[tuple[int, int | None]],
) -> None:  # fmt: skip
    with services.database.reading() as session:
        run = get_run(session, run_id)
    changes = {"phase": phase and Phase(phase), "selected_fiches": selected}
    changes["completed_at"] = services.clock.now() if ended else None
    shown = phase_bars(run.model_copy(update=changes), advance)
    assert [(done, total) for _label, done, total in shown] == bars
