"""A clock that moves only when a test moves it."""

from datetime import datetime, timedelta


class FakeClock:
    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def advance(self, length: timedelta) -> None:
        self._now += length

    def advance_one_second(self) -> None:
        self.advance(timedelta(seconds=1))
