"""Runs that put back what a reconciliation has found changed: planned at once, one target a difference."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from automation_pipeline.pricing.domain.money import Price, price_document
from automation_pipeline.pricing.domain.reconciliation import Mismatch
from automation_pipeline.pricing.domain.rule_run import RuleTrigger
from automation_pipeline.pricing.domain.states import FIRST_TARGET_STATE
from automation_pipeline.pricing.store.holds import locked_run
from automation_pipeline.pricing.store.new_runs import add_run
from automation_pipeline.pricing.store.standing import standing_targets, variants_in_flux
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow
from automation_pipeline.storage.bulk import among


@dataclass(frozen=True)
class _RuleThen:
    """The rule as it was for the run that is repaired: its word on drift counts."""

    id: int
    project_id: str
    version: int
    version_hash: str


def still_to_repair(
    session: Session, run: RuleRunRow, mismatches: Mapping[int, Mismatch]
) -> list[tuple[RuleTargetRow, Mismatch]]:
    """Those whose price is still expected to stand, and that nobody is changing now."""
    standing = {target.id: target.variant_id for target in standing_targets(session, [run.id])}
    in_flux = variants_in_flux(session, run.shop, [standing[id_] for id_ in mismatches if id_ in standing])
    wanted = [id_ for id_ in mismatches if id_ in standing and standing[id_] not in in_flux]
    rows = session.scalars(
        select(RuleTargetRow).where(among(session, RuleTargetRow.id, wanted)).order_by(RuleTargetRow.id)
    )
    return [(row, mismatches[row.id]) for row in rows]


def add_repair(
    session: Session,
    run: RuleRunRow,
    check: str,
    wrong: list[tuple[RuleTargetRow, Mismatch]],
    actor: str,
    now: datetime,
) -> int:
    """The new run. The rule's rest after its last run is not waited for."""
    then = _RuleThen(run.rule_id, run.project_id, run.rule_version, run.rule_version_hash)
    repair_id = add_run(
        session, then, shop=run.shop, trigger=RuleTrigger.REPAIR, actor=actor, now=now, parent_run_id=run.id, force=True
    )
    rows = [{"rule_run_id": repair_id, **_columns(target, found)} for target, found in wrong]
    session.connection().execute(insert(RuleTargetRow), rows)
    repair = locked_run(session, repair_id)
    repair.matched = repair.total_targets = len(rows)
    repair.explain_json = {
        "matchedProducts": len({target.product_id for target, _ in wrong}),
        "appliedTargets": len(rows),
        "skippedTargets": 0,
        "repairs": {"runId": str(run.id), "check": check},
    }
    repair.previewed_at = repair.updated_at = now
    session.flush()
    return repair_id


def _columns(target: RuleTargetRow, found: Mismatch) -> dict[str, object]:
    """Compare-at prices were not looked at, and are left alone."""
    return {
        "tenant_id": target.tenant_id,
        "project_id": target.project_id,
        "shop": target.shop,
        "product_id": target.product_id,
        "variant_id": target.variant_id,
        "sku_id": target.sku_id,
        "title": target.title,
        "currency": found.currency,
        "before_json": price_document(Price(found.actual_price, found.currency)),
        "after_json": price_document(Price(found.expected_price, found.currency)),
        "writes_compare_at": False,
        "warnings": [],
        "status": FIRST_TARGET_STATE.value,
    }
