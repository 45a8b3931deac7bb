"""Runs by the API."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import cast

from pydantic.alias_generators import to_camel

from automation_pipeline.automation.domain.phases import PhaseLength
from automation_pipeline.automation.domain.run import FicheOutcome, Phase, Run, RunStatus
from automation_pipeline.automation.domain.run_record import LogEntry, RunNotification
from automation_pipeline.automation.domain.run_report import RunReport
from automation_pipeline.automation.domain.run_report_document import parse_report
from automation_pipeline.automation.store.progress import LogLevel, Progress
from automation_pipeline.automation.store.run_story import RunStory
from automation_pipeline.cli.desk.remote.api import (
    PAGE,
    Api,
    Document,
    as_model,
    data_of,
    every_page,
    list_of,
    read,
)
from automation_pipeline.core.errors import NotFoundError

PATH = "/api/automation/runs"


class RemoteRuns:
    def __init__(self, api: Api) -> None:
        self._api = api

    def listed(
        self, *, schedule_id: int | None, statuses: Sequence[RunStatus], limit: int, offset: int
    ) -> Sequence[Run]:
        path = PATH if schedule_id is None else f"/api/automation/schedules/{schedule_id}/runs"
        query = {"status": [status.value for status in statuses], "limit": limit, "offset": offset}
        try:
            return [as_model(Run, one) for one in list_of(self._api.get(path, query))]
        except NotFoundError:  # a schedule that is not there has no runs, here as there
            return []

    def get(self, run_id: int) -> Run:
        return as_model(Run, self._detail(run_id))

    def advance(self, run_id: int) -> tuple[Run, Progress]:
        detail = self._detail(run_id)
        return as_model(Run, detail), _progress(detail)

    def story(self, run_id: int) -> RunStory:
        detail = self._detail(run_id)
        fiches = [as_model(FicheOutcome, one) for one in every_page(self._api, f"{PATH}/{run_id}/fiches")]
        notifications = read(lambda: cast("Sequence[Document]", detail["notifications"]))
        return RunStory(
            run=as_model(Run, detail),
            progress=_progress(detail),
            phases=_phases(detail),
            reasons=read(lambda: cast("Mapping[str, Mapping[str, int]]", detail["reasons"])),
            notifications=[as_model(RunNotification, one) for one in notifications],
            fiches=fiches,
        )

    def report(self, run_id: int) -> RunReport:
        return parse_report(data_of(self._api.get(f"{PATH}/{run_id}/report")))

    def logs(self, run_id: int, level: LogLevel, after_id: int) -> Sequence[LogEntry]:
        """By the last line of a page, not by its number: lines are still being written."""
        found: list[LogEntry] = []
        while True:
            after = found[-1].id if found else after_id
            query = {"level": level.value, "after": after, "limit": PAGE}
            page = list_of(self._api.get(f"{PATH}/{run_id}/logs", query))
            found += [as_model(LogEntry, one) for one in page]
            if len(page) < PAGE:
                return found

    def cancel(self, run_id: int, reason: str | None) -> Run:
        return as_model(Run, data_of(self._api.post(f"{PATH}/{run_id}/cancel", {"reason": reason})))

    def retry(self, run_id: int) -> Run:
        asked = self._api.post(f"{PATH}/{run_id}/retry")
        return self.get(read(lambda: int(str(asked["run_id"]))))

    def _detail(self, run_id: int) -> Document:
        return data_of(self._api.get(f"{PATH}/{run_id}"))


def _phases(detail: Document) -> Sequence[PhaseLength]:
    def reading() -> Sequence[PhaseLength]:
        told = cast("Sequence[Document]", detail["phases"])
        return [PhaseLength(Phase(str(one["phase"])), float(str(one["seconds"]))) for one in told]

    return read(reading)


def _progress(detail: Document) -> Progress:
    def reading() -> Progress:
        told = cast("Mapping[str, int]", detail["progress"])
        return Progress(**{field.name: told[to_camel(field.name)] for field in fields(Progress)})

    return read(reading)
