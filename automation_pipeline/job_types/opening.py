"""From what the jobs need to those who do them, by the name of the type."""

from collections.abc import Callable, Mapping
from os import environ

from automation_pipeline.core.clock import Clock
from automation_pipeline.job_types.automation_run import AutomationRun
from automation_pipeline.job_types.https_call import HttpsCall
from automation_pipeline.job_types.pricing_rule import PricingRuleApply
from automation_pipeline.org_jobs.domain.job_types import AUTOMATION_RUN, HTTPS_CALL, PRICING_RULE_APPLY
from automation_pipeline.org_jobs.ports import HttpsCaller, JobDoer
from automation_pipeline.storage.database import Database


def open_job_doers(
    database: Database, clock: Clock, *, shop: Callable[[], str], open_caller: Callable[[], HttpsCaller]
) -> Mapping[str, JobDoer]:
    """One for each type that this system does itself. `shop` and `open_caller` are asked for when a job needs them.
    Secrets are looked up in the environment of this process, when a job names them."""
    return {
        AUTOMATION_RUN: AutomationRun(database, clock),
        PRICING_RULE_APPLY: PricingRuleApply(database, clock, shop),
        HTTPS_CALL: HttpsCall(open_caller, environ),
    }
