"""Property tests of run outcomes: one outcome per fiche, and counts and status that follow."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import AuditSummary, FicheAuditRequest
from automation_pipeline.automation.models.runs import Run
from automation_pipeline.automation.queries.schedules import get_schedule
from automation_pipeline.automation.transcribing import BatchContext
from automation_pipeline.core.errors import PermanentError, TransientError
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.automation.harness import AutomationHarness
from automation_pipeline_tests.fakes.clock import FakeClock

BUSY, REFUSED = TransientError("The CRM answered 503."), PermanentError("The key is refused.")
HOME, MOST = "TEAM R1", 2
NUMBERS = count()


@dataclass(frozen=True)
class Scenario:
    """How the CRM and the providers respond for a fiche."""

    crm: str
    groupe: str = HOME
    calls: int = 1
    is_transcribed: bool = True
    is_audited: bool = True

    @property
    def is_processed(self) -> bool:
        return self.crm == "answers" and self.groupe == HOME and 0 < self.calls <= MOST

    def end(self, *, stopped: bool) -> str:
        if self.crm == "is busy":
            return "failed"
        if not self.is_processed:
            return "ignored"
        return "successful" if stopped or (self.is_transcribed and self.is_audited) else "failed"


SCENARIOS = st.builds(
    Scenario,
    crm=st.sampled_from(["answers", "answers", "answers", "has no such fiche", "is busy"]),
    groupe=st.sampled_from([HOME, HOME, HOME, "SUD", " "]),
    calls=st.integers(0, MOST + 1),
    is_transcribed=st.sampled_from([True, True, False]),
    is_audited=st.sampled_from([True, True, False]),
)


class ScenarioHarness(AutomationHarness):
    """A harness whose fiches follow scenarios."""

    def __init__(self, database: Database, clock: FakeClock) -> None:
        super().__init__(database, clock)
        self.config_id, self.unaudited = self.configure(1), set[str]()

    @property
    def context(self) -> BatchContext:
        context = super().context

        async def audit(request: FicheAuditRequest) -> AuditSummary:
            if request.fiche_id in self.unaudited:
                raise REFUSED
            return await context.audit(request)

        return replace(context, audit=audit)

    def add_fiche(self, scenario: Scenario) -> str:
        """Return the ID of a new fiche with this scenario."""
        fiche_id = f"fiche-{next(NUMBERS)}-"
        if scenario.crm == "is busy":
            self.crm.fail_always(fiche_id, BUSY)
        if scenario.crm == "answers":
            self.add_to_crm(fiche_id, calls=scenario.calls, groupe=scenario.groupe)
        if not scenario.is_transcribed:
            self.speech.fail_always(self.url(fiche_id), REFUSED)
        if not scenario.is_audited:
            self.unaudited.add(fiche_id)
        return fiche_id

    def run_fiches(self, fiche_ids: list[str], *, continue_on_error: bool) -> Run:
        selection = {
            "mode": "manual", "ficheIds": fiche_ids, "groupes": [HOME],
            "onlyWithRecordings": True, "maxRecordingsPerFiche": MOST,
        }  # fmt: skip
        schedule = self.schedule(
            ficheSelection=selection,
            specificAuditConfigs=[self.config_id],
            useAutomaticAudits=False,
            continueOnError=continue_on_error,
        )
        return self.run_schedule(schedule.id, f"dagster-{schedule.id}")


@pytest.fixture
def harness(database: Database, clock: FakeClock) -> ScenarioHarness:
    return ScenarioHarness(database, clock)


def verdict(ends: Counter[str]) -> str:
    if not ends["failed"]:
        return "completed"
    return "partial" if ends["successful"] else "failed"


@settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(scenarios=st.lists(SCENARIOS, min_size=1, max_size=8), continue_on_error=st.booleans())
def test_outcome_counts_add_up_to_the_selected_fiches(
    harness: ScenarioHarness, scenarios: list[Scenario], continue_on_error: bool
) -> None:
    stopped = not continue_on_error and any(scenario.crm == "is busy" for scenario in scenarios)
    named = {harness.add_fiche(scenario): scenario for scenario in scenarios}
    run = harness.run_fiches(list(named), continue_on_error=continue_on_error)

    expected = [scenario.end(stopped=stopped) for scenario in scenarios]
    assert harness.statuses(run) == expected
    ends = Counter(expected)
    assert (run.selected_fiches, run.status) == (len(scenarios), verdict(ends))
    assert (run.successful_fiches, run.failed_fiches) == (ends["successful"], ends["failed"])
    assert (run.ignored_fiches, run.total_fiches) == (
        ends["ignored"],
        ends["successful"] + ends["failed"],
    )
    for outcome in harness.outcomes(run).values():
        assert bool(outcome.reason) == bool(outcome.detail) == (outcome.status != "successful")


@pytest.mark.parametrize(
    ("scenarios", "status"),
    [
        ([Scenario("answers"), Scenario("answers")], "completed"),
        ([Scenario("answers"), Scenario("has no such fiche")], "completed"),
        ([Scenario("has no such fiche"), Scenario("answers", groupe="SUD")], "completed"),
        ([Scenario("answers"), Scenario("answers", is_audited=False)], "partial"),
        ([Scenario("answers"), Scenario("is busy"), Scenario("answers", calls=0)], "partial"),
        ([Scenario("answers", is_transcribed=False), Scenario("answers", calls=9)], "failed"),
        ([Scenario("is busy")], "failed"),
    ],
)
def test_the_run_status_follows_from_the_fiche_outcomes(
    scenarios: list[Scenario], status: str, harness: ScenarioHarness
) -> None:
    run = harness.run_fiches(
        [harness.add_fiche(scenario) for scenario in scenarios], continue_on_error=True
    )
    schedule_status = {"completed": "success"}.get(status, status)
    with harness.database.reading() as session:
        assert (run.status, get_schedule(session, run.schedule_id).last_run_status) == (
            status,
            schedule_status,
        )
