"""Audit a fiche to the end: begin or take up, have its calls transcribed, judge what is not judged, score."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from automation_pipeline.audits.domain import failures
from automation_pipeline.audits.domain.audit import Standing, Wish
from automation_pipeline.audits.domain.notes import audit_note
from automation_pipeline.audits.ports import Judge, audit_key
from automation_pipeline.audits.stages.begin_analysis import begin_analysis
from automation_pipeline.audits.stages.fail_audit import fail_audit
from automation_pipeline.audits.stages.judge_steps import judge_steps
from automation_pipeline.audits.stages.open_audit import open_audit
from automation_pipeline.audits.stages.settle_audit import settle_audit
from automation_pipeline.audits.store.audits import FoundAudit, get_audit, take_up
from automation_pipeline.audits.store.calls import Heard, heard_of
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import PermanentError, TransientError, sentence_of
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.storage.database import Database, Session
from automation_pipeline.storage.workflow_logs import write_notes

Listen: TypeAlias = Callable[[str], Awaitable[object]]


async def audit_fiche(
    wish: Wish, *, database: Database, source: FicheSource, listen: Listen, judge: Judge, clock: Clock
) -> Standing:
    """How the audit ended. `listen` has a fiche's recordings transcribed; what it fails at is judged without.

    Repeated after a kill, it goes on with the steps that have no result. Two workers on one audit wait for each other.
    """
    found = await open_audit(wish, database=database, source=source, clock=clock)
    if found.standing.is_over:
        return found.standing
    audit_id = found.standing.audit_id
    async with judge.claims.hold(audit_key(audit_id), judge.semaphore.owner, judge.knobs.lease_seconds) as claim:
        held, heard = await database.write(partial(_take_up, audit_id, claim.token))
        if held.standing.is_over:
            return held.standing
        heard, unheard = await _listen(held, heard, listen, database)
        return await _judge(held, heard, claim.token, unheard, database, judge)


def _take_up(audit_id: int, token: int, session: Session) -> tuple[FoundAudit, Heard]:
    """With what has been heard of its calls by now."""
    taken, found = take_up(session, audit_id, token), get_audit(session, audit_id)
    if not taken and not found.standing.is_over:
        raise TransientError(f"Audit {audit_id} is worked on by somebody else.")
    return found, heard_of(session, found.standing.fiche_id)


async def _listen(found: FoundAudit, heard: Heard, listen: Listen, database: Database) -> tuple[Heard, str | None]:
    """What there is to judge, and why it is not all, if something failed."""
    fiche_id, unheard = found.standing.fiche_id, None
    if not heard.lacks_transcripts:
        return heard, None
    try:
        await listen(fiche_id)
    except PermanentError as error:
        with database.transaction() as session:
            words = f"Not every recording could be transcribed, so what there is will be judged: {error}"
            write_notes(session, audit_note(found.standing, words, level="warning"))
        unheard = sentence_of(error)
    with database.reading() as session:
        return heard_of(session, fiche_id), unheard


async def _judge(
    found: FoundAudit, heard: Heard, token: int, unheard: str | None, database: Database, judge: Judge
) -> Standing:
    audit, timeline = found.standing, heard.timeline
    if not timeline.recordings:
        with database.transaction() as session:
            reason = failures.nothing_to_judge(audit.fiche_id, heard.recordings, heard.transcribed, unheard)
            fail_audit(session, audit.tracking_id, reason, "missing_transcription")
            return get_audit(session, audit.audit_id).standing
    mode = await begin_analysis(found, heard, database=database, judge=judge)
    await judge_steps(replace(found, transcript_mode=mode), heard, token, database=database, judge=judge)
    return await database.write(partial(settle_audit, audit.audit_id, token))
