"""Schedules by the API."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import cast

from automation_pipeline.automation.domain.run import Run
from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.selection import FicheSelection
from automation_pipeline.automation.stages.backfill_schedule import ScheduleBackfill
from automation_pipeline.automation.stages.preview_schedule import SelectionPreview
from automation_pipeline.automation.store.occurrences import Occurrence
from automation_pipeline.cli.desk.remote.api import (
    Api,
    Document,
    as_model,
    data_of,
    every_page,
    instant,
    list_of,
    read,
)
from automation_pipeline.core.json_model import as_document

PATH = "/api/automation/schedules"


class RemoteSchedules:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: Document) -> Schedule:
        return _schedule(self._api.post(PATH, given))

    def listed(self, *, include_inactive: bool) -> Sequence[Schedule]:
        listed = every_page(self._api, PATH, {"include_inactive": include_inactive})
        return [as_model(Schedule, one) for one in listed]

    def get(self, schedule_id: int) -> Schedule:
        return _schedule(self._api.get(f"{PATH}/{schedule_id}"))

    def update(self, schedule_id: int, patch: Document) -> Schedule:
        return _schedule(self._api.patch(f"{PATH}/{schedule_id}", patch))

    def delete(self, schedule_id: int) -> None:
        self._api.delete(f"{PATH}/{schedule_id}")

    def pause(self, schedule_id: int, reason: str | None) -> Schedule:
        return _schedule(self._api.post(f"{PATH}/{schedule_id}/pause", {"reason": reason}))

    def resume(self, schedule_id: int) -> Schedule:
        return _schedule(self._api.post(f"{PATH}/{schedule_id}/resume"))

    def request_run(self, schedule_id: int, selection: FicheSelection | None) -> Run:
        chosen = {} if selection is None else {"overrideFicheSelection": as_document(selection)}
        asked = self._api.post("/api/automation/trigger", {"scheduleId": str(schedule_id), **chosen})
        return as_model(Run, data_of(self._api.get(f"/api/automation/runs/{read(lambda: asked['run_id'])}")))

    def skip_next(self, schedule_id: int) -> datetime:
        told = data_of(self._api.post(f"{PATH}/{schedule_id}/skip-next"))
        return read(lambda: instant(told["skipped"]))

    def occurrences(self, schedule_id: int, limit: int) -> Sequence[Occurrence]:
        listed = list_of(self._api.get(f"{PATH}/{schedule_id}/occurrences", {"limit": limit}))
        return read(lambda: [_occurrence(one) for one in listed])

    def preview(self, schedule_id: int) -> SelectionPreview:
        return as_model(SelectionPreview, data_of(self._api.get(f"{PATH}/{schedule_id}/preview")))

    def backfill(self, schedule_id: int, first: date, last: date, *, dry_run: bool) -> ScheduleBackfill:
        days = {"from": first.isoformat(), "to": last.isoformat(), "dryRun": dry_run}
        return as_model(ScheduleBackfill, data_of(self._api.post(f"{PATH}/{schedule_id}/backfill", days)))


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
