"""The table of outcomes in CONTRACT 3: every Dagster job is executed with a successful and a
failing result, and its exit code matches the table."""

import json
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import httpx

from automation_pipeline.simulator import Fiche, Kind
from automation_pipeline_tests.e2e.conftest import FIVE_STEPS, NewSystem
from automation_pipeline_tests.e2e.system import System, data
from automation_pipeline_tests.simulator_control import add_faults, running_simulator, sirens

SCRIPT = Path(__file__).with_name("execute_jobs.py")
KNOWN = "552032534"
RULE = {
    "name": "A tenth off",
    "selector": {"all": True},
    "transform": {"op": "percent", "value": -10},
}
GREEN, RED = 0, 1
# A title, the job, the configuration of its ops, the colour, and further arguments.
Case = tuple[str, str, Mapping[str, Mapping[str, object]], int, tuple[str, ...]]


def case(title: str, job: str, colour: int, *words: str, **ops: Mapping[str, object]) -> Case:
    return title, job, ops, colour, words


def unexpected_exit_codes(system: System, *cases: Case) -> dict[str, int]:
    """The cases whose exit code differs from the table, with the code."""
    codes = exit_codes(
        system, [system.job_command(job, *words, **ops) for _, job, ops, _, words in cases]
    )
    return {
        f"{job}: {title}": code
        for (title, job, _, colour, _), code in zip(cases, codes, strict=True)
        if code != colour
    }


def exit_codes(system: System, commands: list[list[str]]) -> list[int]:
    """The output of the jobs is in jobs.log."""
    ended = system.run(sys.executable, "-W", "ignore", str(SCRIPT), given=json.dumps(commands))
    (system.folder / "jobs.log").write_text(ended.stdout + ended.stderr)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


def org_run(api: httpx.Client, system: System, expected: int) -> int:
    """The run of a job that calls the simulator and requires this HTTP status."""
    call = {"url": f"{system.provider}/health", "method": "GET", "expectStatus": [expected]}
    job = data(
        api.post(
            "/api/org-jobs", params={"org": "acme"}, json={"type": "HTTPS_CALL", "payload": call}
        )
    )
    return system.sql("SELECT id FROM org_job_runs WHERE job_id = :id", id=str(job["id"]))[0]["id"]


def range_job(api: httpx.Client, day: object) -> str:
    """A fetch job for one day."""
    asked: Any = api.get(
        "/api/fiches/status/by-date-range", params={"startDate": str(day), "endDate": str(day)}
    ).json()
    return asked["meta"]["backgroundJobId"]


