"""How a peer without an event loop runs the coroutines of the workload, and the results that it
stores."""

import asyncio
import importlib.util
import json
import sqlite3
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[3] / "benchmarks" / "peers"


spec = importlib.util.spec_from_file_location("one_fiche", PEERS / "one_fiche.py")
assert spec is not None
assert spec.loader is not None
subject = importlib.util.module_from_spec(spec)
spec.loader.exec_module(subject)

OUTCOME = ("700000000", 2, 891, "BON")


def test_a_coroutine_without_awaits_ends_at_once() -> None:
    async def immediate() -> int:
        return 7

    assert subject.at_once(immediate()) == 7


def test_a_coroutine_that_waits_for_a_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="waits for something else"):
        subject.at_once(asyncio.sleep(0))


def test_an_error_of_the_work_is_not_swallowed() -> None:
    async def fail() -> None:
        raise ValueError("no such fiche")

    with pytest.raises(ValueError, match="no such fiche"):
        subject.at_once(fail())


def test_a_repeated_outcome_is_one_row(tmp_path: Path) -> None:
    results = subject.Results(tmp_path)
    results.add(OUTCOME)
    results.add(OUTCOME)
    results.close()
    assert sqlite3.connect(tmp_path / "result.db").execute("SELECT * FROM outcomes").fetchall() == [
        OUTCOME
    ]


def test_only_the_first_item_records_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = subject.Results(tmp_path), subject.Results(tmp_path)
    first.begin()
    started_at = (tmp_path / "began").read_text()
    second.begin()
    assert (tmp_path / "began").read_text() == started_at
    subject.report(tmp_path, float(started_at) - 2)
    document = json.loads(capsys.readouterr().out)
    assert document["started_seconds"] == pytest.approx(2)
    assert document["seconds"] >= document["started_seconds"]
