"""Sales lists of several days: one outcome a day, in order; a day that fails takes nothing from the others."""

import asyncio
from datetime import date

from automation_pipeline.core.errors import TransientError
from automation_pipeline.core.slots import Slots
from automation_pipeline.fiches.domain.days import DayFailed, SalesDay
from automation_pipeline.fiches.stages.revalidate_days import revalidate_days
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.leases import DatabaseLeases
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource

DAYS = [date(2026, 2, 2), date(2026, 2, 3), date(2026, 2, 4)]


class OneBadDay(FakeFicheSource):
    async def sales_list(self, day: date):  # noqa: ANN201  the fake's own type
        if day == DAYS[1]:
            raise TransientError("The CRM did not answer in time for the sales of 2026-02-03.")
        return await super().sales_list(day)


def test_a_day_that_fails_is_a_value(database: Database, clock: StandingClock) -> None:
    heard: list[SalesDay | DayFailed] = []
    slots = Slots(DatabaseLeases(database), "crm", 3, "me")
    outcomes = asyncio.run(
        revalidate_days(DAYS, database=database, source=OneBadDay(), clock=clock, slots=slots, on_day=heard.append)
    )
    assert [outcome.day for outcome in outcomes] == DAYS
    assert [type(outcome) for outcome in outcomes] == [SalesDay, DayFailed, SalesDay]
    assert len(heard) == 3
