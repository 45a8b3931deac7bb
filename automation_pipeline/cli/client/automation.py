"""Schedules and runs, here and by the API."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime
from typing import cast

from pydantic.alias_generators import to_camel

from automation_pipeline.automation.documents import parse_report
from automation_pipeline.automation.models.reports import RunReport
from automation_pipeline.automation.models.runs import (
    FicheOutcome,
    LogEntry,
    Phase,
    PhaseLength,
    Run,
    RunFilter,
    RunNotification,
)
from automation_pipeline.automation.models.schedules import Schedule
from automation_pipeline.automation.models.selections import FicheSelection
from automation_pipeline.automation.queries.due import Occurrence, decided_occurrences
from automation_pipeline.automation.queries.reports import run_report
from automation_pipeline.automation.queries.run_details import (
    LogLevel,
    RunDetails,
    RunProgress,
    find_runs,
    log_entry,
    logs_after,
    progress_of,
    run_details,
)
from automation_pipeline.automation.queries.runs import get_run
from automation_pipeline.automation.queries.schedules import get_schedule, list_schedules
from automation_pipeline.automation.run_endings import cancel_run
from automation_pipeline.automation.runs import request_run, retry_run
from automation_pipeline.automation.schedules import (
    ScheduleBackfill,
    backfill_schedule,
    create_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    skip_next,
    update_schedule,
)
from automation_pipeline.automation.selection import SelectionPreview, preview_schedule
from automation_pipeline.bootstrap import Services
from automation_pipeline.cli.client.http import (
    PAGE,
    Api,
    Document,
    as_model,
    data_of,
    every_page,
    instant,
    list_of,
    read,
)
from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document


class LocalSchedules:
    def __init__(self, services: Services) -> None:
        self._services = services

    def create(self, given: Mapping[str, object]) -> Schedule:
        services = self._services
        origins = services.settings.webhook_allowed_origins
        return create_schedule(
            given, database=services.database, clock=services.clock, webhook_origins=origins
        )

    def listed(self, *, include_inactive: bool) -> Sequence[Schedule]:
        with self._services.database.reading() as session:
            return list_schedules(session, include_inactive=include_inactive)

    def get(self, schedule_id: int) -> Schedule:
        with self._services.database.reading() as session:
            return get_schedule(session, schedule_id)

    def update(self, schedule_id: int, patch: Mapping[str, object]) -> Schedule:
        services = self._services
        origins = services.settings.webhook_allowed_origins
        return update_schedule(
            schedule_id,
            patch,
            database=services.database,
            clock=services.clock,
            webhook_origins=origins,
        )

    def delete(self, schedule_id: int) -> None:
        delete_schedule(schedule_id, database=self._services.database)

    def pause(self, schedule_id: int, reason: str | None) -> Schedule:
        services = self._services
        return pause_schedule(
            schedule_id, database=services.database, clock=services.clock, reason=reason
        )

    def resume(self, schedule_id: int) -> Schedule:
        return resume_schedule(
            schedule_id, database=self._services.database, clock=self._services.clock
        )

    def request_run(self, schedule_id: int, selection: FicheSelection | None) -> Run:
        services = self._services
        return request_run(
            schedule_id,
            database=services.database,
            clock=services.clock,
            override=selection,
            lost_after_seconds=services.settings.automation_lost_after_seconds,
        )

    def skip_next(self, schedule_id: int) -> datetime:
        return skip_next(schedule_id, database=self._services.database, clock=self._services.clock)

    def occurrences(self, schedule_id: int, limit: int) -> Sequence[Occurrence]:
        with self._services.database.reading() as session:
            get_schedule(session, schedule_id)
            return decided_occurrences(session, schedule_id, limit)

    def preview(self, schedule_id: int) -> SelectionPreview:
        services = self._services
        with services.database.reading() as session:
            key = get_schedule(session, schedule_id).external_api_key
        work = preview_schedule(
            schedule_id,
            database=services.database,
            source=services.crm_with(key),
            clock=services.clock,
            semaphore=services.sales_list_semaphore,
            most_recordings=services.settings.automation_max_recordings_per_fiche,
        )
        return services.run(work)

    def backfill(
        self, schedule_id: int, first: date, last: date, *, dry_run: bool
    ) -> ScheduleBackfill:
        services = self._services
        return backfill_schedule(
            schedule_id,
            first,
            last,
            database=services.database,
            clock=services.clock,
            dry_run=dry_run,
        )


class LocalRuns:
    def __init__(self, services: Services) -> None:
        self._services = services

    def listed(self, chosen: RunFilter, *, limit: int, offset: int) -> Sequence[Run]:
        with self._services.database.reading() as session:
            return find_runs(session, chosen, limit=limit, offset=offset)

    def get(self, run_id: int) -> Run:
        with self._services.database.reading() as session:
            return get_run(session, run_id)

    def advance(self, run_id: int) -> tuple[Run, RunProgress]:
        with self._services.database.reading() as session:
            return get_run(session, run_id), progress_of(session, run_id)

    def story(self, run_id: int) -> RunDetails:
        with self._services.database.reading() as session:
            return run_details(session, run_id)

    def report(self, run_id: int) -> RunReport:
        with self._services.database.reading() as session:
            return run_report(session, run_id)

    def logs(self, run_id: int, level: LogLevel, after_id: int) -> Sequence[LogEntry]:
        with self._services.database.reading() as session:
            return [log_entry(row) for row in logs_after(session, run_id, after_id, level)]

    def cancel(self, run_id: int, reason: str | None) -> Run:
        return cancel_run(
            run_id, reason=reason, database=self._services.database, clock=self._services.clock
        )

    def retry(self, run_id: int) -> Run:
        return retry_run(run_id, database=self._services.database, clock=self._services.clock)


SCHEDULES_PATH = "/api/automation/schedules"


class RemoteSchedules:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: Document) -> Schedule:
        return _schedule(self._api.post(SCHEDULES_PATH, given))

    def listed(self, *, include_inactive: bool) -> Sequence[Schedule]:
        listed = every_page(self._api, SCHEDULES_PATH, {"include_inactive": include_inactive})
        return [as_model(Schedule, one) for one in listed]

    def get(self, schedule_id: int) -> Schedule:
        return _schedule(self._api.get(f"{SCHEDULES_PATH}/{schedule_id}"))

    def update(self, schedule_id: int, patch: Document) -> Schedule:
        return _schedule(self._api.patch(f"{SCHEDULES_PATH}/{schedule_id}", patch))

    def delete(self, schedule_id: int) -> None:
        self._api.delete(f"{SCHEDULES_PATH}/{schedule_id}")

    def pause(self, schedule_id: int, reason: str | None) -> Schedule:
        return _schedule(
            self._api.post(f"{SCHEDULES_PATH}/{schedule_id}/pause", {"reason": reason})
        )

    def resume(self, schedule_id: int) -> Schedule:
        return _schedule(self._api.post(f"{SCHEDULES_PATH}/{schedule_id}/resume"))

    def request_run(self, schedule_id: int, selection: FicheSelection | None) -> Run:
        chosen = {} if selection is None else {"overrideFicheSelection": as_document(selection)}
        asked = self._api.post(
            "/api/automation/trigger", {"scheduleId": str(schedule_id), **chosen}
        )
        return as_model(
            Run, data_of(self._api.get(f"/api/automation/runs/{read(lambda: asked['run_id'])}"))
        )

    def skip_next(self, schedule_id: int) -> datetime:
        told = data_of(self._api.post(f"{SCHEDULES_PATH}/{schedule_id}/skip-next"))
        return read(lambda: instant(told["skipped"]))

    def occurrences(self, schedule_id: int, limit: int) -> Sequence[Occurrence]:
        listed = list_of(
            self._api.get(f"{SCHEDULES_PATH}/{schedule_id}/occurrences", {"limit": limit})
        )
        return read(lambda: [_occurrence(one) for one in listed])

    def preview(self, schedule_id: int) -> SelectionPreview:
        return as_model(
            SelectionPreview, data_of(self._api.get(f"{SCHEDULES_PATH}/{schedule_id}/preview"))
        )

    def backfill(
        self, schedule_id: int, first: date, last: date, *, dry_run: bool
    ) -> ScheduleBackfill:
        days = {"from": first.isoformat(), "to": last.isoformat(), "dryRun": dry_run}
        return as_model(
            ScheduleBackfill,
            data_of(self._api.post(f"{SCHEDULES_PATH}/{schedule_id}/backfill", days)),
        )


def _schedule(answer: Document) -> Schedule:
    return as_model(Schedule, data_of(answer))


def _occurrence(one: Document) -> Occurrence:
    return Occurrence(
        due_at=instant(one["dueAt"]),
        run_id=None if one["runId"] is None else int(str(one["runId"])),
        run_status=cast("str | None", one["runStatus"]),
        not_run_because=cast("str | None", one["notRunBecause"]),
        decided_at=instant(one["decidedAt"]),
    )


RUNS_PATH = "/api/automation/runs"


class RemoteRuns:
    def __init__(self, api: Api) -> None:
        self._api = api

    def listed(self, chosen: RunFilter, *, limit: int, offset: int) -> Sequence[Run]:
        query = {**vars(chosen), "limit": limit, "offset": offset}
        schedule_id = query.pop("schedule_id")
        path = RUNS_PATH if schedule_id is None else f"/api/automation/schedules/{schedule_id}/runs"
        try:
            return [as_model(Run, one) for one in list_of(self._api.get(path, query))]
        except NotFoundError:  # a schedule that is not there has no runs, here as there
            return []

    def get(self, run_id: int) -> Run:
        return as_model(Run, self._detail(run_id))

    def advance(self, run_id: int) -> tuple[Run, RunProgress]:
        detail = self._detail(run_id)
        return as_model(Run, detail), _progress(detail)

    def story(self, run_id: int) -> RunDetails:
        detail = self._detail(run_id)
        fiches = [
            as_model(FicheOutcome, one)
            for one in every_page(self._api, f"{RUNS_PATH}/{run_id}/fiches")
        ]
        notifications = read(lambda: cast("Sequence[Document]", detail["notifications"]))
        return RunDetails(
            run=as_model(Run, detail),
            progress=_progress(detail),
            phases=_phases(detail),
            reasons=read(lambda: cast("Mapping[str, Mapping[str, int]]", detail["reasons"])),
            notifications=[as_model(RunNotification, one) for one in notifications],
            fiches=fiches,
        )

    def report(self, run_id: int) -> RunReport:
        return parse_report(data_of(self._api.get(f"{RUNS_PATH}/{run_id}/report")))

    def logs(self, run_id: int, level: LogLevel, after_id: int) -> Sequence[LogEntry]:
        """By the last line of a page, not by its number: lines are still being written."""
        found: list[LogEntry] = []
        while True:
            after = found[-1].id if found else after_id
            query = {"level": level.value, "after": after, "limit": PAGE}
            page = list_of(self._api.get(f"{RUNS_PATH}/{run_id}/logs", query))
            found += [as_model(LogEntry, one) for one in page]
            if len(page) < PAGE:
                return found

    def cancel(self, run_id: int, reason: str | None) -> Run:
        return as_model(
            Run, data_of(self._api.post(f"{RUNS_PATH}/{run_id}/cancel", {"reason": reason}))
        )

    def retry(self, run_id: int) -> Run:
        asked = self._api.post(f"{RUNS_PATH}/{run_id}/retry")
        return self.get(read(lambda: int(str(asked["run_id"]))))

    def _detail(self, run_id: int) -> Document:
        return data_of(self._api.get(f"{RUNS_PATH}/{run_id}"))


def _phases(detail: Document) -> Sequence[PhaseLength]:
    def reading() -> Sequence[PhaseLength]:
        told = cast("Sequence[Document]", detail["phases"])
        return [PhaseLength(Phase(str(one["phase"])), float(str(one["seconds"]))) for one in told]

    return read(reading)


def _progress(detail: Document) -> RunProgress:
    def reading() -> RunProgress:
        told = cast("Mapping[str, int]", detail["progress"])
        return RunProgress(
            **{field.name: told[to_camel(field.name)] for field in fields(RunProgress)}
        )

    return read(reading)
