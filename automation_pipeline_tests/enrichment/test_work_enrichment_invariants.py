"""Whatever sources say and workers suffer, in whatever order: what is always true of enrichments
stays true, and every job comes to an end."""

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
    fails,
    says,
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
    fails("AUTH_ERROR", 401),
    fails("FORBIDDEN", 403),
    fails("INTERNAL_ERROR", 400),
]
SEARCHES = st.sampled_from(
    [
        says(SEARCH), says(SEARCH, legal_name="DANONE SA", naf_code=None), says(SEARCH, city=None),
        says(SEARCH, legal_name=None), says(SEARCH, legal_name=None, is_masked=True), NOT_FOUND, *ERRORS,
    ]
)  # fmt: skip
OPTIONALS = {api: st.sampled_from([says(api), says(api), *ERRORS]) for api in (INPI, RCS)}
DEATHS = st.sampled_from([SEARCH, INPI, RCS, None])


class Life(RuleBasedStateMachine):
    """Of two companies that two tenants ask about."""

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
            self.all_comes_to_an_end()
        finally:
            self.bench.database.dispose()

    @rule(siren=st.sampled_from(SIRENS), tenant=st.sampled_from(TENANTS), force=st.booleans())
    def ask(self, siren: str, tenant: str, force: bool) -> None:
        self.bench.request(siren, tenant, force=force)

    @precondition(lambda self: self.bench.requests())
    @rule(data=st.data(), refresh=st.booleans())
    def come_back(self, data: st.DataObject, refresh: bool) -> None:
        row = data.draw(st.sampled_from(list(self.bench.requests())))
        with suppress(ConflictError):
            (self.bench.refresh if refresh else self.bench.open)(row.id, row.tenant_id)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), search=SEARCHES, inpi=OPTIONALS[INPI], rcs=OPTIONALS[RCS])
    def work(self, data: st.DataObject, search: object, inpi: object, rcs: object) -> None:
        self.bench.script(search, inpi, rcs)
        self.bench.work(data.draw(st.sampled_from(self.unfinished())))

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), search=SEARCHES, inpi=OPTIONALS[INPI], place=DEATHS)
    def be_killed(self, data: st.DataObject, search: object, inpi: object, place: Any) -> None:
        self.bench.script(search, inpi)
        self.bench.work_and_die(data.draw(st.sampled_from(self.unfinished())), place)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), place=st.sampled_from([SEARCH, INPI, RCS]), other=SEARCHES)
    def sleep_through_the_lease(self, data: st.DataObject, place: Any, other: object) -> None:
        """Another worker does the work in between."""
        job_id = data.draw(st.sampled_from(self.unfinished()))

        def in_between() -> None:
            self.bench.pass_time(seconds=121)
            self.bench.script(search=other)
            self.bench.work(job_id)

        self.bench.sources[place].script = [in_between]
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
    def a_status_means_what_it_says(self) -> None:
        jobs = self.bench.jobs()
        for row in self.known():
            its = [job for job in jobs if job.company_siren == row.siren]
            running = [job for job in its if job.state in LIVE]
            assert len(running) <= 1
            assert row.status != "PENDING" or running
            check = getattr(self, f"_{row.status.lower()}", None)
            if check is not None:
                check(row, [job for job in its if job.state == "DONE"], running)

    def _running(
        self, row: EnrichmentRow, _done: list[EnrichmentJobRow], running: list[EnrichmentJobRow]
    ) -> None:
        """Under a lease that is held, or that is over and will be followed."""
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
        """A refresh that is wanted before its time is over is open."""
        company = self.bench.company(row.siren)
        assert company is not None
        assert running or self.bench.clock.now() - company.updated_at >= FRESH

    @invariant()
    def a_snapshot_is_that_of_the_last_good_job(self) -> None:
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
    def requests_say_what_their_company_says(self) -> None:
        status = {
            row.siren: (row.status, row.enrichment_error, row.last_run_at) for row in self.known()
        }
        for row in self.bench.requests():
            its = (row.enrichment_status, row.enrichment_error, row.enrichment_last_run_at)
            assert its == status[row.company_siren]

    @invariant()
    def every_move_is_legal_and_follows_the_last(self) -> None:
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
    def events_are_told_as_often_as_they_happen(self) -> None:
        events = [
            (event.name.removeprefix("CompanyEnrichment"), event.payload)
            for event in self.bench.events()
        ]
        for job in self.bench.jobs():
            its = [
                (name, payload) for name, payload in events if payload.get("job_id") == str(job.id)
            ]
            started = [payload["attempt"] for name, payload in its if name == "Started"]
            put_off = job.not_before is not None  # it began and does not count
            assert started == list(range(1, min(job.attempt + put_off, 3) + 1))
            asked = [payload["source_api"] for name, payload in its if name == "SourceFetched"]
            assert sorted(asked) == sorted(
                api for api, row in self.bench.source_rows(job.id).items() if row.attempts
            )
            ends = [payload for name, payload in its if name == "Completed"]
            assert len(ends) == (
                max(len(self.bench.waiting_for(job.id)), 1) if job.state == "DONE" else 0
            )
            assert all(payload["enrichment_status"] == job.status for payload in ends)

    def all_comes_to_an_end(self) -> None:
        """Dagster begins what is asked for, and the sweep asks for what was lost."""
        self.bench.script(says(SEARCH), says(INPI), says(RCS))
        for _ in range(4):
            for key, config in self.bench.asked_for(waiting=True):
                assert self.bench.work(config["job_id"]).state in {"DONE", "RUNNING", "PENDING"}, (
                    key
                )
            self.bench.take_requests()
            self.bench.pass_time(hours=2)  # a refused login rests for an hour
            self.bench.sweep()
        assert self.unfinished() == []
        assert all(row.running_job_id is None for row in self.known())


@pytest.fixture
def fresh(sqlite_template: Path, tmp_path: Path) -> Callable[[], Database]:
    numbers = count(1)

    def copy() -> Database:
        """A file of its own: next to a used name, SQLite could find the journal of the database
        before."""
        return Database(
            f"sqlite:///{shutil.copy(sqlite_template, tmp_path / f'life-{next(numbers)}.db')}"
        )

    return copy


def test_enrichment_invariants_hold_in_any_sequence_of_events(
    fresh: Callable[[], Database], waiting_by: Callable[[StandingClock], object]
) -> None:
    run_state_machine_as_test(
        lambda: Life(fresh, waiting_by),
        settings=settings(
            max_examples=6,
            stateful_step_count=12,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
