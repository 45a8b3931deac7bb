"""Invariants of enrichment for any sequence of answers, crashes and delays; every job ends."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from automation_pipeline.core.errors import ConflictError
from automation_pipeline.enrichment.models import ENRICHMENT, FIELDS, EnrichmentStatus
from automation_pipeline.enrichment.tables import EnrichmentJobRow, EnrichmentRow
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.enrichment.bench import Bench
from automation_pipeline_tests.enrichment.scripted import (
    BUSY,
    DOWN,
    INPI,
    NOT_FOUND,
    RCS,
    SEARCH,
    SILENT,
    UNKNOWN,
    source_error,
    source_record,
)

SIRENS, TENANTS = ("552032534", "732829320"), ("t1", "t2")
FRESH, LOCK = timedelta(days=30), timedelta(seconds=120)
LIVE = {"PENDING", "RUNNING"}
LENGTHS = [
    timedelta(seconds=60),
    timedelta(minutes=15),
    timedelta(hours=6),
    timedelta(days=20),
    timedelta(days=33),
]
ERRORS = [
    BUSY,
    DOWN,
    SILENT,
    UNKNOWN,
    source_error("AUTH_ERROR", 401),
    source_error("FORBIDDEN", 403),
    source_error("INTERNAL_ERROR", 400),
]
SEARCHES = st.sampled_from(
    [
        source_record(SEARCH),
        source_record(SEARCH, legal_name="DANONE SA", naf_code=None),
        source_record(SEARCH, city=None),
        source_record(SEARCH, legal_name=None),
        source_record(SEARCH, legal_name=None, is_masked=True),
        NOT_FOUND,
        *ERRORS,
    ]
)
OPTIONALS = {
    api: st.sampled_from([source_record(api), source_record(api), *ERRORS]) for api in (INPI, RCS)
}
DEATHS = st.sampled_from([SEARCH, INPI, RCS, None])


class EnrichmentMachine(RuleBasedStateMachine):
    """Two companies that two tenants request."""

    def __init__(
        self, fresh: Callable[[], Database], waiting_by: Callable[[StandingClock], object]
    ) -> None:
        super().__init__()
        clock = StandingClock(datetime(2026, 5, 4, 10, 0, tzinfo=UTC))
        waiting_by(clock)
        self.bench = Bench(fresh(), clock)
        self.values: dict[str, dict[str, Any]] = {}

    def teardown(self) -> None:
        try:
            self.finish_all_jobs()
        finally:
            self.bench.database.dispose()

    @rule(siren=st.sampled_from(SIRENS), tenant=st.sampled_from(TENANTS), force=st.booleans())
    def request(self, siren: str, tenant: str, force: bool) -> None:
        self.bench.request(siren, tenant, force=force)

    @precondition(lambda self: self.bench.requests())
    @rule(data=st.data(), refresh=st.booleans())
    def open_or_refresh(self, data: st.DataObject, refresh: bool) -> None:
        row = data.draw(st.sampled_from(list(self.bench.requests())))
        with suppress(ConflictError):
            (self.bench.refresh if refresh else self.bench.open)(row.id, row.tenant_id)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), search=SEARCHES, inpi=OPTIONALS[INPI], rcs=OPTIONALS[RCS])
    def work(self, data: st.DataObject, search: object, inpi: object, rcs: object) -> None:
        self.bench.script(search, inpi, rcs)
        self.bench.work(data.draw(st.sampled_from(self.unfinished())))

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), search=SEARCHES, inpi=OPTIONALS[INPI], killed_in=DEATHS)
    def kill_worker(
        self, data: st.DataObject, search: object, inpi: object, killed_in: Any
    ) -> None:
        self.bench.script(search, inpi)
        self.bench.work_and_die(data.draw(st.sampled_from(self.unfinished())), killed_in)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), slow=st.sampled_from([SEARCH, INPI, RCS]), other=SEARCHES)
    def outlive_the_lease(self, data: st.DataObject, slow: Any, other: object) -> None:
        """The worker sleeps past its lease while another worker does the work."""
        job_id = data.draw(st.sampled_from(self.unfinished()))

        def take_over() -> None:
            self.bench.pass_time(seconds=121)
            self.bench.script(search=other)
            self.bench.work(job_id)

        self.bench.sources[slow].script = [take_over]
        self.bench.work(job_id)
        self.bench.script(search=(), inpi=(), rcs=())

    @rule(length=st.sampled_from(LENGTHS))
    def time_passes(self, length: timedelta) -> None:
        self.bench.clock.pass_time(length)

    @rule(started=st.booleans())
    def sweep(self, started: bool) -> None:
        if started:
            self.bench.take_requests()
        self.bench.sweep()

    def unfinished(self) -> list[int]:
        return [job.id for job in self.bench.jobs() if job.state in LIVE]

    def known(self) -> list[EnrichmentRow]:
        sirens = {row.company_siren for row in self.bench.requests()}
        return [self.bench.enrichment(siren) for siren in sorted(sirens)]

    @invariant()
    def status_matches_the_jobs(self) -> None:
        jobs = self.bench.jobs()
        for row in self.known():
            matching = [job for job in jobs if job.company_siren == row.siren]
            running = [job for job in matching if job.state in LIVE]
            assert len(running) <= 1
            assert row.status != "PENDING" or running
            check = getattr(self, f"_{row.status.lower()}", None)
            if check is not None:
                check(row, [job for job in matching if job.state == "DONE"], running)

    def _running(
        self, row: EnrichmentRow, _done: list[EnrichmentJobRow], running: list[EnrichmentJobRow]
    ) -> None:
        """The lease is held, or it has expired and the job will be retried."""
        [job] = running
        assert (job.state, job.id) == ("RUNNING", row.running_job_id)
        assert job.heartbeat_at is not None
        assert self.bench.holder(row.siren) or self.bench.clock.now() - job.heartbeat_at >= LOCK

    def _success(
        self, row: EnrichmentRow, done: list[EnrichmentJobRow], _running: list[EnrichmentJobRow]
    ) -> None:
        last = done[-1]
        assert (last.status, row.enrichment_error, last.core_identity_present) == (
            "SUCCESS",
            None,
            True,
        )
        assert (last.required_failed_count, last.optional_failed_count) == (0, 0)

    def _partial(
        self, _row: EnrichmentRow, done: list[EnrichmentJobRow], _running: list[EnrichmentJobRow]
    ) -> None:
        last = done[-1]
        assert (last.status, last.required_failed_count, last.core_identity_present) == (
            "PARTIAL",
            0,
            True,
        )
        assert last.optional_failed_count > 0

    def _failed(
        self, row: EnrichmentRow, done: list[EnrichmentJobRow], _running: list[EnrichmentJobRow]
    ) -> None:
        assert done[-1].required_failed_count > 0 or not done[-1].core_identity_present
        assert row.enrichment_error

    def _stale(
        self, row: EnrichmentRow, _done: list[EnrichmentJobRow], running: list[EnrichmentJobRow]
    ) -> None:
        """A company that is stale before its time has an open refresh."""
        company = self.bench.company(row.siren)
        assert company is not None
        assert running or self.bench.clock.now() - company.updated_at >= FRESH

    @invariant()
    def snapshot_is_that_of_the_last_good_job(self) -> None:
        for row in self.known():
            company = self.bench.company(row.siren)
            done = [
                job
                for job in self.bench.jobs()
                if job.company_siren == row.siren and job.state == "DONE"
            ]
            good = [job.finished_at for job in done if job.status in {"SUCCESS", "PARTIAL"}]
            assert (None if company is None else company.updated_at) == (good[-1] if good else None)
            now = {} if company is None else {field: getattr(company, field) for field in FIELDS}
            lost = [
                field
                for field, value in self.values.get(row.siren, {}).items()
                if value and not now[field]
            ]
            assert lost == []
            self.values[row.siren] = now

    @invariant()
    def requests_have_the_status_of_their_company(self) -> None:
        status = {
            row.siren: (row.status, row.enrichment_error, row.last_run_at) for row in self.known()
        }
        for row in self.bench.requests():
            matching = (row.enrichment_status, row.enrichment_error, row.enrichment_last_run_at)
            assert matching == status[row.company_siren]

    @invariant()
    def transitions_are_legal_and_consecutive(self) -> None:
        for row in self.known():
            moves = self.bench.moves(row.siren)
            states = ["PENDING", *[to for _, to in moves]]
            assert moves == list(pairwise(states))
            assert states[-1] == row.status
            assert all(
                ENRICHMENT.can_move(EnrichmentStatus(frm), EnrichmentStatus(to))
                for frm, to in moves
            )

    @invariant()
    def every_event_is_published_once(self) -> None:
        events = [
            (event.name.removeprefix("CompanyEnrichment"), event.payload)
            for event in self.bench.events()
        ]
        for job in self.bench.jobs():
            matching = [
                (name, payload) for name, payload in events if payload.get("job_id") == str(job.id)
            ]
            started = [payload["attempt"] for name, payload in matching if name == "Started"]
            # A postponed attempt has started but does not count.
            postponed = job.not_before is not None
            assert started == list(range(1, min(job.attempt + postponed, 3) + 1))
            asked = [payload["source_api"] for name, payload in matching if name == "SourceFetched"]
            assert sorted(asked) == sorted(
                api for api, row in self.bench.source_rows(job.id).items() if row.attempts
            )
            ends = [payload for name, payload in matching if name == "Completed"]
            assert len(ends) == (
                max(len(self.bench.attached_requests(job.id)), 1) if job.state == "DONE" else 0
            )
            assert all(payload["enrichment_status"] == job.status for payload in ends)

    def finish_all_jobs(self) -> None:
        """Run all requested workers; the sweep requests workers for lost jobs."""
        self.bench.script(source_record(SEARCH), source_record(INPI), source_record(RCS))
        for _ in range(4):
            self.work_requested_jobs()
            self.bench.take_requests()
            self.bench.pass_time(hours=2)  # a refused login rests for an hour
            self.bench.sweep()
        self.work_requested_jobs()  # a refresh that fell due in the last sweep
        assert self.unfinished() == []
        assert all(row.running_job_id is None for row in self.known())

    def work_requested_jobs(self) -> None:
        for key, config in self.bench.run_requests(waiting=True):
            worked = self.bench.work(config["job_id"])
            assert worked.state in {"DONE", "RUNNING", "PENDING"}, key


@pytest.fixture
def fresh(sqlite_template: Path, tmp_path: Path) -> Callable[[], Database]:
    numbers = count(1)

    def copy() -> Database:
        """A new file name, so that SQLite finds no journal of an earlier database."""
        return Database(
            f"sqlite:///{shutil.copy(sqlite_template, tmp_path / f'machine-{next(numbers)}.db')}"
        )

    return copy


def test_enrichment_invariants_hold_in_any_sequence_of_events(
    fresh: Callable[[], Database], waiting_by: Callable[[StandingClock], object]
) -> None:
    run_state_machine_as_test(
        lambda: EnrichmentMachine(fresh, waiting_by),
        settings=settings(
            max_examples=6,
            stateful_step_count=12,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
