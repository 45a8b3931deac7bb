"""Whatever happens to fiches, each ends as one row, the counts add up, and the verdict follows from
them."""

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
from automation_pipeline_tests.automation.bench import Bench
from automation_pipeline_tests.conftest import StandingClock

BUSY, REFUSED = TransientError("The CRM answered 503."), PermanentError("The key is refused.")
HOME, MOST = "TEAM R1", 2
NUMBERS = count()


@dataclass(frozen=True)
class Fate:
    """What the outside makes of a fiche."""

    crm: str
    groupe: str = HOME
    calls: int = 1
    is_heard: bool = True
    is_judged: bool = True

    @property
    def is_worked_on(self) -> bool:
        return self.crm == "answers" and self.groupe == HOME and 0 < self.calls <= MOST

    def end(self, *, stopped: bool) -> str:
        if self.crm == "is busy":
            return "failed"
        if not self.is_worked_on:
            return "ignored"
        return "successful" if stopped or (self.is_heard and self.is_judged) else "failed"


FATES = st.builds(
    Fate,
    crm=st.sampled_from(["answers", "answers", "answers", "has lost it", "is busy"]),
    groupe=st.sampled_from([HOME, HOME, HOME, "SUD", " "]),
    calls=st.integers(0, MOST + 1),
    is_heard=st.sampled_from([True, True, False]),
    is_judged=st.sampled_from([True, True, False]),
)


class Visited(Bench):
    """Fiches have their fates here."""

    def __init__(self, database: Database, clock: StandingClock) -> None:
        super().__init__(database, clock)
        self.config_id, self.unjudged = self.configure(1), set[str]()

    @property
    def context(self) -> BatchContext:
        context = super().context

        async def audit(request: FicheAuditRequest) -> AuditSummary:
            if request.fiche_id in self.unjudged:
                raise REFUSED
            return await context.audit(request)

        return replace(context, audit=audit)

    def strike(self, fate: Fate) -> str:
        """The id of a new fiche with this fate."""
        fiche_id = f"fiche-{next(NUMBERS)}-"
        if fate.crm == "is busy":
            self.crm.fail_always(fiche_id, BUSY)
        if fate.crm == "answers":
            self.offer(fiche_id, calls=fate.calls, groupe=fate.groupe)
        if not fate.is_heard:
            self.speech.fail_always(self.url(fiche_id), REFUSED)
        if not fate.is_judged:
            self.unjudged.add(fiche_id)
        return fiche_id

    def visit(self, fiche_ids: list[str], *, go_on: bool) -> Run:
        selection = {
            "mode": "manual", "ficheIds": fiche_ids, "groupes": [HOME],
            "onlyWithRecordings": True, "maxRecordingsPerFiche": MOST,
        }  # fmt: skip
        schedule = self.schedule(
            ficheSelection=selection,
            specificAuditConfigs=[self.config_id],
            useAutomaticAudits=False,
            continueOnError=go_on,
        )
        return self.carry_out(schedule.id, f"dagster-{schedule.id}")


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Visited:
    return Visited(database, clock)


def verdict(ends: Counter[str]) -> str:
    if not ends["failed"]:
        return "completed"
    return "partial" if ends["successful"] else "failed"


@settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(fates=st.lists(FATES, min_size=1, max_size=8), go_on=st.booleans())
def test_outcome_counts_add_up_to_the_selected_fiches(
    bench: Visited, fates: list[Fate], go_on: bool
) -> None:
    stopped = not go_on and any(fate.crm == "is busy" for fate in fates)
    named = {bench.strike(fate): fate for fate in fates}
    run = bench.visit(list(named), go_on=go_on)

    expected = [fate.end(stopped=stopped) for fate in fates]
    assert bench.statuses(run) == expected
    ends = Counter(expected)
    assert (run.selected_fiches, run.status) == (len(fates), verdict(ends))
    assert (run.successful_fiches, run.failed_fiches) == (ends["successful"], ends["failed"])
    assert (run.ignored_fiches, run.total_fiches) == (
        ends["ignored"],
        ends["successful"] + ends["failed"],
    )
    for outcome in bench.outcomes(run).values():
        assert bool(outcome.reason) == bool(outcome.words) == (outcome.status != "successful")


@pytest.mark.parametrize(
    ("fates", "status"),
    [
        ([Fate("answers"), Fate("answers")], "completed"),
        ([Fate("answers"), Fate("has lost it")], "completed"),
        ([Fate("has lost it"), Fate("answers", groupe="SUD")], "completed"),
        ([Fate("answers"), Fate("answers", is_judged=False)], "partial"),
        ([Fate("answers"), Fate("is busy"), Fate("answers", calls=0)], "partial"),
        ([Fate("answers", is_heard=False), Fate("answers", calls=9)], "failed"),
        ([Fate("is busy")], "failed"),
    ],
)
def test_the_run_status_follows_from_the_fiche_outcomes(
    fates: list[Fate], status: str, bench: Visited
) -> None:
    run = bench.visit([bench.strike(fate) for fate in fates], go_on=True)
    schedule_says = {"completed": "success"}.get(status, status)
    with bench.database.reading() as session:
        assert (run.status, get_schedule(session, run.schedule_id).last_run_status) == (
            status,
            schedule_says,
        )
