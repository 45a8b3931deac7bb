"""Ports of audits: the language model."""

from dataclasses import dataclass
from typing import Protocol

from automation_pipeline.audits.models.audits import AuditOptions
from automation_pipeline.audits.models.chat import Question, Reply
from automation_pipeline.core.coordination import RateLimiter, Semaphore
from automation_pipeline.storage.claims import DatabaseClaims


class LanguageModel(Protocol):
    """A model that answers in JSON of a given schema and may call tools. The caller retries and waits."""

    @property
    def name(self) -> str:
        """The provider's name of the model."""
        ...

    async def ask(self, question: Question) -> Reply:
        """Return the model's next message, with one call.

        The caller validates the content: a reply may be cut, empty or invalid, and has its usage
        anyway. Raises TransientError when there is no valid completion, with the requested
        `retry_after_seconds`, if any. Raises PermanentError when the key, the model or the question
        is refused. No message contains the key.
        """
        ...

    async def check(self) -> None:
        """Raise an AutomationError unless the provider answers and accepts the key and the model."""
        ...


def audit_key(audit_id: int) -> str:
    """The key of the claim on an audit."""
    return f"audit-{audit_id}"


@dataclass(frozen=True)
class Judge:
    """The model with its limits over all processes: `semaphore` bounds concurrent calls, `limiter` calls
    per minute. `claims` prevents two processes from working on one audit."""

    model: LanguageModel
    limiter: RateLimiter
    semaphore: Semaphore
    claims: DatabaseClaims
    options: AuditOptions
