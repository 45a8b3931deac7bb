"""Who types is remembered by name, and where the system knows none, by number."""

import getpass
import os

import pytest

from automation_pipeline.cli.operations import actor


def test_a_user_is_remembered_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    assert actor() == "cli:ada"


@pytest.mark.parametrize(
    "error", [KeyError("uid not found"), ImportError(), OSError("No username set")]
)
def test_a_user_without_a_name_is_a_number(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def nobody() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert actor() == f"cli:uid-{os.getuid()}"
