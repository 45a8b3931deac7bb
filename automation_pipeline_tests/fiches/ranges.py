"""A CRM, a database and a clock for jobs over days."""

import asyncio
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from sqlalchemy import delete, select

from automation_pipeline.core.access import Reach, Scope
from automation_pipeline.core.coordination import Semaphore
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline.fiches.fetch_jobs import (
    RangeRequest,
    RangeStatus,
    fetch_range,
    request_range,
)
from automation_pipeline.fiches.mirror import revalidate_days
from automation_pipeline.fiches.models.fetch_jobs import FetchJob, JobWebhook
from automation_pipeline.fiches.queries.fetch_jobs import get_job
from automation_pipeline.fiches.tables import FetchDeliveryRow, FetchJobRow, SalesDayRow
from automation_pipeline.storage.claims import DatabasePermits
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline.storage.types import Table
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, summary

FIRST = date(2026, 2, 2)
DAYS = tuple(FIRST + timedelta(days=n) for n in range(7))
HOOK = JobWebhook("https://hooks.example.com/in/42", "s3cret")


@dataclass
class Ranges:
    database: Database
    clock: StandingClock
    crm: FakeFicheSource = field(default_factory=FakeFicheSource)

    @property
    def semaphore(self) -> Semaphore:
        return Semaphore(
            DatabasePermits(self.database), "crm-sales-list", 3, "test", poll_seconds=0.01
        )

    def sell(self, *days: date, fiches: int = 2) -> None:
        for day in days:
            self.crm.sell(day, *(summary(f"{day:%m%d}{n}") for n in range(fiches)))

    def know(self, *days: date) -> None:
        """Their lists are there, and what the CRM was asked for that is forgotten."""
        asked = revalidate_days(
            days,
            database=self.database,
            source=self.crm,
            clock=self.clock,
            semaphore=self.semaphore,
            force=True,
        )
        asyncio.run(asked)
        self.crm.asked.clear()

    def ask(
        self, start: date = DAYS[0], end: date = DAYS[-1], *, caller: str = "user:1", scope: Scope = Scope.ALL,
        **request: Any,
    ) -> RangeStatus:  # fmt: skip
        given = RangeRequest(start=start, end=end, reach=Reach(scope, caller=caller), **request)
        return request_range(
            given, database=self.database, clock=self.clock, zone=zone("Europe/Paris")
        )

    def job(self, *args: Any, **request: Any) -> FetchJob:
        job = self.ask(*args, **request).job
        assert job
        return job

    def work(self, job: FetchJob, **requests: Any) -> FetchJob:
        return self.work_on(job.id, **requests)

    def work_on(self, job_id: str, *, refresh: bool = False, webhook_every: int = 5) -> FetchJob:
        work = fetch_range(
            job_id, database=self.database, source=self.crm, clock=self.clock, semaphore=self.semaphore,
            refresh=refresh, webhook_every=webhook_every,
        )  # fmt: skip
        return asyncio.run(work)

    def forget(self, *days: date) -> None:
        """As if their lists had never been fetched."""
        with self.database.transaction() as session:
            session.execute(
                delete(SalesDayRow).where(SalesDayRow.day.in_([day.isoformat() for day in days]))
            )

    def stored(self, job: FetchJob) -> FetchJob:
        with self.database.reading() as session:
            return get_job(session, job.id)

    def rows(self, table: type[Table]) -> list[Any]:
        with self.database.reading() as session:
            order = table.__table__.primary_key.columns
            return list(session.scalars(select(table).order_by(*order)))

    def events(self) -> list[tuple[str, int]]:
        """Their names, with how far the job was."""
        rows = self.rows(OutboxRow)
        return [
            (row.event_name.removeprefix("fiches.progressive_fetch."), row.payload["progress"])
            for row in rows
        ]

    @property
    def deliveries(self) -> list[FetchDeliveryRow]:
        return self.rows(FetchDeliveryRow)

    @property
    def jobs(self) -> list[FetchJobRow]:
        return self.rows(FetchJobRow)

    @property
    def requests(self) -> list[RunRequestRow]:
        return self.rows(RunRequestRow)
