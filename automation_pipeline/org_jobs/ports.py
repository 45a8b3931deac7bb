"""Protocols of the runners of service types, one runner per type."""

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
    """Runs a job in the worker that holds the attempt."""

    async def work(self, context: JobContext) -> AttemptEnd:
        """Return how the attempt ended; no text contains a secret. The caller sends heartbeats
        during the work, and cancels the task if the attempt ends for another reason. `end_of_error`
        converts an AutomationError that this raises."""
        ...


@runtime_checkable
class RemoteRunner(Protocol):
    """Starts a job in another package, which the sensor then follows without a worker."""

    def start(self, context: JobContext) -> Mapping[str, object]:
        """Start the job and return what to follow. It writes only to this system's database, so
        that a transaction by `single_transaction` commits the start together with the run's `following`. An
        AutomationError rolls that transaction back."""
        ...

    def find_ended(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        """Return the ends of the jobs that have ended, by the caller's numbers, with a constant
        number of queries. A deleted job has failed."""
        ...

    def cancel(
        self, following: Mapping[str, object], actor: str, reason: str | None = None
    ) -> bool:
        """Cancel the job unless it has ended. True: the job is not running and will not start, so
        the caller need not wait for its end. Part of a transaction by `single_transaction`, like `start`."""
        ...


JobRunner: TypeAlias = InProcessRunner | RemoteRunner


@dataclass(frozen=True, kw_only=True)
class HttpsRequest:
    """A request with its secrets filled in. No response contains any of `secrets`."""

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
        """Return the receiver's response with any status. One attempt: redirects are followed only
        within the origin and with the same method. Raises TransientError if there is no response,
        and InvalidInputError if the address is refused. Texts contain the origin of the address at
        most."""
        ...
