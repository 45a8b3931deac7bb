"""The sensor `due_schedules` as Dagster calls it: it starts due schedules and reports them."""

import dagster as dg
import pytest

from automation_pipeline.bootstrap import Services, due_rules
from automation_pipeline.core.settings import Settings
from automation_pipeline.defs import automation as due_sensor
from automation_pipeline.defs.housekeeping import run_failures
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.due import RULES, make_daily_schedule
from automation_pipeline_tests.fakes.clock import FakeClock


class _FixedServices:
    """Replaces the resource: services with the test's database and clock."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def get(self) -> Services:
        return self._services


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_tick_starts_due_schedules_and_reports_them(
    database_url: str, database: Database, clock: FakeClock
) -> None:
    own = _FixedServices(Services(Settings(database_url=database_url), clock))
    make_daily_schedule(database, clock)
    messages = []
    for _ in range(2):
        context = dg.build_sensor_context(
            resources={"services": dg.ResourceDefinition.hardcoded_resource(own)}
        )
        reason = due_sensor.due_schedules(context)
        assert isinstance(reason, dg.SkipReason)
        messages.append(reason.skip_message)
    assert messages == [
        "1 schedules checked; Started schedule 1, due 2026-05-04 10:00 UTC, as run 1.",
        "1 schedules checked, none is due.",
    ]


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_the_failure_of_an_unknown_run_is_skipped_with_a_reason(
    database_url: str, clock: FakeClock
) -> None:
    own = _FixedServices(Services(Settings(database_url=database_url), clock))
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.add_run(dg.DagsterRun("automation_run", run_id="d-1"))
        event = instance.report_run_failed(run, "The worker of the run ended.")
        with dg.build_run_status_sensor_context(
            "run_failures",
            event,
            instance,
            run,
            resources={"services": dg.ResourceDefinition.hardcoded_resource(own)},
        ) as context:
            skipped = run_failures(context.for_run_failure())
    assert isinstance(skipped, dg.SkipReason)
    assert skipped.skip_message == "No automation run waits for d-1."


def test_the_due_rules_follow_from_the_settings() -> None:
    assert due_rules(Settings()) == RULES
