"""A test harness for enrichment: scripted registries, and helpers for requests, jobs, sweeps and rows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from sqlalchemy import select, update

from automation_pipeline.core.coordination import Claims, Rate, RateLimiter
from automation_pipeline.core.events import Event
from automation_pipeline.core.metrics import Meter
from automation_pipeline.enrichment import jobs as worker
from automation_pipeline.enrichment.models import (
    ENRICHMENT,
    EnrichmentAnswer,
    EnrichmentJobShown,
    EnrichmentOptions,
    Registries,
    RegistrySource,
    Requester,
    RequestShown,
    SourceApi,
    claim_key,
)
from automation_pipeline.enrichment.requests import (
    open_request,
    refresh_company,
    request_enrichment,
)
from automation_pipeline.enrichment.sweep import SweepReport, sweep_enrichments
from automation_pipeline.enrichment.tables import (
    AttachmentRow,
    CompanyRequestRow,
    CompanyRow,
    EnrichmentJobRow,
    EnrichmentJobSourceRow,
    EnrichmentRow,
)
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.outbox import OutboxRow, event_in
from automation_pipeline.storage.run_requests import RunRequestRow
from automation_pipeline_tests.enrichment.scripted import (
    INPI,
    RCS,
    SEARCH,
    SIREN,
    Answer,
    ClockedClaims,
    CountingLimiter,
    KilledError,
    ScriptedRegistry,
    source_record,
)
from automation_pipeline_tests.fakes.clock import FakeClock
from automation_pipeline_tests.waiting import run_with_fake_time

RATE = Rate(5, 1.0)
# Scripted answers may run functions that take longer than a call or a heartbeat on a busy machine.
PATIENT = EnrichmentOptions(call_seconds=600.0, heartbeat_seconds=600.0)


def requester(
    tenant: str = "main", key: str | None = None, *, correlation: str | None = None
) -> Requester:
    return Requester(
        tenant_id=tenant,
        correlation_id=correlation or f"of-{tenant}",
        actor="user:1",
        idempotency_key=key,
    )


@dataclass
class EnrichmentHarness:
    """All three sources answer unless a script replaces an answer. Sources in `without` are not
    configured. Time passes only when the test advances the clock."""

    database: Database
    clock: FakeClock
    options: EnrichmentOptions = PATIENT
    without: frozenset[SourceApi] = frozenset()
    calls_a_day: dict[SourceApi, int] = field(default_factory=dict)
    claims: Claims | None = None
    limiter: RateLimiter | None = None
    meter: Meter = field(default_factory=Meter)

    def __post_init__(self) -> None:
        self.claims = self.claims or ClockedClaims(self.clock)
        self.limiter = self.limiter or CountingLimiter(self.clock)
        self.sources = {api: ScriptedRegistry(api, source_record(api)) for api in SourceApi}
        self._numbers = count(1)

    @property
    def registries(self) -> Registries:
        called = [api for api in SourceApi if api not in self.without]
        return Registries(
            sources={
                api: RegistrySource(api, self.sources[api], RATE, self.calls_a_day.get(api))
                for api in called
            },
            limiter=self.limiter,
            claims=self.claims,
            options=self.options,
            meter=self.meter,
        )

    @property
    def _services(self) -> dict[str, Any]:
        return {"database": self.database, "clock": self.clock}

    def script(self, search: object = (), inpi: object = (), rcs: object = ()) -> None:
        """Set the next answers of each source (a sequence), or its answer to all calls."""
        for api, result in ((SEARCH, search), (INPI, inpi), (RCS, rcs)):
            if isinstance(result, Sequence):
                self.sources[api].script = list(result)
            else:
                self.sources[api].always = result

    def calls(self, *, of: str | None = None) -> dict[SourceApi, int]:
        sirens_by_api = {
            api: [siren for siren, _ in source.calls] for api, source in self.sources.items()
        }
        return {
            api: sum(of in {None, siren} for siren in sirens)
            for api, sirens in sirens_by_api.items()
        }

    def request(
        self,
        siren: str = SIREN,
        tenant: str = "main",
        key: str | None = None,
        *,
        force: bool = False,
        **given: object,
    ) -> EnrichmentAnswer:
        values = {"siren": siren} | given
        return request_enrichment(
            values, requester(tenant, key), options=self.options, force=force, **self._services
        )

    def open(self, request_id: int, tenant: str = "main") -> RequestShown:
        return open_request(request_id, requester(tenant), options=self.options, **self._services)

    def refresh(self, request_id: int, tenant: str = "main") -> EnrichmentAnswer:
        return refresh_company(
            request_id, requester(tenant), options=self.options, **self._services
        )

    def work(self, job_id: int | None, owner: str | None = None) -> EnrichmentJobShown:
        owner = owner or f"worker-{next(self._numbers)}"
        return run_with_fake_time(
            worker.work_enrichment(
                job_id, registries=self.registries, owner=owner, **self._services
            )
        )

    def work_and_die(self, job_id: int | None, killed_in: SourceApi | None = SEARCH) -> None:
        """Work until the process is killed: during the call of `killed_in` or, if that is None, right before
        the final commit."""
        owner, finish = f"killed-{next(self._numbers)}", worker.finish_job
        self.claims.dead_owners.add(owner)
        if killed_in is None:
            worker.finish_job = _finish_and_die(finish)
        else:
            self.sources[killed_in].script.insert(0, _die)
        try:
            self.work(job_id, owner)
        except KilledError:
            pass
        finally:
            worker.finish_job = finish
            for source in self.sources.values():
                source.script = [result for result in source.script if result is not _die]

    def enriched(self, siren: str = SIREN, tenant: str = "main") -> EnrichmentAnswer:
        """Request the company and work on its job to the end."""
        answer = self.request(siren, tenant)
        if answer.job_id is not None:
            self.work(answer.job_id)
        return answer

    def sweep(self, limit: int = 50) -> SweepReport:
        return sweep_enrichments(registries=self.registries, limit=limit, **self._services)

    def advance(self, **length: float) -> datetime:
        """Advance the clock, and return its new time."""
        self.clock.advance(timedelta(**length))
        return self.clock.now()

    def claim_owner(self, siren: str = SIREN) -> str | None:
        held = self.claims.holder(claim_key(siren))
        return None if held is None else held.owner

    def enrichment(self, siren: str = SIREN) -> EnrichmentRow:
        with self.database.reading() as session:
            return session.get_one(EnrichmentRow, siren)

    def enrichments(self) -> Sequence[EnrichmentRow]:
        return self.rows(select(EnrichmentRow).order_by(EnrichmentRow.siren))

    def company(self, siren: str = SIREN) -> CompanyRow | None:
        with self.database.reading() as session:
            return session.get(CompanyRow, siren)

    def job(self, job_id: int) -> EnrichmentJobRow:
        with self.database.reading() as session:
            return session.get_one(EnrichmentJobRow, job_id)

    def jobs(self) -> Sequence[EnrichmentJobRow]:
        return self.rows(select(EnrichmentJobRow).order_by(EnrichmentJobRow.id))

    def source_rows(self, job_id: int) -> dict[str, EnrichmentJobSourceRow]:
        rows = self.rows(
            select(EnrichmentJobSourceRow)
            .where(EnrichmentJobSourceRow.job_id == job_id)
            .order_by(EnrichmentJobSourceRow.id)
        )
        return {row.source_api: row for row in rows}

    def attached_requests(self, job_id: int) -> list[int]:
        query = (
            select(AttachmentRow).where(AttachmentRow.job_id == job_id).order_by(AttachmentRow.id)
        )
        return [row.request_id for row in self.rows(query)]

    def requests(self) -> Sequence[CompanyRequestRow]:
        return self.rows(select(CompanyRequestRow).order_by(CompanyRequestRow.id))

    def request_row(self, request_id: int) -> CompanyRequestRow:
        with self.database.reading() as session:
            return session.get_one(CompanyRequestRow, request_id)

    def transitions(self, siren: str = SIREN) -> Sequence[TransitionRow]:
        conditions = TransitionRow.machine == ENRICHMENT.name, TransitionRow.entity_id == siren
        return self.rows(select(TransitionRow).where(*conditions).order_by(TransitionRow.id))

    def moves(self, siren: str = SIREN) -> list[tuple[str, str]]:
        return [(row.from_state, row.to_state) for row in self.transitions(siren)]

    def events(self, name: str | None = None) -> list[Event]:
        """The events whose names end with `name`."""
        found = [event_in(row) for row in self.rows(select(OutboxRow).order_by(OutboxRow.id))]
        return [event for event in found if event.name.endswith(name or "")]

    def event_names(self) -> list[str]:
        return [event.name.removeprefix("CompanyEnrichment") for event in self.events()]

    def run_requests(self, *, waiting: bool = False) -> list[tuple[str, Mapping[str, object]]]:
        """The keys and configs of all run requests, or only of those that wait."""
        rows = self.rows(select(RunRequestRow).order_by(RunRequestRow.id))
        return [
            (row.request_key, row.config) for row in rows if row.state == "waiting" or not waiting
        ]

    def take_requests(self) -> None:
        """Mark all run requests as taken, as if Dagster had started their runs."""
        with self.database.transaction() as session:
            session.execute(update(RunRequestRow).values(state="taken"))

    def set(self, table: Any, **columns: Any) -> None:
        with self.database.transaction() as session:
            session.execute(update(table).values(**columns))

    def set_request(self, request_id: int, **columns: Any) -> None:
        with self.database.transaction() as session:
            session.execute(
                update(CompanyRequestRow)
                .where(CompanyRequestRow.id == request_id)
                .values(**columns)
            )

    def rows_of(self, table: Any) -> Sequence[Any]:
        return self.rows(select(table).order_by(table.id))

    def rows(self, query: Any) -> Sequence[Any]:
        with self.database.reading() as session:
            return list(session.scalars(query))


def values_of(row: Any, *, without: Collection[str] = ("id",)) -> dict[str, Any]:
    """The values of all columns except `without`."""
    names = [column.key for column in row.__mapper__.column_attrs]
    return {name: getattr(row, name) for name in names if name not in without}


def _die() -> Answer:
    raise KilledError


def _finish_and_die(finish: Any) -> Any:
    def finish_and_die(*given: Any) -> None:
        finish(*given)
        raise KilledError

    return finish_and_die
