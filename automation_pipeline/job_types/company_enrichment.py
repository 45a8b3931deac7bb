"""COMPANY_ENRICHMENT: a company is asked for in the organisation's name, and followed until the answer is there."""

from collections.abc import Callable, Mapping

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.correlation import usable_id
from automation_pipeline.core.json_model import parse
from automation_pipeline.enrichment.domain.configured import check_configured
from automation_pipeline.enrichment.domain.states import EnrichmentStatus
from automation_pipeline.enrichment.ports import Registries
from automation_pipeline.enrichment.stages.request_enrichment import request_enrichment
from automation_pipeline.enrichment.store.followed import Standing
from automation_pipeline.enrichment.store.followed import followed as standings_of
from automation_pipeline.enrichment.store.requests import Asking
from automation_pipeline.org_jobs.domain.endings import AttemptEnd, succeeded
from automation_pipeline.org_jobs.domain.failures import NOT_FOUND
from automation_pipeline.org_jobs.domain.payloads_of_ours import CompanyPayload
from automation_pipeline.org_jobs.domain.retry_policy import FAILED
from automation_pipeline.org_jobs.domain.states import RunState
from automation_pipeline.org_jobs.ports import AskedJob
from automation_pipeline.storage.database import Database

REQUEST_ID = "companyRequestId"
SIREN_DIGITS = 9
_GOOD = frozenset({EnrichmentStatus.SUCCESS, EnrichmentStatus.PARTIAL})


class CompanyEnrichment:
    """SUCCESS and PARTIAL are a success. A job of a register's is nobody's to stop: others may wait for it too."""

    def __init__(self, database: Database, clock: Clock, registries: Callable[[], Registries]) -> None:
        self._database, self._clock, self._registries = database, clock, registries

    def start(self, asked: AskedJob) -> Mapping[str, object]:
        wanted, registries = parse(CompanyPayload, asked.payload, "The stored payload is refused"), self._registries()
        check_configured(registries.sources)
        key = f"{asked.key}-{asked.attempt_no}"
        asking = Asking(
            tenant_id=asked.org_id,
            correlation_id=usable_id(key),
            actor=f"org-job:{asked.job_id}",
            idempotency_key=key,
        )
        given = {"siren" if len(wanted.company) == SIREN_DIGITS else "siret": wanted.company}
        made = request_enrichment(
            given, asking, knobs=registries.knobs, database=self._database, clock=self._clock, force=wanted.force
        )
        return {REQUEST_ID: str(made.request_id)}

    def look(self, followed: Mapping[int, Mapping[str, object]]) -> Mapping[int, AttemptEnd]:
        request_ids = {number: int(str(following[REQUEST_ID])) for number, following in followed.items()}
        with self._database.reading() as session:
            known = {one.request_id: one for one in standings_of(session, sorted(set(request_ids.values())))}
        ends = {number: _end(request_id, known.get(request_id)) for number, request_id in request_ids.items()}
        return {number: end for number, end in ends.items() if end is not None}

    def cancel(self, following: Mapping[str, object], actor: str, reason: str | None = None) -> bool:  # noqa: ARG002  the port's
        """Nothing of this job is left to stop."""
        return True


def _end(request_id: int, standing: Standing | None) -> AttemptEnd | None:
    if standing is None:
        error = f"Request {request_id} for a company is gone."
        return AttemptEnd(status=RunState.FAILED, error_code=NOT_FOUND, error=error)
    if standing.is_running:
        return None
    result = {REQUEST_ID: str(request_id), "siren": standing.siren, "status": standing.status}
    if standing.status in _GOOD:
        return succeeded(result)
    error = f"Company {standing.siren} is {standing.status}: {standing.error or 'nobody was asked'}"
    return AttemptEnd(status=RunState.FAILED, error_code=FAILED, error=error, result=result)
