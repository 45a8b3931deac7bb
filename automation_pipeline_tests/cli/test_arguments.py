"""Tests of fiche IDs on the command line: the same validation in every command."""

from collections.abc import Iterator

import pytest

from automation_pipeline.cli.output import check_fiche_ids
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline_tests.cases import every_case
from automation_pipeline_tests.cli.terminal import Terminal, open_terminal


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    with open_terminal(request) as terminal:
        yield terminal


@every_case("fiche_id", ["1", "1900417", "9" * 18])
def test_a_fiche_id_is_a_number(fiche_id: str) -> None:
    check_fiche_ids([fiche_id])


@every_case(
    "fiche_id",
    ["", "0", "007", "-7", "+7", "7.0", "7 ", "7\n", "1" * 19, "²", "٧", "７", "7\udcff"],
)
def test_an_invalid_fiche_id_is_rejected(fiche_id: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_fiche_ids(["7", fiche_id])
    assert str(refused.value) == f"A fiche id is a number, unlike {fiche_id}."


@every_case("fiche_id", ["abc", "٧", "07", "1" * 19])
@every_case(
    "arguments",
    ["audit {} --config 1", "transcribe 7 {}", "fiches show {}", "audits list --fiche {}"],
)
def test_every_command_rejects_an_invalid_fiche_id_with_the_same_message(
    terminal: Terminal, arguments: str, fiche_id: str
) -> None:
    ended = terminal.run(*arguments.format(fiche_id).split())
    assert (ended.code, ended.out, ended.err) == (
        2,
        "",
        f"A fiche id is a number, unlike {fiche_id}.\n",
    )
