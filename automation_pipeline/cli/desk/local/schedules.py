"""Schedules by the stages."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime

from automation_pipeline.automation.domain.run import Run
from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.selection import FicheSelection
from automation_pipeline.automation.stages.backfill_schedule import ScheduleBackfill, backfill_schedule
from automation_pipeline.automation.stages.create_schedule import create_schedule
from automation_pipeline.automation.stages.delete_schedule import delete_schedule
from automation_pipeline.automation.stages.pause_schedule import pause_schedule
from automation_pipeline.automation.stages.preview_schedule import SelectionPreview, preview_schedule
from automation_pipeline.automation.stages.request_run import request_run
from automation_pipeline.automation.stages.resume_schedule import resume_schedule
from automation_pipeline.automation.stages.skip_next import skip_next
from automation_pipeline.automation.stages.update_schedule import update_schedule
from automation_pipeline.automation.store.occurrences import Occurrence, occurrences_of
from automation_pipeline.automation.store.schedules import get_schedule, list_schedules
from automation_pipeline.bootstrap import Services


class LocalSchedules:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Mapping[str, object]) -> Schedule:
        our = self._services
        origins = our.settings.webhook_allowed_origins
        return create_schedule(given, database=our.database, clock=our.clock, webhook_origins=origins)

    def listed(self, *, include_inactive: bool) -> Sequence[Schedule]:
        with self._services.database.reading() as session:
            return list_schedules(session, include_inactive=include_inactive)

    def get(self, schedule_id: int) -> Schedule:
        with self._services.database.reading() as session:
            return get_schedule(session, schedule_id)

    def update(self, schedule_id: int, patch: Mapping[str, object]) -> Schedule:
        our = self._services
        origins = our.settings.webhook_allowed_origins
        return update_schedule(schedule_id, patch, database=our.database, clock=our.clock, webhook_origins=origins)

    def delete(self, schedule_id: int) -> None:
        delete_schedule(schedule_id, database=self._services.database)

    def pause(self, schedule_id: int, reason: str | None) -> Schedule:
        our = self._services
        return pause_schedule(schedule_id, database=our.database, clock=our.clock, reason=reason)

    def resume(self, schedule_id: int) -> Schedule:
        return resume_schedule(schedule_id, database=self._services.database, clock=self._services.clock)

    def request_run(self, schedule_id: int, selection: FicheSelection | None) -> Run:
        our = self._services
        return request_run(
            schedule_id,
            database=our.database,
            clock=our.clock,
            override=selection,
            lost_after_seconds=our.settings.automation_lost_after_seconds,
        )

    def skip_next(self, schedule_id: int) -> datetime:
        return skip_next(schedule_id, database=self._services.database, clock=self._services.clock)

    def occurrences(self, schedule_id: int, limit: int) -> Sequence[Occurrence]:
        with self._services.database.reading() as session:
            get_schedule(session, schedule_id)
            return occurrences_of(session, schedule_id, limit)

    def preview(self, schedule_id: int) -> SelectionPreview:
        our = self._services
        with our.database.reading() as session:
            key = get_schedule(session, schedule_id).external_api_key
        work = preview_schedule(
            schedule_id,
            database=our.database,
            source=our.crm_with(key),
            clock=our.clock,
            semaphore=our.sales_list_semaphore,
            most_recordings=our.settings.automation_max_recordings_per_fiche,
        )
        return our.run(work)

    def backfill(self, schedule_id: int, first: date, last: date, *, dry_run: bool) -> ScheduleBackfill:
        our = self._services
        return backfill_schedule(schedule_id, first, last, database=our.database, clock=our.clock, dry_run=dry_run)
