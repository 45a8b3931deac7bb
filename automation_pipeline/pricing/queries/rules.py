"""Queries of rules with their versions, guardrails, and due rules."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select, update
from sqlalchemy.orm import Session, aliased

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing.models.rules import (
    TENANT,
    Policy,
    PricingRule,
    RuleInput,
    RuleVersion,
    input_document,
    parse_policy,
    parse_rule,
    version_hash,
)
from automation_pipeline.pricing.models.runs import (
    ACTIVE_RUN_STATES,
    LIVE_RUN_STATES,
    RuleTrigger,
    RunAction,
    TargetState,
)
from automation_pipeline.pricing.queries.runs import RUN_CLAIMS
from automation_pipeline.pricing.queries.targets import update_targets
from automation_pipeline.pricing.rules.runs import PlannedRule
from automation_pipeline.pricing.tables import (
    PricingPolicyRow,
    RuleRow,
    RuleRunRow,
    RuleTargetRow,
    RuleVersionRow,
)
from automation_pipeline.storage.statements import among, database_now, upsert


def add_rule(
    session: Session, rule: RuleInput, *, project_id: str, actor: str, now: datetime
) -> PricingRule:
    row = RuleRow(
        tenant_id=TENANT,
        project_id=project_id,
        **_rule_columns(rule),
        version=1,
        created_by=actor,
        created_at=now,
        updated_at=now,
    )
    session.add(row)
    session.flush()
    return _add_version(session, row, actor, now)


def save_rule(
    session: Session, rule_id: int, rule: RuleInput, *, actor: str, now: datetime
) -> PricingRule:
    """The rule must be locked. Its version rises with a change that affects prices."""
    row = _rule_row(session, rule_id)
    former_hash = row.version_hash
    for name, value in _rule_columns(rule).items():
        setattr(row, name, value)
    row.updated_at = now
    if row.version_hash == former_hash:
        session.flush()
        return as_rule(row)
    row.version += 1
    session.flush()
    return _add_version(session, row, actor, now)


def mark_deleted(session: Session, rule_id: int, now: datetime) -> None:
    row = _rule_row(session, rule_id)
    row.enabled, row.deleted_at, row.updated_at = False, now, now
    session.flush()


def get_rule(session: Session, rule_id: int, *, deleted_too: bool = False) -> PricingRule:
    return as_rule(_rule_row(session, rule_id, deleted_too=deleted_too))


def lock_rule(session: Session, rule_id: int, *, deleted_too: bool = False) -> PricingRule:
    """Locked until the transaction ends, for changes of the rule and new runs of it. The lock does
    not delay workers, whose rows refer to the rule."""
    return as_rule(_rule_row(session, rule_id, deleted_too=deleted_too, locked=True))


def list_rules(
    session: Session,
    *,
    project_id: str | None = None,
    enabled: bool | None = None,
    q: str | None = None,
    limit: int,
    offset: int,
) -> list[PricingRule]:
    """Newest first, without deleted rules; `q` is part of the name."""
    query = select(RuleRow).where(RuleRow.tenant_id == TENANT, RuleRow.deleted_at.is_(None))
    if project_id is not None:
        query = query.where(RuleRow.project_id == project_id)
    if enabled is not None:
        query = query.where(RuleRow.enabled.is_(enabled))
    if q:
        # Databases ignore the case of unaccented letters only.
        forms = sorted({q, q.lower(), q.upper(), q.title()})
        names = [RuleRow.name.icontains(form, autoescape=True) for form in forms]
        query = query.where(or_(*names))
    query = query.order_by(RuleRow.id.desc()).limit(limit).offset(offset)
    return [as_rule(row) for row in session.scalars(query)]


def versions_of(session: Session, rule_id: int, limit: int, offset: int) -> list[RuleVersion]:
    """Newest first, also of a deleted rule. NotFoundError: the rule never existed."""
    _rule_row(session, rule_id, deleted_too=True)
    query = (
        select(RuleVersionRow)
        .where(RuleVersionRow.rule_id == rule_id)
        .order_by(RuleVersionRow.version.desc())
    )
    rows = session.scalars(query.limit(limit).offset(offset))
    return [RuleVersion.model_validate(row, from_attributes=True) for row in rows]


def rule_at(session: Session, rule_id: int, version: int) -> RuleInput:
    """The rule at the start of that version."""
    its = RuleVersionRow.rule_id == rule_id, RuleVersionRow.version == version
    document = session.scalar(select(RuleVersionRow.document).where(*its))
    if document is None:
        raise NotFoundError(f"Pricing rule {rule_id} has no version {version}.")
    return parse_rule(document)


def author_of(session: Session, rule_id: int, version: int) -> str | None:
    its = RuleVersionRow.rule_id == rule_id, RuleVersionRow.version == version
    return session.scalar(select(RuleVersionRow.created_by).where(*its))


def as_rule(row: RuleRow) -> PricingRule:
    documents = {"selector": row.selector_json, "transform": row.transform_json}
    names = PricingRule.model_fields.keys() - documents.keys()
    return PricingRule.model_validate({**documents, **{name: getattr(row, name) for name in names}})


def _rule_row(
    session: Session, rule_id: int, *, deleted_too: bool = False, locked: bool = False
) -> RuleRow:
    query = select(RuleRow).where(RuleRow.id == rule_id).execution_options(populate_existing=True)
    row = session.scalar(query.with_for_update(key_share=True) if locked else query)
    if row is None or (row.deleted_at is not None and not deleted_too):
        raise NotFoundError(f"Pricing rule {rule_id} not found")
    return row


def _add_version(session: Session, row: RuleRow, actor: str, now: datetime) -> PricingRule:
    rule = as_rule(row)
    session.add(
        RuleVersionRow(
            rule_id=row.id,
            version=row.version,
            version_hash=row.version_hash,
            document=input_document(rule),
            created_by=actor,
            created_at=now,
        )
    )
    session.flush()
    return rule


def _rule_columns(rule: RuleInput) -> dict[str, object]:
    written = input_document(rule)
    plain = rule.model_dump(exclude={"selector", "transform"}, include=set(RuleInput.model_fields))
    json = {"selector_json": written["selector"], "transform_json": written["transform"]}
    return {**plain, **json, "version_hash": version_hash(rule)}


def policy_of(session: Session, project_id: str) -> Policy | None:
    row = session.get(PricingPolicyRow, (TENANT, project_id), populate_existing=True)
    return None if row is None else parse_policy(row.document)


def save_policy(
    session: Session, project_id: str, policy: Policy, *, actor: str, now: datetime
) -> None:
    row = {
        "tenant_id": TENANT,
        "project_id": project_id,
        "document": as_document(policy),
        "updated_by": actor,
        "updated_at": now,
    }
    key, fields = ("tenant_id", "project_id"), ("document", "updated_by", "updated_at")
    upsert(session, PricingPolicyRow, [row], key=key, fields=fields)


def delete_policy(session: Session, project_id: str) -> bool:
    """Return whether the policy existed."""
    removed = session.scalars(
        delete(PricingPolicyRow)
        .where(PricingPolicyRow.tenant_id == TENANT, PricingPolicyRow.project_id == project_id)
        .returning(PricingPolicyRow.project_id)
        .execution_options(synchronize_session=False)
    )
    return removed.one_or_none() is not None


def lock_planned_rules(session: Session, now: datetime) -> list[PlannedRule]:
    """Rules that may be due, and deleted rules whose prices are in the shop, locked until the
    transaction ends. A rule that another transaction has locked waits for the next tick."""
    is_applied = select(RuleRunRow.id).where(RuleRunRow.rule_id == RuleRow.id, *_is_live()).exists()
    is_in_use = and_(RuleRow.enabled, RuleRow.deleted_at.is_(None))
    starts = and_(RuleRow.schedule_at <= now, is_in_use)
    ends = and_(RuleRow.ends_at <= now, is_applied)
    version = RuleRow.id, RuleRow.project_id, RuleRow.version, RuleRow.version_hash
    query = (
        select(*version, is_in_use, RuleRow.schedule_at, RuleRow.ends_at, is_applied)
        .where(or_(starts, ends))
        .order_by(RuleRow.id)
        .with_for_update(of=RuleRow, skip_locked=True, key_share=True)
    )
    return [PlannedRule(*row) for row in session.execute(query).tuples()]


def clear_schedules(session: Session, rule_ids: Collection[int], now: datetime) -> None:
    if rule_ids:
        session.execute(
            update(RuleRow)
            .where(among(session, RuleRow.id, rule_ids))
            .values(schedule_at=None, updated_at=now)
            .execution_options(synchronize_session=False)
        )


def close_repairs(session: Session, rule_ids: Collection[int], now: datetime) -> None:
    """Close the repairs of locked rules whose promotion is over: restored prices are rolled back
    with the run that the repair belongs to. A repair that is claimed or locked elsewhere stays
    unchanged."""
    if not rule_ids:
        return
    is_left = or_(RuleRunRow.wish.is_(None), RuleRunRow.wish != RunAction.ROLLBACK)
    query = (
        select(RuleRunRow.id)
        .where(among(session, RuleRunRow.rule_id, rule_ids), *_is_live(), RUN_CLAIMS.is_free())
        .where(RuleRunRow.trigger == RuleTrigger.REPAIR, is_left)
        .with_for_update(skip_locked=True)
    )
    repairs = session.scalars(query).all()
    if not repairs:
        return
    session.execute(
        update(RuleRunRow)
        .where(among(session, RuleRunRow.id, repairs))
        .values(promotion_ended_at=now, wish=None, wished_by=None, resume_at=None, updated_at=now)
        .execution_options(synchronize_session=False)
    )
    of_repairs = among(session, RuleTargetRow.rule_run_id, repairs)
    update_targets(session, of_repairs, RuleTargetRow.is_wished, is_wished=False)


def lock_live_runs(session: Session, rule_ids: Collection[int]) -> list[tuple[int, int]]:
    """The id and the rule of the newest run of each rule whose prices are still to be rolled back:
    newer prices are rolled back before older ones. Runs that are claimed, locked elsewhere or
    postponed, and rules with an active run or a rollback wait for a later tick."""
    if not rule_ids:
        return []
    other = aliased(RuleRunRow)
    is_due = or_(RuleRunRow.resume_at.is_(None), RuleRunRow.resume_at <= database_now())
    is_awaited = exists().where(
        other.rule_id == RuleRunRow.rule_id,
        or_(
            other.wish == RunAction.ROLLBACK,
            other.status.in_(sorted(ACTIVE_RUN_STATES)),
            and_(other.id > RuleRunRow.id, *_is_live(other)),
        ),
    )
    query = (
        select(RuleRunRow.id, RuleRunRow.rule_id)
        .where(
            among(session, RuleRunRow.rule_id, rule_ids),
            *_is_live(),
            RUN_CLAIMS.is_free(),
            is_due,
            ~is_awaited,
        )
        .where(RuleRunRow.trigger != RuleTrigger.REPAIR)
        .order_by(RuleRunRow.id.desc())
        .with_for_update(skip_locked=True)
    )
    return [(run_id, rule_id) for run_id, rule_id in session.execute(query).tuples()]


def request_rollbacks(
    session: Session, run_ids: Collection[int], actor: str, now: datetime
) -> None:
    """Request rollbacks of locked runs: mark every applied target for a rollback, and none for a retry."""
    if not run_ids:
        return
    session.execute(
        update(RuleRunRow)
        .where(among(session, RuleRunRow.id, run_ids))
        .values(
            promotion_ended_at=now,
            wish=RunAction.ROLLBACK,
            wished_by=actor,
            rollbacks=RuleRunRow.rollbacks + 1,
            rollback_force=False,
            resume_at=None,
            updated_at=now,
        )
        .execution_options(synchronize_session=False)
    )
    is_applied = RuleTargetRow.status == TargetState.APPLIED
    update_targets(
        session,
        among(session, RuleTargetRow.rule_run_id, run_ids),
        or_(is_applied, RuleTargetRow.is_wished),
        is_wished=is_applied,
        next_attempt_at=None,
    )


def _is_live(run: type[RuleRunRow] = RuleRunRow) -> tuple[ColumnElement[bool], ...]:
    return run.status.in_(sorted(LIVE_RUN_STATES)), run.promotion_ended_at.is_(None)
