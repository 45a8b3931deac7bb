"""Rules with their versions, and the guardrails of projects."""

from collections.abc import Mapping
from datetime import datetime
from uuid import uuid4

from sqlalchemy import delete, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import ConflictError, NotFoundError
from automation_pipeline.core.json_model import as_document
from automation_pipeline.pricing import events
from automation_pipeline.pricing.models.rules import (
    INVALID_POLICY,
    INVALID_RULE,
    TENANT,
    Policy,
    PricingRule,
    RuleInput,
    RuleVersion,
    changed_rule,
    check_project,
    input_document,
    parse_policy,
    parse_rule,
    version_hash,
)
from automation_pipeline.pricing.queries.runs import active_run_of
from automation_pipeline.pricing.tables import PricingPolicyRow, RuleRow, RuleVersionRow
from automation_pipeline.storage.database import Database
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.statements import upsert


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
    """The rule must be locked. A change that affects prices creates a new version."""
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


def get_rule(session: Session, rule_id: int, *, deleted_too: bool = False) -> PricingRule:
    return as_rule(_rule_row(session, rule_id, deleted_too=deleted_too))


def lock_rule(session: Session, rule_id: int, *, deleted_too: bool = False) -> PricingRule:
    """Lock the rule until the transaction ends, to change it or to create a run of it. The lock does
    not block workers, which write rows that refer to the rule."""
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
    """Return the rules that are not deleted, newest first. `q` is a part of the name."""
    query = select(RuleRow).where(RuleRow.tenant_id == TENANT, RuleRow.deleted_at.is_(None))
    if project_id is not None:
        query = query.where(RuleRow.project_id == project_id)
    if enabled is not None:
        query = query.where(RuleRow.enabled.is_(enabled))
    if q:
        # Some databases compare only ASCII letters case-insensitively.
        forms = sorted({q, q.lower(), q.upper(), q.title()})
        names = [RuleRow.name.icontains(form, autoescape=True) for form in forms]
        query = query.where(or_(*names))
    query = query.order_by(RuleRow.id.desc()).limit(limit).offset(offset)
    return [as_rule(row) for row in session.scalars(query)]


def versions_of(session: Session, rule_id: int, limit: int, offset: int) -> list[RuleVersion]:
    """Return the versions newest first, even of a deleted rule. Raises NotFoundError if there was never such a
    rule."""
    _rule_row(session, rule_id, deleted_too=True)
    query = (
        select(RuleVersionRow)
        .where(RuleVersionRow.rule_id == rule_id)
        .order_by(RuleVersionRow.version.desc())
    )
    rows = session.scalars(query.limit(limit).offset(offset))
    return [RuleVersion.model_validate(row, from_attributes=True) for row in rows]


def rule_at(session: Session, rule_id: int, version: int) -> RuleInput:
    of_version = RuleVersionRow.rule_id == rule_id, RuleVersionRow.version == version
    document = session.scalar(select(RuleVersionRow.document).where(*of_version))
    if document is None:
        raise NotFoundError(f"Pricing rule {rule_id} has no version {version}.")
    return parse_rule(document)


def author_of(session: Session, rule_id: int, version: int) -> str | None:
    of_version = RuleVersionRow.rule_id == rule_id, RuleVersionRow.version == version
    return session.scalar(select(RuleVersionRow.created_by).where(*of_version))


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


def create_rule(
    given: Mapping[str, object], *, project_id: str, database: Database, clock: Clock, actor: str
) -> PricingRule:
    """Raises InvalidInputError, which names every invalid field. A rule whose `scheduleAt` has passed starts at
    the next tick of the sensor."""
    check_project(project_id, INVALID_RULE)
    rule = parse_rule(given)
    with database.transaction() as session:
        stored = add_rule(session, rule, project_id=project_id, actor=actor, now=clock.now())
        enqueue(session, [events.rule_created(stored)])
        return stored


def update_rule(
    rule_id: int,
    patch: Mapping[str, object],
    *,
    database: Database,
    clock: Clock,
    actor: str,
) -> PricingRule:
    """Change the fields that the patch names. A change that affects prices creates a new version and
    makes earlier previews stale."""
    with database.transaction() as session:
        stored = lock_rule(session, rule_id)
        changed = changed_rule(stored, patch)
        if changed == stored.as_input:
            return stored
        return save_rule(session, rule_id, changed, actor=actor, now=clock.now())


def delete_rule(rule_id: int, *, database: Database, clock: Clock, actor: str) -> None:
    """ConflictError while a run of the rule is queued or being applied."""
    with database.transaction() as session:
        row, now = _rule_row(session, rule_id, locked=True), clock.now()
        run_id = active_run_of(session, rule_id)
        if run_id is not None:
            raise ConflictError(
                f"Pricing rule {rule_id} cannot be deleted while run {run_id} has not ended: wait for its "
                "end, or cancel it."
            )
        enqueue(session, [events.rule_deleted(as_rule(row), actor, now)])
        row.enabled, row.deleted_at, row.updated_at = False, now, now


def put_policy(
    project_id: str, given: Mapping[str, object], *, database: Database, clock: Clock, actor: str
) -> Policy:
    """Store the policy. Unless it has `autoApply`, the project's runs now need an approval."""
    check_project(project_id, INVALID_POLICY)
    policy, now = parse_policy(given), clock.now()
    row = {
        "tenant_id": TENANT,
        "project_id": project_id,
        "document": as_document(policy),
        "updated_by": actor,
        "updated_at": now,
    }
    key, fields = ("tenant_id", "project_id"), ("document", "updated_by", "updated_at")
    with database.transaction() as session:
        upsert(session, PricingPolicyRow, [row], key=key, fields=fields)
        enqueue(session, [events.policy_changed(project_id, policy, actor, now, uuid4().hex)])
    return policy


def remove_policy(project_id: str, *, database: Database, clock: Clock, actor: str) -> None:
    """Without guardrails, the project's runs need no approval."""
    deleting = (
        delete(PricingPolicyRow)
        .where(PricingPolicyRow.tenant_id == TENANT, PricingPolicyRow.project_id == project_id)
        .returning(PricingPolicyRow.project_id)
        .execution_options(synchronize_session=False)
    )
    with database.transaction() as session:
        if session.scalars(deleting).one_or_none() is None:
            raise NotFoundError(f"Project {project_id} has no pricing policy.")
        enqueue(session, [events.policy_removed(project_id, actor, clock.now())])
