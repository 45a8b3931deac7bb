"""An agent for tests: a host with one server, which claims jobs and reports on them."""

from dataclasses import dataclass
from typing import Any

from automation_pipeline.org_jobs.agents import (
    claim_jobs,
    list_held_jobs,
    report_progress,
    report_result,
)
from automation_pipeline.org_jobs.models.agents import AgentJob, Orders
from automation_pipeline.org_jobs.models.jobs import JobType, OrgJobRun, RetryPolicy
from automation_pipeline.org_jobs.models.organisations import ALL_ORGANISATIONS, OrgScope
from automation_pipeline.org_jobs.runs import reap_jobs
from automation_pipeline.org_jobs.tables import JobRunRow
from automation_pipeline_tests.org_jobs.bench import CHANGING, ORG, Bench

AT_ONCE = RetryPolicy(backoff_ms=0)


@dataclass
class Agent:
    bench: Bench
    host_id: int
    server_id: int
    org_id: str

    @property
    def on(self) -> dict[str, Any]:
        return {"database": self.bench.database, "clock": self.bench.clock}

    def wanted(
        self, of_type: JobType = CHANGING, *, retry: RetryPolicy = AT_ONCE, **of_job: Any
    ) -> int:
        """Insert a job for the agent's server; return its id."""
        return self.bench.job(
            self.org_id, of_type, retry=retry, server_instance_id=self.server_id, **of_job
        )

    def claim(self, most: int = 1, within: OrgScope = ALL_ORGANISATIONS) -> list[AgentJob]:
        return claim_jobs(self.host_id, within=within, most=most, **self.on)

    def claimed(self, **of_job: Any) -> AgentJob:
        """Insert a job and claim it."""
        self.wanted(**of_job)
        (job,) = self.claim()
        return job

    def started(self, **of_job: Any) -> AgentJob:
        job = self.claimed(**of_job)
        self.progress(job)
        return job

    def progress(
        self, job: AgentJob, within: OrgScope = ALL_ORGANISATIONS, **given: object
    ) -> Orders:
        return report_progress(job.run_id, of(job) | given, within=within, **self.on)

    def result(
        self, job: AgentJob, status: str, within: OrgScope = ALL_ORGANISATIONS, **results: object
    ) -> OrgJobRun:
        given = of(job) | {"status": status} | results
        return report_result(job.run_id, given, within=within, meter=self.bench.meter, **self.on)

    def held(self) -> list[AgentJob]:
        return list_held_jobs(self.host_id, within=ALL_ORGANISATIONS, database=self.bench.database)

    def reap(self, job: AgentJob) -> JobRunRow:
        """Expire the lease and reap the attempt."""
        self.bench.expire_hold(job.run_id)
        reap_jobs(meter=self.bench.meter, **self.on)
        return self.bench.run_by_id(job.run_id)


def an_agent(bench: Bench, org_id: str = ORG) -> Agent:
    host_id = bench.host(org_id)
    return Agent(bench, host_id, bench.server(org_id, host_id=host_id), org_id)


def of(job: AgentJob) -> dict[str, object]:
    return {"attemptNo": job.attempt_no, "leaseToken": job.lease_token}
