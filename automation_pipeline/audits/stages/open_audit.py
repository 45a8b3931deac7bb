"""Begin an audit: the fiche as the CRM knows it now, the configuration as it is now, one row."""

from datetime import datetime, timedelta
from functools import partial

from automation_pipeline.audits.domain import events, failures
from automation_pipeline.audits.domain.audit import Wish
from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.stages.fail_audit import fail_audit
from automation_pipeline.audits.store.audits import FoundAudit, begin_audit, find_audit, get_audit
from automation_pipeline.audits.store.configs import check_config, get_config
from automation_pipeline.core.clock import Clock
from automation_pipeline.fiches.domain.fiche import FicheNotFound
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.stages.fetch_fiche import fetch_fiche
from automation_pipeline.fiches.store.freshness import known_since
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.instants import database_time
from automation_pipeline.storage.outbox import enqueue
from automation_pipeline.storage.workflow_logs import write_notes

# What the CRM has told within this time is not asked for again.
FRESH = timedelta(minutes=30)


async def open_audit(wish: Wish, *, database: Database, source: FicheSource, clock: Clock) -> FoundAudit:
    """The wish's audit, already ended if it was carried out before or if the CRM does not know the fiche.

    NotFoundError: no such configuration.
    """
    since = clock.now() - FRESH
    begun = await database.write(partial(_begin_if_fresh, wish, since, clock.now()))
    if begun is not None:
        return begun
    outcome = await fetch_fiche(wish.fiche_id, since=since, database=database, source=source, clock=clock)
    return await database.write(partial(_begin, wish, known=not isinstance(outcome, FicheNotFound)))


def _begin_if_fresh(wish: Wish, since: datetime, now: datetime, session: Session) -> FoundAudit | None:
    """None when the CRM has to be asked first."""
    begun = find_audit(session, wish.tracking_id)
    if begun is not None:
        return begun
    told = known_since(session, [wish.fiche_id], since, now)
    if told:
        return _begin(wish, session, known=not isinstance(told[0], FicheNotFound))
    check_config(session, wish.audit_config_id)  # before the CRM is asked for nothing
    return None


def _begin(wish: Wish, session: Session, *, known: bool) -> FoundAudit:
    config, now = get_config(session, wish.audit_config_id).config, database_time(session)
    found = begin_audit(session, wish, config, now)
    enqueue(session, events.started(found.standing, config, now))
    words = (
        f"START: {config.name}, {len(config.steps)} steps, asked for by {wish.trigger_source or 'nobody in particular'}"
    )
    write_notes(session, audit_note(found.standing, words))
    if known:
        return found
    fail_audit(session, wish.tracking_id, failures.not_found(wish.fiche_id), "fiche_not_found")
    return get_audit(session, found.standing.audit_id)
