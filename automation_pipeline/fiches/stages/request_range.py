"""Ask for the sales lists of a range of days: what is known is told at once, a job brings the rest."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from automation_pipeline.core.access import Reach
from automation_pipeline.core.addresses import check_url
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.wall_clock import wall_time
from automation_pipeline.fiches.domain.day_range import Days, days_asked
from automation_pipeline.fiches.domain.days import stale_days
from automation_pipeline.fiches.domain.fetch_events import CREATED, event_of
from automation_pipeline.fiches.domain.fetch_job import FetchJob, Webhook
from automation_pipeline.fiches.store.jobs import Lately, add_job, find_lately, one_asker_at_a_time
from automation_pipeline.fiches.store.sales import revalidated_since, volumes_of
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.run_requests import RunWish, file_requests

JOB = "sales_range_fetch"
REUSED_FOR = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class RangeWish:
    """By `refresh` every day is asked for again. Whose `reach` it is may look at the job later."""

    start: date
    end: date
    reach: Reach
    refresh: bool = False
    webhook: Webhook | None = None


@dataclass(frozen=True)
class RangeStanding:
    """The days asked for, none after today; of which there is a list, and of which none that is good; the job that
    brings what is missing, or everything anew."""

    days: Days
    known: Days
    missing: Days
    job: FetchJob | None


def request_range(
    wish: RangeWish, *, database: Database, clock: Clock, zone: ZoneInfo, allowed_origins: Collection[str] = ()
) -> RangeStanding:
    """Whoever asks for the same range again within minutes is told of the same job, unless by `refresh`."""
    if wish.webhook is not None:
        check_url(wish.webhook.url, allowed_origins)
    now = clock.now()
    days = days_asked(wish.start, wish.end, wall_time(now, zone).date())
    with database.reading() as session:
        missing = _missing(session, days, now)
    known = tuple(day for day in days if day not in set(missing))
    wanted = days if wish.refresh else missing
    if not wanted:
        return RangeStanding(days, known, missing, None)
    with database.transaction() as session:
        job = _lately(session, wish, days, now) or _file(session, wish, days, wanted, now)
    return RangeStanding(days, known, missing, job)


def _missing(session: Session, days: Days, now: datetime) -> Days:
    return stale_days(days, revalidated_since(session, days[0]), now) if days else ()


def _lately(session: Session, wish: RangeWish, days: Days, now: datetime) -> FetchJob | None:
    lately = Lately(days[0], days[-1], wish.reach.caller, now - REUSED_FOR)
    one_asker_at_a_time(session, lately)
    return None if wish.refresh else find_lately(session, lately, wish.webhook)


def _file(session: Session, wish: RangeWish, days: Days, wanted: Days, now: datetime) -> FetchJob:
    fetched = tuple(day for day in days if day not in set(wanted))
    job = FetchJob(
        id=str(uuid.uuid4()),
        start=days[0],
        end=days[-1],
        fetched=fetched,
        remaining=wanted,
        total_fiches=sum(volumes_of(session, fetched)) if wish.reach.is_whole else None,
        created_by=wish.reach.caller,
        webhook=wish.webhook,
    )
    add_job(session, job, now)
    enqueue(session, [event_of(job, CREATED, now)])
    tags = {"automation/trace_id": job.id}
    config = {"job_id": job.id, "refresh": wish.refresh}
    file_requests(session, [RunWish(job.id, JOB, config, tags)], now)
    return job
