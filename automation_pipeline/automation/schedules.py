"""Schedules: create, change, pause, backfill, and start due runs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime

from automation_pipeline.audits.configs import known_ids
from automation_pipeline.automation.models.runs import RunStatus, Trigger
from automation_pipeline.automation.models.schedules import (
    INVALID_SCHEDULE,
    DatePreset,
    FicheSelection,
    Schedule,
    ScheduleType,
    SelectionMode,
    format_day,
    parse_schedule,
)
from automation_pipeline.automation.queries.due import (
    DueCandidate,
    DueStart,
    forget_paused,
    forget_waiting,
    lock_candidates,
    record_decided,
    record_next_due,
    record_not_run,
    schedules_watched,
    start_runs,
    unmark_running,
    work_of_schedules,
)
from automation_pipeline.automation.queries.runs import add_run, run_request, runs_by_key
from automation_pipeline.automation.queries.schedules import (
    add_schedule,
    change_schedule,
    get_schedule,
    refuse_paused,
    schedule_columns,
    unended_runs,
)
from automation_pipeline.automation.rules.schedules import (
    CHANGED,
    INVALID_UPDATE,
    WAITS,
    DueDecision,
    DuePolicy,
    DueReport,
    DueSchedule,
    ScheduleLoad,
    SkippedOccurrence,
    StartedRun,
    UnendedRun,
    apply_patch,
    check_webhook_url,
    decide_due,
    derived_changes,
    next_to_skip,
    next_undecided,
    resume_changes,
    schedule_load,
    stale_mark,
)
from automation_pipeline.automation.runs import RunClosing, finalise_run, replace_runs
from automation_pipeline.automation.tables import RunRow
from automation_pipeline.core.clock import Clock, days_between
from automation_pipeline.core.errors import AutomationError, ConflictError, InvalidInputError
from automation_pipeline.core.json_model import Id, JsonModel
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.zones import wall_time, zone
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.run_requests import file_requests
from automation_pipeline.storage.statements import database_now


def check_audit_configs(session: Session, ids: Iterable[int], complaint: str) -> None:
    named = set(ids)
    missing = sorted(named - known_ids(session, named)) if named else []
    if missing:
        text = f"there is no audit configuration {', '.join(map(str, missing))}"
        raise InvalidInputError(complaint, (("specificAuditConfigs", text),))


def create_schedule(
    given: Mapping[str, object],
    *,
    database: Database,
    clock: Clock,
    webhook_origins: Collection[str] = (),
) -> Schedule:
    """A due time that has just passed runs at once if it is within the scheduler's window. Without
    `webhook_origins`, a webhook may have any public address."""
    schedule = parse_schedule(given)
    check_webhook_url(schedule.webhook_url, webhook_origins)
    with database.transaction() as session:
        check_audit_configs(session, schedule.specific_audit_configs, INVALID_SCHEDULE)
        return add_schedule(session, schedule, clock.now())


def update_schedule(
    schedule_id: int,
    patch: Mapping[str, object],
    *,
    database: Database,
    clock: Clock,
    webhook_origins: Collection[str] = (),
) -> Schedule:
    """Apply a patch: fields that it does not name stay, null clears a field. The second of two
    concurrent patches applies to the result of the first."""
    with database.transaction() as session:
        stored = get_schedule(session, schedule_id, lock=True)
        if not patch:
            return stored
        changed, now = apply_patch(stored, patch), clock.now()
        if changed.webhook_url != stored.webhook_url:
            check_webhook_url(changed.webhook_url, webhook_origins, INVALID_UPDATE)
        # A configuration that has been deleted since does not prevent other changes.
        new_configs = set(changed.specific_audit_configs) - set(stored.specific_audit_configs)
        check_audit_configs(session, new_configs, INVALID_UPDATE)
        derived = derived_changes(stored, changed, now)
        change_schedule(
            session, schedule_id, {**schedule_columns(changed), **derived, "updated_at": now}
        )
        if "last_due_at" in derived or not changed.is_active:
            forget_waiting(session, schedule_id, CHANGED)
        return get_schedule(session, schedule_id)


def pause_schedule(
    schedule_id: int, *, database: Database, clock: Clock, reason: str | None = None
) -> Schedule:
    """A schedule that is already paused keeps its reason."""
    with database.transaction() as session:
        if get_schedule(session, schedule_id, lock=True).is_active:
            paused = {"is_active": False, "paused_reason": reason, "updated_at": clock.now()}
            change_schedule(session, schedule_id, paused)
            forget_waiting(session, schedule_id, CHANGED)
        return get_schedule(session, schedule_id)


def resume_schedule(schedule_id: int, *, database: Database, clock: Clock) -> Schedule:
    """Due times during the pause do not run. A schedule that is already active does not change."""
    with database.transaction() as session:
        if not get_schedule(session, schedule_id, lock=True).is_active:
            now = clock.now()
            change_schedule(session, schedule_id, {**resume_changes(now), "updated_at": now})
            forget_waiting(session, schedule_id, CHANGED)
        return get_schedule(session, schedule_id)


def skip_next(schedule_id: int, *, database: Database, clock: Clock) -> datetime:
    """Skip one more occurrence and return it. Raises ConflictError if there is none to skip."""
    now = clock.now()
    with database.transaction() as session:
        schedule = get_schedule(session, schedule_id, lock=True)
        if schedule.schedule_type is ScheduleType.MANUAL:
            raise ConflictError(
                f"Schedule {schedule_id} is MANUAL: it has no next occurrence to skip"
            )
        due_at = next_to_skip(schedule, now)
        if due_at is None:
            raise ConflictError(
                f"Schedule {schedule_id} is not active: it has no next occurrence to skip"
            )
        change_schedule(session, schedule_id, {"skip_due_at": due_at, "updated_at": now})
    return due_at


def delete_schedule(schedule_id: int, *, database: Database) -> None:
    """Raises ConflictError if the schedule has a run that has not ended."""
    with database.transaction() as session:
        get_schedule(session, schedule_id, lock=True)
        runs = unended_runs(session, schedule_id)
        if runs:
            raise ConflictError(
                f"Schedule {schedule_id} cannot be deleted while run {runs[0]} is not over: "
                f"wait for its end, or end it by `automation runs cancel {runs[0]}`"
            )
        deleted = {"deleted_at": database_now(), "is_active": False}
        change_schedule(session, schedule_id, deleted)


MAX_BACKFILL_DAYS = 92
INVALID_BACKFILL = "Invalid backfill data"


class BackfillDay(JsonModel):
    """A day and its run. `filed`: this call filed it, or would file it without the dry run. An
    `excluded` day gets no run."""

    day: date
    key: str
    filed: bool
    excluded: bool = False
    run_id: Id | None
    status: RunStatus | None


class ScheduleBackfill(JsonModel):
    schedule_id: Id
    dry_run: bool
    days: tuple[BackfillDay, ...]


def backfill_schedule(
    schedule_id: int,
    first: date,
    last: date,
    *,
    database: Database,
    clock: Clock,
    dry_run: bool = False,
) -> ScheduleBackfill:
    """File one run per day, which selects the sales of the day with the schedule's other filters. A
    day that already has a run keeps it, and excluded days get none."""
    now = clock.now()
    with database.transaction() as session:
        schedule = get_schedule(session, schedule_id, lock=True)
        _check_backfill(schedule, first, last, now)
        days = days_between(first, last)
        keys = {backfill_key(schedule.id, day): day for day in days}
        known = {keys[key]: row for key, row in runs_by_key(session, list(keys)).items()}
        excluded = {day for day in days if day.isoformat() in schedule.excluded_on}
        to_file = [day for day in days if day not in known and day not in excluded]
        runs = dict(known)
        if not dry_run:
            runs |= {day: _file_backfill(session, schedule, day, now) for day in to_file}
        return ScheduleBackfill(
            schedule_id=schedule_id,
            dry_run=dry_run,
            days=tuple(
                BackfillDay(
                    day=day,
                    key=backfill_key(schedule_id, day),
                    filed=day in to_file,
                    excluded=day in excluded,
                    run_id=runs[day].id if day in runs else None,
                    status=RunStatus(runs[day].status) if day in runs else None,
                )
                for day in days
            ),
        )


def backfill_key(schedule_id: int, day: date) -> str:
    return f"automation-backfill-{schedule_id}-{day.isoformat()}"


def _check_backfill(schedule: Schedule, first: date, last: date, now: datetime) -> None:
    refuse_paused(schedule)
    if schedule.fiche_selection.mode is SelectionMode.MANUAL:
        raise ConflictError(
            f"Schedule {schedule.id} selects fiches by their ids: it has no days to backfill"
        )
    today = wall_time(now, zone(schedule.timezone)).date()
    if last < first:
        raise InvalidInputError(INVALID_BACKFILL, (("to", "must not lie before from"),))
    if last > today:
        raise InvalidInputError(
            INVALID_BACKFILL, (("to", f"must not lie after today, {today.isoformat()}"),)
        )
    if (last - first).days >= MAX_BACKFILL_DAYS:
        raise InvalidInputError(
            INVALID_BACKFILL, (("to", f"must be at most {MAX_BACKFILL_DAYS - 1} days after from"),)
        )


def _file_backfill(session: Session, schedule: Schedule, day: date, now: datetime) -> RunRow:
    row = add_run(
        session,
        schedule,
        Trigger.BACKFILL,
        now,
        override=_selection_of_day(schedule.fiche_selection, day),
    )
    row.request_key = key = backfill_key(schedule.id, day)
    file_requests(session, [run_request(key, schedule.id, row.id, Trigger.BACKFILL)], now)
    return row


def _selection_of_day(selection: FicheSelection, day: date) -> FicheSelection:
    days = {
        "date_range": DatePreset.CUSTOM,
        "custom_start_date": format_day(day),
        "custom_end_date": format_day(day),
    }
    return selection.model_copy(update=days)


STALE_LOG_MESSAGE = "Automation run marked stale by scheduler"


def reconcile_stale_runs(rules: DuePolicy, *, database: Database, clock: Clock) -> list[int]:
    """End stale runs and return the ids of their schedules. A run that cannot be ended now is
    retried at the next tick and does not delay the others."""
    now = clock.now()
    with database.reading() as session:
        work = work_of_schedules(session, rules.lost_after_seconds)
    stale = {
        id_: one
        for id_, one in work.items()
        if schedule_load(one, now, rules.stale_after) is ScheduleLoad.STALE
    }
    _end_stale((run for one in stale.values() for run in one.runs), rules, now, database, clock)
    marked = [id_ for id_, one in stale.items() if one.marked_running]
    if marked:
        with database.transaction() as session:
            unmark_running(session, marked)
    return list(stale)


def _end_stale(
    runs: Iterable[UnendedRun], rules: DuePolicy, now: datetime, database: Database, clock: Clock
) -> None:
    for run in runs:
        mark = stale_mark(run.started_at, now, rules.stale_after)
        try:
            finalise_run(
                run.id,
                database=database,
                clock=clock,
                attempt=run.attempt,
                breakdown=mark.message,
                closing=RunClosing(details=mark.details, log=STALE_LOG_MESSAGE, counted=False),
            )
        except AutomationError:  # a new attempt has started, or the database does not answer
            continue


DecidedSchedules = list[tuple[DueCandidate, DueDecision]]


def start_due_runs(rules: DuePolicy, *, database: Database, clock: Clock) -> DueReport:
    """Decide all due times and start their runs. Safe to run concurrently with itself and with
    manual requests: a due time has one run, and runs overlap only if the schedule allows it."""
    reconciled = reconcile_stale_runs(rules, database=database, clock=clock)
    report, replacing = _start_due(rules, database=database, clock=clock)
    for schedule in replacing:
        replace_runs([run.id for run in schedule.at_work.runs], database=database, clock=clock)
    # With the other policy, the processes of cancelled runs have until the next check to stop.
    if any(one.overlap_policy is OverlapPolicy.TERMINATE_OTHER for one in replacing):
        again, _ = _start_due(rules, database=database, clock=clock)
        report = replace(
            again,
            triggered=report.triggered + again.triggered,
            not_run=report.not_run + again.not_run,
        )
    return replace(report, reconciled=tuple(reconciled))


def _start_due(
    rules: DuePolicy, *, database: Database, clock: Clock
) -> tuple[DueReport, list[DueSchedule]]:
    """The report, and the schedules whose runs must be cancelled before the due time can start."""
    now = clock.now()
    with database.transaction() as session:
        forget_paused(session)
        candidates = lock_candidates(session, now, rules)
        decisions = [(one, decide_due(one.schedule, now, rules)) for one in candidates.readable]
        # A run that is still stale could not be ended just before. The next check retries.
        decided = [(one, decision) for one, decision in decisions if not decision.reconcile]
        started = _apply_decisions(session, decided, now)
        report = DueReport(
            checked=schedules_watched(session),
            triggered=tuple(started),
            not_run=tuple(_not_run(decided)),
            broken=tuple(candidates.broken.items()),
        )
    return report, [one.schedule for one, decision in decided if decision.replaces]


def _apply_decisions(
    session: Session, decided: DecidedSchedules, now: datetime
) -> list[StartedRun]:
    starts = [DueStart(one, due_at) for one, decision in decided for due_at in decision.started]
    started = start_runs(session, starts, now)
    record_not_run(session, _not_run(decided), now)
    until = {
        one.schedule.id: decision.decided_until(one.schedule.decided_until)
        for one, decision in decided
    }
    changed = {one.schedule.id for one, decision in decided if decision.started or decision.not_run}
    record_decided(session, {id_: due_at for id_, due_at in until.items() if id_ in changed})
    coming = (
        (one, next_undecided(one.schedule.timing, until[one.schedule.id])) for one, _ in decided
    )
    record_next_due(session, [(one, due_at) for one, due_at in coming if due_at != one.next_due_at])
    return [
        StartedRun(start.schedule_id, start.candidate.schedule.name, start.due_at, run_id)
        for start, run_id in started.items()
    ]


def _not_run(decided: DecidedSchedules) -> list[tuple[int, SkippedOccurrence]]:
    return [
        (one.schedule.id, entry)
        for one, decision in decided
        for entry in (
            *decision.not_run,
            *(SkippedOccurrence(due_at, WAITS) for due_at in decision.waiting),
        )
    ]
