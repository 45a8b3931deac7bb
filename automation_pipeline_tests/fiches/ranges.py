"""A test harness for fetch jobs: a fake CRM, a database and a clock."""

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
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource, summary

FIRST = date(2026, 2, 2)
DAYS = tuple(FIRST + timedelta(days=n) for n in range(7))
HOOK = JobWebhook("https://hooks.example.com/in/42", "s3cret")


@dataclass
class FetchJobHarness:
    database: Database
    clock: FakeClock
    crm: FakeFicheSource = field(default_factory=FakeFicheSource)

    @property
    def semaphore(self) -> Semaphore:
        return Semaphore(
            DatabasePermits(self.database), "crm-sales-list", 3, "test", poll_seconds=0.01
        )

    def sell(self, *days: date, fiches: int = 2) -> None:
        for day in days:
            self.crm.set_sales(day, *(summary(f"{day:%m%d}{n}") for n in range(fiches)))

    def prefetch(self, *days: date) -> None:
        """Fetch and store the lists of these days, and forget the calls that this took."""
        revalidation = revalidate_days(
            days,
            database=self.database,
            source=self.crm,
            clock=self.clock,
            semaphore=self.semaphore,
            force=True,
        )
        asyncio.run(revalidation)
        self.crm.requests.clear()

    def request(
        self, start: date = DAYS[0], end: date = DAYS[-1], *, caller: str = "user:1", scope: Scope = Scope.ALL,
        **request: Any,
    ) -> RangeStatus:  # fmt: skip
        range_request = RangeRequest(
            start=start, end=end, reach=Reach(scope, caller=caller), **request
        )
        return request_range(
            range_request, database=self.database, clock=self.clock, zone=zone("Europe/Paris")
        )

    def job(self, *args: Any, **request: Any) -> FetchJob:
        job = self.request(*args, **request).job
        assert job
        return job

    def work(self, job: FetchJob, **options: Any) -> FetchJob:
        return self.work_on(job.id, **options)

    def work_on(self, job_id: str, *, refresh: bool = False, webhook_every: int = 5) -> FetchJob:
        work = fetch_range(
            job_id, database=self.database, source=self.crm, clock=self.clock, semaphore=self.semaphore,
            refresh=refresh, webhook_every=webhook_every,
        )  # fmt: skip
        return asyncio.run(work)

    def delete_lists(self, *days: date) -> None:
        """Delete the stored lists of these days."""
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
        """The names of all events, with the progress of the job."""
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
