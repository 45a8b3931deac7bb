"""Working on a job over days: each day once, whatever fails or is killed, and the outside hears of
it."""

import asyncio
import json
from collections.abc import Callable
from datetime import date

import pytest

from automation_pipeline.core.errors import NotFoundError, TransientError
from automation_pipeline.fiches.fetch_jobs import fail_range, fetch_range
from automation_pipeline.fiches.models.fetch_jobs import JobStatus
from automation_pipeline.fiches.models.fiches import SalesList
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import OutboxRow
from automation_pipeline.storage.workflow_logs import WorkflowLogRow
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.fakes.crm import FakeFicheSource
from automation_pipeline_tests.fiches.ranges import DAYS, HOOK, Ranges

AWAY = TransientError("The CRM does not answer.")


@pytest.fixture
def ranges(database: Database, clock: StandingClock) -> Ranges:
    return Ranges(database, clock)


def iso(*days: date) -> list[str]:
    return [day.isoformat() for day in days]


def test_every_missing_day_is_asked_for_once_and_told(ranges: Ranges) -> None:
    ranges.sell(*DAYS)
    ranges.know(*DAYS[:2])
    ended = ranges.work(ranges.job(webhook=HOOK))
    assert sorted(ranges.crm.asked) == iso(*DAYS[2:])
    assert (ended.status, ended.fetched, ended.remaining, ended.total_fiches) == (
        JobStatus.COMPLETE,
        DAYS,
        (),
        14,
    )
    [row] = ranges.jobs
    assert (row.status, row.completed_at) == ("complete", ranges.clock.now())
    progress = [("progress", 100 * n // 7) for n in range(3, 7)]
    assert ranges.events() == [("created", 28), *progress, ("complete", 100)]
    assert [(each.event, each.payload["data"]["progress"]) for each in ranges.deliveries] == [
        ("progress", 71),
        ("complete", 100),
    ]


def test_no_name_of_a_prospect_leaves(ranges: Ranges) -> None:
    ranges.sell(*DAYS)
    ranges.work(ranges.job(webhook=HOOK), webhook_every=1)
    left = [row.payload for row in ranges.rows(OutboxRow)] + [
        row.payload for row in ranges.deliveries
    ]
    assert len(left) == 8 + 7
    said = json.dumps(left)
    for private in ("MARTEL", "Odile", "0600000001", "odile.martel", "s3cret", HOOK.url):
        assert private not in said


def test_a_day_that_fails_is_told_apart_and_the_job_goes_on(ranges: Ranges) -> None:
    ranges.crm.fail_always(DAYS[2].isoformat(), AWAY)
    ended = ranges.work(ranges.job())
    assert (ended.status, ended.failed, ended.error) == (JobStatus.COMPLETE, (DAYS[2],), None)
    assert ended.fetched == (*DAYS[:2], *DAYS[3:])
    [note] = ranges.rows(WorkflowLogRow)
    assert (
        note.message
        == f"The sales list of {DAYS[2]} could not be fetched: The CRM does not answer."
    )
    assert (note.entity_type, note.entity_id, note.level) == ("fetch_job", ended.id, "warning")


def test_without_one_day_the_job_has_failed(ranges: Ranges) -> None:
    ranges.crm.refuse_everything(AWAY)
    ended = ranges.work(ranges.job(webhook=HOOK))
    assert (ended.status, ended.failed) == (JobStatus.FAILED, DAYS)
    assert ended.error == "No sales list of the range could be fetched: The CRM does not answer."
    assert [each.event for each in ranges.deliveries] == ["progress", "failed"]
    assert ranges.events()[-1] == ("failed", 100)


class Killed(BaseException):
    """As if the process were killed."""


class MortalSource(FakeFicheSource):
    """It dies over the day, once a few others are through."""

    lives = True
    may_die: Callable[[], bool]

    async def sales_list(self, day: date) -> SalesList:
        if day == DAYS[4] and self.lives:
            while not await asyncio.to_thread(self.may_die):  # noqa: ASYNC110  what is waited for is in the database
                await asyncio.sleep(0.005)
            raise Killed
        if day in DAYS[5:] and self.lives:
            await asyncio.Event().wait()
        return await super().sales_list(day)


def test_only_the_days_that_remain_are_asked_for_again(
    database: Database, clock: StandingClock
) -> None:
    crm = MortalSource()
    ranges = Ranges(database, clock, crm)
    ranges.sell(*DAYS)
    job = ranges.job(refresh=True)
    crm.may_die = lambda: len(ranges.stored(job).fetched) == 4
    with pytest.raises(Killed):
        ranges.work(job, refresh=True)
    left = ranges.stored(job)
    assert (left.status, left.fetched, left.remaining) == (JobStatus.PROCESSING, DAYS[:4], DAYS[4:])
    crm.lives = False
    crm.asked.clear()
    ended = ranges.work(job, refresh=True)
    assert sorted(crm.asked) == iso(*left.remaining)
    assert (ended.status, ended.fetched, ended.total_fiches) == (JobStatus.COMPLETE, DAYS, 14)
    names = [name for name, _ in ranges.events()]
    assert names == ["created", *["progress"] * 6, "complete"]


def test_two_workers_at_once_count_every_day_once(ranges: Ranges) -> None:
    ranges.sell(*DAYS)
    job = ranges.job(webhook=HOOK)

    async def both() -> None:
        work = [
            fetch_range(
                job.id,
                database=ranges.database,
                source=ranges.crm,
                clock=ranges.clock,
                semaphore=ranges.semaphore,
                webhook_every=1,
            )
            for _ in range(2)
        ]
        await asyncio.gather(*work)

    asyncio.run(both())
    ended = ranges.stored(job)
    assert (ended.status, ended.total_fiches) == (JobStatus.COMPLETE, 14)
    assert len(ranges.deliveries) == 7
    assert len(ranges.events()) == 8


def test_what_is_over_is_not_worked_on_again(ranges: Ranges) -> None:
    job = ranges.job()
    ended = ranges.work(job)
    ranges.crm.asked.clear()
    assert ranges.work(job) == ended
    assert ranges.crm.asked == []


def test_a_job_that_was_broken_off_meanwhile_stays_so(ranges: Ranges) -> None:
    class Slow(FakeFicheSource):
        async def sales_list(self, day: date) -> SalesList:
            fail_range(
                job.id, "The run was terminated", database=ranges.database, clock=ranges.clock
            )
            return await super().sales_list(day)

    ranges.crm = Slow()
    job = ranges.job(webhook=HOOK)
    ended = ranges.work(job)
    assert (ended.status, ended.error) == (JobStatus.FAILED, "The run was terminated")
    assert ended.remaining == DAYS
    assert [each.event for each in ranges.deliveries] == ["failed"]
    assert not fail_range(job.id, "again", database=ranges.database, clock=ranges.clock)


def test_there_must_be_such_a_job(ranges: Ranges) -> None:
    work = fetch_range(
        "nope",
        database=ranges.database,
        source=ranges.crm,
        clock=ranges.clock,
        semaphore=ranges.semaphore,
    )
    with pytest.raises(NotFoundError, match="Job nope not found"):
        asyncio.run(work)
    assert not fail_range("nope", "gone", database=ranges.database, clock=ranges.clock)
