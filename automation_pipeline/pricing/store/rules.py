"""Queries over rules and the versions that they have had. What their runs are at is in rule_activity.py."""

from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from automation_pipeline.core.errors import NotFoundError
from automation_pipeline.pricing.domain.pricing_rule import TENANT, PricingRule, RuleVersion, input_document
from automation_pipeline.pricing.domain.rule import RuleInput, parse_rule, version_hash
from automation_pipeline.pricing.tables import RuleRow, RuleVersionRow


def add_rule(session: Session, rule: RuleInput, *, project_id: str, actor: str, now: datetime) -> PricingRule:
    row = RuleRow(
        tenant_id=TENANT,
        project_id=project_id,
        **_columns(rule),
        version=1,
        created_by=actor,
        created_at=now,
        updated_at=now,
    )
    session.add(row)
    session.flush()
    return _with_its_version_kept(session, row, actor, now)


def save_rule(session: Session, rule_id: int, rule: RuleInput, *, actor: str, now: datetime) -> PricingRule:
    """Of a rule that is held. Its version rises when another price may come out of it."""
    row = _row(session, rule_id)
    known = row.version_hash
    for name, value in _columns(rule).items():
        setattr(row, name, value)
    row.updated_at = now
    if row.version_hash == known:
        session.flush()
        return as_rule(row)
    row.version += 1
    session.flush()
    return _with_its_version_kept(session, row, actor, now)


def mark_deleted(session: Session, rule_id: int, now: datetime) -> None:
    row = _row(session, rule_id)
    row.enabled, row.deleted_at, row.updated_at = False, now, now
    session.flush()


def get_rule(session: Session, rule_id: int, *, deleted_too: bool = False) -> PricingRule:
    return as_rule(_row(session, rule_id, deleted_too=deleted_too))


def hold_rule(session: Session, rule_id: int, *, deleted_too: bool = False) -> PricingRule:
    """As it stands, and nobody else changes it or starts a run of it until the transaction ends. Keys
    that refer to it are checked all the same: a worker that writes down what it did never waits for it."""
    return as_rule(_row(session, rule_id, deleted_too=deleted_too, held=True))


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
    query = select(RuleRow).where(*_chosen(project_id, enabled, q)).order_by(RuleRow.id.desc())
    return [as_rule(row) for row in session.scalars(query.limit(limit).offset(offset))]


def count_rules(
    session: Session, *, project_id: str | None = None, enabled: bool | None = None, q: str | None = None
) -> int:
    return session.scalar(select(func.count(RuleRow.id)).where(*_chosen(project_id, enabled, q))) or 0


def versions_of(session: Session, rule_id: int, limit: int, offset: int) -> list[RuleVersion]:
    """Newest first, those of a deleted rule too; NotFoundError for a rule that never was."""
    _row(session, rule_id, deleted_too=True)
    query = select(RuleVersionRow).where(RuleVersionRow.rule_id == rule_id).order_by(RuleVersionRow.version.desc())
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
    return session.scalar(select(func.count(RuleVersionRow.id)).where(RuleVersionRow.rule_id == rule_id)) or 0


def rule_at(session: Session, rule_id: int, version: int) -> RuleInput:
    """The rule as it was when that version began."""
    document = session.scalar(
        select(RuleVersionRow.document).where(RuleVersionRow.rule_id == rule_id, RuleVersionRow.version == version)
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


def _row(session: Session, rule_id: int, *, deleted_too: bool = False, held: bool = False) -> RuleRow:
    query = select(RuleRow).where(RuleRow.id == rule_id).execution_options(populate_existing=True)
    row = session.scalar(query.with_for_update(key_share=True) if held else query)
    if row is None or (row.deleted_at is not None and not deleted_too):
        raise NotFoundError(f"Pricing rule {rule_id} does not exist.")
    return row


def _with_its_version_kept(session: Session, row: RuleRow, actor: str, now: datetime) -> PricingRule:
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


def _columns(rule: RuleInput) -> dict[str, object]:
    written = input_document(rule)
    plain = rule.model_dump(exclude={"selector", "transform"}, include=set(RuleInput.model_fields))
    json = {"selector_json": written["selector"], "transform_json": written["transform"]}
    return {**plain, **json, "version_hash": version_hash(rule)}


def _chosen(project_id: str | None, enabled: bool | None, q: str | None) -> list[ColumnElement[bool]]:
    conditions = [RuleRow.tenant_id == TENANT, RuleRow.deleted_at.is_(None)]
    if project_id is not None:
        conditions.append(RuleRow.project_id == project_id)
    if enabled is not None:
        conditions.append(RuleRow.enabled.is_(enabled))
    if q:
        conditions.append(_is_named(q))
    return conditions


def _is_named(text: str) -> ColumnElement[bool]:
    """Databases fold the case of unaccented letters only: accented ones are tried as people write them."""
    ways = sorted({text, text.lower(), text.upper(), text.title()})
    return or_(*(RuleRow.name.icontains(way, autoescape=True) for way in ways))
