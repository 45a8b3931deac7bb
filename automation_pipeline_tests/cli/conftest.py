"""A terminal with a given width."""

from collections.abc import Callable

import pytest

from automation_pipeline.cli.output import screen

Sized = Callable[..., None]


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Sized:
    def sized(width: int, *, is_terminal: bool) -> None:
        monkeypatch.setattr(screen, "_width", width)
        monkeypatch.setattr(screen, "_force_terminal", is_terminal)

    return sized
