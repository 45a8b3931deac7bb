"""Tests of `automation worker`: it executes the Celery worker or prints a one-sentence error."""

import os
import sys
from collections.abc import Iterator

import pytest

from automation_pipeline_tests.cli.terminal import Terminal, open_terminal


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the program that the command executes instead of executing it."""
    programs: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _path, arguments: programs.append(arguments))
    return programs


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({}, "AUTOMATION_EXECUTOR is in_process: a worker needs AUTOMATION_EXECUTOR=celery."),
        (
            {"AUTOMATION_EXECUTOR": "celery"},
            "AUTOMATION_CELERY_BROKER_URL is not set, nor is REDIS_URL: one of them is the broker.",
        ),
    ],
)
def test_a_missing_setting_is_reported_in_one_sentence(
    terminal: Terminal, started: list[list[str]], variables: dict[str, str], sentence: str
) -> None:
    terminal.export(**variables)
    ended = terminal.run("worker")
    assert (ended.code, ended.out, ended.err.strip(), started) == (1, "", sentence, [])


@pytest.mark.parametrize(("arguments", "width"), [([], "5"), (["--concurrency", "3"], "3")])
def test_the_command_executes_the_celery_worker(
    terminal: Terminal, started: list[list[str]], arguments: list[str], width: str
) -> None:
    terminal.export(
        AUTOMATION_EXECUTOR="celery", REDIS_URL="redis://r/1", AUTOMATION_CELERY_CONCURRENCY="5"
    )
    assert terminal.run("worker", "--name", "one@%h", *arguments).code == 0
    assert started == [
        [
            *(sys.executable, "-m", "celery", "-A", "automation_pipeline.orchestration.celery"),
            *("worker", "--hostname", "one@%h", "--concurrency", width, "--loglevel", "WARNING"),
        ]
    ]
