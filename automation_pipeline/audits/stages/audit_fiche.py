"""Audit a fiche to the end: begin or take up, have its calls transcribed, judge what is not judged, score."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from automation_pipeline.audits.domain import failures
from automation_pipeline.audits.domain.audit import Standing, Wish
from automation_pipeline.audits.ports import Judge, audit_key
from automation_pipeline.audits.stages.begin_analysis import begin_analysis
from automation_pipeline.audits.stages.fail_audit import fail_audit
from automation_pipeline.audits.stages.judge_steps import judge_steps
from automation_pipeline.audits.stages.open_audit import open_audit
from automation_pipeline.audits.stages.settle_audit import end_without_transcripts, settle_audit
from automation_pipeline.audits.store.audits import FoundAudit, get_audit, take_up
from automation_pipeline.audits.store.calls import Heard, heard_of, why_missing
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError, GroundError, TransientError, sentence_of
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.storage.database import Database, Session

Listen: TypeAlias = Callable[[str], Awaitable[object]]


async def audit_fiche(
    wish: Wish, *, database: Database, source: FicheSource, listen: Listen, judge: Judge, clock: Clock
) -> Standing:
    """How the audit ended. `listen` has a fiche's recordings transcribed.

    Repeated after a kill, or when the audit is incomplete, it goes on with what is missing. Two workers on one audit
    wait for each other.
    """
    found = await open_audit(wish, database=database, source=source, clock=clock)
    if found.standing.is_final:
        return found.standing
    audit_id = found.standing.audit_id
    async with judge.claims.hold(audit_key(audit_id), judge.semaphore.owner, judge.knobs.lease_seconds) as claim:
        held, heard = await database.write(partial(_take_up, audit_id, claim.token))
        if held.standing.is_final:
            return held.standing
        heard, unheard = await _listen(held, heard, listen, database)
        return await _judge(held, heard, claim.token, unheard, database, judge)


def _take_up(audit_id: int, token: int, session: Session) -> tuple[FoundAudit, Heard]:
    """With what has been heard of its calls by now."""
    taken, found = take_up(session, audit_id, token), get_audit(session, audit_id)
    if not taken and not found.standing.is_final:
        raise TransientError(f"Audit {audit_id} is worked on by somebody else.")
    return found, heard_of(session, found.standing.fiche_id)


async def _listen(found: FoundAudit, heard: Heard, listen: Listen, database: Database) -> tuple[Heard, str | None]:
    """What there is to judge, and why it is not all, if something failed. GroundError says nothing of the calls."""
    fiche_id, unheard = found.standing.fiche_id, None
    if heard.coverage.is_whole:
        return heard, None
    try:
        await listen(fiche_id)
    except GroundError:
        raise
    except AutomationError as error:
        unheard = sentence_of(error)
    with database.reading() as session:
        heard = heard_of(session, fiche_id)
        return heard, unheard if unheard or heard.coverage.is_whole else why_missing(session, fiche_id)


async def _judge(
    found: FoundAudit, heard: Heard, token: int, unheard: str | None, database: Database, judge: Judge
) -> Standing:
    """Without a transcript of every recording nothing is judged: a verdict on some of the calls would not hold."""
    audit, coverage = found.standing, heard.coverage
    if not coverage.is_whole:
        reason = failures.transcripts_missing(audit.fiche_id, coverage, unheard)
        return await database.write(partial(end_without_transcripts, audit.audit_id, token, coverage, reason))
    if not heard.timeline.recordings:
        with database.transaction() as session:
            reason = failures.nothing_to_judge(audit.fiche_id, coverage.recordings, len(coverage.heard))
            fail_audit(session, audit.tracking_id, reason, "missing_transcription")
            return get_audit(session, audit.audit_id).standing
    found = await begin_analysis(found, heard, database=database, judge=judge)
    await judge_steps(found, heard, token, database=database, judge=judge)
    return await database.write(partial(settle_audit, audit.audit_id, token, coverage))
