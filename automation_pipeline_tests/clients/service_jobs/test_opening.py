"""Every service job type has a runner, and its clients are opened only when needed."""

from automation_pipeline.bootstrap import Services
from automation_pipeline.core.settings import Settings
from automation_pipeline.org_jobs.models.job_types import JOB_TYPES
from automation_pipeline.org_jobs.models.jobs import Performer
from automation_pipeline.org_jobs.ports import InProcessRunner, RemoteRunner
from automation_pipeline.storage.database import Database


def test_each_service_type_has_one_runner(database: Database) -> None:
    services = Services(Settings(database_url=database.url.render_as_string(hide_password=False)))
    runners = services.job_runners
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
    # Runners work without a configured shop.
    assert (
        runners["AUTOMATION_RUN"].find_ended({})
        == runners["PRICING_RULE_APPLY"].find_ended({})
        == {}
    )
    services.database.dispose()
