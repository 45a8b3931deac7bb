"""Every type that this system does itself has somebody who does it, and nothing is opened before it
is needed."""

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.org_jobs.models.job_types import JOB_TYPES
from automation_pipeline.org_jobs.models.jobs import Performer
from automation_pipeline.org_jobs.ports import InProcessRunner, RemoteRunner
from automation_pipeline.storage.database import Database


def test_each_service_type_has_one_runner(database: Database) -> None:
    ours = Services(Settings(database_url=database.url.render_as_string(hide_password=False)))
    runners = ours.job_runners
    assert set(runners) == {
        one.name for one in JOB_TYPES.values() if one.performer is Performer.SERVICE
    }
    ways = {
        name: (isinstance(runner, InProcessRunner), isinstance(runner, RemoteRunner))
        for name, runner in runners.items()
    }
    assert ways == {
        "AUTOMATION_RUN": (False, True),
        "PRICING_RULE_APPLY": (False, True),
        "HTTPS_CALL": (True, False),
        "COMPANY_ENRICHMENT": (False, True),
    }
    # Without a shop there are no prices, and all else works.
    assert runners["AUTOMATION_RUN"].look({}) == runners["PRICING_RULE_APPLY"].look({}) == {}
    ours.database.dispose()
