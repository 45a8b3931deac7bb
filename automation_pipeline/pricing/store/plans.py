"""Plans as they are kept: all of a run's targets and skipped variants, at once."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice

from sqlalchemy import insert, select
from sqlalchemy.orm import Session, aliased

from automation_pipeline.pricing.domain.plan import explained
from automation_pipeline.pricing.domain.rule import RuleInput
from automation_pipeline.pricing.domain.states import ACTIVE_RUN_STATES, OPEN_TARGET_STATES, RunState
from automation_pipeline.pricing.store.drafts import Draft
from automation_pipeline.pricing.tables import RuleRunRow, RuleTargetRow, SkippedVariantRow
from automation_pipeline.storage.metadata import Table

_AT_ONCE = 1000


def is_to_plan(run: RuleRunRow) -> bool:
    """Not once it is planned, and not after somebody has cancelled it."""
    return run.status == RunState.PREVIEW and run.previewed_at is None and run.cancel_requested_at is None


def keep_plan(session: Session, run: RuleRunRow, rule: RuleInput, draft: Draft, now: datetime) -> None:
    """Of a run that is locked and is to be planned."""
    of_run = {"rule_run_id": run.id}
    whose = {"tenant_id": run.tenant_id, "project_id": run.project_id, "shop": run.shop}
    _insert(session, RuleTargetRow, ({**of_run, **whose, **columns} for columns in draft.targets()))
    _insert(session, SkippedVariantRow, ({**of_run, **columns} for columns in draft.skipped()))
    tally = draft.tally
    run.matched, run.total_targets = tally.matched, tally.targets
    run.skipped, run.blocked = tally.skipped, tally.blocked
    run.explain_json = {**(run.explain_json or {}), **explained(rule, tally, _conflicts(session, run))}
    run.previewed_at = run.updated_at = now
    session.flush()


def _conflicts(session: Session, run: RuleRunRow) -> list[int]:
    """Other runs that wait to change, or are changing, some of its variants."""
    other, mine = aliased(RuleTargetRow), aliased(RuleTargetRow)
    is_shared = (
        select(other.id)
        .join(mine, mine.variant_id == other.variant_id)
        .where(mine.rule_run_id == run.id, other.rule_run_id == RuleRunRow.id)
        .where(other.status.in_(sorted(OPEN_TARGET_STATES)))
        .exists()
    )
    query = select(RuleRunRow.id).where(
        RuleRunRow.shop == run.shop,
        RuleRunRow.status.in_(sorted(ACTIVE_RUN_STATES)),
        RuleRunRow.id != run.id,
        is_shared,
    )
    return list(session.scalars(query.order_by(RuleRunRow.id)))


def _insert(session: Session, table: type[Table], rows: Iterator[Mapping[str, object]]) -> None:
    for some in iter(lambda: [dict(row) for row in islice(rows, _AT_ONCE)], []):
        session.connection().execute(insert(table), some)
