"""Schedules of organisations by the stages and stores. Who sits at this machine has those of all of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from automation_pipeline.api.versions import expected_number
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.desk.local.actor import actor
from automation_pipeline.cli.desk.local.org_choice import chosen_org, refuse_strange_org
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.org_jobs.domain.audit_entry import AuditEntry
from automation_pipeline.org_jobs.domain.backfill import Backfill
from automation_pipeline.org_jobs.domain.org_schedule import Dispatched, OrgSchedule, ScheduleFire
from automation_pipeline.org_jobs.domain.preview import SchedulePreview
from automation_pipeline.org_jobs.domain.tenancy import EVERYWHERE
from automation_pipeline.org_jobs.stages.backfill_schedule import backfill_schedule
from automation_pipeline.org_jobs.stages.coming_runs import coming_runs
from automation_pipeline.org_jobs.stages.create_schedule import create_schedule
from automation_pipeline.org_jobs.stages.delete_schedule import delete_schedule
from automation_pipeline.org_jobs.stages.keep_next_run import keep_next_run
from automation_pipeline.org_jobs.stages.pause_schedule import pause_schedule
from automation_pipeline.org_jobs.stages.preview_schedule import preview_schedule
from automation_pipeline.org_jobs.stages.resume_schedule import resume_schedule
from automation_pipeline.org_jobs.stages.run_schedule_now import run_schedule_now
from automation_pipeline.org_jobs.stages.skip_next_run import skip_next_run
from automation_pipeline.org_jobs.stages.update_schedule import update_schedule
from automation_pipeline.org_jobs.store.audit_log import audit_log
from automation_pipeline.org_jobs.store.schedules import ScheduleFilter, fires_of, get_schedule, list_schedules

Document = Mapping[str, object]


class LocalOrgSchedules:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Document, org_id: str | None) -> OrgSchedule:
        our, org = self._services, chosen_org(self._services, org_id)
        return create_schedule(
            given,
            org_id=org,
            within=EVERYWHERE,
            database=our.database,
            clock=our.clock,
            actor=actor(),
            call_origins=our.settings.org_jobs_https_allowed_origins,
        )

    def listed(self, chosen: ScheduleFilter, span: Span) -> Sequence[OrgSchedule]:
        refuse_strange_org(self._services, chosen.org_id)
        with self._services.database.reading() as session:
            return list_schedules(session, EVERYWHERE, chosen=chosen, limit=span.limit, offset=span.offset)

    def get(self, schedule_id: str) -> OrgSchedule:
        with self._services.database.reading() as session:
            return get_schedule(session, schedule_id, EVERYWHERE)

    def update(self, schedule_id: str, patch: Document) -> OrgSchedule:
        our = self._services
        expected, fields = expected_number(None, patch)
        return update_schedule(
            schedule_id,
            fields,
            within=EVERYWHERE,
            database=our.database,
            clock=our.clock,
            actor=actor(),
            expected=expected,
            call_origins=our.settings.org_jobs_https_allowed_origins,
        )

    def delete(self, schedule_id: str) -> None:
        our = self._services
        delete_schedule(schedule_id, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())

    def pause(self, schedule_id: str, *, reason: str | None, until: datetime | None) -> OrgSchedule:
        our = self._services
        return pause_schedule(
            schedule_id,
            within=EVERYWHERE,
            database=our.database,
            clock=our.clock,
            actor=actor(),
            reason=reason,
            until=until,
        )

    def resume(self, schedule_id: str) -> OrgSchedule:
        our = self._services
        return resume_schedule(schedule_id, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())

    def skip_next(self, schedule_id: str, reason: str | None) -> OrgSchedule:
        our = self._services
        return skip_next_run(
            schedule_id, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor(), reason=reason
        )

    def keep_next(self, schedule_id: str) -> OrgSchedule:
        our = self._services
        return keep_next_run(schedule_id, within=EVERYWHERE, database=our.database, clock=our.clock, actor=actor())

    def run_now(self, schedule_id: str, *, payload: Document | None, ignore_window: bool) -> Dispatched:
        our = self._services
        return run_schedule_now(
            schedule_id,
            within=EVERYWHERE,
            database=our.database,
            clock=our.clock,
            actor=actor(),
            payload=payload,
            ignore_window=ignore_window,
            call_origins=our.settings.org_jobs_https_allowed_origins,
        )

    def backfill(self, schedule_id: str, given: Document) -> Backfill:
        our = self._services
        return backfill_schedule(
            schedule_id,
            given,
            within=EVERYWHERE,
            database=our.database,
            clock=our.clock,
            actor=actor(),
            call_origins=our.settings.org_jobs_https_allowed_origins,
        )

    def coming(self, schedule_id: str, *, count: int, after: datetime | None) -> SchedulePreview:
        our = self._services
        return coming_runs(
            schedule_id, within=EVERYWHERE, database=our.database, clock=our.clock, count=count, after=after
        )

    def preview(self, given: Document, *, count: int, after: datetime | None) -> SchedulePreview:
        our = self._services
        origins = our.settings.org_jobs_https_allowed_origins
        return preview_schedule(given, count=count, after=after or our.clock.now(), call_origins=origins)

    def fires(self, schedule_id: str, *, limit: int, after_id: int = 0) -> Sequence[ScheduleFire]:
        with self._services.database.reading() as session:
            return fires_of(session, schedule_id, EVERYWHERE, limit, after_id, newest_first=True)

    def log(self, schedule_id: str, *, limit: int, after_id: int = 0) -> Sequence[AuditEntry]:
        with self._services.database.reading() as session:
            get_schedule(session, schedule_id, EVERYWHERE)
            return audit_log(
                session,
                EVERYWHERE,
                entity="schedule",
                entity_id=schedule_id,
                limit=limit,
                after_id=after_id,
                newest_first=True,
            )
