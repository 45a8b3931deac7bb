"""The seed's symptoms, each with the fastest checks that answer it: rows, logs and reasons, and no
guessing."""

from datetime import date, timedelta

import pytest
from sqlalchemy import select

from automation_pipeline.audits.tables import AuditRow
from automation_pipeline.automation.models.runs import RunAttempt
from automation_pipeline.automation.queries.ledger import untranscribed, why_without_details
from automation_pipeline.automation.queries.run_details import RunProgress, progress_of, reasons_of
from automation_pipeline.automation.runs import finalise_run, open_run
from automation_pipeline.core.errors import InvalidInputError, PermanentError, TransientError
from automation_pipeline.fiches.models.fiches import CrmFiche
from automation_pipeline.storage.database import Database
from automation_pipeline_tests.audits.bench import call
from automation_pipeline_tests.automation.bench import Bench, Outcome
from automation_pipeline_tests.automation.due import a_daily, change, look, occurrences
from automation_pipeline_tests.conftest import StandingClock
from automation_pipeline_tests.factories import an_opening
from automation_pipeline_tests.fakes.crm import FakeFicheSource, fiche, summary
from automation_pipeline_tests.fakes.llm import FakeLanguageModel
from automation_pipeline_tests.fakes.speech import FakeSpeechToText
from automation_pipeline_tests.transcription.bench import transcript_of

BUSY = TransientError("The CRM answered 503.")


@pytest.fixture
def bench(database: Database, clock: StandingClock) -> Bench:
    return Bench(database, clock)


