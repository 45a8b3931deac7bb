"""What this room needs of the outside world."""

from dataclasses import dataclass
from typing import Protocol

from automation_pipeline.audits.models.audits import AuditOptions
from automation_pipeline.audits.models.chat import Question, Reply
from automation_pipeline.core.coordination import RateLimiter, Semaphore
from automation_pipeline.storage.claims import DatabaseClaims


class LanguageModel(Protocol):
    """A model that answers in JSON of a given schema and may ask for tools. Attempts and waits are
    the caller's."""

    @property
    def name(self) -> str:
        """The model's name, as its provider calls it."""
        ...

    async def ask(self, question: Question) -> Reply:
        """The model's next message: one call, nothing repeated. Whether the content keeps to the
        schema is for the caller to see: a reply may be cut, empty or wrong, and has its usage all
        the same.

        TransientError: no answer this time, or one that is no completion; its `retry_after_seconds`
        is the wait that was asked for, if any. PermanentError: another attempt would end the same
        way: the key, the model or the question is refused. No text holds the key.
        """
        ...

    async def check(self) -> None:
        """Nothing, when the provider answers and accepts our key and model; else an error that says
        what is wrong."""
        ...


def audit_key(audit_id: int) -> str:
    """What a process claims before it works on the audit."""
    return f"audit-{audit_id}"


@dataclass(frozen=True)
class Judge:
    """The model as we may use it: `semaphore` bounds the calls at the same time, `limiter` those of
    a minute, both over all processes. `claims` keeps two processes from working on one audit."""

    model: LanguageModel
    limiter: RateLimiter
    semaphore: Semaphore
    claims: DatabaseClaims
    options: AuditOptions
