"""Fake runners with scripted outcomes."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from automation_pipeline.org_jobs.models.jobs import AttemptEnd, attempt_succeeded
from automation_pipeline.org_jobs.ports import JobContext


@dataclass
class LocalWork:
    """Calls `during` in a thread and ends with `end`, unless it `never_ends`."""

    end: AttemptEnd | Exception = field(default_factory=lambda: attempt_succeeded({"status": 200}))
    during: Callable[[], object] | None = None
    never_ends: bool = False
    contexts: list[JobContext] = field(default_factory=list)
    was_cancelled: bool = False

    async def work(self, context: JobContext) -> AttemptEnd:
        self.contexts.append(context)
        try:
            if self.during is not None:
                await asyncio.to_thread(self.during)
            if self.never_ends:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


@dataclass
class RemoteWork:
    """Remote work. `started` maps the key of each attempt to its end, or None while it runs."""

    started: dict[str, AttemptEnd | None] = field(default_factory=dict)
    fault: Exception | None = None
    stopped: list[tuple[str, str, str | None]] = field(default_factory=list)
    polls: int = 0
    stops_at_once: bool = False

    def start(self, context: JobContext) -> Mapping[str, object]:
        if self.fault is not None:
            raise self.fault
        key = f"{context.run_id}:{context.attempt_no}"
        self.started[key] = None
        return {"key": key}

    def find_ended(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        self.polls += 1
        found = {
            number: self.started[str(following["key"])] for number, following in followed.items()
        }
        return {number: end for number, end in found.items() if end is not None}

    def cancel(
        self, following: Mapping[str, object], actor: str, reason: str | None = None
    ) -> bool:
        if self.fault is not None:
            raise self.fault
        self.stopped.append((str(following["key"]), actor, reason))
        return self.stops_at_once

    def end_all(self, end: AttemptEnd) -> None:
        self.started = dict.fromkeys(self.started, end)
