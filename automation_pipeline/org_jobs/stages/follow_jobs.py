"""Look what became of the work that was begun elsewhere, all of a type together; stop what is not wanted any more."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.meter import Meter
from automation_pipeline.org_jobs.domain.endings import AttemptEnd, cancelled, failed, too_long
from automation_pipeline.org_jobs.domain.retry_policy import UNSUPPORTED
from automation_pipeline.org_jobs.ports import BegunElsewhere, JobDoer
from automation_pipeline.org_jobs.stages.count_ends import count_ends
from automation_pipeline.org_jobs.store.endings import EndedRun, end_attempts
from automation_pipeline.org_jobs.store.followed import FollowedRun, followed_runs, hold_followed
from automation_pipeline.storage.database import Database

FOLLOWER = "follower"
AT_ONCE = 500
_TOO_LONG = "It takes longer than its type of job may."


def follow_jobs(*, doers: Mapping[str, JobDoer], database: Database, clock: Clock, meter: Meter) -> int:
    """How many attempts have ended. What fails with one of them is told after the others are through."""
    follower = _Follower(doers, database, clock, meter)
    last_id, more = 0, True
    while more:
        with database.reading() as session:
            page = followed_runs(session, last_id, AT_ONCE)
        follower.look_at(page)
        more = len(page) == AT_ONCE
        last_id = page[-1].id if page else last_id
    if follower.faults:
        raise follower.faults[0]
    return follower.ended


class _Follower:
    def __init__(self, doers: Mapping[str, JobDoer], database: Database, clock: Clock, meter: Meter) -> None:
        self._doers, self._database, self._clock, self._meter = doers, database, clock, meter
        self.ended = 0
        self.faults: list[AutomationError] = []

    def look_at(self, runs: Sequence[FollowedRun]) -> None:
        for type_, of_type in groupby(sorted(runs, key=lambda run: run.type), key=lambda run: run.type):
            its, doer = list(of_type), self._doers.get(type_)
            try:
                self._look(its, doer) if isinstance(doer, BegunElsewhere) else self._give_up(its)
            except AutomationError as error:
                self.faults.append(error)

    def _look(self, runs: Sequence[FollowedRun], doer: BegunElsewhere) -> None:
        ends = doer.look({run.id: run.following for run in runs})
        if ends:
            self._end([run for run in runs if run.id in ends], ends)
        for run in runs:
            if run.id not in ends and (run.is_cancel_wanted or run.is_late(self._clock.now())):
                try:
                    self._stop(run, doer)
                except AutomationError as error:
                    self.faults.append(error)

    def _stop(self, run: FollowedRun, doer: BegunElsewhere) -> None:
        """Whoever is asked to stop may take a while for it, but not longer than the time that is left."""
        now, ended = self._clock.now(), list[EndedRun]()
        with self._database.as_one() as session:
            if not hold_followed(session, {run.id: run.following}):
                return
            is_over = doer.cancel(run.following, run.cancelled_by or FOLLOWER, run.cancel_reason or _reason(run))
            if is_over or run.is_late(now):
                end = cancelled(run.cancel_reason) if run.is_cancel_wanted else too_long(run.limit_seconds)
                ended = end_attempts(session, {run.id: end}, run.cancelled_by or FOLLOWER, now)
        self._count(ended)

    def _give_up(self, runs: Sequence[FollowedRun]) -> None:
        """Of a type that nobody does here any more."""
        words = f"Nobody here does jobs of the type {runs[0].type}."
        self._end(runs, {run.id: failed(words, UNSUPPORTED) for run in runs})

    def _end(self, runs: Sequence[FollowedRun], ends: Mapping[int, AttemptEnd]) -> None:
        with self._database.transaction() as session:
            held = hold_followed(session, {run.id: run.following for run in runs})
            ended = end_attempts(session, {id_: ends[id_] for id_ in held}, FOLLOWER, self._clock.now())
        self._count(ended)

    def _count(self, ended: Sequence[EndedRun]) -> None:
        self.ended += len(ended)
        count_ends(ended, meter=self._meter, now=self._clock.now())


def _reason(run: FollowedRun) -> str | None:
    return None if run.is_cancel_wanted else _TOO_LONG
