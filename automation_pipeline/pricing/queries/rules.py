"""Queries about rules with their versions, guardrails, and rules that are due."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select, update
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
    RuleTrigger,
    RunAction,
    TargetState,
)
from automation_pipeline.pricing.queries.runs import LIVE_RUN_STATES, RUN_CLAIMS
from automation_pipeline.pricing.rules.runs import PromotionPlan
from automation_pipeline.pricing.tables import (
    PricingPolicyRow,
    RuleRow,
    RuleRunRow,
    RuleTargetRow,
    RuleVersionRow,
)
from automation_pipeline.storage.clock import database_now
from automation_pipeline.storage.statements import among, upsert


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
    return _with_its_version_kept(session, row, actor, now)


def save_rule(
    session: Session, rule_id: int, rule: RuleInput, *, actor: str, now: datetime
) -> PricingRule:
    """Of a rule that is held. Its version rises when another price may come out of it."""
    row = _rule_row(session, rule_id)
    known = row.version_hash
    for name, value in _rule_columns(rule).items():
        setattr(row, name, value)
    row.updated_at = now
    if row.version_hash == known:
        session.flush()
        return as_rule(row)
    row.version += 1
    session.flush()
    return _with_its_version_kept(session, row, actor, now)


def mark_deleted(session: Session, rule_id: int, now: datetime) -> None:
    row = _rule_row(session, rule_id)
    row.enabled, row.deleted_at, row.updated_at = False, now, now
    session.flush()


def get_rule(session: Session, rule_id: int, *, deleted_too: bool = False) -> PricingRule:
    return as_rule(_rule_row(session, rule_id, deleted_too=deleted_too))


def lock_rule(session: Session, rule_id: int, *, deleted_too: bool = False) -> PricingRule:
    """As it stands, and nobody else changes it or starts a run of it until the transaction ends.
    Keys that refer to it are checked all the same: a worker that writes down what it did never
    waits for it."""
    return as_rule(_rule_row(session, rule_id, deleted_too=deleted_too, held=True))


def list_rules(
    session: Session,
    *,
    project_id: str | None = None,
    enabled: bool | None = None,
    q: str | None = None,
    limit: int,
    offset: int,
) -> list[PricingRule]:
    """Newest first, without deleted ones; `q` is part of the name."""
    query = (
        select(RuleRow).where(*_rule_conditions(project_id, enabled, q)).order_by(RuleRow.id.desc())
    )
    return [as_rule(row) for row in session.scalars(query.limit(limit).offset(offset))]


def count_rules(
    session: Session,
    *,
    project_id: str | None = None,
    enabled: bool | None = None,
    q: str | None = None,
) -> int:
    return (
        session.scalar(
            select(func.count(RuleRow.id)).where(*_rule_conditions(project_id, enabled, q))
        )
        or 0
    )


def versions_of(session: Session, rule_id: int, limit: int, offset: int) -> list[RuleVersion]:
    """Newest first, those of a deleted rule too; NotFoundError for a rule that never was."""
    _rule_row(session, rule_id, deleted_too=True)
    query = (
        select(RuleVersionRow)
        .where(RuleVersionRow.rule_id == rule_id)
        .order_by(RuleVersionRow.version.desc())
    )
    return [
        RuleVersion(
            rule_id=row.rule_id,
            version=row.version,
            version_hash=row.version_hash,
            rule=dict(row.document),
            created_by=row.created_by,
            created_at=row.created_at,
        )
        for row in session.scalars(query.limit(limit).offset(offset))
    ]


def count_versions(session: Session, rule_id: int) -> int:
    return (
        session.scalar(
            select(func.count(RuleVersionRow.id)).where(RuleVersionRow.rule_id == rule_id)
        )
        or 0
    )


def rule_at(session: Session, rule_id: int, version: int) -> RuleInput:
    """The rule as it was when that version began."""
    document = session.scalar(
        select(RuleVersionRow.document).where(
            RuleVersionRow.rule_id == rule_id, RuleVersionRow.version == version
        )
    )
    if document is None:
        raise NotFoundError(f"Pricing rule {rule_id} has no version {version}.")
    return parse_rule(document)


def author_of(session: Session, rule_id: int, version: int) -> str | None:
    """Who made or changed the rule so that this version began."""
    its = RuleVersionRow.rule_id == rule_id, RuleVersionRow.version == version
    return session.scalar(select(RuleVersionRow.created_by).where(*its))


def as_rule(row: RuleRow) -> PricingRule:
    known = {"selector": row.selector_json, "transform": row.transform_json}
    names = PricingRule.model_fields.keys() - known.keys()
    return PricingRule.model_validate({**{name: getattr(row, name) for name in names}, **known})


def _rule_row(
    session: Session, rule_id: int, *, deleted_too: bool = False, held: bool = False
) -> RuleRow:
    query = select(RuleRow).where(RuleRow.id == rule_id).execution_options(populate_existing=True)
    row = session.scalar(query.with_for_update(key_share=True) if held else query)
    if row is None or (row.deleted_at is not None and not deleted_too):
        raise NotFoundError(f"Pricing rule {rule_id} not found")
    return row


def _with_its_version_kept(
    session: Session, row: RuleRow, actor: str, now: datetime
) -> PricingRule:
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


def _rule_conditions(
    project_id: str | None, enabled: bool | None, q: str | None
) -> list[ColumnElement[bool]]:
    conditions = [RuleRow.tenant_id == TENANT, RuleRow.deleted_at.is_(None)]
    if project_id is not None:
        conditions.append(RuleRow.project_id == project_id)
    if enabled is not None:
        conditions.append(RuleRow.enabled.is_(enabled))
    if q:
        conditions.append(_is_named(q))
    return conditions


def _is_named(text: str) -> ColumnElement[bool]:
    """Databases fold the case of unaccented letters only: accented ones are tried as people write
    them."""
    ways = sorted({text, text.lower(), text.upper(), text.title()})
    return or_(*(RuleRow.name.icontains(way, autoescape=True) for way in ways))


_POLICY_KEY = ("tenant_id", "project_id")


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
    upsert(
        session,
        PricingPolicyRow,
        [row],
        key=_POLICY_KEY,
        fields=("document", "updated_by", "updated_at"),
    )


def delete_policy(session: Session, project_id: str) -> bool:
    """Whether there was one."""
    gone = delete(PricingPolicyRow).where(
        PricingPolicyRow.tenant_id == TENANT, PricingPolicyRow.project_id == project_id
    )
    removed = session.scalars(
        gone.returning(PricingPolicyRow.project_id).execution_options(synchronize_session=False)
    )
    return removed.one_or_none() is not None


@dataclass(frozen=True)
class PlannedRule:
    """As much of a rule as its schedule is about."""

    id: int
    project_id: str
    version: int
    version_hash: str
    plan: PromotionPlan


def lock_planned_rules(session: Session, now: datetime) -> list[PlannedRule]:
    """Rules of which something may be due, deleted ones that still stand applied included.

    They are held until the transaction ends. One that another transaction holds is left for the
    next look.
    """
    is_applied = select(RuleRunRow.id).where(RuleRunRow.rule_id == RuleRow.id, *_is_live()).exists()
    is_in_use = and_(RuleRow.enabled, RuleRow.deleted_at.is_(None))
    starts, ends = (
        and_(RuleRow.schedule_at <= now, is_in_use),
        and_(RuleRow.ends_at <= now, is_applied),
    )
    stamp = (RuleRow.id, RuleRow.project_id, RuleRow.version, RuleRow.version_hash)
    query = (
        select(*stamp, is_in_use, RuleRow.schedule_at, RuleRow.ends_at, is_applied)
        .where(or_(starts, ends))
        .order_by(RuleRow.id)
        .with_for_update(of=RuleRow, skip_locked=True, key_share=True)
    )
    return [
        PlannedRule(
            id=id_,
            project_id=project_id,
            version=version,
            version_hash=hash_,
            plan=PromotionPlan(
                enabled=bool(enabled),
                schedule_at=starts_at,
                ends_at=ends_at,
                is_applied=bool(applied),
            ),
        )
        for id_, project_id, version, hash_, enabled, starts_at, ends_at, applied in session.execute(
            query
        ).tuples()
    ]


def clear_schedules(session: Session, rule_ids: Collection[int], now: datetime) -> None:
    if rule_ids:
        session.execute(
            update(RuleRow)
            .where(among(session, RuleRow.id, rule_ids))
            .values(schedule_at=None, updated_at=now)
            .execution_options(synchronize_session=False)
        )


def close_repairs(session: Session, rule_ids: Collection[int], now: datetime) -> None:
    """Of rules that are held: their repairs are dealt with. What they have put back is what the
    runs that they repair have applied, and is taken back with those. One that a worker or another
    transaction holds is left as it is."""
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
    session.execute(
        update(RuleTargetRow)
        .where(among(session, RuleTargetRow.rule_run_id, repairs), RuleTargetRow.is_wished)
        .values(is_wished=False)
        .execution_options(synchronize_session=False)
    )


def lock_live_runs(session: Session, rule_ids: Collection[int]) -> list[tuple[int, int]]:
    """Run and rule, of the newest run of each rule whose promotion's end is not dealt with: what it
    has changed must be taken back before what an older one has. Left for a later look are those
    that a worker or another transaction holds or that rest after an end that failed, and rules of
    which a run is at work or being rolled back."""
    if not rule_ids:
        return []
    other = aliased(RuleRunRow)
    is_rested = or_(RuleRunRow.resume_at.is_(None), RuleRunRow.resume_at <= database_now())
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
            is_rested,
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
    """Of runs that are held: all that they have applied. Who waited for a retry of the rest, waits
    no more."""
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
    session.execute(
        update(RuleTargetRow)
        .where(
            among(session, RuleTargetRow.rule_run_id, run_ids),
            or_(is_applied, RuleTargetRow.is_wished),
        )
        .values(is_wished=is_applied, next_attempt_at=None)
        .execution_options(synchronize_session=False)
    )


def _is_live(run: type[RuleRunRow] = RuleRunRow) -> tuple[ColumnElement[bool], ...]:
    return run.status.in_(sorted(LIVE_RUN_STATES)), run.promotion_ended_at.is_(None)
