"""Tests of `automation transcribe`: a request prints its run id; invalid input is rejected."""

from collections.abc import Iterator

import pytest
from sqlalchemy import select

from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


def test_each_fiche_is_requested_once_and_its_run_is_printed(terminal: Terminal) -> None:
    filed = terminal.json("transcribe", "7", "8", "7", "--priority", "high")["transcriptions"]
    assert [one["fiche_id"] for one in filed] == ["7", "8"]
    with terminal.database.reading() as session:
        requests = session.scalars(select(RunRequestRow).order_by(RunRequestRow.id)).all()
    assert [request.job for request in requests] == ["transcribe_fiche"] * 2
    assert [request.config for request in requests] == [
        {"fiche_id": one["fiche_id"], "priority": "high", "run_id": one["run_id"]} for one in filed
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("transcribe", "Missing argument 'fiche_ids'"),
        ("transcribe abc", "A fiche id is a number, unlike abc."),
        ("transcribe 7 --priority soon", "Invalid value for '--priority'"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    terminal: Terminal, arguments: str, sentence: str
) -> None:
    ended = terminal.run(*arguments.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(sentence)
    assert len(ended.err.splitlines()) == 1