def test_dagster_shows_every_job_with_the_status_of_its_outcome(
    new_system: NewSystem, fiches: tuple[Fiche, ...]
) -> None:
    ordinary = [fiche.id for fiche in fiches if fiche.kind is Kind.ORDINARY]
    run, alone, refused, untranscribed, unjudged = ordinary[:2], *ordinary[2:6]
    with running_simulator(
        "--exact", "--fiches-per-day", "24", "--shop-products", "3", "--shop-variants", "1"
    ) as url:
        system = new_system(at=url, LLM_MAX_ATTEMPTS="2", ORG_JOBS_HTTPS_ALLOWED_ORIGINS=url)
        with system.api() as api:
            data(api.post("/api/audit-configs/import", json=json.loads(FIVE_STEPS.read_text())))
            data(api.post("/api/organisations", json={"id": "acme", "name": "Acme"}))
            whole = {"runTranscription": True, "runAudits": True}
            good = system.create_schedule(run, **whole)
            strict = system.create_schedule([refused], continueOnError=False)
            rule = data(api.post("/api/pricing/rules", json=RULE))["id"]
            day, other_day = fiches[0].sold_on, date(2026, 1, 15)
            called, failing = org_run(api, system, 200), org_run(api, system, 418)
            fetched, unread = range_job(api, day), range_job(api, other_day)

        on = lambda partition: ("--tags", json.dumps({"dagster/partition": str(partition)}))  # noqa: E731
        wrong = unexpected_exit_codes(
            system,
            case("completed", "automation_run", GREEN, open_run={"schedule_id": int(good)}),
            case("transcribed", "transcribe_fiche", GREEN, transcribe={"fiche_id": alone}),
            case("nothing left to do", "transcribe_fiche", GREEN, transcribe={"fiche_id": alone}),
            case("a result", "audit_fiche", GREEN, audit={"fiche_id": alone, "audit_config_id": 1}),
            case(
                "a step judged again",
                "audit_rerun",
                GREEN,
                rerun={"audit_id": 1, "step_position": 1},
            ),
            case("applied", "rule_run", GREEN, work_rule_run={"rule_id": int(rule)}),
            case("a report", "rule_reconciliation", GREEN, reconcile={"run_id": 1}),
            case("success recorded", "org_job", GREEN, work_org_job={"job_run_id": called}),
            case("failure recorded", "org_job", GREEN, work_org_job={"job_run_id": failing}),
            case("known", "company_enrichment", GREEN, work_company_enrichment={"siren": KNOWN}),
            case("materialised", "sales_list_revalidation", GREEN, *on(day)),
            case("looked at", "sales_list_staleness", GREEN),
            case("fetched", "sales_range_fetch", GREEN, fetch_days={"job_id": fetched}),
            case("tidied", "housekeeping", GREEN),
        )
        assert wrong == {}, (system.folder / "jobs.log").read_text()[-5000:]

        targets = system.sql("SELECT product_id FROM rule_targets")
        products = {target["product_id"].rpartition("/")[2] for target in targets}
        [unknown] = sirens(url, 1, "unknown")
        add_faults(
            url,
            {"route": "crm.details", "item": refused, "status": 403},
            {"route": "crm.sales_list", "status": 403},
            {"route": "speech.transcribe", "status": 401},
            {"route": "llm.complete", "status": 503},
            *({"route": "shop.graphql", "item": product, "status": 404} for product in products),
        )
        wrong = unexpected_exit_codes(
            system,
            case(
                "failed, and recorded",
                "automation_run",
                GREEN,
                open_run={"schedule_id": int(strict)},
            ),
            case("unknown schedule", "automation_run", RED, open_run={"schedule_id": 77}),
            case("unknown fiche", "transcribe_fiche", RED, transcribe={"fiche_id": "999999999"}),
            case("refused key", "transcribe_fiche", RED, transcribe={"fiche_id": untranscribed}),
            case("no answer", "audit_fiche", RED, audit={"fiche_id": run[0], "audit_config_id": 1}),
            case(
                "unknown configuration",
                "audit_fiche",
                RED,
                audit={"fiche_id": unjudged, "audit_config_id": 77},
            ),
            case("no answer", "audit_rerun", RED, rerun={"audit_id": 1, "step_position": 2}),
            case(
                "no price written",
                "rule_run",
                RED,
                work_rule_run={"rule_id": int(rule), "force": True},
            ),
            case("unknown run", "rule_run", RED, work_rule_run={"run_id": 77}),
            case("unknown run", "rule_reconciliation", RED, reconcile={"run_id": 77}),
            case("unknown run", "org_job", RED, work_org_job={"job_run_id": 77}),
            case(
                "unknown company",
                "company_enrichment",
                RED,
                work_company_enrichment={"siren": unknown},
            ),
            case("list refused", "sales_list_revalidation", RED, *on(other_day)),
            case("list refused", "sales_range_fetch", RED, fetch_days={"job_id": unread}),
        )
        assert wrong == {}, (system.folder / "jobs.log").read_text()[-5000:]
        [failed] = system.sql(
            "SELECT status FROM automation_runs WHERE schedule_id = :id", id=strict
        )
        assert failed["status"] == "failed"


def test_a_run_config_cannot_read_a_secret_of_the_process(new_system: NewSystem) -> None:
    """Otherwise, any user who may launch a run could read it in Dagster's pages."""
    system, secret = new_system(A_SECRET="73219"), {"env": "A_SECRET"}
    runs: dict[str, dict[str, dict[str, object]]] = {
        "automation_run": {"open_run": {"schedule_id": 1, "due_at": secret}},
        "org_job": {"work_org_job": {"job_run_id": secret}},
        "audit_fiche": {"audit": {"fiche_id": "1", "audit_config_id": 1, "trigger_source": secret}},
    }
    codes = exit_codes(system, [system.job_command(job, **ops) for job, ops in runs.items()])
    printed = (system.folder / "jobs.log").read_text()
    assert codes == [1] * len(runs)
    for field in ("due_at", "job_run_id", "trigger_source"):
        assert f":config:{field}. Value \"{{'env': 'A_SECRET'}}\"" in printed
    assert "73219" not in printed
