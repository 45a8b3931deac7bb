"""How a filed request becomes a Dagster run: each job's first op takes the request's config."""

import dagster as dg

from automation_pipeline.orchestration.requests import LAUNCH_TAG, REQUEST_TAG
from automation_pipeline.storage.run_requests import RunWish

DOORS = {
    "automation_run": "open_run",
    "transcribe_fiche": "transcribe",
    "audit_fiche": "audit",
    "audit_rerun": "rerun",
    "sales_range_fetch": "fetch_days",
    "rule_run": "work_rule_run",
    "rule_reconciliation": "reconcile",
    "company_enrichment": "work_company_enrichment",
    "org_job": "work_org_job",
    "housekeeping": "keep_house_tidy",
}


def run_request(wish: RunWish) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=wish.run_key,
        job_name=wish.job,
        run_config={"ops": {DOORS[wish.job]: {"config": dict(wish.config)}}},
        tags={**wish.tags, REQUEST_TAG: wish.key, LAUNCH_TAG: str(wish.launch)},
    )
