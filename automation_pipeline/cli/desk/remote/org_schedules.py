"""Schedules of organisations by the API."""

from collections.abc import Sequence
from datetime import datetime

from automation_pipeline.cli.desk.remote.api import Api, Document, as_model, data_of, list_of
from automation_pipeline.cli.desk.remote.organisations import refuse_strange_org
from automation_pipeline.cli.desk.span import Span
from automation_pipeline.core.instants import iso
from automation_pipeline.org_jobs.domain.audit_entry import AuditEntry
from automation_pipeline.org_jobs.domain.backfill import Backfill
from automation_pipeline.org_jobs.domain.org_schedule import Dispatched, OrgSchedule, ScheduleFire
from automation_pipeline.org_jobs.domain.preview import SchedulePreview
from automation_pipeline.org_jobs.store.schedules import ScheduleFilter

PATH = "/api/org-schedules"


class RemoteOrgSchedules:
    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, given: Document, org_id: str | None) -> OrgSchedule:
        return _schedule(self._api.post(PATH, given, query={"org": org_id}))

    def listed(self, chosen: ScheduleFilter, span: Span) -> Sequence[OrgSchedule]:
        refuse_strange_org(self._api, chosen.org_id)
        asked = {
            "org": chosen.org_id,
            "state": chosen.state,
            "job_type": chosen.job_type,
            "server": chosen.server_instance_id,
            "q": chosen.q,
            "limit": span.limit,
            "offset": span.offset,
        }
        return [as_model(OrgSchedule, one) for one in list_of(self._api.get(PATH, asked))]

    def get(self, schedule_id: str) -> OrgSchedule:
        return _schedule(self._api.get(f"{PATH}/{schedule_id}"))

    def update(self, schedule_id: str, patch: Document) -> OrgSchedule:
        return _schedule(self._api.patch(f"{PATH}/{schedule_id}", patch))

    def delete(self, schedule_id: str) -> None:
        self._api.delete(f"{PATH}/{schedule_id}")

    def pause(self, schedule_id: str, *, reason: str | None, until: datetime | None) -> OrgSchedule:
        wish = {"reason": reason, "until": until and iso(until)}
        return _schedule(self._api.post(f"{PATH}/{schedule_id}/pause", wish))

    def resume(self, schedule_id: str) -> OrgSchedule:
        return _schedule(self._api.post(f"{PATH}/{schedule_id}/resume"))

    def skip_next(self, schedule_id: str, reason: str | None) -> OrgSchedule:
        return _schedule(self._api.post(f"{PATH}/{schedule_id}/skip-next", {"reason": reason}))

    def keep_next(self, schedule_id: str) -> OrgSchedule:
        return _schedule(self._api.delete(f"{PATH}/{schedule_id}/skip-next"))

    def run_now(self, schedule_id: str, *, payload: Document | None, ignore_window: bool) -> Dispatched:
        wish = {"payload": payload, "ignoreWindow": ignore_window}
        return as_model(Dispatched, data_of(self._api.post(f"{PATH}/{schedule_id}/run-now", wish)))

    def backfill(self, schedule_id: str, given: Document) -> Backfill:
        return as_model(Backfill, data_of(self._api.post(f"{PATH}/{schedule_id}/backfill", given)))

    def coming(self, schedule_id: str, *, count: int, after: datetime | None) -> SchedulePreview:
        told = self._api.get(f"{PATH}/{schedule_id}/next", _from(count, after))
        return as_model(SchedulePreview, data_of(told))

    def preview(self, given: Document, *, count: int, after: datetime | None) -> SchedulePreview:
        told = self._api.post(f"{PATH}/preview", given, query=_from(count, after))
        return as_model(SchedulePreview, data_of(told))

    def fires(self, schedule_id: str, *, limit: int, after_id: int = 0) -> Sequence[ScheduleFire]:
        found = list_of(self._api.get(f"{PATH}/{schedule_id}/fires", newest(limit, after_id)))
        return [as_model(ScheduleFire, one) for one in found]

    def log(self, schedule_id: str, *, limit: int, after_id: int = 0) -> Sequence[AuditEntry]:
        found = list_of(self._api.get(f"{PATH}/{schedule_id}/log", newest(limit, after_id)))
        return [as_model(AuditEntry, one) for one in found]


def newest(limit: int, after_id: int) -> dict[str, object]:
    return {"limit": limit, "after": after_id, "newest": True}


def _schedule(answer: Document) -> OrgSchedule:
    return as_model(OrgSchedule, data_of(answer))


def _from(count: int, after: datetime | None) -> dict[str, object]:
    return {"count": count, "after": after and iso(after)}
