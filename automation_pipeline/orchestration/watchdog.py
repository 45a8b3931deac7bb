"""Looks after Dagster runs whose process may be lost, and after automation runs that nobody works
on: fetches the facts of `recovery`, and applies its decisions. Two overlapping looks do no harm:
each lost launch is requested again once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from dagster import (
    DagsterError,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    RunRecord,
    RunsFilter,
)

from automation_pipeline.automation.models.runs import Reason, RunStatus
from automation_pipeline.automation.queries.run_details import runs_cancelled
from automation_pipeline.automation.queries.runs import WatchedRun, watched_runs
from automation_pipeline.automation.run_endings import INTERRUPTED_CLOSING, RunClosing, finalise_run
from automation_pipeline.automation.runs import LostLaunch, request_next_attempt
from automation_pipeline.bootstrap import Services
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.orchestration.automation_runs import RUN_ID_TAG
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
from automation_pipeline.storage.clock import database_time
from automation_pipeline.storage.heartbeats import (
    RUN_WORKER,
    StepHeartbeat,
    delete_step_heartbeats,
    step_heartbeats,
)
from automation_pipeline.storage.run_requests import filed_requests, request_again

Case = TypeVar("Case")

IN_PROGRESS = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
# A cancelled run ends by itself at its next step; after this long its Dagster run is terminated.
CANCEL_GRACE, CANCEL_HORIZON = timedelta(seconds=5), timedelta(hours=1)
GONE = Ending(Engine.CRASHED, "Dagster does not know a run that works on it")
# Launches of a job without a ledger of its own, the first one included.
MOST_LAUNCHES_OF_A_JOB = 4


def look_after_all(instance: DagsterInstance, services: Services) -> tuple[int, list[str]]:
    """How many automation runs were looked at, and what was done about some of them."""
    lost = _report_lost_processes(instance, services)
    with services.database.reading() as session:
        runs = watched_runs(session)
        signs = {beat.dagster_run_id: beat.beat_at for beat in step_heartbeats(session)}
    runs = [_with_newest_sign(run, signs) for run in runs]
    newest = _newest_dagster_runs(runs, instance)
    done = [
        *lost,
        *_each(runs, lambda run: _look_after(run, newest.get(run.run_id), instance, services)),
        *_terminate_cancelled(instance, services),
    ]
    return len(runs), done


def look_after_run_of(
    dagster_run: DagsterRun, instance: DagsterInstance, services: Services
) -> str | None:
    """The same, for the automation run that this Dagster run was to work on, at once."""
    with services.database.reading() as session:
        runs = watched_runs(session)
    tag = dagster_run.tags.get(RUN_ID_TAG)
    mine = [
        run for run in runs if str(run.run_id) == tag or run.dagster_run_id == dagster_run.run_id
    ]
    newest = _newest_dagster_runs(mine, instance)
    return (
        "; ".join(
            _each(mine, lambda run: _look_after(run, newest.get(run.run_id), instance, services))
        )
        or None
    )


def launch_again(run: DagsterRun, ending: Ending, services: Services) -> bool:
    """Another Dagster run in place of a lost one that was launched for a request; False when that
    is not possible."""
    key = run.tags.get(REQUEST_TAG)
    if key is None or ending.engine not in (Engine.CRASHED, Engine.NEVER_STARTED):
        return False
    launch = launch_of(run)
    if launch >= MOST_LAUNCHES_OF_A_JOB:
        return False
    with services.database.transaction() as session:
        if request_again(session, key, launch):
            return True
        return any(
            filed.launch > launch and filed.state != "refused"
            for filed in filed_requests(session, [key])
        )


def launch_of(run: DagsterRun) -> int:
    return int(run.tags.get(LAUNCH_TAG, "1"))


def _each(cases: Sequence[Case], act: Callable[[Case], str | None]) -> list[str]:
    done: list[str] = []
    for case in cases:
        try:
            sentence = act(case)
        except (AutomationError, DagsterError) as error:
            sentence = f"{case}: {error}"
        done += [sentence] if sentence else []
    return done


def _report_lost_processes(instance: DagsterInstance, services: Services) -> list[str]:
    """Dagster itself does not notice that a host is lost: runs in progress without a sign of life
    are reported."""
    records = instance.get_run_records(RunsFilter(statuses=IN_PROGRESS))
    with services.database.reading() as session:
        known, now = step_heartbeats(session), database_time(session)
    patience = services.settings.automation_lost_after_seconds
    done = _each(records, lambda record: _report_if_lost(record, known, now, patience, instance))
    _forget_beats_of_ended(records, known, patience, instance, services)
    return done


def _report_if_lost(
    record: RunRecord,
    known: Sequence[StepHeartbeat],
    now: datetime,
    patience: float,
    instance: DagsterInstance,
) -> str | None:
    run = record.dagster_run
    mine = [beat for beat in known if beat.dagster_run_id == run.run_id]
    if run.job_name not in JOBS and not mine:
        return None  # a job of another code location
    silent = _silent_process(record, mine, now)
    step = next(
        (beat for beat in mine if beat.step_key != RUN_WORKER and _silence(beat) > patience), None
    )
    if step is None and not is_process_lost(run.status, silent, patience):
        return None
    what = "The process of the run" if step is None else f"Step {step.step_key} on {step.worker}"
    message = f"{what} gave no sign of life for {(silent if step is None else _silence(step)):.0f} seconds."
    if run.status is DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, message)
    else:
        instance.report_run_failed(run, message)
    return f"Reported {run.run_id} lost"


def _silent_process(
    record: RunRecord, beats_of_run: Sequence[StepHeartbeat], now: datetime
) -> float:
    """Seconds since the process beat; since it started or was launched, where it never did."""
    since_beat = [_silence(beat) for beat in beats_of_run if beat.step_key == RUN_WORKER]
    if since_beat:
        return min(since_beat)
    started = record.start_time
    since = (
        datetime.fromtimestamp(started, UTC) if started else record.update_timestamp.astimezone(UTC)
    )
    return (now - since).total_seconds()


def _silence(beat: StepHeartbeat) -> float:
    return (beat.now - beat.beat_at).total_seconds()


def _forget_beats_of_ended(
    in_progress: Sequence[RunRecord],
    known: Sequence[StepHeartbeat],
    patience: float,
    instance: DagsterInstance,
    services: Services,
) -> None:
    live = {record.dagster_run.run_id for record in in_progress}
    silent = {beat.dagster_run_id for beat in known if _silence(beat) > patience} - live
    for dagster_run_id in silent:
        run = instance.get_run_by_id(dagster_run_id)
        if run is None or run.status in ENDED:
            with services.database.transaction() as session:
                delete_step_heartbeats(session, dagster_run_id)


def _with_newest_sign(run: WatchedRun, signs: Mapping[str, datetime]) -> WatchedRun:
    sign = signs.get(run.dagster_run_id or "")
    return run if sign is None else replace(run, last_sign_at=max(run.last_sign_at, sign))


def _newest_dagster_runs(
    runs: Sequence[WatchedRun], instance: DagsterInstance
) -> Mapping[int, RunRecord]:
    """Of each automation run the newest Dagster run that was launched for it: two queries, however
    many there are."""
    if not runs:
        return {}
    by_tag = RunsFilter(tags={RUN_ID_TAG: [str(run.run_id) for run in runs]})
    opened = {run.dagster_run_id: run.run_id for run in runs if run.dagster_run_id}
    found = [(record, _run_id_of(record, opened)) for record in instance.get_run_records(by_tag)]
    if opened:
        by_id = instance.get_run_records(RunsFilter(run_ids=list(opened)))
        found += [(record, opened[record.dagster_run.run_id]) for record in by_id]
    in_order = sorted(found, key=lambda pair: pair[0].storage_id)
    return {run_id: record for record, run_id in in_order if run_id is not None}


def _run_id_of(record: RunRecord, opened: Mapping[str, int]) -> int | None:
    """None for what a person re-executes: it has the tags of the run that it repeats, and works on
    it only if it has opened an attempt."""
    run = record.dagster_run
    if run.parent_run_id is not None:
        return opened.get(run.run_id)
    return int(run.tags[RUN_ID_TAG])


def _look_after(
    run: WatchedRun, record: RunRecord | None, instance: DagsterInstance, services: Services
) -> str | None:
    if record is not None and run.launch is not None and launch_of(record.dagster_run) < run.launch:
        record = None  # of an earlier launch
    ending = None if record is None else ending_of(record, instance)
    facts = Facts(
        status=RunStatus.RUNNING if run.attempt else RunStatus.PENDING,
        engine=ending and ending.engine,
        silent_seconds=run.silent_seconds,
        engine_seconds=_seconds_since_end(record, run.now),
        request=run.request_state,
        launches=run.launch or 1,
    )
    decision = decide(facts, services.settings.automation_lost_after_seconds)
    return _apply(decision, run, ending or GONE, services)


def _seconds_since_end(record: RunRecord | None, now: datetime) -> float:
    if record is None or record.end_time is None:
        return float("inf")
    return now.timestamp() - record.end_time


def _apply(decision: Decision, run: WatchedRun, ending: Ending, services: Services) -> str | None:
    match decision:
        case Decision.REQUEST:
            began = ending.engine is not Engine.NEVER_STARTED
            lost = LostLaunch(run, ending.reason, began=began)
            return request_next_attempt(lost, database=services.database, clock=services.clock)
        case Decision.FAIL:
            reason = run.refused_because if run.request_state == "refused" else None
            return _close(run, reason or ending.reason, INTERRUPTED_CLOSING, services)
        case Decision.CANCEL:
            closing = RunClosing(ending.reason, Reason.CANCELLED, status=RunStatus.CANCELLED)
            return _close(run, ending.reason, closing, services)
        case Decision.LEAVE | Decision.TERMINATE:
            return None


def _close(run: WatchedRun, reason: str, closing: RunClosing, services: Services) -> str:
    finalise_run(
        run.run_id,
        database=services.database,
        clock=services.clock,
        attempt=run.attempt,
        breakdown=reason,
        closing=closing,
    )
    return f"Closed run {run.run_id}"


def _terminate_cancelled(instance: DagsterInstance, services: Services) -> list[str]:
    """End the Dagster runs of automation runs that were cancelled: one query here and one of
    Dagster's."""
    now = services.clock.now()
    with services.database.reading() as session:
        run_ids = runs_cancelled(session, now - CANCEL_HORIZON, now - CANCEL_GRACE)
    if not run_ids:
        return []
    tags = {RUN_ID_TAG: [str(run_id) for run_id in run_ids]}
    live = [
        DagsterRunStatus.NOT_STARTED,
        DagsterRunStatus.QUEUED,
        DagsterRunStatus.STARTING,
        DagsterRunStatus.STARTED,
    ]
    return _each(
        instance.get_run_records(RunsFilter(statuses=live, tags=tags)),
        lambda record: _terminate(record, instance),
    )


def _terminate(record: RunRecord, instance: DagsterInstance) -> str | None:
    """A queued run is taken out of the queue, a started one interrupted; one that cannot be reached
    is ended."""
    facts = Facts(RunStatus.CANCELLED, ending_of(record, instance).engine)
    if decide(facts, 0) is not Decision.TERMINATE:
        return None
    run = record.dagster_run
    try:
        is_reached = instance.run_coordinator.cancel_run(run.run_id)
    except Exception:  # noqa: BLE001  each launcher has its own way to say that it cannot
        is_reached = False
    if not is_reached:
        instance.report_run_canceled(
            run, "The automation run was cancelled, and no process works on it."
        )
    return f"Terminated {run.run_id}"
