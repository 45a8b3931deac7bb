"""Two dispatchers process 10,000 organisation schedules of which some are due in the same minute.
The benchmark compares the time with the bare writing of the same rows.

python benchmarks/org_dispatch.py [--schedules 10000] [--due 500] [--url DATABASE_URL]
    [--outage-hours 0]

It prints the time of a tick, whether every due time created one job, and the ratio to the bare
writing.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from sqlalchemy import insert, select

from automation_pipeline import migrations
from automation_pipeline.core.metrics import Meter
from automation_pipeline.org_jobs.fires import fire_due_schedules
from automation_pipeline.org_jobs.models.job_types import job_type
from automation_pipeline.org_jobs.models.jobs import RetryPolicy
from automation_pipeline.org_jobs.queries.fires import Fire, write_fires
from automation_pipeline.org_jobs.queries.health import due_schedules
from automation_pipeline.org_jobs.queries.jobs import NewJob
from automation_pipeline.org_jobs.rules.due import PlannedFire
from automation_pipeline.org_jobs.tables import (
    OrganisationRow,
    OrgJobRow,
    OrgScheduleRow,
    ServerRow,
)
from automation_pipeline.storage.database import Database

MOST_SECONDS = 2.0
ORGANISATIONS = 20
DUE_AT = datetime(2026, 5, 4, 10, 5, tzinfo=UTC)


class FrozenClock:
    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now


def main() -> None:
    options = parse()
    now = DUE_AT + timedelta(hours=options.outage_hours, seconds=10)
    if options.dispatcher:
        dispatch(options.url, now)
        return
    with tempfile.TemporaryDirectory(prefix="org-dispatch-") as folder:
        url = options.url or f"sqlite:///{folder}/automation.db"
        sys.exit(measure(options, url, now))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--due", type=int, default=500)
    parser.add_argument("--url", help="a database to be filled; without it an SQLite file")
    parser.add_argument("--outage-hours", type=float, default=0.0)
    parser.add_argument("--dispatcher", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(options: argparse.Namespace, url: str, now: datetime) -> int:
    database = Database(url)
    migrations.upgrade(database)
    bare = bare_seconds(database, fill(database, "bare", 1, options.due)[0], options.due)
    fill(database, "real", options.schedules, options.due)
    command = [
        sys.executable,
        __file__,
        "--dispatcher",
        "--url",
        database.url.render_as_string(hide_password=False),
    ]
    command += ["--outage-hours", str(options.outage_hours)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    looks = [float(line) for one in both for line in one.communicate()[0].splitlines()]
    with database.reading() as session:
        jobs = Counter(
            session.scalars(select(OrgJobRow.schedule_id).where(OrgJobRow.org_id.like("real-%")))
        )
        left = due_schedules(session, now).count
    once = len(jobs) == options.due and set(jobs.values()) == {1}
    result = "each made one job" if once else "NOT each made one job"
    print(
        f"{options.due} of {options.schedules} schedules were due; {result}; {left} are still due"
    )
    print(
        f"the longest look took {max(looks):.2f} s (bar {MOST_SECONDS:.0f} s), all looks together {sum(looks):.2f} s"
    )
    print(
        f"ratio of all looks to the bare writing of {options.due} fires and jobs: {sum(looks) / bare:.2f}"
    )
    return 0 if once and not left and max(looks) <= MOST_SECONDS else 1


def dispatch(url: str, now: datetime) -> None:
    database = Database(url)
    while True:
        started_at = time.perf_counter()
        fire_due_schedules(database=database, clock=FrozenClock(now), meter=Meter())
        print(time.perf_counter() - started_at)
        with database.reading() as session:
            if not due_schedules(session, now).count:
                return


def fill(database: Database, prefix: str, schedules: int, due: int) -> list[str]:
    """The first schedules are due at the same minute, the others in a year."""
    with database.transaction() as session:
        orgs = [f"{prefix}-{number}" for number in range(ORGANISATIONS)]
        times = {"created_at": DUE_AT, "updated_at": DUE_AT}
        session.execute(
            insert(OrganisationRow),
            [{"id": one, "name": one, "max_running": 10, **times} for one in orgs],
        )
        servers = [ServerRow(org_id=one, name="main", is_enabled=True, **times) for one in orgs]
        session.add_all(servers)
        session.flush()
        rows = [
            row(orgs[n % ORGANISATIONS], servers[n % ORGANISATIONS].id, n < due)
            for n in range(schedules)
        ]
        session.execute(insert(OrgScheduleRow), rows)
        return [one["id"] for one in rows]


def row(org_id: str, server_id: int, is_due: bool) -> dict[str, object]:
    at = DUE_AT if is_due else DUE_AT + timedelta(days=365)
    return {
        "id": str(uuid4()), "org_id": org_id, "server_instance_id": server_id, "name": "Restart",
        "cron_expression": "*/5 * * * *" if is_due else "5 10 4 5 *", "timezone": "Europe/Paris",
        "job_type": "SERVER_RESTART", "payload": {}, "priority": 5, "enabled": True, "state": "ACTIVE",
        "window_policy": "CLAMP", "latest_start_cutoff_min": 0, "misfire_policy": "FIRE_ONCE",
        "misfire_grace_s": 3600, "overlap_policy": "SKIP", "jitter_s": 0, "excluded_on": [],
        "skip_if_offline": False, "auto_pause_after": 10, "next_run_at": at, "next_scheduled_for": at,
        "created_by": "bench", "created_at": DUE_AT, "updated_at": DUE_AT,
    }  # fmt: skip


def bare_seconds(database: Database, schedule_id: str, count: int) -> float:
    """The time to write the same due times and jobs without any decision."""
    fires = [
        Fire(
            org_id="bare-0",
            schedule_id=schedule_id,
            planned=PlannedFire(DUE_AT + timedelta(minutes=n), DUE_AT + timedelta(minutes=n)),
            actor="bench",
            job=NewJob(
                org_id="bare-0",
                type=job_type("SERVER_RESTART"),
                payload={},
                retry=RetryPolicy(),
                created_by="bench",
                priority=5,
            ),
        )
        for n in range(count)
    ]
    started_at = time.perf_counter()
    with database.transaction() as session:
        write_fires(session, fires, DUE_AT)
    return time.perf_counter() - started_at


if __name__ == "__main__":
    main()
