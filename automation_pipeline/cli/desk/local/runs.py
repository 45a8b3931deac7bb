"""Runs by the stages and stores."""

from collections.abc import Sequence

from automation_pipeline.automation.domain.run import Run, RunStatus
from automation_pipeline.automation.domain.run_record import LogEntry
from automation_pipeline.automation.domain.run_report import RunReport
from automation_pipeline.automation.stages.cancel_run import cancel_run
from automation_pipeline.automation.stages.retry_run import retry_run
from automation_pipeline.automation.store.progress import LogLevel, Progress, logs_after, progress_of, runs_like
from automation_pipeline.automation.store.run_report import run_report
from automation_pipeline.automation.store.run_story import RunStory, log_entry, run_story
from automation_pipeline.automation.store.runs import get_run
from automation_pipeline.bootstrap import Services


class LocalRuns:
    def __init__(self, services: Services) -> None:
        self._services = services

    def listed(
        self, *, schedule_id: int | None, statuses: Sequence[RunStatus], limit: int, offset: int
    ) -> Sequence[Run]:
        with self._services.database.reading() as session:
            return runs_like(session, schedule_id=schedule_id, statuses=statuses, limit=limit, offset=offset)

    def get(self, run_id: int) -> Run:
        with self._services.database.reading() as session:
            return get_run(session, run_id)

    def advance(self, run_id: int) -> tuple[Run, Progress]:
        with self._services.database.reading() as session:
            return get_run(session, run_id), progress_of(session, run_id)

    def story(self, run_id: int) -> RunStory:
        with self._services.database.reading() as session:
            return run_story(session, run_id)

    def report(self, run_id: int) -> RunReport:
        with self._services.database.reading() as session:
            return run_report(session, run_id)

    def logs(self, run_id: int, level: LogLevel, after_id: int) -> Sequence[LogEntry]:
        with self._services.database.reading() as session:
            return [log_entry(row) for row in logs_after(session, run_id, after_id, level)]

    def cancel(self, run_id: int, reason: str | None) -> Run:
        return cancel_run(run_id, reason=reason, database=self._services.database, clock=self._services.clock)

    def retry(self, run_id: int) -> Run:
        return retry_run(run_id, database=self._services.database, clock=self._services.clock)
