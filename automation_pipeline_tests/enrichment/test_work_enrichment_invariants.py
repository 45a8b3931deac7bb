"""Invariants of enrichment that hold for any sequence of answers, crashes and delays."""

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
from automation_pipeline_tests.enrichment.harness import EnrichmentHarness
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
from automation_pipeline_tests.fakes.clock import FakeClock

SIRENS, TENANTS = ("552032534", "732829320"), ("t1", "t2")
FRESHNESS, CLAIM_LASTS = timedelta(days=30), timedelta(seconds=120)
OPEN_STATES = {"PENDING", "RUNNING"}
TIME_STEPS = [
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
SEARCH_ANSWERS = st.sampled_from(
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
OPTIONAL_ANSWERS = {
    api: st.sampled_from([source_record(api), source_record(api), *ERRORS]) for api in (INPI, RCS)
}
KILL_POINTS = st.sampled_from([SEARCH, INPI, RCS, None])


class EnrichmentMachine(RuleBasedStateMachine):
    """Two companies that two tenants request."""

    def __init__(
        self,
        new_database: Callable[[], Database],
        advance_during_waits: Callable[[FakeClock], object],
    ) -> None:
        super().__init__()
        clock = FakeClock(datetime(2026, 5, 4, 10, 0, tzinfo=UTC))
        advance_during_waits(clock)
        self.harness = EnrichmentHarness(new_database(), clock)
        self.values: dict[str, dict[str, Any]] = {}

    def teardown(self) -> None:
        try:
            self.finish_all_jobs()
        finally:
            self.harness.database.dispose()

    @rule(siren=st.sampled_from(SIRENS), tenant=st.sampled_from(TENANTS), force=st.booleans())
    def request(self, siren: str, tenant: str, force: bool) -> None:
        self.harness.request(siren, tenant, force=force)

    @precondition(lambda self: self.harness.requests())
    @rule(data=st.data(), refresh=st.booleans())
    def open_or_refresh(self, data: st.DataObject, refresh: bool) -> None:
        row = data.draw(st.sampled_from(list(self.harness.requests())))
        with suppress(ConflictError):
            (self.harness.refresh if refresh else self.harness.open)(row.id, row.tenant_id)

    @precondition(lambda self: self.unfinished())
    @rule(
        data=st.data(),
        search=SEARCH_ANSWERS,
        inpi=OPTIONAL_ANSWERS[INPI],
        rcs=OPTIONAL_ANSWERS[RCS],
    )
    def work(self, data: st.DataObject, search: object, inpi: object, rcs: object) -> None:
        self.harness.script(search, inpi, rcs)
        self.harness.work(data.draw(st.sampled_from(self.unfinished())))

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), search=SEARCH_ANSWERS, inpi=OPTIONAL_ANSWERS[INPI], killed_in=KILL_POINTS)
    def kill_worker(
        self, data: st.DataObject, search: object, inpi: object, killed_in: Any
    ) -> None:
        self.harness.script(search, inpi)
        self.harness.work_and_die(data.draw(st.sampled_from(self.unfinished())), killed_in)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), slow=st.sampled_from([SEARCH, INPI, RCS]), other=SEARCH_ANSWERS)
    def outlive_the_lease(self, data: st.DataObject, slow: Any, other: object) -> None:
        """The worker sleeps past its lease while another worker does the work."""
        job_id = data.draw(st.sampled_from(self.unfinished()))

        def take_over() -> None:
            self.harness.advance(seconds=121)
            self.harness.script(search=other)
            self.harness.work(job_id)

        self.harness.sources[slow].script = [take_over]
        self.harness.work(job_id)
        self.harness.script(search=(), inpi=(), rcs=())

    @rule(length=st.sampled_from(TIME_STEPS))
    def time_passes(self, length: timedelta) -> None:
        self.harness.clock.advance(length)

    @rule(started=st.booleans())
    def sweep(self, started: bool) -> None:
        if started:
            self.harness.take_requests()
        self.harness.sweep()

    def unfinished(self) -> list[int]:
        return [job.id for job in self.harness.jobs() if job.state in OPEN_STATES]

    def known(self) -> list[EnrichmentRow]:
        sirens = {row.company_siren for row in self.harness.requests()}
        return [self.harness.enrichment(siren) for siren in sorted(sirens)]

    @invariant()
    def status_matches_the_jobs(self) -> None:
        jobs = self.harness.jobs()
        for row in self.known():
            matching = [job for job in jobs if job.company_siren == row.siren]
            running = [job for job in matching if job.state in OPEN_STATES]
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
        assert (
            self.harness.claim_owner(row.siren)
            or self.harness.clock.now() - job.heartbeat_at >= CLAIM_LASTS
        )

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
        company = self.harness.company(row.siren)
        assert company is not None
        assert running or self.harness.clock.now() - company.updated_at >= FRESHNESS

    @invariant()
    def snapshot_is_that_of_the_last_good_job(self) -> None:
        for row in self.known():
            company = self.harness.company(row.siren)
            done = [
                job
                for job in self.harness.jobs()
                if job.company_siren == row.siren and job.state == "DONE"
            ]
            good_ends = [job.finished_at for job in done if job.status in {"SUCCESS", "PARTIAL"}]
            assert (None if company is None else company.updated_at) == (
                good_ends[-1] if good_ends else None
            )
            values = {} if company is None else {field: getattr(company, field) for field in FIELDS}
            lost = [
                field
                for field, value in self.values.get(row.siren, {}).items()
                if value and not values[field]
            ]
            assert lost == []
            self.values[row.siren] = values

    @invariant()
    def requests_have_the_status_of_their_company(self) -> None:
        status = {
            row.siren: (row.status, row.enrichment_error, row.last_run_at) for row in self.known()
        }
        for row in self.harness.requests():
            matching = (row.enrichment_status, row.enrichment_error, row.enrichment_last_run_at)
            assert matching == status[row.company_siren]

    @invariant()
    def transitions_are_legal_and_consecutive(self) -> None:
        for row in self.known():
            moves = self.harness.moves(row.siren)
            states = ["PENDING", *[to for _, to in moves]]
            assert moves == list(pairwise(states))
            assert states[-1] == row.status
            assert all(
                ENRICHMENT.can_move(EnrichmentStatus(before), EnrichmentStatus(after))
                for before, after in moves
            )

    @invariant()
    def every_event_is_published_once(self) -> None:
        events = [
            (event.name.removeprefix("CompanyEnrichment"), event.payload)
            for event in self.harness.events()
        ]
        for job in self.harness.jobs():
            matching = [
                (name, payload) for name, payload in events if payload.get("job_id") == str(job.id)
            ]
            started = [payload["attempt"] for name, payload in matching if name == "Started"]
            # A postponed attempt has started but does not count.
            postponed = job.not_before is not None
            assert started == list(range(1, min(job.attempt + postponed, 3) + 1))
            fetched = [
                payload["source_api"] for name, payload in matching if name == "SourceFetched"
            ]
            assert sorted(fetched) == sorted(
                api for api, row in self.harness.source_rows(job.id).items() if row.attempts
            )
            ends = [payload for name, payload in matching if name == "Completed"]
            assert len(ends) == (
                max(len(self.harness.attached_requests(job.id)), 1) if job.state == "DONE" else 0
            )
            assert all(payload["enrichment_status"] == job.status for payload in ends)

    def finish_all_jobs(self) -> None:
        """Run all requested workers; the sweep requests workers for lost jobs."""
        self.harness.script(source_record(SEARCH), source_record(INPI), source_record(RCS))
        for _ in range(4):
            self.work_requested_jobs()
            self.harness.take_requests()
            self.harness.advance(hours=2)  # a source that refused the login rests for an hour
            self.harness.sweep()
        self.work_requested_jobs()  # refreshes that the last sweep requested
        assert self.unfinished() == []
        assert all(row.running_job_id is None for row in self.known())

    def work_requested_jobs(self) -> None:
        for key, config in self.harness.run_requests(waiting=True):
            job = self.harness.work(config["job_id"])
            assert job.state in {"DONE", "RUNNING", "PENDING"}, key


@pytest.fixture
def new_database(sqlite_template: Path, tmp_path: Path) -> Callable[[], Database]:
    numbers = count(1)

    def copy() -> Database:
        """A new file name, so that SQLite finds no journal of an earlier database."""
        return Database(
            f"sqlite:///{shutil.copy(sqlite_template, tmp_path / f'machine-{next(numbers)}.db')}"
        )

    return copy


def test_enrichment_invariants_hold_in_any_sequence_of_events(
    new_database: Callable[[], Database], advance_during_waits: Callable[[FakeClock], object]
) -> None:
    run_state_machine_as_test(
        lambda: EnrichmentMachine(new_database, advance_during_waits),
        settings=settings(
            max_examples=6,
            stateful_step_count=12,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
