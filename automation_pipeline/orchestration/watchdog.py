"""Find work whose Dagster run is lost, report the run to Dagster, and close the work or request it
again. `recovery` decides about automation runs; audits and fetch jobs close when their run has
ended. Concurrent passes are safe: each lost launch is requested again once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from dagster import (
    DagsterError,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunRecord,
    RunsFilter,
)

from automation_pipeline.audits.audits import fail_audit, fail_unclaimed
from automation_pipeline.audits.requests import items_never_started
from automation_pipeline.automation.models.runs import Reason, RunStatus
from automation_pipeline.automation.queries.ledger import audits_of_ended_runs
from automation_pipeline.automation.queries.run_details import runs_cancelled
from automation_pipeline.automation.queries.runs import (
    WatchedRun,
    status_of_closed_run,
    watched_runs,
)
from automation_pipeline.automation.runs import (
    INTERRUPTED_CLOSING,
    LostLaunch,
    RunClosing,
    finalise_run,
    request_next_attempt,
)
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.fiches.fetch_jobs import fail_range
from automation_pipeline.fiches.queries.fetch_jobs import silent_jobs
from automation_pipeline.orchestration.automation_runs import RUN_ID_TAG, STATUS_TAG
from automation_pipeline.orchestration.job_registry import JOBS, LAUNCH_TAG, REQUEST_TAG
from automation_pipeline.orchestration.recovery import (
    ENDED,
    Decision,
    Ending,
    Engine,
    Facts,
    decide,
    ending_of,
    is_process_lost,
)
from automation_pipeline.storage.monitoring import (
    RUN_WORKER,
    StepHeartbeat,
    delete_step_heartbeats,
    step_heartbeats,
)
from automation_pipeline.storage.run_requests import filed_requests, mark_refused, request_again
from automation_pipeline.storage.statements import database_time

Case = TypeVar("Case")

IN_PROGRESS = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
TERMINABLE = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
]
# A cancelled run ends at its next step; after this period the watchdog terminates its Dagster run.
CANCEL_GRACE, CANCEL_HORIZON = timedelta(seconds=5), timedelta(hours=1)
GONE = Ending(Engine.CRASHED, "Dagster does not know a run that works on it")
# Launches of a job without its own ledger, including the first one.
MOST_LAUNCHES_OF_A_JOB = 4
LOST_AUDIT = "The Dagster run ended without starting the audit"
RUN_HAS_ENDED = "The automation run ended before this audit"
LOST_FETCH_JOB = "The Dagster run ended without finishing the job"
# A sales list and Dagster's queue may both take this long.
FETCH_JOB_SILENCE = timedelta(minutes=15)
MOST_LOST = 500


def check_all_runs(instance: DagsterInstance, services: Services) -> tuple[int, list[str]]:
    """The number of automation runs checked, and the actions taken."""
    watch = _Watch(instance, services)
    lost = watch.report_lost_processes()
    with services.database.reading() as session:
        runs = watched_runs(session)
        signs = {beat.dagster_run_id: beat.beat_at for beat in step_heartbeats(session)}
    for index, run in enumerate(runs):
        sign = signs.get(run.dagster_run_id or "")
        if sign is not None:
            runs[index] = replace(run, last_sign_at=max(run.last_sign_at, sign))
    return len(runs), [*lost, *watch.check(runs), *watch.terminate_cancelled()]


def check_run_of(
    dagster_run: DagsterRun, instance: DagsterInstance, services: Services
) -> str | None:
    """Check the automation run of this Dagster run at once."""
    with services.database.reading() as session:
        runs = watched_runs(session)
    tag = dagster_run.tags.get(RUN_ID_TAG)
    run_beats = [
        run for run in runs if str(run.run_id) == tag or run.dagster_run_id == dagster_run.run_id
    ]
    return "; ".join(_Watch(instance, services).check(run_beats)) or None


def launch_again(run: DagsterRun, ending: Ending, services: Services) -> bool:
    """Request another Dagster run in place of a lost one that was launched for a request. False:
    not possible."""
    key, launch = run.tags.get(REQUEST_TAG), launch_of(run)
    is_lost = ending.engine in (Engine.CRASHED, Engine.NEVER_STARTED)
    if key is None or not is_lost or launch >= MOST_LAUNCHES_OF_A_JOB:
        return False
    with services.database.transaction() as session:
        return request_again(session, key, launch) or any(
            filed.launch > launch and filed.state != "refused"
            for filed in filed_requests(session, [key])
        )


def launch_of(run: DagsterRun) -> int:
    return int(run.tags.get(LAUNCH_TAG, "1"))


@dataclass(frozen=True)
class _Watch:
    instance: DagsterInstance
    services: Services

    def report_lost_processes(self) -> list[str]:
        """Report runs without a heartbeat to Dagster, which does not detect the loss of a host."""
        records = self.instance.get_run_records(RunsFilter(statuses=IN_PROGRESS))
        with self.services.database.reading() as session:
            beats, now = step_heartbeats(session), database_time(session)
        done = _each(records, lambda record: self._report_if_lost(record, beats, now))
        self._delete_beats_of_ended_runs({record.dagster_run.run_id for record in records}, beats)
        return done

    def _report_if_lost(
        self, record: RunRecord, beats: Sequence[StepHeartbeat], now: datetime
    ) -> str | None:
        run = record.dagster_run
        run_beats = [beat for beat in beats if beat.dagster_run_id == run.run_id]
        if run.job_name not in JOBS and not run_beats:
            return None  # a job of another code location
        silent, lost_after = _seconds_silent(record, run_beats, now), self._lost_after_seconds
        steps = [
            beat
            for beat in run_beats
            if beat.step_key != RUN_WORKER and _silence(beat) > lost_after
        ]
        if not steps and not is_process_lost(run.status, silent, lost_after):
            return None
        what = "The process of the run"
        if steps:
            what, silent = f"Step {steps[0].step_key} on {steps[0].worker}", _silence(steps[0])
        message = f"{what} sent no heartbeat for {silent:.0f} seconds."
        with self.services.database.reading() as session:
            closed = status_of_closed_run(session, run.run_id)
        if run.status is DagsterRunStatus.CANCELING:
            self.instance.report_run_canceled(run, message)
        elif closed is None:
            self.instance.report_run_failed(run, message)
        else:
            self._report_success(run, closed, message)
        return f"Reported {run.run_id} lost"

    def _report_success(self, run: DagsterRun, closed: RunStatus, message: str) -> None:
        """The run had ended before its process was lost, so its outcome is recorded."""
        self.instance.add_run_tags(run.run_id, {STATUS_TAG: str(closed)})
        event = DagsterEvent(
            DagsterEventType.RUN_SUCCESS.value,
            run.job_name,
            message=f"{message} The automation run was closed before, as {closed}.",
        )
        self.instance.report_dagster_event(event, run.run_id)

    def _delete_beats_of_ended_runs(
        self, in_progress: set[str], beats: Sequence[StepHeartbeat]
    ) -> None:
        silent = {
            beat.dagster_run_id for beat in beats if _silence(beat) > self._lost_after_seconds
        }
        for dagster_run_id in silent - in_progress:
            run = self.instance.get_run_by_id(dagster_run_id)
            if run is None or run.status in ENDED:
                with self.services.database.transaction() as session:
                    delete_step_heartbeats(session, dagster_run_id)

    def check(self, runs: Sequence[WatchedRun]) -> list[str]:
        records = self._newest_dagster_runs(runs)
        return _each(runs, lambda run: self._check_run(run, records.get(run.run_id)))

    def _newest_dagster_runs(self, runs: Sequence[WatchedRun]) -> Mapping[int, RunRecord]:
        """The newest Dagster run per automation run, in two queries."""
        if not runs:
            return {}
        opened = {run.dagster_run_id: run.run_id for run in runs if run.dagster_run_id}
        by_tag = RunsFilter(tags={RUN_ID_TAG: [str(run.run_id) for run in runs]})
        records = list(self.instance.get_run_records(by_tag))
        if opened:
            records += self.instance.get_run_records(RunsFilter(run_ids=list(opened)))
        newest: dict[int, RunRecord] = {}
        for record in sorted(records, key=lambda record: record.storage_id):
            run = record.dagster_run
            run_id = opened.get(run.run_id)
            # A re-executed Dagster run copies the tags of its parent, and works on the automation
            # run only if it has opened an attempt.
            if run_id is None and run.parent_run_id is None:
                run_id = int(run.tags[RUN_ID_TAG])
            if run_id is not None:
                newest[run_id] = record
        return newest

    def _check_run(self, run: WatchedRun, record: RunRecord | None) -> str | None:
        if record is not None and launch_of(record.dagster_run) < (run.launch or 0):
            record = None  # it belongs to an earlier launch
        ending = None if record is None else ending_of(record, self.instance)
        ended_at = record and record.end_time
        facts = Facts(
            status=RunStatus.RUNNING if run.attempt else RunStatus.PENDING,
            engine=ending and ending.engine,
            silent_seconds=run.silent_seconds,
            engine_seconds=run.now.timestamp() - ended_at if ended_at else float("inf"),
            request=run.request_state,
            launches=run.launch or 1,
        )
        return self._apply(decide(facts, self._lost_after_seconds), run, ending or GONE)

    def _apply(self, decision: Decision, run: WatchedRun, ending: Ending) -> str | None:
        match decision:
            case Decision.REQUEST:
                has_started = ending.engine is not Engine.NEVER_STARTED
                return request_next_attempt(
                    LostLaunch(run, ending.reason, has_started=has_started),
                    database=self.services.database,
                    clock=self.services.clock,
                )
            case Decision.FAIL:
                reason = run.refused_because if run.request_state == "refused" else None
                return self._close(run, reason or ending.reason, INTERRUPTED_CLOSING)
            case Decision.CANCEL:
                closing = RunClosing(ending.reason, Reason.CANCELLED, status=RunStatus.CANCELLED)
                return self._close(run, ending.reason, closing)
            case Decision.LEAVE | Decision.TERMINATE:
                return None

    def _close(self, run: WatchedRun, reason: str, closing: RunClosing) -> str:
        finalise_run(
            run.run_id,
            database=self.services.database,
            clock=self.services.clock,
            attempt=run.attempt,
            breakdown=reason,
            closing=closing,
        )
        return f"Closed run {run.run_id}"

    def terminate_cancelled(self) -> list[str]:
        """Terminate the Dagster runs of cancelled automation runs, with one query here and one to
        Dagster."""
        now = self.services.clock.now()
        with self.services.database.reading() as session:
            opened = runs_cancelled(session, now - CANCEL_HORIZON, now - CANCEL_GRACE)
        if not opened:
            return []
        tags = {RUN_ID_TAG: [str(run_id) for run_id in opened]}
        records = self.instance.get_run_records(RunsFilter(statuses=TERMINABLE, tags=tags))
        # A re-execution copies these tags from its parent, but works on a new automation run.
        works = [
            record
            for record in records
            if record.dagster_run.parent_run_id is None
            or record.dagster_run.run_id in opened.values()
        ]
        return _each(works, self._terminate)

    def _terminate(self, record: RunRecord) -> str | None:
        """Remove a queued run from the queue or interrupt a started one; if it cannot be reached,
        report it as cancelled."""
        run = record.dagster_run
        facts = Facts(RunStatus.CANCELLED, ending_of(record, self.instance).engine)
        if decide(facts, 0) is not Decision.TERMINATE:
            return None
        try:
            is_cancelled = self.instance.run_coordinator.cancel_run(run.run_id)
        except Exception:  # noqa: BLE001  each launcher raises its own exceptions
            is_cancelled = False
        if not is_cancelled:
            self.instance.report_run_canceled(
                run, "The automation run was cancelled, and no process works on it."
            )
        return f"Terminated {run.run_id}"

    @property
    def _lost_after_seconds(self) -> float:
        return self.services.settings.automation_lost_after_seconds


def _each(cases: Sequence[Case], act: Callable[[Case], str | None]) -> list[str]:
    """The actions taken. An error in one case does not stop the others."""
    done: list[str] = []
    for case in cases:
        try:
            sentence = act(case)
        except (AutomationError, DagsterError) as error:
            sentence = f"{case}: {error}"
        done += [sentence] if sentence else []
    return done


def _seconds_silent(record: RunRecord, beats: Sequence[StepHeartbeat], now: datetime) -> float:
    """Seconds since the last heartbeat of the run's process, or, before its first heartbeat, since
    its start or launch."""
    silences = [_silence(beat) for beat in beats if beat.step_key == RUN_WORKER]
    if silences:
        return min(silences)
    if record.start_time:
        return (now - datetime.fromtimestamp(record.start_time, UTC)).total_seconds()
    return (now - record.update_timestamp.astimezone(UTC)).total_seconds()


def _silence(beat: StepHeartbeat) -> float:
    return (beat.now - beat.beat_at).total_seconds()


def end_lost_audits(instance: DagsterInstance, services: Services) -> list[str]:
    """Fail audits of batches whose Dagster run has ended, and audits without a worker whose
    automation run has ended. Returns their tracking ids."""
    with services.database.reading() as session:
        waiting = items_never_started(
            session, services.settings.audit_max_wait_seconds, limit=MOST_LOST
        )
        unfinished = audits_of_ended_runs(session, limit=MOST_LOST)
    lost = _without_dagster_run(waiting, instance, services)
    for tracking_id in lost:
        with services.database.transaction() as session:
            mark_refused(session, tracking_id, LOST_AUDIT)
            fail_audit(session, tracking_id, LOST_AUDIT, "sweep")
    unclaimed = fail_unclaimed(
        unfinished, RUN_HAS_ENDED, database=services.database, claims=services.claims
    )
    return [*lost, *unclaimed]


def end_lost_ranges(instance: DagsterInstance, services: Services) -> list[str]:
    """Fail silent fetch jobs whose Dagster run has ended, and return their ids."""
    with services.database.reading() as session:
        silent = silent_jobs(session, services.clock.now() - FETCH_JOB_SILENCE, limit=MOST_LOST)
    return [
        job
        for job in _without_dagster_run(silent, instance, services)
        if fail_range(job, LOST_FETCH_JOB, database=services.database, clock=services.clock)
    ]


def _without_dagster_run(
    keys: Sequence[str], instance: DagsterInstance, services: Services
) -> list[str]:
    """The requests whose newest Dagster run has ended and that have no other launch waiting."""
    if not keys:
        return []
    newest: dict[str, DagsterRunStatus] = {}
    for run in instance.get_runs(RunsFilter(tags={REQUEST_TAG: list(keys)})):
        newest.setdefault(run.tags[REQUEST_TAG], run.status)
    with services.database.reading() as session:
        filed = filed_requests(session, keys)
    again = {one.key for one in filed if one.launch > 1 and one.state == "waiting"}
    return [
        key
        for key in keys
        if key not in again and newest.get(key, DagsterRunStatus.FAILURE) in ENDED
    ]
