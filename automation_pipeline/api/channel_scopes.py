"""Who may join which realtime channel: as who may read what it tells of."""

import re
from collections.abc import Callable, Mapping

from automation_pipeline.api.errors import AuthorizationError
from automation_pipeline.audits.store.batches import fiches_of_batch
from automation_pipeline.audits.store.standings import fiche_of_audit
from automation_pipeline.automation.store.visibility import is_run_visible
from automation_pipeline.core.access import Action, Caller, Permission, Reach
from automation_pipeline.core.channels import Channel, ChannelKind
from automation_pipeline.core.json_model import LARGEST_ID
from automation_pipeline.fiches.store.jobs import is_job_visible
from automation_pipeline.fiches.store.visibility import visible_fiches
from automation_pipeline.storage.database import Database, Session

NOT_ALLOWED = "Channel not allowed"
# Tracking ids name the fiche, in all of their forms: the audit's own, a run's and a batch's.
_TRACKED = re.compile(r"(?:^|-)audit-([0-9]+)-[0-9]+")
_RUN = re.compile(r"automation-run-([0-9]{1,19})")


def check_channel(channel: Channel, caller: Caller, database: Database) -> None:
    """AuthorizationError, the same one for what is hidden, missing and forbidden."""
    with database.reading() as session:
        if not _LOOKS[channel.kind](session, caller, channel.id):
            raise AuthorizationError(NOT_ALLOWED)


def _audit(session: Session, caller: Caller, named: str) -> bool:
    reach = _reading(caller, Permission.AUDITS)
    if reach is None:
        return False
    tracked = _TRACKED.search(named)
    fiche_id = tracked[1] if tracked else fiche_of_audit(session, int(named)) if _is_id(named) else None
    return fiche_id is not None and bool(visible_fiches(session, reach, [fiche_id]))


def _fiche(session: Session, caller: Caller, named: str) -> bool:
    reach = _reading(caller, Permission.FICHES)
    return reach is not None and bool(visible_fiches(session, reach, [named]))


def _job(session: Session, caller: Caller, named: str) -> bool:
    """A run, a job over days, or a batch of audits."""
    run = _RUN.fullmatch(named)
    if run:
        reach = _reading(caller, Permission.AUTOMATION)
        return reach is not None and _is_id(run[1]) and is_run_visible(session, reach, int(run[1]))
    return _fetch_job(session, caller, named) or _batch(session, caller, named)


def _fetch_job(session: Session, caller: Caller, named: str) -> bool:
    reach = _reading(caller, Permission.FICHES)
    return reach is not None and is_job_visible(session, reach, named)


def _batch(session: Session, caller: Caller, named: str) -> bool:
    reach = _reading(caller, Permission.AUDITS)
    if reach is None:
        return False
    fiches = fiches_of_batch(session, named)
    return bool(fiches) and set(fiches) == visible_fiches(session, reach, fiches)


def _everybody(_session: Session, caller: Caller, _named: str) -> bool:
    return _reading(caller, Permission.REALTIME) is not None


def _organisation(_session: Session, caller: Caller, _named: str) -> bool:
    return _reading(caller, Permission.AUTOMATION) is not None


def _reading(caller: Caller, permission: Permission) -> Reach | None:
    return caller.reach(permission, Action.READ)


def _is_id(text: str) -> bool:
    return text.isdigit() and int(text) <= LARGEST_ID


_LOOKS: Mapping[ChannelKind, Callable[[Session, Caller, str], bool]] = {
    ChannelKind.AUDIT: _audit,
    ChannelKind.FICHE: _fiche,
    ChannelKind.JOB: _job,
    ChannelKind.GLOBAL: _everybody,
    ChannelKind.PRESENCE_GLOBAL: _everybody,
    ChannelKind.PRESENCE_ORG: _organisation,
}
