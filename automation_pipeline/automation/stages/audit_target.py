"""Audit one fiche by every configuration of its run. A failed audit is tried again under a key of its own; one that did
not end or is incomplete is taken up again, with the steps that it has."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from automation_pipeline.audits.domain.audit import AuditStatus, Standing, Wish
from automation_pipeline.automation.domain.outcomes import LedgerMove
from automation_pipeline.automation.domain.run import RunTicket
from automation_pipeline.automation.domain.work import AuditEnd, after_audits, audit_key, retry_suffix
from automation_pipeline.automation.ports import Workshop
from automation_pipeline.automation.store.details import is_audit_stored
from automation_pipeline.automation.store.runs import Tries
from automation_pipeline.core.errors import AutomationError, GroundError
from automation_pipeline.core.tasks import together

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
    """Audits are waited for `until`, by the loop's clock; what has ended by then counts. They run one at a time, but an
    audit that stalls does not hold up the next. GroundError is no end of an audit."""
    causes: dict[int, str] = {}
    audits: dict[int, asyncio.Task[AuditEnd]] = {}
    try:
        async with asyncio.timeout_at(until), together() as group:
            for config_id in config_ids:
                audits[config_id] = group.create_task(
                    _audit(_first_wish(ticket, fiche_id, config_id, tries), tries, shop, causes)
                )
                await asyncio.wait({audits[config_id]}, timeout=shop.knobs.stall_seconds)
    except TimeoutError:
        pass
    ended = {each: task.result() for each, task in audits.items() if task.done() and not task.cancelled()}
    ends = [
        ended.get(config_id) or AuditEnd(config_id, None, causes.get(config_id), timed_out=True)
        for config_id in config_ids
    ]
    return after_audits(fiche_id, ends)


def _first_wish(ticket: RunTicket, fiche_id: str, config_id: int, tries: Tries) -> Wish:
    return Wish(
        tracking_id=audit_key(ticket.run_id, fiche_id, config_id, 0),
        fiche_id=fiche_id,
        audit_config_id=config_id,
        use_rlm=tries.selection.use_rlm,
        trigger_source="automation",
        schedule_id=tries.schedule.id,
        run_id=ticket.run_id,
    )


async def _audit(first: Wish, tries: Tries, shop: Workshop, causes: dict[int, str]) -> AuditEnd:
    config_id = first.audit_config_id
    end, failures, last = AuditEnd(config_id, None), 0, max(tries.retries, SURE_RETRIES)
    for attempt in range(1 + last):
        wish = replace(first, tracking_id=f"{first.tracking_id}{retry_suffix(failures)}")
        try:
            standing = await _ask(wish, shop)
        except AutomationError as error:
            if isinstance(error, GroundError) and attempt == last:
                raise
            end, causes[config_id] = AuditEnd(config_id, None, str(error)), str(error)
            continue
        if standing.status is AuditStatus.COMPLETED:
            return AuditEnd(config_id, completed=True)
        has_failed = standing.status is AuditStatus.FAILED
        end = AuditEnd(config_id, completed=False if has_failed else None, error=standing.error)
        if standing.error:
            causes[config_id] = standing.error
        if has_failed and attempt >= tries.retries:
            break
        failures += has_failed
    return end


async def _ask(wish: Wish, shop: Workshop) -> Standing:
    """While the audit stalls and nothing of it is stored, it is asked for again under the same key."""
    while True:
        call = asyncio.ensure_future(shop.audit(wish))
        try:
            while not (await asyncio.wait({call}, timeout=shop.knobs.stall_seconds))[0]:
                if not await asyncio.to_thread(_is_stored, wish.tracking_id, shop):
                    break
            else:
                return call.result()
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)


def _is_stored(tracking_id: str, shop: Workshop) -> bool:
    with shop.database.reading() as session:
        return is_audit_stored(session, tracking_id)
