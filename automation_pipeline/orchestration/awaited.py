"""A step that was sent to a Celery worker: its result, or the news that none will come. The broker may be away or
forget what it was given: a message that is lost is sent again."""

from collections.abc import Callable
from typing import Protocol

from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from automation_pipeline.core.logs import log

_log = log(__name__)


class Outlook(Protocol):
    """What is known of the run as a whole."""

    @property
    def is_over(self) -> bool:
        """The Dagster run has ended without its worker: nothing is waited for."""
        ...

    def is_lost(self, step_key: str) -> bool:
        """Neither at work nor in the queue any more."""
        ...


class Awaited:
    """What Dagster's loop over Celery asks a result for."""

    def __init__(
        self, step_key: str, send: Callable[[], AsyncResult], outlook: Outlook, away: tuple[type[Exception], ...]
    ) -> None:
        self._step_key, self._send, self._outlook, self._away = step_key, send, outlook, away
        self._results: list[AsyncResult] = []
        self.is_taken = False
        self._attempt()

    def ready(self) -> bool:
        if self._outlook.is_over:
            return True
        if not self._results or self._outlook.is_lost(self._step_key):
            self._attempt()
        return self._come() is not None

    def get(self) -> object:
        self.is_taken = True
        come = self._come()
        if come is None:
            raise TaskRevokedError(f"The run has ended before {self._step_key}.")
        return come.get()

    def revoke(self) -> None:
        try:
            for result in self._results:
                result.revoke()
        except self._away as error:
            self._say("cannot be taken back", error)

    def _attempt(self) -> None:
        try:
            self._results.append(self._send())
        except self._away as error:
            self._say("waits for the broker", error)

    def _come(self) -> AsyncResult | None:
        """Of a step that was sent twice, one message does the work, and only that one answers."""
        try:
            return next((result for result in self._results if result.ready()), None)
        except self._away as error:
            self._say("may have ended, but the broker is away", error)
            return None

    def _say(self, what: str, error: Exception) -> None:
        _log.warning("Step %s %s: %s", self._step_key, what, error)
