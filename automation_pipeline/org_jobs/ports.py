"""Protocols for those who perform the service types of jobs, one per type."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from automation_pipeline.org_jobs.models.jobs import AttemptEnd


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """One attempt at a job. `key` is the same for all attempts of a run, so that a receiver
    recognises a repetition. The payload is as stored, with references in place of secrets."""

    org_id: str
    job_id: int
    run_id: int
    attempt_no: int
    payload: Mapping[str, object]
    key: str


@runtime_checkable
class InProcessRunner(Protocol):
    """Performs a job in the worker that has the attempt."""

    async def work(self, context: JobContext) -> AttemptEnd:
        """How the attempt ended; no text of it holds a secret. The caller sends heartbeats meanwhile,
        and cancels the task when the attempt ends for another reason. `end_of_error` makes the end
        of an AutomationError."""
        ...


@runtime_checkable
class RemoteRunner(Protocol):
    """Starts a job in another package; the job is then followed without a worker."""

    def start(self, context: JobContext) -> Mapping[str, object]:
        """Starts the job and answers what to follow. It only writes to this system's database, so
        that a transaction by `as_one` keeps the start and the run's `following` together. An
        AutomationError undoes that transaction."""
        ...

    def look(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        """The ends of those that have ended, by the caller's numbers, with a constant number of
        queries. What is gone has failed."""
        ...

    def cancel(
        self, following: Mapping[str, object], actor: str, reason: str | None = None
    ) -> bool:
        """Cancels the job, if it has not ended. True: it is not at work and will not start by
        itself, so that nobody has to wait for its end. Part of a transaction by `as_one`, like
        `start`."""
        ...


JobRunner: TypeAlias = InProcessRunner | RemoteRunner


@dataclass(frozen=True, kw_only=True)
class HttpsRequest:
    """A request with its secrets filled in. No answer shows any of `secrets`."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    timeout_seconds: float
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class HttpsAnswer:
    """The beginning of the text, with secrets masked."""

    status: int
    text: str


class HttpsCaller(Protocol):
    async def call(self, request: HttpsRequest) -> HttpsAnswer:
        """The receiver's answer, whatever its status. One attempt: redirects are followed within the
        origin only, and only with the same method.

        TransientError: no answer this time. InvalidInputError: the address is refused. No text holds
        more of the address than its origin."""
        ...
