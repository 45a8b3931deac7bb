"""Which client the commands use: by the option, else by the environment; what is wrong with either is one
sentence."""

import pytest

from automation_pipeline_tests.cli.client.served import MACHINE, Far
from automation_pipeline_tests.cli.terminal import Terminal


def test_the_environment_says_which_api_and_with_what_token(far: Far) -> None:
    far.here.create()
    far.here.export(
        AUTOMATION_API_URL=far.url,
        AUTOMATION_API_TOKEN=MACHINE,
        DATABASE_URL="sqlite:///elsewhere.db",
    )
    assert [one["id"] for one in far.here.json("schedules", "list")["schedules"]] == ["1"]


def test_an_option_outdoes_the_environment(far: Far) -> None:
    far.here.export(
        AUTOMATION_API_URL="http://127.0.0.1:9", AUTOMATION_API_TOKEN="another-token-altogether"
    )
    assert far.json("schedules", "list") == {"schedules": []}


def test_without_any_of_it_the_work_is_done_here(terminal: Terminal) -> None:
    assert terminal.json("schedules", "list") == {"schedules": []}


NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--token", MACHINE], 2, "--token is for another machine's API: say which with --api."),
        (["--api", NOWHERE], 2, "The API wants a token: set AUTOMATION_API_TOKEN, or give one with --token."),
        (["--api", "ftp://x"], 2, "--api cannot be used: it must be an http:// or https:// address."),
        (["--api", NOWHERE, "--token", "naïve"], 2, "The token for the API holds characters that cannot be sent."),
        (["--api", NOWHERE, "--token", "two\nlines"], 2, "The token for the API holds characters that cannot be sent."),
        (["--api", f"{NOWHERE}/?x=s3cret"], 2,
         "--api cannot be used: it must be an address without user, query and fragment."),
        (["--api", f"{NOWHERE}/deep", "--token", MACHINE], 1,
         f"The API at {NOWHERE} could not be reached (ConnectError)."),
    ],
)  # fmt: skip
def test_what_is_wrong_with_it_is_one_sentence(
    terminal: Terminal, options: list[str], code: int, sentence: str
) -> None:
    ended = terminal.run(*options, "schedules", "list")
    assert (ended.code, ended.out, ended.err) == (code, "", f"{sentence}\n")
