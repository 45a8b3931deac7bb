"""Audit one fiche by every configuration of its run. A failed audit is tried again under a key of its own; one that did
not end is taken up again, with the steps that it has."""

import asyncio
from collections.abc import Sequence

from automation_pipeline.audits.domain.audit import AuditStatus, Wish
from automation_pipeline.automation.domain.outcomes import LedgerMove
from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.domain.work import AuditEnd, after_audits, audit_key
from automation_pipeline.automation.ports import Workshop
from automation_pipeline.automation.store.runs import Tries
from automation_pipeline.core.errors import AutomationError, GroundError

# An audit that did not end is asked for once more, also where failures are not retried.
SURE_RETRIES = 1


async def audit_target(
    ticket: RunTicket,
    fiche_id: str,
    config_ids: Sequence[int],
    *,
    tries: Tries,
    shop: Workshop,
    until: float | None = None,
) -> LedgerMove:
    """`until`, by the loop's clock, the audits are waited for; what has ended by then counts. GroundError is
    no end of an audit."""
    ends: list[AuditEnd] = []
    try:
        async with asyncio.timeout_at(until):
            for config_id in config_ids:
                ends.append(await _audit(ticket, fiche_id, config_id, tries, shop))  # noqa: PERF401  what is there counts
    except TimeoutError:
        ends += [AuditEnd(config_id, None) for config_id in config_ids[len(ends) :]]
    return after_audits(fiche_id, ends)


async def _audit(ticket: RunTicket, fiche_id: str, config_id: int, tries: Tries, shop: Workshop) -> AuditEnd:
    end, failures, last = AuditEnd(config_id, None), 0, max(tries.retries, SURE_RETRIES)
    for attempt in range(1 + last):
        wish = Wish(
            tracking_id=audit_key(ticket.run_id, fiche_id, config_id, failures),
            fiche_id=fiche_id,
            audit_config_id=config_id,
            use_rlm=tries.selection.use_rlm,
            trigger_source="automation",
            schedule_id=tries.schedule.id,
            run_id=ticket.run_id,
        )
        try:
            standing = await shop.audit(wish)
        except AutomationError as error:
            if isinstance(error, GroundError) and attempt == last:
                raise
            end = AuditEnd(config_id, None, str(error))
            continue
        if standing.status is AuditStatus.COMPLETED:
            return AuditEnd(config_id, completed=True)
        has_failed = standing.status is AuditStatus.FAILED
        end = AuditEnd(config_id, completed=False if has_failed else None, error=standing.error)
        if has_failed and attempt >= tries.retries:
            break
        failures += has_failed
    return end
