"""From what the jobs need to those who do them, by the name of the type."""

from collections.abc import Callable, Mapping
from os import environ

from automation_pipeline.core.clock import Clock
from automation_pipeline.enrichment.ports import Registries
from automation_pipeline.job_types.automation_run import AutomationRun
from automation_pipeline.job_types.company_enrichment import CompanyEnrichment
from automation_pipeline.job_types.https_call import HttpsCall
from automation_pipeline.job_types.pricing_rule import PricingRuleApply
from automation_pipeline.org_jobs.domain.job_types import (
    AUTOMATION_RUN,
    COMPANY_ENRICHMENT,
    HTTPS_CALL,
    PRICING_RULE_APPLY,
)
from automation_pipeline.org_jobs.ports import HttpsCaller, JobDoer
from automation_pipeline.storage.database import Database


def open_job_doers(
    database: Database,
    clock: Clock,
    *,
    shop: Callable[[], str],
    registries: Callable[[], Registries],
    open_caller: Callable[[], HttpsCaller],
) -> Mapping[str, JobDoer]:
    """One for each type that this system does itself. What is given as a function is asked for when a job needs it.
    Secrets are looked up in the environment of this process, when a job names them."""
    return {
        AUTOMATION_RUN: AutomationRun(database, clock),
        PRICING_RULE_APPLY: PricingRuleApply(database, clock, shop),
        COMPANY_ENRICHMENT: CompanyEnrichment(database, clock, registries),
        HTTPS_CALL: HttpsCall(open_caller, environ),
    }
