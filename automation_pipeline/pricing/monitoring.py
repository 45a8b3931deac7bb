"""Dead letters, alerts, metrics, price changes, and the runs of a day."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Text, case, cast, exists, func, or_, select, update
from sqlalchemy.orm import Session

from automation_pipeline.core.alerts import AlertCondition, AlertSeverity
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import InvalidInputError, PermanentError, sentence_of
from automation_pipeline.pricing.checks import last_checks
from automation_pipeline.pricing.events import pricing_event
from automation_pipeline.pricing.models.rules import TENANT
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    RULE_RUN,
    PricingRunState,
    TargetState,
)
from automation_pipeline.pricing.models.shop import CircuitState, FailureKind
from automation_pipeline.pricing.queries.runs import read_runs, select_runs
from automation_pipeline.pricing.rules.monitoring import (
    KEPT_FOR,
    RATE_LIMIT_WINDOW,
    STALE_AFTER,
    WATCHED_FOR,
    DayRuns,
    DeadLetter,
    DeadLetterReport,
    DeadLetterTally,
    MismatchSeverity,
    OpenedCircuit,
    PriceChange,
    PriceChangeFilter,
    PricingAlert,
    ProjectHealth,
    RetriedRuns,
    broken_invariants,
    dead_letter_report,
    evaluate_alerts,
)
from automation_pipeline.pricing.runs import retry_run
from automation_pipeline.pricing.tables import (
    PriceChangeRow,
    PricingAlertRow,
    RuleCheckRow,
    RuleRunRow,
    RuleTargetRow,
    ShopRow,
)
from automation_pipeline.storage.alerts import AlertTable
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.history import TransitionRow
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import among, database_time

SUCCESS_WINDOW = timedelta(hours=1)

Run, Target = RuleRunRow, RuleTargetRow


def _is_dead_letter(now: datetime, project_id: str | None = None) -> list[ColumnElement[bool]]:
    """Dead letters are failed targets of the last ninety days that are not acknowledged. A run that
    was rolled back has none."""
    is_rolled_back = exists().where(
        Run.id == Target.rule_run_id, Run.status == PricingRunState.ROLLED_BACK
    )
    which = [
        Target.tenant_id == TENANT,
        Target.status == TargetState.FAILED,
        Target.acknowledged_at.is_(None),
        Target.last_attempt >= now - KEPT_FOR,
        ~is_rolled_back,
    ]
    return which if project_id is None else [*which, Target.project_id == project_id]


def _count_if(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.count(case((condition, 1)))


def dead_letters(
    session: Session, project_id: str, *, now: datetime, limit: int
) -> list[DeadLetter]:
    """Return the oldest dead letters, in the order in which they failed."""
    query = (
        select(Target)
        .where(*_is_dead_letter(now, project_id))
        .order_by(Target.last_attempt, Target.id)
        .limit(limit)
    )
    return [
        DeadLetter(
            target_id=str(row.id),
            run_id=str(row.rule_run_id),
            product_id=row.product_id,
            variant_id=row.variant_id,
            failed_at=row.last_attempt or now,
            error_type=FailureKind(row.error_type or FailureKind.UNKNOWN),
            error=row.error_message or "",
            retryable=bool(row.error_retryable),
        )
        for row in session.scalars(query)
    ]


def dead_letter_tallies(session: Session, project_id: str, now: datetime) -> list[DeadLetterTally]:
    retryable, stale = Target.error_retryable.is_(True), Target.last_attempt < now - STALE_AFTER
    query = (
        select(Target.error_type, func.count(), _count_if(retryable), _count_if(stale))
        .where(*_is_dead_letter(now, project_id))
        .group_by(Target.error_type)
    )
    return [
        DeadLetterTally(FailureKind(kind or FailureKind.UNKNOWN), *counts)
        for kind, *counts in session.execute(query).tuples()
    ]


def price_changes(
    session: Session, chosen: PriceChangeFilter, limit: int, after_id: int = 0
) -> list[PriceChange]:
    """`after_id` is the last id of the previous page."""
    row = PriceChangeRow
    filters = (
        (row.project_id, chosen.project_id),
        (row.variant_id, chosen.variant_id),
        (row.rule_run_id, chosen.run_id),
    )
    query = (
        select(row)
        .where(row.tenant_id == TENANT, row.id > after_id)
        .where(*(column == value for column, value in filters if value is not None))
        .order_by(row.id)
        .limit(limit)
    )
    return [PriceChange.model_validate(one, from_attributes=True) for one in session.scalars(query)]


def list_alerts(
    session: Session, project_id: str | None, limit: int, offset: int
) -> list[PricingAlert]:
    query = select(PricingAlertRow).where(PricingAlertRow.tenant_id == TENANT)
    if project_id is not None:
        query = query.where(PricingAlertRow.project_id == project_id)
    query = query.order_by(PricingAlertRow.id.desc()).limit(limit).offset(offset)
    return [
        PricingAlert.model_validate(row, from_attributes=True) for row in session.scalars(query)
    ]


def health_of_projects(session: Session, now: datetime) -> dict[str, ProjectHealth]:
    tried = _tried_targets(session, now)
    letters = (
        select(Target.project_id, func.count())
        .where(*_is_dead_letter(now))
        .group_by(Target.project_id)
    )
    letter_counts = dict(iter(session.execute(letters).tuples()))
    rate_limits, circuits_opened = _shop_health(session, now)
    return {
        project: ProjectHealth(
            applied=tried.get(project, (0, 0))[0],
            failed=tried.get(project, (0, 0))[1],
            dead_letters=letter_counts.get(project, 0),
            rate_limits=rate_limits[project],
            circuit=circuits_opened.get(project),
        )
        for project in sorted({*tried, *letter_counts, *+rate_limits, *circuits_opened})
    }


def _alert_conditions(session: Session, now: datetime) -> list[AlertCondition]:
    return [
        condition
        for project, health in health_of_projects(session, now).items()
        for condition in evaluate_alerts(project, health)
    ]


PRICING_ALERTS = AlertTable(
    row=PricingAlertRow,
    event="pricing.alert",
    cooldowns={
        AlertSeverity.WARNING: timedelta(minutes=30),
        AlertSeverity.CRITICAL: timedelta(minutes=15),
    },
    conditions=_alert_conditions,
    subject=PricingAlertRow.project_id.expression,
    columns=lambda condition: {"tenant_id": TENANT, "project_id": condition.subject},
    about=lambda alert: {"project": alert.project_id},
    scope=(PricingAlertRow.tenant_id == TENANT,),
)


def _tried_targets(session: Session, now: datetime) -> dict[str, tuple[int, int]]:
    """Return, by project, how many targets were applied and how many failed in the last cycle of each
    run that ended in the window. Rolled back targets count as applied."""
    began_at = (
        select(func.max(TransitionRow.at))
        .where(
            TransitionRow.machine == RULE_RUN.name,
            TransitionRow.entity_id == cast(Run.id, Text),
            TransitionRow.to_state == PricingRunState.APPLYING,
        )
        .scalar_subquery()
    )
    ended = (
        select(Run.id, Run.project_id, Run.retry_cycle, began_at.label("began_at"))
        .where(Run.finished_at > now - SUCCESS_WINDOW, Run.status.not_in(ACTIVE_RUN_STATES))
        .cte("ended")
    )
    in_last_cycle = or_(ended.c.retry_cycle == 0, Target.last_attempt >= ended.c.began_at)
    is_applied = Target.status.in_((TargetState.APPLIED, TargetState.ROLLED_BACK))
    is_failed = (Target.status == TargetState.FAILED) & (Target.error_type != FailureKind.CANCELLED)
    query = (
        select(ended.c.project_id, _count_if(is_applied), _count_if(is_failed))
        .join(Target, Target.rule_run_id == ended.c.id)
        .where(or_(is_applied, is_failed), in_last_cycle)
        .group_by(ended.c.project_id)
    )
    return {
        project: (applied, failed) for project, applied, failed in session.execute(query).tuples()
    }


def _shop_health(session: Session, now: datetime) -> tuple[Counter[str], dict[str, OpenedCircuit]]:
    """Return, by project, the recent refusals of its shops, and a shop whose circuit is open or was
    open recently. A shop belongs to a project while a run of the project has work there, or has just
    ended there."""
    has_work = or_(Run.status.in_(ACTIVE_RUN_STATES), Run.wish.is_not(None))
    has_just_ended = Run.finished_at > now - RATE_LIMIT_WINDOW
    query = select(Run.project_id, Run.shop).where(or_(has_work, has_just_ended)).distinct()
    pairs = session.execute(query).tuples().all()
    shops = {shop.shop: shop for shop in session.scalars(select(ShopRow))}
    since = database_time(session) - RATE_LIMIT_WINDOW
    refused, opened = Counter[str](), dict[str, OpenedCircuit]()
    for project, name in pairs:
        if name not in shops:
            continue
        shop = shops[name]
        refused[project] += sum(at > since.timestamp() for at in shop.refusals)
        if shop.circuit != CircuitState.CLOSED:
            opened[project] = OpenedCircuit(name)
        elif shop.opened_at is not None and shop.opened_at > since:
            opened.setdefault(project, OpenedCircuit(name, shop.opened_at))
    return refused, opened


def blocked_variants(session: Session) -> Mapping[str, int]:
    """Return, by project, the number of variants that its guardrails have blocked."""
    query = select(Run.project_id, func.sum(Run.blocked)).group_by(Run.project_id)
    found = session.execute(query.order_by(Run.project_id)).tuples()
    return {project: int(blocked or 0) for project, blocked in found}


def queue_age_seconds(session: Session, now: datetime) -> float:
    """Return the age of the oldest queued run, or 0 without queued runs."""
    oldest = session.scalar(
        select(func.min(Run.queued_at)).where(Run.status == PricingRunState.QUEUED)
    )
    return 0.0 if oldest is None else max(0.0, (now - oldest).total_seconds())


def mismatched_prices(session: Session, now: datetime) -> Mapping[str, int]:
    """Count the mismatches of the last check of each run that is still checked, by the highest
    severity of that check. Runs that were rolled back do not count."""
    newest = last_checks(RuleCheckRow.checked_at > now - WATCHED_FOR)
    query = (
        select(RuleCheckRow.worst, func.sum(RuleCheckRow.mismatches))
        .join(Run, Run.id == RuleCheckRow.rule_run_id)
        .where(RuleCheckRow.id.in_(newest), RuleCheckRow.worst.is_not(None))
        .where(RuleCheckRow.mismatches > 0, Run.status != PricingRunState.ROLLED_BACK)
        .group_by(RuleCheckRow.worst)
    )
    return {str(worst): int(count or 0) for worst, count in session.execute(query).tuples()}


def circuits(session: Session) -> Mapping[str, CircuitState]:
    """Return the state of the circuit of each shop."""
    found = session.execute(select(ShopRow.shop, ShopRow.circuit).order_by(ShopRow.shop)).tuples()
    return {shop: CircuitState(state) for shop, state in found}


def runs_that_ended(session: Session, since: datetime, until: datetime) -> DayRuns:
    """Return the runs that ended from `since` until before `until`, in that order."""
    ended = select_runs(Run.finished_at >= since, Run.finished_at < until)
    runs = read_runs(session, ended.order_by(Run.finished_at, Run.id))
    ids = [run.id for run in runs]
    letters = select(func.count(Target.id)).where(
        among(session, Target.rule_run_id, ids), *_is_dead_letter(until)
    )
    kept = [run.id for run in runs if run.status is not PricingRunState.ROLLED_BACK]
    mismatched = session.scalars(
        select(RuleCheckRow.rule_run_id).where(
            RuleCheckRow.id.in_(last_checks(among(session, RuleCheckRow.rule_run_id, kept))),
            RuleCheckRow.worst == MismatchSeverity.CRITICAL,
        )
    )
    faults = [broken_invariants(run.id, run.status, run.targets) for run in runs]
    return DayRuns(
        runs,
        dead_letters=session.scalar(letters) or 0,
        mismatched=sorted(mismatched, key=ids.index),
        broken=[fault for of_run in faults for fault in of_run],
    )


MAX_ENTRIES = 1000


def report_dead_letters(project_id: str, *, database: Database, clock: Clock) -> DeadLetterReport:
    """The counts cover all dead letters; the entries are the oldest ones."""
    now = clock.now()
    with database.reading() as session:
        tallies = dead_letter_tallies(session, project_id, now)
        letters = dead_letters(session, project_id, now=now, limit=MAX_ENTRIES)
    return dead_letter_report(project_id, tallies, letters)


def retry_dead_letters(
    project_id: str, *, database: Database, clock: Clock, actor: str, force: bool = False
) -> RetriedRuns:
    """Request a retry of the dead letters of a project, run by run. `force` includes those whose error
    is permanent unless its cause was removed. Runs that cannot be retried now are skipped."""
    report = report_dead_letters(project_id, database=database, clock=clock)
    now = clock.now()
    event = pricing_event(
        "automation.dlq.report",
        f"dlq:{project_id}:{round(now.timestamp() * 1000)}",
        f"project-{project_id}",
        now,
        report.model_dump(mode="json", by_alias=True, exclude={"entries"}),
    )
    which = [] if force else [Target.error_retryable.is_(True)]
    letters = (
        select(Target.rule_run_id, Target.id)
        .where(*_is_dead_letter(now, project_id), *which)
        .order_by(Target.rule_run_id, Target.id)
    )
    by_run: dict[int, list[int]] = {}
    with database.transaction() as session:
        enqueue(session, [event])
        for run_id, target_id in session.execute(letters).tuples():
            by_run.setdefault(run_id, []).append(target_id)
    retried: list[int] = []
    skipped: dict[int, str] = {}
    for run_id, targets in by_run.items():
        try:
            retry_run(
                run_id, database=database, clock=clock, actor=actor, target_ids=targets, force=force
            )
        except PermanentError as refusal:
            skipped[run_id] = sentence_of(refusal)
        else:
            retried.append(run_id)
    return RetriedRuns(tuple(retried), skipped)


def acknowledge_dead_letters(
    project_id: str,
    target_ids: Sequence[int] | None,
    *,
    database: Database,
    clock: Clock,
    actor: str,
) -> int:
    """Acknowledge all dead letters of the project, or the given ones. Return how many were not
    acknowledged before. Raises InvalidInputError if a given target is not a dead letter of the project;
    nothing then changes. Safe to repeat."""
    now = clock.now()
    with database.transaction() as session:
        chosen = [] if target_ids is None else [among(session, Target.id, target_ids)]
        marked = session.scalars(
            update(Target)
            .where(*_is_dead_letter(now, project_id), *chosen)
            .values(acknowledged_at=now, acknowledged_by=actor)
            .returning(Target.id)
            .execution_options(synchronize_session=False)
        ).all()
        unknown = set(target_ids or ()) - set(marked)
        query = select(Target.id).where(
            Target.project_id == project_id,
            Target.status == TargetState.FAILED,
            Target.acknowledged_at.is_not(None),
            among(session, Target.id, unknown),
        )
        unknown -= set(session.scalars(query))
        if unknown:
            reason = f"is not a dead letter of project {project_id}"
            faults = tuple(("targetIds", f"{target_id} {reason}") for target_id in sorted(unknown))
            raise InvalidInputError("These targets cannot be acknowledged.", faults)
        return len(marked)
