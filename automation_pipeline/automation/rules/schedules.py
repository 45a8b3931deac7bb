"""Decisions about schedules: due times, active and stale runs, changes, visibility."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum, auto
from typing import Literal

from automation_pipeline.automation.models.schedules import (
    INVALID_SCHEDULE,
    TIMING_FIELDS,
    CatchUp,
    FicheSelection,
    Schedule,
    ScheduleFields,
    ScheduleInput,
    ScheduleType,
    SelectionMode,
    cron_expression_of,
    crons_of,
)
from automation_pipeline.core.access import Reach, Scope
from automation_pipeline.core.addresses import check_url
from automation_pipeline.core.clock import iso
from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.json_model import Instant, as_document, parse
from automation_pipeline.core.scheduling.cron import OverlapPolicy
from automation_pipeline.core.scheduling.plan import (
    DueFacts,
    NotRun,
    Plan,
    Policies,
    Start,
    backlog,
    plan,
)
from automation_pipeline.core.scheduling.timing import (
    Planned,
    Timing,
    planned_after,
    undelayed_after,
)
from automation_pipeline.core.scheduling.zones import zone

STALE_REASON = "The schedule was still marked as running after the stale threshold, and no process worked on the run"


@dataclass(frozen=True)
class UnendedRun:
    """`alive`: its last heartbeat is recent, by the database's clock. Attempt 0: the run waits for
    its start."""

    id: int
    attempt: int
    started_at: datetime
    alive: bool

    @property
    def waits(self) -> bool:
        return self.attempt == 0


@dataclass(frozen=True)
class ScheduleWork:
    """The running mark of the schedule, and its unfinished runs."""

    marked_running: bool = False
    last_run_at: datetime | None = None
    runs: tuple[UnendedRun, ...] = ()


class ScheduleLoad(Enum):
    IDLE = auto()
    BUSY = auto()
    OUTLASTING = auto()
    STALE = auto()


@dataclass(frozen=True)
class StaleMark:
    """The error and the details for ending a stale run."""

    message: str
    details: Mapping[str, object]


def schedule_load(at_work: ScheduleWork, now: datetime, stale_after: timedelta) -> ScheduleLoad:
    """A waiting run sends no heartbeats and is never stale, however long Dagster takes to start it.
    A mark without a run counts until the threshold."""
    before = now - stale_after
    if any(run.waits or run.started_at > before for run in at_work.runs):
        return ScheduleLoad.BUSY
    if any(run.alive for run in at_work.runs):
        return ScheduleLoad.OUTLASTING
    if at_work.runs:
        return ScheduleLoad.STALE
    if not at_work.marked_running:
        return ScheduleLoad.IDLE
    is_recent = at_work.last_run_at is not None and at_work.last_run_at > before
    return ScheduleLoad.BUSY if is_recent else ScheduleLoad.STALE


def stale_mark(started_at: datetime, now: datetime, stale_after: timedelta) -> StaleMark:
    age, threshold = (length // timedelta(minutes=1) for length in (now - started_at, stale_after))
    return StaleMark(
        f"Marked stale by scheduler after {age}m (threshold {threshold}m)",
        {
            "marked_stale": True,
            "reason": STALE_REASON,
            "stale_before": (now - stale_after).isoformat(),
            "marked_at": now.isoformat(),
        },
    )


MISSED = "missed while the scheduler was down"
SKIPPED = "skipped by an operator"
SUPERSEDED = "a later occurrence is run in its place"
OVER_LIMIT = "beyond the catch-up limit"
EXCLUDED = "the day is excluded"
CHANGED = "the schedule was changed or paused while it waited"
WAITS = "waits for the end of the previous run"
OVERLAP_REASONS = {
    ScheduleLoad.BUSY: "the previous run is still at work",
    ScheduleLoad.OUTLASTING: "the previous run is still at work: longer than the stale threshold, but its heart beats",
}
AND_EARLIER_ONES = ", and so is every earlier one that is not listed"
_REASONS = {
    NotRun.MISSED: MISSED,
    NotRun.OPERATOR: SKIPPED,
    NotRun.SUPERSEDED: SUPERSEDED,
    NotRun.OVER_LIMIT: OVER_LIMIT,
    NotRun.EXCLUDED: EXCLUDED,
}

MAX_LISTED = 20


@dataclass(frozen=True)
class DuePolicy:
    """A due time older than `window` is missed. A run older than `stale_after` is stale unless it
    sends heartbeats."""

    window: timedelta
    stale_after: timedelta
    lost_after_seconds: float


@dataclass(frozen=True, kw_only=True)
class DueSchedule:
    """The facts about a schedule that the decision needs. Every due time up to `decided_until` has
    a decision. Of the due times before `created_at` only the newest can run, within the window, and
    the others leave no record. `waited`: due times that wait for the end of a run."""

    id: int
    name: str
    timing: Timing
    decided_until: datetime
    created_at: datetime | None = None
    at_work: ScheduleWork = ScheduleWork()
    is_active: bool = True
    skip_due_at: datetime | None = None
    catch_up: CatchUp = CatchUp.SKIP
    catch_up_limit: int
    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    waited: frozenset[datetime] = frozenset()

    @property
    def policies(self) -> Policies:
        """SKIP skips a due time, and `latest` and `all` catch up with it when the run ends. With
        BUFFER_ALL every due time waits, so all of them are kept."""
        overlap = self.overlap_policy
        if overlap is OverlapPolicy.SKIP:
            overlap = _OVERLAP_OF_CATCH_UP[self.catch_up]
        keeps_all = self.catch_up is CatchUp.ALL or overlap is OverlapPolicy.BUFFER_ALL
        return Policies(
            drops_late=self.catch_up is CatchUp.SKIP,
            keeps=self.catch_up_limit if keeps_all else 1,
            overlap=overlap,
        )

    def is_before_creation(self, due_at: datetime) -> bool:
        return self.created_at is not None and due_at < self.created_at


_OVERLAP_OF_CATCH_UP = {
    CatchUp.SKIP: OverlapPolicy.SKIP,
    CatchUp.LATEST: OverlapPolicy.BUFFER_ONE,
    CatchUp.ALL: OverlapPolicy.BUFFER_ALL,
}


@dataclass(frozen=True)
class SkippedOccurrence:
    due_at: datetime
    because: str


@dataclass(frozen=True)
class DueDecision:
    """`to_run`, oldest first, runs one at a time: all but the first stay undecided, with everything
    after them. `not_run` precedes `to_run`. `waiting` is recorded and stays undecided. `reconcile`:
    the active run is stale and must be ended first. `replaces`: the active runs are cancelled
    before the first of `to_run` starts. `unrecorded` was due before the schedule was created."""

    to_run: tuple[datetime, ...] = ()
    not_run: tuple[SkippedOccurrence, ...] = ()
    reconcile: bool = False
    unrecorded: tuple[datetime, ...] = ()
    waiting: tuple[datetime, ...] = ()
    replaces: bool = False

    @property
    def started(self) -> tuple[datetime, ...]:
        return () if self.replaces else self.to_run[:1]

    def decided_until(self, before: datetime) -> datetime:
        not_run = (entry.due_at for entry in self.not_run)
        return max([before, *self.unrecorded, *not_run, *self.started])


def decide_due(schedule: DueSchedule, now: datetime, rules: DuePolicy) -> DueDecision:
    load, policies = schedule_load(schedule.at_work, now, rules.stale_after), schedule.policies
    late_before = now.replace(second=0, microsecond=0) - rules.window
    due = list[Planned]()
    if schedule.is_active:
        enough = policies.keeps + MAX_LISTED + 1  # those that can run, and one more than are listed
        found = backlog(
            schedule.timing, schedule.decided_until, now, enough=enough, with_excluded=True
        )
        due = list(found.times[-enough:])
    too_early = [
        one
        for one in due
        if schedule.is_before_creation(one.scheduled_for)
        and (one is not due[-1] or one.effective_for < late_before)
    ]
    facts = DueFacts(
        now=now,
        late_before=late_before,
        waited=schedule.waited,
        at_work=1 if load in OVERLAP_REASONS else 0,
        skip_until=schedule.skip_due_at,
    )
    planned = plan(schedule.timing, due[len(too_early) :], policies, facts)
    recorded: list[SkippedOccurrence] = []
    unrecorded = [one.scheduled_for for one in too_early]
    for one in _not_run(planned, load, schedule):
        if schedule.is_before_creation(one.due_at):
            unrecorded.append(one.due_at)
        else:
            recorded.append(one)
    line = tuple(one.scheduled_for for one in planned.line)
    is_in_line = planned.start is Start.IN_LINE
    waits = is_in_line and schedule.overlap_policy is not OverlapPolicy.SKIP
    return DueDecision(
        to_run=() if is_in_line else line,
        not_run=tuple(_listed(recorded)),
        reconcile=load is ScheduleLoad.STALE,
        unrecorded=tuple(unrecorded),
        waiting=tuple(at for at in line if at not in schedule.waited) if waits else (),
        replaces=planned.start is Start.IN_PLACE,
    )


def next_undecided(timing: Timing, decided_until: datetime) -> datetime:
    """The first due time without a decision, on an excluded day too."""
    coming = undelayed_after(timing, decided_until)
    assert coming is not None  # noqa: S101  a valid cron always has a next due time
    return coming.scheduled_for


def _not_run(
    planned: Plan, load: ScheduleLoad, schedule: DueSchedule
) -> Iterator[SkippedOccurrence]:
    reasons = dict(_REASONS)
    if planned.skips and planned.skips[-1].reason is NotRun.OVERLAP:
        # No run replaces the earlier ones: they share the reason of the newest.
        reasons[NotRun.OVERLAP] = reasons[NotRun.SUPERSEDED] = OVERLAP_REASONS[load]
    if schedule.catch_up is CatchUp.ALL:
        reasons[NotRun.SUPERSEDED] = OVER_LIMIT
    for one in planned.skips:
        # While the newest waits, a newer one may still replace it.
        if one.reason is not NotRun.SUPERSEDED or planned.start is not Start.IN_LINE:
            yield SkippedOccurrence(one.due.scheduled_for, reasons[one.reason])


def _listed(not_run: Sequence[SkippedOccurrence]) -> Sequence[SkippedOccurrence]:
    """The newest entries one by one, and a single entry for all earlier ones."""
    if len(not_run) <= MAX_LISTED:
        return not_run
    first, *rest = not_run[-MAX_LISTED:]
    return (SkippedOccurrence(first.due_at, first.because + AND_EARLIER_ONES), *rest)


MAX_NAMED = 10


@dataclass(frozen=True)
class StartedRun:
    schedule_id: int
    name: str
    due_at: datetime
    run_id: int


@dataclass(frozen=True)
class DueReport:
    """`checked` counts the active schedules with due times. The other fields are keyed by schedule
    id; `broken` schedules are invalid."""

    checked: int
    triggered: tuple[StartedRun, ...] = ()
    not_run: tuple[tuple[int, SkippedOccurrence], ...] = ()
    reconciled: tuple[int, ...] = ()
    broken: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        done = [
            *(f"Ended the stale runs of schedule {id_}" for id_ in self.reconciled),
            *(
                f"Started schedule {one.schedule_id}, due {_at(one.due_at)}, as run {one.run_id}"
                for one in self.triggered
            ),
            *(
                f"Schedule {id_}, due {_at(one.due_at)}, is not run: {one.because}"
                for id_, one in self.not_run
            ),
            *(f"Schedule {id_} cannot be read: {reason}" for id_, reason in self.broken),
        ]
        if not done:
            return f"{self.checked} schedules checked, none is due."
        more = [f"and {len(done) - MAX_NAMED} more"] if len(done) > MAX_NAMED else []
        return "; ".join([f"{self.checked} schedules checked", *done[:MAX_NAMED], *more]) + "."


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"


FIRST_YEAR, LAST_YEAR = 1970, 2999
SCHEDULER_INTERVAL = timedelta(minutes=1)


def timing_of(schedule: ScheduleFields, *, seed: str = "", jitter_seconds: int = 0) -> Timing:
    """Raises InvalidInputError for a stored schedule whose times or time zone are no longer valid."""
    return Timing(
        crons=crons_of(schedule),
        zone=zone(schedule.timezone),
        seed=seed,
        jitter_seconds=jitter_seconds,
        excluded_on=frozenset(map(date.fromisoformat, schedule.excluded_on)),
    )


def occurrences_after(schedule: ScheduleFields, after: datetime) -> Iterator[datetime]:
    """The due times strictly after `after`, without excluded days. Empty for a MANUAL schedule."""
    return (one.scheduled_for for one in planned_after(timing_of(schedule), after))


def parse_start(given: datetime) -> datetime:
    """The start of a list of occurrences, in UTC if it has no zone. Raises ValueError if the year is out of
    range."""
    if not FIRST_YEAR <= given.year <= LAST_YEAR:
        raise ValueError(f"must lie between the years {FIRST_YEAR} and {LAST_YEAR}")
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def next_due(schedule: Schedule, now: datetime, *decided: datetime | None) -> datetime | None:
    """The next due time that runs, also after the `decided` ones. None for a paused or MANUAL
    schedule."""
    if not schedule.is_active:
        return None
    after = max(filter(None, (now, schedule.skip_due_at, *decided)))
    return next(occurrences_after(schedule, after), None)


def next_to_skip(schedule: Schedule, now: datetime) -> datetime | None:
    """The first due time that is neither decided nor skipped. It may be slightly in the past, if it
    waits for the scheduler or for its jitter."""
    waiting_since = now - timedelta(seconds=schedule.jitter_seconds) - SCHEDULER_INTERVAL
    return next_due(schedule, waiting_since, schedule.last_due_at)


INVALID_UPDATE = "Invalid automation schedule update data"
# A field of a schedule type may be null unless the schedule has that type.
SCHEDULE_REQUIRES = " schedule requires "
NEVER_NULL = "cannot be null: leave it out to keep it"


def apply_patch(stored: Schedule, patch: Mapping[str, object]) -> ScheduleInput:
    """Apply a patch: fields that it does not name stay, null clears a field, and a selection is
    replaced as a whole. The result is validated as a whole."""
    current = stored.model_dump(by_alias=True, include=set(ScheduleInput.model_fields))
    try:
        return parse(ScheduleInput, {**current, **patch}, INVALID_UPDATE)
    except InvalidInputError as error:
        nulls = {field for field in current if patch.get(field, current) is None}
        faults = tuple(
            (field, NEVER_NULL if field in nulls and SCHEDULE_REQUIRES not in why else why)
            for field, why in error.fields
        )
        raise InvalidInputError(INVALID_UPDATE, faults) from None


def derived_changes(
    before: ScheduleFields, after: ScheduleFields, now: datetime
) -> dict[str, object]:
    """The columns that also change, so that neither new times nor the end of a pause start runs for
    past due times."""
    resumed = resume_changes(now) if after.is_active and not before.is_active else {}
    retimed = {"last_due_at": now, "skip_due_at": None} if _timing(before) != _timing(after) else {}
    return {**resumed, **retimed}


def resume_changes(now: datetime) -> dict[str, object]:
    return {"is_active": True, "paused_reason": None, "failures_in_a_row": 0, "last_due_at": now}


def _timing(schedule: ScheduleFields) -> Mapping[str, object]:
    ignored = set[str]() if schedule.schedule_type is ScheduleType.CRON else {"cron_expression"}
    return schedule.model_dump(include=set[str](TIMING_FIELDS) - ignored)


def check_webhook_url(
    url: str | None, allowed_origins: Collection[str], complaint: str = INVALID_SCHEDULE
) -> None:
    if not url:
        return
    try:
        check_url(url, allowed_origins)
    except InvalidInputError as error:
        raise InvalidInputError(complaint, (("webhookUrl", str(error)),)) from None


def is_visible(schedule: Schedule, reach: Reach) -> bool:
    return is_selection_visible(schedule.fiche_selection, schedule.created_by, reach)


def is_selection_visible(selection: FicheSelection, made_by: str | None, reach: Reach) -> bool:
    """GROUP: the selection names only groupes of the caller. SELF: the caller created it and it
    names fiches."""
    match reach.scope:
        case Scope.ALL:
            return True
        case Scope.GROUP:
            return _names_only(selection, reach)
        case Scope.SELF:
            return made_by == reach.caller and selection.mode is SelectionMode.MANUAL


def selection_scope_error(selection: FicheSelection, reach: Reach) -> tuple[str, str] | None:
    """The field that exceeds the caller's scope, and the reason. This function does not check
    fiches that are named by id: its caller does."""
    match reach.scope:
        case Scope.GROUP if not _names_only(selection, reach):
            mine = ", ".join(sorted(reach.groupes)) or "none"
            return "ficheSelection.groupes", f"must name groupes of yours: {mine}"
        case Scope.SELF if selection.mode is not SelectionMode.MANUAL:
            return "ficheSelection.mode", "must be manual: you may pick fiches of your own only"
        case _:
            return None


def _names_only(selection: FicheSelection, reach: Reach) -> bool:
    return bool(selection.groupes) and set(selection.groupes) <= reach.groupes


class ScheduleShown(Schedule):
    """A schedule with its next run time. The document masks the CRM key: it shows only whether the
    schedule has one."""

    external_api_key: Literal["**********"] | None = None  # pyright: ignore[reportIncompatibleVariableOverride]  the serialised form
    next_due_at: Instant | None


def schedule_document(schedule: Schedule, now: datetime) -> Mapping[str, object]:
    """Without a next run time if the stored schedule is no longer valid."""
    try:
        due_at = next_due(schedule, now)
    except InvalidInputError:
        due_at = None
    derived = {"cronExpression": cron_expression_of(schedule), "nextDueAt": due_at and iso(due_at)}
    return {**as_document(schedule), **derived}
