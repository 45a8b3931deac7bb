"""What a run of a schedule would select and drop now, and why. Nothing is written, and Dagster is not involved."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime

from automation_pipeline.automation.domain.dates import days_of
from automation_pipeline.automation.domain.filters import Candidate, Choice, authoritative, named_ids
from automation_pipeline.automation.domain.outcomes import NOT_FOUND_REASON
from automation_pipeline.automation.domain.resolution import Resolution, Wish
from automation_pipeline.automation.domain.run import Reason
from automation_pipeline.automation.domain.schedule import Schedule
from automation_pipeline.automation.domain.selection import SelectionMode
from automation_pipeline.automation.store.candidates import fiches_named, fiches_of_days
from automation_pipeline.automation.store.details import groupes_of
from automation_pipeline.automation.store.runs import audit_configs_of
from automation_pipeline.automation.store.schedules import get_schedule
from automation_pipeline.core.clock import Clock
from automation_pipeline.core.errors import AutomationError
from automation_pipeline.core.json_model import Id, JsonModel
from automation_pipeline.core.semaphore import Semaphore
from automation_pipeline.core.wall_clock import zone
from automation_pipeline.fiches.domain.days import DayFailed
from automation_pipeline.fiches.domain.fiche import DetailsKnown
from automation_pipeline.fiches.ports import FicheSource
from automation_pipeline.fiches.store.freshness import known_since
from automation_pipeline.storage.database import Database, Session

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class UnreadDay(JsonModel):
    date: str
    error: str


class LeftOut(JsonModel):
    """A fiche that would not be worked on: the stable key of the reason, and its text."""

    fiche_id: str
    reason: str
    why: str


class SelectionPreview(JsonModel):
    """`dropped` fiches would not become part of the run. `ignored` ones would, and would be ignored by what is known of
    their details. Of a fiche without known details, only the run can tell."""

    schedule_id: Id
    mode: SelectionMode
    days: tuple[str, ...]
    unread_days: tuple[UnreadDay, ...]
    candidates: int
    selected: int
    counts: Mapping[str, int]
    fiches: tuple[str, ...]
    dropped: tuple[LeftOut, ...]
    ignored: tuple[LeftOut, ...]
    audit_configs: tuple[Id, ...]
    empty_reason: str | None

    def without_fiches(self) -> "SelectionPreview":
        return self.model_copy(update={"fiches": (), "dropped": (), "ignored": ()})


async def preview_schedule(
    schedule_id: int,
    *,
    database: Database,
    source: FicheSource,
    clock: Clock,
    semaphore: Semaphore,
    most_recordings: int = 0,
) -> SelectionPreview:
    """The sales lists are read from the CRM; what it does not give comes from the mirror, as in a run."""
    now = clock.now()
    with database.reading() as session:
        schedule = get_schedule(session, schedule_id)
        configs = audit_configs_of(session, schedule)
    wish = _wish(schedule, now)
    sold, failures = await _sales(wish.days, source, semaphore)
    with database.reading() as session:
        found = Resolution(wish, _candidates(session, wish, sold), failures)
        ignored = _ignored(session, found, now, most_recordings)
    choice = found.choice
    return SelectionPreview(
        schedule_id=schedule.id,
        mode=wish.selection.mode,
        days=tuple(day.isoformat() for day in wish.days),
        unread_days=tuple(UnreadDay(**failure) for failure in found.failed_days()),
        candidates=len(found.candidates),
        selected=len(found.kept),
        counts={str(reason): count for reason, count in choice.dropped.items()},
        fiches=found.kept,
        dropped=_dropped(choice),
        ignored=ignored,
        audit_configs=configs,
        empty_reason=found.empty_reason,
    )


def _wish(schedule: Schedule, now: datetime) -> Wish:
    selection = schedule.fiche_selection
    if selection.mode is SelectionMode.MANUAL:
        return Wish(selection)
    return Wish(selection, days_of(selection, now, zone(schedule.timezone)))


async def _sales(days: Sequence[date], source: FicheSource, semaphore: Semaphore) -> tuple[list[str], list[DayFailed]]:
    """Ids that the CRM lists for the days, in order, and the days that it does not give."""

    async def ask(day: date) -> list[str] | DayFailed:
        try:
            async with semaphore.acquire():
                sales = await source.sales_list(day)
        except AutomationError as error:
            return DayFailed(day, str(error))
        return [fiche.fiche_id for fiche in sales.fiches]

    answers = await asyncio.gather(*map(ask, days))
    listed = [fiche_id for answer in answers if isinstance(answer, list) for fiche_id in answer]
    return listed, [answer for answer in answers if isinstance(answer, DayFailed)]


def _candidates(session: Session, wish: Wish, sold: Sequence[str]) -> list[Candidate]:
    if wish.is_manual:
        return fiches_named(session, named_ids(wish.selection))
    mirrored = fiches_of_days(session, wish.days)
    known = {candidate.fiche_id for candidate in mirrored}
    return [*mirrored, *fiches_named(session, [each for each in dict.fromkeys(sold) if each not in known])]


def _dropped(choice: Choice) -> tuple[LeftOut, ...]:
    return tuple(
        LeftOut(fiche_id=fiche_id, reason=reason, why=reason.words) for fiche_id, reason in choice.reasons.items()
    )


def _ignored(session: Session, found: Resolution, now: datetime, most_recordings: int) -> tuple[LeftOut, ...]:
    details = known_since(session, found.kept, BEGINNING, now)
    groupes = groupes_of(session, [one.fiche_id for one in details])
    ignored: list[LeftOut] = []
    for one in details:
        reason: tuple[Reason, str] | None = (Reason.NOT_FOUND, NOT_FOUND_REASON)
        if isinstance(one, DetailsKnown):
            reason = authoritative(groupes.get(one.fiche_id), one.recordings, found.wish.selection, most_recordings)
        if reason is not None:
            ignored.append(LeftOut(fiche_id=one.fiche_id, reason=reason[0], why=reason[1]))
    return tuple(sorted(ignored, key=lambda one: one.fiche_id))
