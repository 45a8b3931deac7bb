"""What this room needs of the outside world: those who do the jobs of this system, one a type."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from automation_pipeline.org_jobs.models.jobs import AttemptEnd


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """One attempt at a job. `key` is the run's own, in each of its attempts: one that was taken for
    lost may have been done, and whoever is asked again knows it by that. The payload is as it is
    stored, with references in place of secrets."""

    org_id: str
    job_id: int
    run_id: int
    attempt_no: int
    payload: Mapping[str, object]
    key: str


@runtime_checkable
class InProcessRunner(Protocol):
    """A type whose whole work is done by the worker that has the attempt."""

    async def work(self, context: JobContext) -> AttemptEnd:
        """How it ended, whatever the outside did; no text of it holds a secret. Run it beside the
        heartbeats, and cancel its task when the attempt is over for another reason. An
        AutomationError is for `failures.end_of`."""
        ...


@runtime_checkable
class RemoteRunner(Protocol):
    """A type whose work is a run of another room: it is begun here and then followed without a
    worker."""

    def start(self, context: JobContext) -> Mapping[str, object]:
        """Ask for it, and say what to follow. It writes rows of ours and nothing else, so that

            with database.as_one() as session:
                ... look that the attempt is still held ...
                run.following = dict(doer.start(asked))

        keeps both or neither. An AutomationError leaves nothing behind, and undoes that
        transaction: outside of it, `failures.end_of` makes the end of the attempt of it."""
        ...

    def look(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        """Those that have ended, by whatever number the caller gave them; the others are to be
        waited for. The number of queries does not depend on how many are looked at. What is not
        there any more has failed."""
        ...

    def cancel(
        self, following: Mapping[str, object], actor: str, reason: str | None = None
    ) -> bool:
        """Have it stopped; nothing, when it has ended or is gone. It may take a while to stop:
        `look` tells. True: it was not at work and will not begin by itself, so that there is
        nothing to wait for. Rows of ours too, so it may be part of a transaction by `as_one`.
        Whoever ends the attempt of what is followed (a cancel, its deadline) calls this, or it
        would go on."""
        ...


JobRunner: TypeAlias = InProcessRunner | RemoteRunner


@dataclass(frozen=True, kw_only=True)
class HttpsRequest:
    """With its secrets in it. `secrets` are what no answer may show."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    timeout_seconds: float
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class HttpsAnswer:
    """The beginning of the text, in which secrets are masked."""

    status: int
    text: str


class HttpsCaller(Protocol):
    async def call(self, request: HttpsRequest) -> HttpsAnswer:
        """What the receiver said, whatever its status: one attempt, in which redirects are followed
        within the origin of the address only, and none that changes the method.

        TransientError: no answer this time. InvalidInputError: the address is not called. No text
        holds any part of the address but its origin."""
        ...