class Look:
    """What an operator sees of run 1 while it works."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.phases: list[str | None] = []
        self.progress: list[RunProgress] = []

    async def __call__(self, _asked: object) -> None:
        with self._bench.database.reading() as session:
            self.progress.append(progress_of(session, 1))
        self.phases.append(self._bench.read(RunAttempt(1, 1)).phase)


class TestTheSchedulerNeverTriggersASchedule:
    @pytest.mark.parametrize(
        "change_it", [{"is_active": False}, {"schedule_type": "MANUAL"}], ids=["inactive", "manual"]
    )
    def test_one_that_is_not_watched_has_no_occurrences(
        self, change_it: dict[str, object], bench: Bench
    ) -> None:
        schedule = a_daily(bench.database, bench.clock)
        change(bench.database, schedule.id, **change_it)
        bench.clock.pass_time(timedelta(days=1))
        assert (look(bench.database, bench.clock).checked, occurrences(bench.database)) == (0, [])

    def test_what_its_type_needs_is_asked_for_when_it_is_made(self, bench: Bench) -> None:
        with pytest.raises(InvalidInputError) as refused:
            bench.schedule("1", scheduleType="DAILY")
        assert "DAILY schedule requires timeOfDay" in str(refused.value.fields)

    @pytest.mark.parametrize(
        ("marked", "hours", "because"),
        [
            (True, 0, "the previous run is still at work"),
            (False, 2, "missed while the scheduler was down"),
        ],
    )
    def test_a_due_time_without_a_run_says_why(
        self, marked: bool, hours: int, because: str, bench: Bench
    ) -> None:
        schedule = a_daily(bench.database, bench.clock)
        [started] = look(bench.database, bench.clock).triggered
        finalise_run(started.run_id, database=bench.database, clock=bench.clock, breakdown="over")
        bench.clock.pass_time(timedelta(days=1, hours=hours))
        if marked:
            open_run(an_opening(schedule.id), database=bench.database, clock=bench.clock)
        look(bench.database, bench.clock)
        [*_, (_, run_id, result)] = occurrences(bench.database)
        assert (run_id, result) == (None, because)


class Watched(FakeFicheSource):
    """Lets an operator look before each answer about a fiche."""

    look: Look

    async def details(self, fiche_id: str) -> CrmFiche:
        await self.look(fiche_id)
        return await super().details(fiche_id)


class TestARunIsStuckInFicheDetails:
    def test_the_rows_say_how_far_it_is(self, bench: Bench) -> None:
        crm = bench.crm = Watched()
        crm.at_once, crm.look = 1, Look(bench)
        bench.offer("1", "2")
        bench.fetch(selected(bench, "1", "2"))
        assert crm.look.phases == ["fetching", "fetching"]
        assert [(seen.fetched, seen.selected) for seen in crm.look.progress] == [(0, 2), (0, 2)]

    def test_the_log_and_the_mirror_say_which_fiches_and_why(self, bench: Bench) -> None:
        bench.crm.sell(date(2026, 5, 4), summary("short"))
        sales = {"mode": "date_range", "dateRange": "last_24h"}
        bench.select(bench.open(bench.schedule(ficheSelection=sales).id, "dagster-sales"))
        for fiche_id in ("short", "absent"):
            bench.crm.fail_always(fiche_id, BUSY)
        run = bench.run("short", "absent", "gone", retryFailed=True, maxRetries=2)
        assert bench.logs(run).count("Fiche details stalled; retrying incomplete fetches") >= 1
        with bench.database.reading() as session:
            assert why_without_details(session, ["short", "absent"]) == {
                "short": "Fiche details not fetched (still sales-list-only cache)",
                "absent": "Fiche not found in cache",
            }
            assert reasons_of(session, run.id) == {
                "failed": {"fetch_failed": 2},
                "ignored": {"not_found": 1},
            }
        assert run.total_fiches == 2, "what is not found leaves the totals"


class TestARunIsStuckInTranscription:
    def test_rows_and_counts_say_how_far_it_is(self, bench: Bench) -> None:
        bench.sell("1")
        bench.offer("2", calls=2)
        counts: list[dict[str, int]] = []
        watch = Look(bench)

        async def meanwhile(url: str) -> None:
            await watch(url)
            with bench.database.reading() as session:
                counts.append(dict(untranscribed(session, ["1", "2"])))

        bench.speech = FakeSpeechToText(otherwise=transcript_of, at_once=1, meanwhile=meanwhile)
        run = bench.run("1", "2", runAudits=False)
        assert watch.phases == ["transcribing", "transcribing"]
        assert counts == [{"1": 0, "2": 2}, {"1": 0, "2": 1}]
        lines = [line for line in bench.logs(run) if line.startswith("Transcription progress")]
        assert lines[-1] == "Transcription progress: 2/2"
        assert "Dispatched fiche/transcribe fan-out events" in bench.logs(run)

    def test_the_common_blockers_are_named_in_the_rows(self, bench: Bench) -> None:
        bench.crm.add(fiche("blank", call("1", url="")))
        bench.offer("slow", "keyless")
        bench.speech.fail_always(bench.url("slow"), TransientError("status=429 slow down"))
        bench.speech.fail_always(
            bench.url("keyless"), PermanentError("The key is refused (status 401).")
        )
        run = bench.run("blank", "slow", "keyless", runAudits=False)
        words = "Transcription incomplete: "
        assert [str(outcome.words) for outcome in bench.outcomes(run).values()] == [
            f"{words}No recording URL available",
            f"{words}status=429 slow down",
            f"{words}The key is refused (status 401).",
        ]


class TestARunIsStuckInAudits:
    def test_without_configurations_each_fiche_says_so(self, bench: Bench) -> None:
        bench.sell("1")
        bench.configure(1, "Not automatic")
        run = bench.run("1")
        assert bench.outcomes(run) == {
            "1": Outcome("failed", "no_audit_config", "No audit configs resolved")
        }

    def test_audits_are_linked_to_the_run_and_the_log_counts_them(self, bench: Bench) -> None:
        bench.sell("1")
        bench.sell("2")
        bench.automatic()
        bench.automatic(name="Second")
        watch = Look(bench)
        bench.model = FakeLanguageModel(meanwhile=watch)
        run = bench.run("1", "2")
        assert set(watch.phases) == {"auditing"}
        with bench.database.reading() as session:
            linked = (AuditRow.automation_run_id == run.id, AuditRow.is_latest)
            assert (
                list(session.scalars(select(AuditRow.status).where(*linked))) == ["completed"] * 4
            )
        assert "Running 2 configs × 2 fiches = 4 total audits" in bench.logs(run)
        assert "Audit progress: 4/4 (completed=4, failed=0)" in bench.logs(run)


class TestARunEndedPartialButCompletedWasExpected:
    def test_each_row_points_to_its_stage(self, bench: Bench) -> None:
        bench.automatic()
        bench.sell("good")
        bench.offer("lost", "mute", "far", "many", "silent")
        bench.offer("far", groupe="SUD")
        bench.offer("many", calls=9)
        bench.offer("silent", calls=0)
        bench.crm.fail_always("lost", BUSY)
        bench.speech.fail_always(bench.url("mute"), PermanentError("No speech in this audio"))
        names = ["good", "lost", "mute", "far", "many", "silent", "gone"]
        requests = {"groupes": ["TEAM R1"], "onlyWithRecordings": True, "maxRecordingsPerFiche": 5}
        run = bench.run(ficheSelection={"mode": "manual", "ficheIds": names, **requests})
        assert (run.status, run.successful_fiches, run.failed_fiches, run.ignored_fiches) == (
            "partial",
            1,
            2,
            4,
        )
        with bench.database.reading() as session:
            assert reasons_of(session, run.id) == {
                "failed": {"fetch_failed": 1, "transcription_incomplete": 1},
                "ignored": {
                    "groupe_not_selected": 1,
                    "no_recordings": 1,
                    "not_found": 1,
                    "too_many_recordings": 1,
                },
            }
        assert "Transcription progress: 1/2" in bench.logs(run)


def selected(bench: Bench, *fiche_ids: str) -> RunAttempt:
    ticket = bench.open(bench.schedule(*fiche_ids).id)
    bench.select(ticket)
    return ticket
