"""Helpers for tests of `automation org-jobs`."""

from dataclasses import dataclass
from typing import Any

from automation_pipeline.core.clock import SystemClock
from automation_pipeline.org_jobs.models.jobs import AttemptEnd
from automation_pipeline.org_jobs.queries.attempts import end_attempts
from automation_pipeline.storage.statements import database_now
from automation_pipeline_tests.cli.terminal import CommandResult, Terminal
from automation_pipeline_tests.org_jobs.data import OrgJobsData

ACME = "acme"
CALL: dict[str, object] = {
    "name": "Warm [cache]",
    "cronExpression": "0 2 * * *",
    "timezone": "Europe/Paris",
    "jobType": "HTTPS_CALL",
    "payload": {"url": "https://example.com/warm"},
}
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class OrgJobsCommands:
    terminal: Terminal

    def run(self, *arguments: str, **given: Any) -> CommandResult:
        return self.terminal.run("org-jobs", *arguments, **given)

    def json(self, *arguments: str, given: object = None, code: int = 0) -> Any:
        return self.terminal.json("org-jobs", *arguments, given=given, code=code)

    def printed(self, *arguments: str, code: int = 0, **given: Any) -> str:
        """Return the output with single spaces."""
        ended = self.run(*arguments, **given)
        assert (ended.code, ended.err) == (code, "")
        return " ".join(ended.out.split())

    def refused(self, *arguments: str, code: int = 1, **given: Any) -> str:
        ended = self.run(*arguments, **given)
        assert (ended.code, ended.out) == (code, "")
        assert ended.err.count("\n") == 1
        return ended.err.strip()

    def org(self, org_id: str = ACME) -> str:
        return self.json("orgs", "create", org_id, "--name", org_id.title())["id"]

    def server(self, name: str = "lobby", org_id: str = ACME) -> str:
        host = self.json("hosts", "create", "--name", f"host of {name}", "--org", org_id)["id"]
        return self.json("servers", "create", "--name", name, "--host", host, "--org", org_id)["id"]

    def schedule(self, *options: str, **fields: object) -> str:
        """Create a schedule, by default an HTTPS call, and return its ID."""
        return self.json("schedules", "create", "--file", "-", *options, given=CALL | fields)["id"]

    def job(self, *options: str) -> str:
        """Create a job and return its ID."""
        payload = '{"url": "https://example.com/warm"}'
        return self.json("create", "--type", "HTTPS_CALL", "--payload", payload, *options)["job_id"]

    def start_job(self, job_id: str, **columns: Any) -> None:
        """Start the job as an agent with a lease of one minute."""
        now = SystemClock().now()
        held = {"lease_owner": "agent:h", "lease_token": 1, "lease_until": database_now(60.0)}
        self.data.set_run(
            self._run_id(job_id), status="running", started_at=now, **(held | columns)
        )

    def end_job(self, job_id: str, end: AttemptEnd) -> None:
        with self.terminal.database.transaction() as session:
            end_attempts(session, {self._run_id(job_id): end}, "worker", SystemClock().now())

    def run_job(self, job_id: str, end: AttemptEnd) -> None:
        self.start_job(job_id)
        self.end_job(job_id, end)

    def _run_id(self, job_id: str) -> int:
        return self.data.run_row(int(job_id)).id

    @property
    def data(self) -> OrgJobsData:
        return OrgJobsData(self.terminal.database, SystemClock())  # type: ignore[arg-type]  no time is passed
